"""Presets of Gemma, GLM-4 and Nemotron."""

from msgspec.structs import replace

from gridloom.model.transformer import Transformer
from gridloom.planner.models.preset_row import CHECKPOINT, KERAS, Published

_NEMOTRON_4_15B = "Muralidharan et al., Compact Language Models via Pruning, 2024 (15.6B)"
_NEMOTRON_4_340B = "NVIDIA, Nemotron-4 340B Technical Report, 2024, section 2.2"
_NEMOTRON_3_8B = "nvidia/nemotron-3-8b-base-4k, model card"


def _gemma(
    name: str, count: int, sizes: tuple[int, int, int, int, int], head_size: int = 256
) -> Published:
    """Return a row of Gemma 1 from ``sizes``: layers, hidden, ffn, heads, key and value heads."""
    layers, hidden, ffn, heads, kv_heads = sizes
    model = Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocabulary=256000,
        tied=True,
    )
    return Published(model=model, count=count, source=CHECKPOINT)


def _gemma2(
    name: str, count: int, sizes: tuple[int, int, int, int, int], head_size: int = 256
) -> Published:
    row = _gemma(name, count, sizes, head_size)
    model = replace(row.model, norms_per_layer=4, window=4096, full_every=2)
    return Published(model=model, count=count, source=CHECKPOINT)


def _gemma3(
    name: str,
    count: int,
    sizes: tuple[int, int, int, int, int],
    *,
    head_size: int = 256,
    window: int = 1024,
) -> Published:
    # The language model alone: the table of tokens has 262144 rows, the released checkpoints with
    # a vision tower pad it by 64.
    row = _gemma(name, count, sizes, head_size)
    model = replace(
        row.model,
        vocabulary=262144,
        norms_per_layer=4,
        qk_norm="head",
        window=window,
        full_every=6,
    )
    return Published(model=model, count=count, source=KERAS)


def _nemotron(
    name: str, count: int, unit: int, sizes: tuple[int, int, int, int], source: str
) -> Published:
    """Return a row from ``sizes``: layers, hidden, heads, key and value heads."""
    layers, hidden, heads, kv_heads = sizes
    model = Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=256000,
        gated=False,
        norm="layer",
        norm_bias=True,
    )
    return Published(model=model, count=count, unit=unit, source=source)


_GLM_4_9B = Transformer(
    name="GLM-4-9B",
    layers=40,
    hidden=4096,
    ffn=13696,
    heads=32,
    kv_heads=2,
    vocabulary=151552,
    qkv_bias=True,
)

OTHER_PRESETS = (
    _gemma("Gemma-2B", 2_506_172_416, (18, 2048, 16384, 8, 1)),
    _gemma("Gemma-7B", 8_537_680_896, (28, 3072, 24576, 16, 16)),
    _gemma2("Gemma-2-2B", 2_614_341_888, (26, 2304, 9216, 8, 4)),
    _gemma2("Gemma-2-9B", 9_241_705_984, (42, 3584, 14336, 16, 8)),
    _gemma2("Gemma-2-27B", 27_227_128_320, (46, 4608, 36864, 32, 16), 128),
    _gemma3("Gemma-3-1B", 999_885_952, (26, 1152, 6912, 4, 1), window=512),
    _gemma3("Gemma-3-4B", 3_880_099_328, (34, 2560, 10240, 8, 4)),
    _gemma3("Gemma-3-12B", 11_765_788_416, (48, 3840, 15360, 16, 8)),
    _gemma3("Gemma-3-27B", 27_009_002_240, (62, 5376, 21504, 32, 16), head_size=128),
    Published(model=_GLM_4_9B, count=9_399_951_360, source=CHECKPOINT),
    Published(
        model=replace(_GLM_4_9B, name="GLM-4-9B-0414", norms_per_layer=4),
        count=9_400_279_040,
        source=CHECKPOINT,
    ),
    _nemotron("Nemotron-3-8B", 8 * 10**9, 10**9, (32, 4096, 32, 32), _NEMOTRON_3_8B),
    _nemotron("Nemotron-4-15B", 156 * 10**8, 10**8, (32, 6144, 48, 8), _NEMOTRON_4_15B),
    _nemotron("Nemotron-4-340B", 341 * 10**9, 10**8, (96, 18432, 96, 8), _NEMOTRON_4_340B),
)
"""The tables' rows."""
