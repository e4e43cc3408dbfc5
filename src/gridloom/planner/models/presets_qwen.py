"""Presets of Qwen: biased queries and keys (2, 2.5), normalised ones (3), experts of both."""

from msgspec.structs import replace

from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.models.preset_row import CHECKPOINT, Published

_SMALL_TABLE = 151936
_LARGE_TABLE = 152064


def _qwen2(
    name: str,
    count: int,
    sizes: tuple[int, int, int, int, int],
    vocabulary: int = _LARGE_TABLE,
    *aliases: str,
) -> Published:
    """Return a row from ``sizes``: layers, hidden, ffn, heads, key and value heads."""
    model = replace(_sized(name, sizes, vocabulary), qkv_bias=True)
    return Published(model=model, count=count, source=CHECKPOINT, aliases=aliases)


def _qwen3(
    name: str,
    count: int,
    sizes: tuple[int, int, int, int, int],
    *,
    tied: bool = False,
    experts: Experts | None = None,
) -> Published:
    """Return a row from ``sizes``: layers, hidden, ffn, heads, key and value heads."""
    model = replace(
        _sized(name, sizes, _SMALL_TABLE), head_size=128, qk_norm="head", tied=tied, experts=experts
    )
    return Published(model=model, count=count, source=CHECKPOINT)


def _sized(name: str, sizes: tuple[int, int, int, int, int], vocabulary: int) -> Transformer:
    layers, hidden, ffn, heads, kv_heads = sizes
    return Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=vocabulary,
    )


def _tied(row: Published) -> Published:
    return Published(
        model=replace(row.model, tied=True), count=row.count, source=row.source, aliases=row.aliases
    )


def _with_experts(row: Published, experts: Experts) -> Published:
    return Published(
        model=replace(row.model, experts=experts),
        count=row.count,
        source=row.source,
        aliases=row.aliases,
    )


_SIZE_0_5B = (24, 896, 4864, 14, 2)
_SIZE_1_5B = (28, 1536, 8960, 12, 2)
_SIZE_7B = (28, 3584, 18944, 28, 4)
_SIZE_72B = (80, 8192, 29568, 64, 8)

QWEN_PRESETS = (
    _tied(_qwen2("Qwen2.5-0.5B", 494_032_768, _SIZE_0_5B, _SMALL_TABLE)),
    _tied(_qwen2("Qwen2.5-1.5B", 1_543_714_304, _SIZE_1_5B, _SMALL_TABLE)),
    _tied(_qwen2("Qwen2.5-3B", 3_085_938_688, (36, 2048, 11008, 16, 2), _SMALL_TABLE)),
    _qwen2("Qwen2.5-7B", 7_615_616_512, _SIZE_7B),
    _qwen2("Qwen2.5-14B", 14_770_033_664, (48, 5120, 13824, 40, 8)),
    _qwen2("Qwen2.5-32B", 32_763_876_352, (64, 5120, 27648, 40, 8), _LARGE_TABLE, "QwQ-32B"),
    _qwen2("Qwen2.5-72B", 72_706_203_648, _SIZE_72B),
    _tied(_qwen2("Qwen2-0.5B", 494_032_768, _SIZE_0_5B, _SMALL_TABLE)),
    _tied(_qwen2("Qwen2-1.5B", 1_543_714_304, _SIZE_1_5B, _SMALL_TABLE)),
    _qwen2("Qwen2-7B", 7_615_616_512, _SIZE_7B),
    _qwen2("Qwen2-72B", 72_706_203_648, _SIZE_72B),
    _with_experts(
        _qwen2("Qwen2-57B-A14B", 57_408_658_944, _SIZE_7B, _SMALL_TABLE, "Qwen2-57B"),
        Experts(count=64, per_token=8, ffn=2560, shared_ffn=20480, shared_gate=True),
    ),
    _with_experts(
        _qwen2("Qwen1.5-MoE-A2.7B", 14_315_784_192, (24, 2048, 5632, 16, 16), _SMALL_TABLE),
        Experts(count=60, per_token=4, ffn=1408, shared_ffn=5632, shared_gate=True),
    ),
    _qwen3("Qwen3-0.6B", 596_049_920, (28, 1024, 3072, 16, 8), tied=True),
    _qwen3("Qwen3-1.7B", 1_720_574_976, (28, 2048, 6144, 16, 8), tied=True),
    _qwen3("Qwen3-4B", 4_022_468_096, (36, 2560, 9728, 32, 8), tied=True),
    _qwen3("Qwen3-8B", 8_190_735_360, (36, 4096, 12288, 32, 8)),
    _qwen3("Qwen3-14B", 14_768_307_200, (40, 5120, 17408, 40, 8)),
    _qwen3("Qwen3-32B", 32_762_123_264, (64, 5120, 25600, 64, 8)),
    _qwen3(
        "Qwen3-30B-A3B",
        30_532_122_624,
        (48, 2048, 6144, 32, 4),
        experts=Experts(count=128, per_token=8, ffn=768),
    ),
    _qwen3(
        "Qwen3-235B-A22B",
        235_093_634_560,
        (94, 4096, 12288, 64, 4),
        experts=Experts(count=128, per_token=8, ffn=1536),
    ),
    _qwen3(
        "Qwen3-Coder-480B-A35B",
        480_154_875_392,
        (62, 6144, 8192, 96, 8),
        experts=Experts(count=160, per_token=8, ffn=2560),
    ),
)
"""The tables' rows."""
