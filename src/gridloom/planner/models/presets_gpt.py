"""Presets with layer normalisation and an ungated feed-forward: GPT, Pythia, BLOOM, MPT, PaLM."""

from msgspec.structs import replace

from gridloom.model.transformer import Transformer
from gridloom.planner.models.preset_row import CHECKPOINT, Published

_GPT = Transformer(
    name="",
    layers=0,
    hidden=0,
    ffn=0,
    heads=0,
    kv_heads=0,
    vocabulary=50257,
    gated=False,
    tied=True,
    norm="layer",
    norm_bias=True,
    qkv_bias=True,
    output_bias=True,
    ffn_bias=True,
)

_GPT3 = "Brown et al., Language Models are Few-Shot Learners, 2020, table D.1"
_MEGATRON = "Narayanan et al., Efficient Large-Scale Language Model Training, SC 2021, table 1"
_KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation, 2022, table 3"
_MT_NLG = "Smith et al., Megatron-Turing NLG 530B, 2022, section 3.2"
_PYTHIA = "EleutherAI: pythia README, table of models; Black et al., GPT-NeoX-20B, 2022, section 2"
_FOUNDRY = "mosaicml/llm-foundry, scripts/train/benchmarking/README.md, NumParams at 2048 tokens"
_MPT = "MosaicML, names of mpt-7b and mpt-30b"
_PALM = "Chowdhery et al., PaLM, 2022, table 1"


def _gpt2(name: str, count: int, layers: int, hidden: int, heads: int, *more: str) -> Published:
    model = _sized(_GPT, name, layers, hidden, heads)
    return Published(
        model=replace(model, positions=1024), count=count, source=CHECKPOINT, aliases=more
    )


def _gpt3(name: str, millions: int, unit: int, sizes: tuple[int, int, int]) -> Published:
    """Return a row from ``sizes``: layers, hidden, heads."""
    layers, hidden, heads = sizes
    aliases = ("GPT3-" + name, *(["GPT-175B"] if name == "175B" else []))
    model = replace(_sized(_GPT, "GPT-3-" + name, layers, hidden, heads), positions=2048)
    return Published(
        model=model,
        count=millions * 10**6,
        unit=unit * 10**6,
        source=_GPT3,
        aliases=aliases,
    )


def _megatron(
    name: str, tenths: int, layers: int, hidden: int, heads: int, *more: str
) -> Published:
    model = _sized(_GPT, name, layers, hidden, heads)
    model = replace(model, vocabulary=51200, positions=2048)
    return Published(model=model, count=tenths * 10**8, unit=10**8, source=_MEGATRON, aliases=more)


def _neox(
    name: str, count: int, layers: int, hidden: int, heads: int, vocabulary: int = 50304
) -> Published:
    model = _sized(_GPT, name, layers, hidden, heads)
    model = replace(model, vocabulary=vocabulary, tied=False)
    return Published(model=model, count=count, source=_PYTHIA)


def _bloom(name: str, count: int, layers: int, hidden: int, heads: int, *more: str) -> Published:
    model = _sized(_GPT, name, layers, hidden, heads)
    model = replace(model, vocabulary=250880, embedding_norm=True)
    return Published(model=model, count=count, source=CHECKPOINT, aliases=more)


def _mpt(name: str, count: int, layers: int, hidden: int, heads: int) -> Published:
    # As benchmarked: with biases and learned positions, which the released models do without.
    model = replace(_sized(_GPT, name, layers, hidden, heads), vocabulary=50368, positions=2048)
    return Published(model=model, count=count, source=_FOUNDRY)


def _mpt_released(name: str, billions: int, layers: int, hidden: int, heads: int) -> Published:
    model = replace(_sized(_UNBIASED, name, layers, hidden, heads), vocabulary=50432)
    return Published(model=model, count=billions * 10**9, unit=10**9, source=_MPT)


def _palm(name: str, hundredths: int, layers: int, hidden: int, heads: int) -> Published:
    # Attention and feed-forward read one norm (parallel layers), without biases anywhere; keys and
    # values have one head of 256 (section 2 of the paper).
    model = _sized(_UNBIASED, name, layers, hidden, heads)
    model = replace(
        model, kv_heads=1, head_size=256, vocabulary=256000, gated=True, norms_per_layer=1
    )
    return Published(model=model, count=hundredths * 10**7, unit=10**7, source=_PALM)


def _sized(base: Transformer, name: str, layers: int, hidden: int, heads: int) -> Transformer:
    return replace(
        base,
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=heads,
    )


_UNBIASED = replace(_GPT, norm_bias=False, qkv_bias=False, output_bias=False, ffn_bias=False)


GPT_PRESETS = (
    _gpt2("GPT-2", 124_439_808, 12, 768, 12, "GPT-2-small", "GPT-2-124M", "GPT-2-117M"),
    _gpt2("GPT-2-medium", 354_823_168, 24, 1024, 16, "GPT-2-355M", "GPT-2-345M"),
    _gpt2("GPT-2-large", 774_030_080, 36, 1280, 20, "GPT-2-774M"),
    _gpt2("GPT-2-XL", 1_557_611_200, 48, 1600, 25, "GPT-2-1.5B"),
    # The paper's table 2.1 prints 24 heads of 128 for XL and a width of 5140 for 13B; neither fits
    # its own sizes, table D.1's counts do with 16 heads and 5120.
    _gpt3("125M", 125, 1, (12, 768, 12)),
    _gpt3("350M", 356, 1, (24, 1024, 16)),
    _gpt3("760M", 760, 1, (24, 1536, 16)),
    _gpt3("1.3B", 1320, 10, (24, 2048, 16)),
    _gpt3("2.7B", 2650, 10, (32, 2560, 32)),
    _gpt3("6.7B", 6660, 10, (32, 4096, 32)),
    _gpt3("13B", 12850, 10, (40, 5120, 40)),
    _gpt3("175B", 174600, 100, (96, 12288, 96)),
    Published(
        model=replace(_sized(_GPT, "GPT-22B", 48, 6144, 64), vocabulary=51200, positions=2048),
        count=22 * 10**9,
        unit=10**9,
        source=_KORTHIKANTI,
    ),
    _megatron("GPT-1.7B", 17, 24, 2304, 24),
    _megatron("GPT-3.6B", 36, 30, 3072, 32),
    _megatron("GPT-7.5B", 75, 36, 4096, 32),
    _megatron("GPT-18B", 184, 40, 6144, 48, "GPT-18.4B"),
    _megatron("GPT-39B", 391, 48, 8192, 64, "GPT-39.1B"),
    _megatron("GPT-76B", 761, 60, 10240, 80, "GPT-76.1B"),
    _megatron("GPT-145B", 1456, 80, 12288, 96, "GPT-145.6B"),
    _megatron("GPT-310B", 3101, 96, 16384, 128, "GPT-310.1B"),
    _megatron("GPT-530B", 5296, 105, 20480, 128, "GPT-529.6B"),
    _megatron("GPT-1T", 10080, 128, 25600, 160, "GPT-1008B"),
    Published(
        model=replace(_sized(_GPT, "MT-NLG-530B", 105, 20480, 128), positions=2048),
        count=530 * 10**9,
        unit=10**9,
        source=_MT_NLG,
        aliases=("Turing-NLG-530B", "Megatron-Turing-NLG-530B"),
    ),
    _neox("Pythia-70M", 70_426_624, 6, 512, 8),
    _neox("Pythia-160M", 162_322_944, 12, 768, 12),
    _neox("Pythia-410M", 405_334_016, 24, 1024, 16),
    _neox("Pythia-1B", 1_011_781_632, 16, 2048, 8),
    _neox("Pythia-1.4B", 1_414_647_808, 24, 2048, 16),
    _neox("Pythia-2.8B", 2_775_208_960, 32, 2560, 32),
    _neox("Pythia-6.9B", 6_857_302_016, 32, 4096, 32, 50432),
    _neox("Pythia-12B", 11_846_072_320, 36, 5120, 40, 50688),
    _neox("GPT-NeoX-20B", 20_554_567_680, 44, 6144, 64, 50432),
    _bloom("BLOOM-560M", 559_214_592, 24, 1024, 16),
    _bloom("BLOOM-1.1B", 1_065_314_304, 24, 1536, 16, "BLOOM-1b1"),
    _bloom("BLOOM-1.7B", 1_722_408_960, 24, 2048, 16, "BLOOM-1b7"),
    _bloom("BLOOM-3B", 3_002_557_440, 30, 2560, 32),
    _bloom("BLOOM-7.1B", 7_069_016_064, 30, 4096, 32, "BLOOM-7b1"),
    _bloom("BLOOM-176B", 176_247_271_424, 70, 14336, 112, "BLOOM"),
    _mpt("MPT-125M", 125_311_488, 12, 768, 12),
    _mpt("MPT-350M", 355_985_408, 24, 1024, 16),
    _mpt("MPT-760M", 760_470_528, 24, 1536, 12),
    _mpt("MPT-1B", 1_315_950_592, 24, 2048, 16),
    _mpt("MPT-3B", 2_651_837_440, 32, 2560, 20),
    _mpt_released("MPT-7B", 7, 32, 4096, 32),
    _mpt_released("MPT-30B", 30, 48, 7168, 64),
    _mpt("MPT-7B-benchmark", 6_658_859_008, 32, 4096, 32),
    _mpt("MPT-13B", 12_853_954_560, 40, 5120, 40),
    _mpt("MPT-30B-benchmark", 29_975_214_080, 48, 7168, 56),
    _mpt("MPT-70B", 64_862_437_376, 80, 8192, 64),
    _palm("PaLM-8B", 863, 32, 4096, 16),
    _palm("PaLM-62B", 6250, 64, 8192, 32),
    _palm("PaLM-540B", 54035, 118, 18432, 48),
)
"""The tables' rows."""
