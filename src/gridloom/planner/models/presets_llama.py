"""Presets of the plain gated kind: LLaMA, Mistral, Mixtral, InternLM, OLMo 2, Phi."""

from msgspec.structs import replace

from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.models.preset_row import CHECKPOINT, Published


def _llama(
    name: str,
    count: int,
    sizes: tuple[int, int, int, int, int],
    vocabulary: int,
    *aliases: str,
) -> Published:
    """Return a row from ``sizes``: layers, hidden, ffn, heads, key and value heads."""
    layers, hidden, ffn, heads, kv_heads = sizes
    model = Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=vocabulary,
    )
    return Published(model=model, count=count, source=CHECKPOINT, aliases=aliases)


def _varied(row: Published, **changes: object) -> Published:
    """Return ``row`` with a model that differs in ``changes``."""
    return Published(
        model=replace(row.model, **changes),
        count=row.count,
        unit=row.unit,
        source=row.source,
        aliases=row.aliases,
    )


_SIZE_7B = (32, 4096, 11008, 32, 32)
_SIZE_8B = (32, 4096, 14336, 32, 8)
_SIZE_13B = (40, 5120, 13824, 40, 40)
_SIZE_70B = (80, 8192, 28672, 64, 8)

LLAMA_PRESETS = (
    _llama("Llama-3.1-8B", 8_030_261_248, _SIZE_8B, 128256),
    _llama("Llama-3.1-70B", 70_553_706_496, _SIZE_70B, 128256),
    _llama("Llama-3.1-405B", 405_853_388_800, (126, 16384, 53248, 128, 8), 128256, "Llama-3-405B"),
    _llama("Llama-3-8B", 8_030_261_248, _SIZE_8B, 128256, "Meta-Llama-3-8B"),
    _llama("Llama-3-70B", 70_553_706_496, _SIZE_70B, 128256, "Meta-Llama-3-70B", "Llama-3.3-70B"),
    _varied(
        _llama("Llama-3.2-1B", 1_235_814_400, (16, 2048, 8192, 32, 8), 128256, "Llama-3-1B"),
        tied=True,
    ),
    _varied(
        _llama("Llama-3.2-3B", 3_212_749_824, (28, 3072, 8192, 24, 8), 128256, "Llama-3-3B"),
        tied=True,
    ),
    _llama("Llama-2-7B", 6_738_415_616, _SIZE_7B, 32000),
    _llama("Llama-2-13B", 13_015_864_320, _SIZE_13B, 32000),
    _llama("Llama-2-70B", 68_976_648_192, _SIZE_70B, 32000),
    _llama("LLaMA-7B", 6_738_415_616, _SIZE_7B, 32000, "Llama-1-7B"),
    _llama("LLaMA-13B", 13_015_864_320, _SIZE_13B, 32000, "Llama-1-13B"),
    _llama("LLaMA-30B", 32_528_943_616, (60, 6656, 17920, 52, 52), 32000, "Llama-1-33B"),
    _llama("LLaMA-65B", 65_285_660_672, (80, 8192, 22016, 64, 64), 32000, "Llama-1-65B"),
    _llama("TinyLlama-1.1B", 1_100_048_384, (22, 2048, 5632, 32, 4), 32000),
    _varied(
        _llama("Mistral-7B", 7_241_732_096, _SIZE_8B, 32000, "Mistral-7B-v0.1"),
        window=4096,
    ),
    _llama("Mistral-7B-v0.3", 7_248_023_552, _SIZE_8B, 32768),
    _varied(
        _llama("Mistral-Nemo-12B", 12_247_782_400, (40, 5120, 14336, 32, 8), 131072,
               "Mistral-Nemo-Base-2407"),
        head_size=128,
    ),
    _varied(
        _llama("Mistral-Small-24B", 23_572_403_200, (40, 5120, 32768, 32, 8), 131072,
               "Mistral-Small-24B-Base-2501"),
        head_size=128,
    ),
    _llama("Mistral-Large-2", 122_610_069_504, (88, 12288, 28672, 96, 8), 32768,
           "Mistral-Large-123B", "Mistral-Large-Instruct-2407", "Mistral-Large"),
    _varied(
        _llama("Mixtral-8x7B", 46_702_792_704, _SIZE_8B, 32000, "Mixtral-8x7B-v0.1"),
        experts=Experts(count=8, per_token=2, ffn=14336),
    ),
    _varied(
        _llama("Mixtral-8x22B", 140_620_634_112, (56, 6144, 16384, 48, 8), 32000,
               "Mixtral-8x22B-v0.1"),
        experts=Experts(count=8, per_token=2, ffn=16384),
    ),
    Published(
        model=replace(
            _llama("InternLM-7B", 0, _SIZE_7B, 103168).model, qkv_bias=True, output_bias=True
        ),
        count=7 * 10**9,
        unit=10**9,
        source="internlm/internlm-7b, model card",
    ),
    _varied(
        _llama("OLMo-2-7B", 7_298_617_344, _SIZE_7B, 100352, "OLMo-2-1124-7B"),
        qk_norm="all",
    ),
    _varied(
        _llama("OLMo-2-13B", 13_716_198_400, _SIZE_13B, 100352, "OLMo-2-1124-13B"),
        qk_norm="all",
    ),
    _varied(
        _llama("OLMo-2-32B", 32_234_279_936, (64, 5120, 27648, 40, 8), 100352, "OLMo-2-0325-32B"),
        qk_norm="all",
    ),
    _llama("Phi-3-mini", 3_821_079_552, (32, 3072, 8192, 32, 32), 32064, "Phi-3-mini-4k"),
    _llama("Phi-4", 14_659_507_200, (40, 5120, 17920, 40, 10), 100352),
)  # fmt: skip
"""The tables' rows."""
