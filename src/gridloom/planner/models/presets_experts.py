"""Presets of experts with shared ones or latent attention: DeepSeek, Kimi, GLM-4.5, Grok."""

from msgspec.structs import replace

from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner.models.preset_row import CHECKPOINT, Published

_V3_WEIGHTS = "deepseek-ai/DeepSeek-V3, tensors of the 61 layers without fp8 scales"
_V3_ALL = "deepseek-ai/DeepSeek-V3, safetensors metadata: bf16 and fp8 elements; router biases"
_GROK = "xai-org/grok-1, elements of the checkpoint's 770 tensors (its README says 314B)"
_GLM = "zai-org/GLM-4.5, safetensors metadata less the tensors of the prediction module"
_GLM_AIR = "zai-org/GLM-4.5-Air, safetensors metadata less those of the prediction module"
_GLM_ALL = "zai-org/GLM-4.5 and GLM-4.5-Air, safetensors metadata"
_KIMI = "moonshotai/Kimi-K2-Instruct, tensors of the checkpoint without fp8 scales"


def _latent(query_rank: int) -> LatentAttention:
    return LatentAttention(
        query_rank=query_rank, kv_rank=512, rope_size=64, nope_size=128, value_size=128
    )


_DEEPSEEK_V2 = Transformer(
    name="DeepSeek-V2",
    layers=60,
    hidden=5120,
    ffn=12288,
    heads=128,
    kv_heads=128,
    vocabulary=102400,
    latent=_latent(1536),
    experts=Experts(count=160, per_token=6, ffn=1536, shared_ffn=3072, dense_layers=1),
)
_DEEPSEEK_V2_LITE = Transformer(
    name="DeepSeek-V2-Lite",
    layers=27,
    hidden=2048,
    ffn=10944,
    heads=16,
    kv_heads=16,
    vocabulary=102400,
    latent=_latent(0),
    experts=Experts(count=64, per_token=6, ffn=1408, shared_ffn=2816, dense_layers=1),
)
_DEEPSEEK_MOE_16B = Transformer(
    name="DeepSeekMoE-16B",
    layers=28,
    hidden=2048,
    ffn=10944,
    heads=16,
    kv_heads=16,
    vocabulary=102400,
    experts=Experts(count=64, per_token=6, ffn=1408, shared_ffn=2816, dense_layers=1),
)
_DEEPSEEK_V3 = Transformer(
    name="DeepSeek-V3",
    layers=61,
    hidden=7168,
    ffn=18432,
    heads=128,
    kv_heads=128,
    vocabulary=129280,
    latent=_latent(1536),
    experts=Experts(
        count=256, per_token=8, ffn=2048, shared_ffn=2048, dense_layers=3, router_bias=True
    ),
)
_KIMI_K2 = Transformer(
    name="Kimi-K2",
    layers=61,
    hidden=7168,
    ffn=18432,
    heads=64,
    kv_heads=64,
    vocabulary=163840,
    latent=_latent(1536),
    experts=Experts(
        count=384, per_token=8, ffn=2048, shared_ffn=2048, dense_layers=1, router_bias=True
    ),
)
_GLM_4_5 = Transformer(
    name="GLM-4.5",
    layers=92,
    hidden=5120,
    ffn=12288,
    heads=96,
    kv_heads=8,
    head_size=128,
    vocabulary=151552,
    qk_norm="head",
    qkv_bias=True,
    experts=Experts(
        count=160, per_token=8, ffn=1536, shared_ffn=1536, dense_layers=3, router_bias=True
    ),
)
_GLM_4_5_AIR = Transformer(
    name="GLM-4.5-Air",
    layers=46,
    hidden=4096,
    ffn=10944,
    heads=96,
    kv_heads=8,
    head_size=128,
    vocabulary=151552,
    qkv_bias=True,
    experts=Experts(
        count=128, per_token=8, ffn=1408, shared_ffn=1408, dense_layers=1, router_bias=True
    ),
)
_GROK_1 = Transformer(
    name="Grok-1",
    layers=64,
    hidden=6144,
    ffn=32768,
    heads=48,
    kv_heads=8,
    vocabulary=131072,
    tied=True,
    norms_per_layer=4,
    experts=Experts(count=8, per_token=2, ffn=32768),
)


def _with_module(model: Transformer) -> Transformer:
    """Return ``model`` as it is trained, with its module that predicts one more token."""
    return replace(model, name=model.name + "-MTP", prediction_layers=1)


def _tables(model: Transformer) -> int:
    """Weights of the embedding and the output, which a checkpoint stores with a module again."""
    return 2 * model.vocabulary * model.hidden


EXPERT_PRESETS = (
    Published(model=_DEEPSEEK_V3, count=671_026_419_200, source=_V3_WEIGHTS,
              aliases=("DeepSeek-R1", "DeepSeek-V3-671B")),
    Published(model=_with_module(_DEEPSEEK_V3), count=684_489_830_400 + 59 * 256, source=_V3_ALL,
              stored_again=_tables(_DEEPSEEK_V3)),
    Published(model=_DEEPSEEK_V2, count=235_741_434_880, source=CHECKPOINT,
              aliases=("DeepSeek-V2-236B",)),
    Published(model=_DEEPSEEK_V2_LITE, count=15_706_484_224, source=CHECKPOINT,
              aliases=("DeepSeek-V2-Lite-16B",)),
    Published(model=_DEEPSEEK_MOE_16B, count=16_375_728_128, source=CHECKPOINT),
    Published(model=_KIMI_K2, count=1_026_408_232_448, source=_KIMI),
    Published(model=_GLM_4_5, count=352_797_829_024, source=_GLM,
              aliases=("GLM-4.5-355B-A32B", "GLM-4.6", "GLM-4.7")),
    Published(model=_with_module(_GLM_4_5), count=358_337_791_296, source=_GLM_ALL,
              stored_again=_tables(_GLM_4_5)),
    Published(model=_GLM_4_5_AIR, count=106_852_251_264, source=_GLM_AIR,
              aliases=("GLM-4.5-Air-106B-A12B",)),
    Published(model=_with_module(_GLM_4_5_AIR), count=110_468_824_832, source=_GLM_ALL,
              stored_again=_tables(_GLM_4_5_AIR)),
    Published(model=_GROK_1, count=315_684_820_992, source=_GROK, aliases=("Grok-1-314B",)),
)  # fmt: skip
"""The tables' rows."""
