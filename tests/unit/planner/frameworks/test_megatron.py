"""Arguments of Megatron-LM: what is written, what is read, what is refused."""

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner.frameworks import megatron
from gridloom.planner.frameworks.common import Goal
from gridloom.planner.models.presets import preset, preset_names

LLAMA = Transformer(
    name="", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocabulary=128256
)
GOAL = Goal(sequence_length=8192, global_batch=128)

GPT_SCRIPT = r"""
#!/bin/bash
# Trains the "175B" parameter model
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=16
WORLD_SIZE=$(($GPUS_PER_NODE * $NUM_NODES))
SEQ=${SEQ:-2048}   # override from outside

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr localhost
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length ${SEQ}
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS="
    --micro-batch-size 1 \
    --global-batch-size 1536 \
    --train-iters 500000 \
    --fp16 --lr=6.0e-5 \
    --tokenizer-type GPT2BPETokenizer
"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    $TRAINING_ARGS --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 16 --distributed-backend nccl
"""

MIXTRAL_YAML = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 32
  --hidden-size: 4096
  --ffn-hidden-size: 14336
  --num-attention-heads: 32
  --group-query-attention: true
  --num-query-groups: 8
  --normalization: RMSNorm
  --swiglu: true
  --untie-embeddings-and-output-weights: true
  --disable-bias-linear: true
  --position-embedding-type: rope
  --no-position-embedding: false
  --seq-length: 4096
  --max-position-embeddings: 32768
  --attention-dropout: 0.0
  --hidden-dropout: 0.0
  --padded-vocab-size: 32064
  --num-experts: 8
  --moe-router-topk: 2
  --moe-grouped-gemm: true
  --expert-model-parallel-size: 8
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 4
  --num-layers-per-virtual-pipeline-stage: 2
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --overlap-grad-reduce: true
  --overlap-param-gather: true
  --num-distributed-optimizer-instances: 2
  --recompute-granularity: full
  --recompute-method: block
  --recompute-num-layers: 1
  --bf16: true
  --micro-batch-size: 1
  --global-batch-size: 256
  --moe-aux-loss-coeff: 0.01
METRICS: [lm loss]
"""


def test_a_dense_model_in_words() -> None:
    plan = ParallelPlan(
        tensor=4, pipeline=2, data=8, sequence_parallel=True, zero=1, micro_batch=2, loss="fused"
    )
    text = " ".join(megatron.to_arguments(LLAMA, plan, GOAL))
    assert text == (
        "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
        " --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256"
        " --normalization RMSNorm --position-embedding-type rope --group-query-attention"
        " --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights"
        " --disable-bias-linear --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"
        " --context-parallel-size 1 --use-distributed-optimizer --optimizer adam"
        " --attention-backend flash --bf16 --attention-dropout 0.0 --hidden-dropout 0.0"
        " --cross-entropy-loss-fusion --cross-entropy-fusion-impl te --micro-batch-size 2"
        " --global-batch-size 128 --sequence-parallel --overlap-grad-reduce --overlap-param-gather"
    )
    assert megatron.environment(plan) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


@pytest.mark.parametrize(
    ("model", "plan", "words"),
    [
        (LLAMA, ParallelPlan(data=8, pipeline=4, micro_batch=1, stage_layers=(7, 9, 9, 7)),
         "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7"),
        (LLAMA, ParallelPlan(data=8, pipeline=4, micro_batch=1, stage_layers=(9, 9, 8, 6)),
         "--pipeline-model-parallel-layout Et*9|t*9|t*8|t*6L"),
        (LLAMA, ParallelPlan(data=8, pipeline=3, micro_batch=1),
         "--decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 10"),
        (LLAMA, ParallelPlan(data=8, zero=3, micro_batch=1),
         "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"),
        (LLAMA, ParallelPlan(data=8, zero=3, micro_batch=1), "--grad-reduce-in-bf16"),
        (LLAMA, ParallelPlan(data=8, zero=1, shard=2, micro_batch=1),
         "--num-distributed-optimizer-instances 4"),
        (LLAMA, ParallelPlan(data=8, pipeline=2, schedule="interleaved", virtual_stages=4,
                             recompute="full", recompute_layers=8, micro_batch=1),
         "--recompute-granularity full --recompute-method block --recompute-num-layers 2"),
        (LLAMA, ParallelPlan(data=8, recompute="full"),
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
        (LLAMA, ParallelPlan(data=8, zero=1, optimizer="adamw_16bit"),
         "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"),
        (LLAMA, ParallelPlan(data=8, zero=1, offload=("optimizer",)),
         "--use-precision-aware-optimizer --optimizer-cpu-offload"),
        (LLAMA, ParallelPlan(data=8, optimizer="muon"), "--optimizer muon --ckpt-format torch"),
        (LLAMA, ParallelPlan(data=8, precision="fp16", gradient_bytes=4),
         "--fp16 --accumulate-allreduce-grads-in-fp32"),
        (LLAMA, ParallelPlan(data=8, precision="fp8"), "--bf16 --fp8-format hybrid"),
        (LLAMA, ParallelPlan(data=8, flash_attention=False), "--attention-backend unfused"),
        (replace(LLAMA, positions=16384, norm="layer", norm_bias=True), ParallelPlan(),
         "--max-position-embeddings 16384 --vocab-size 128256 --normalization LayerNorm"
         " --position-embedding-type learned_absolute"),
        (replace(LLAMA, window=4096, full_every=4), ParallelPlan(),
         "--window-size 4095,0 --window-attn-skip-freq 4"),
        (replace(LLAMA, latent=LatentAttention(query_rank=1536, kv_rank=512, rope_size=64,
                                               nope_size=128, value_size=128)), ParallelPlan(),
         "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128"
         " --qk-pos-emb-head-dim 64 --v-head-dim 128"),
        (replace(LLAMA, experts=Experts(count=64, per_token=6, ffn=1408, dense_layers=2)),
         ParallelPlan(data=8, expert=4),
         "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408"
         " --moe-layer-freq ([0]*2+[1]*30)"),
        (replace(LLAMA, experts=Experts(count=64, per_token=6, ffn=1408, every=3)),
         ParallelPlan(), "--moe-layer-freq (([1]+[0]*2)*10+[0]*2)"),
    ],
)  # fmt: skip
def test_words_of_a_field(model: Transformer, plan: ParallelPlan, words: str) -> None:
    assert words in " ".join(megatron.to_arguments(model, plan, GOAL))


MOE = replace(LLAMA, experts=Experts(count=16, per_token=2, ffn=1408))


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (LLAMA, ParallelPlan(pipeline=2, schedule="zero_bubble"), "schedule"),
        (LLAMA, ParallelPlan(pipeline=4, schedule="interleaved", virtual_stages=3, micro_batch=1),
         "virtual_stages"),
        (LLAMA, ParallelPlan(pipeline=4, schedule="interleaved", virtual_stages=2, micro_batch=64),
         "micro_batch"),
        (LLAMA, ParallelPlan(pipeline=4, schedule="interleaved", virtual_stages=2, micro_batch=1,
                             recompute="full", recompute_layers=3), "recompute_layers"),
        (LLAMA, ParallelPlan(data=2, pipeline=2, zero=3), "zero"),
        (LLAMA, ParallelPlan(data=2, zero=2, precision="fp16"), "precision"),
        (LLAMA, ParallelPlan(data=2, zero=1, overlap_gradients=False), "overlap_parameters"),
        (LLAMA, ParallelPlan(optimizer="lamb"), "optimizer"),
        (LLAMA, ParallelPlan(data=2, optimizer="muon", zero=2), "optimizer"),
        (LLAMA, ParallelPlan(data=2, optimizer="muon", zero=1), "overlap_parameters"),
        (LLAMA, ParallelPlan(data=4, optimizer="muon", zero=1, shard=2, overlap_parameters=False),
         "shard"),
        (LLAMA, ParallelPlan(data=2, optimizer="adamw_8bit"), "optimizer"),
        (LLAMA, ParallelPlan(offload=("optimizer",)), "offload"),
        (LLAMA, ParallelPlan(data=2, zero=1, offload=("gradients",)), "offload"),
        (LLAMA, ParallelPlan(offload=("activations",), recompute="full"), "offload"),
        (LLAMA, ParallelPlan(tensor=2, overlap_tensor=True), "overlap_tensor"),
        (LLAMA, ParallelPlan(context=3), "context"),
        (MOE, ParallelPlan(tensor=2), "sequence_parallel"),
        (MOE, ParallelPlan(data=2, expert=2, precision="fp16"), "precision"),
        (LLAMA, ParallelPlan(precision="bf16_pure"), "precision"),
        (LLAMA, ParallelPlan(precision="fp32", gradient_bytes=2), "gradient_bytes"),
        (LLAMA, ParallelPlan(recompute="operators"), "recompute"),
        (LLAMA, ParallelPlan(loss="chunked"), "loss"),
        (replace(LLAMA, norms_per_layer=4), ParallelPlan(), "norms_per_layer"),
        (replace(LLAMA, norm="layer"), ParallelPlan(), "norm_bias"),
        (replace(LLAMA, embedding_norm=True), ParallelPlan(), "embedding_norm"),
        (replace(LLAMA, qk_norm="all"), ParallelPlan(), "qk_norm"),
        (replace(LLAMA, ffn_bias=True), ParallelPlan(), "output_bias"),
        (replace(LLAMA, head_bias=True), ParallelPlan(), "head_bias"),
        (replace(LLAMA, hidden=4100), ParallelPlan(), "head_size"),
        (replace(LLAMA, positions=2048), ParallelPlan(), "positions"),
    ],
)  # fmt: skip
def test_refusals_name_their_field(model: Transformer, plan: ParallelPlan, field: str) -> None:
    with pytest.raises(InputError) as caught:
        megatron.to_arguments(model, plan, GOAL)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_shell_script_is_read() -> None:
    read = megatron.from_arguments(GPT_SCRIPT)
    assert read.model == Transformer(
        name="",
        layers=96,
        hidden=12288,
        ffn=4 * 12288,
        heads=96,
        kv_heads=96,
        vocabulary=51200,  # 50257 padded to a multiple of 128 x 8
        gated=False,
        tied=True,
        positions=2048,
        norm="layer",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
    )
    assert read.plan == ParallelPlan(
        tensor=8,
        pipeline=16,
        micro_batch=1,
        precision="fp16",
        overlap_gradients=False,
        loss="in_place",
        dropout=True,
    )
    assert read.goal == Goal(sequence_length=2048, global_batch=1536, tokens=500_000 * 1536 * 2048)
    assert read.absent == ("model.name",)
    assert read.unread == ("--master-addr", "--lr", "--distributed-backend")


def test_a_list_in_yaml_is_read() -> None:
    read = megatron.from_arguments(MIXTRAL_YAML, world_size=64)
    assert read.model is not None
    assert read.model.experts == Experts(count=8, per_token=2, ffn=14336)
    assert (read.model.vocabulary, read.model.positions, read.model.kv_heads) == (32064, 0, 8)
    assert read.plan == ParallelPlan(
        tensor=2,
        pipeline=4,
        data=8,
        expert=8,
        expert_tensor=2,
        sequence_parallel=True,
        schedule="interleaved",
        virtual_stages=4,
        zero=1,
        shard=4,
        micro_batch=1,
        recompute="full",
        recompute_layers=4,
        loss="in_place",
    )
    assert read.unread == ("--moe-aux-loss-coeff",)
    assert read.absent == ("goal.tokens", "model.name")


SMALL = (
    "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    " --vocab-size 1000 --position-embedding-type rope --micro-batch-size 1"
)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("--use-torch-fsdp2", {"zero": 3, "overlap_gradients": True}),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero": 2}),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", {"zero": 2}),
        ("--optimizer dist_muon", {"zero": 1, "optimizer": "muon"}),
        ("--recompute-activations", {"recompute": "selective"}),
        ("--checkpoint-activations", {"recompute": "full"}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
         {"recompute": "full", "recompute_layers": 0}),
        ("--transformer-impl local", {"flash_attention": False}),
        ("--transformer-impl local --use-flash-attn", {"flash_attention": True}),
        ("--bf16 --grad-reduce-in-bf16", {"gradient_bytes": 2}),
        ("--no-bias-swiglu-fusion", {"fused": False}),
        ("--no-rope-fusion --no-masked-softmax-fusion", {"fused": True}),
        ("--attention-dropout 0 --hidden-dropout 0.0", {"dropout": False}),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*4|(tt|)*5tt|L",
         {"schedule": "interleaved", "virtual_stages": 2, "stage_layers": (6, 4, 4, 2)}),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*9,|t*7,L",
         {"schedule": "1f1b", "stage_layers": (9, 7)}),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1",
         {"stage_layers": (1, 5, 5, 5)}),
        ("--pipeline-model-parallel-size 3 --account-for-embedding-in-pipeline-split"
         " --account-for-loss-in-pipeline-split", {"stage_layers": (5, 6, 5)}),
    ],
)  # fmt: skip
def test_other_ways_to_say_it(words: str, fields: dict[str, object]) -> None:
    plan = megatron.from_arguments(f"{SMALL} {words}", world_size=24).plan
    assert {name: getattr(plan, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--num-layers many", "--num-layers"),
        ("--num-layers 0", "--num-layers"),
        ("--num-layers $LAYERS", "--num-layers"),
        ("--normalization None", "--normalization"),
        ("--tensor-model-parallel-size 5", "--world-size"),
        ("--fp16 --bf16", "--fp16"),
        ("--num-experts 4 --moe-layer-freq ([1]*3", "--moe-layer-freq"),
        ("--num-experts 4 --moe-layer-freq [1]*3+[0]*13", "--moe-layer-freq"),
        ("--num-experts 4 --moe-layer-freq __import__('os')", "--moe-layer-freq"),
        ("--num-distributed-optimizer-instances 5", "--num-distributed-optimizer-instances"),
        ("--window-size wide", "--window-size"),
        ("--moe-expert-capacity-factor much --num-experts 4", "--moe-expert-capacity-factor"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ex|L",
         "--pipeline-model-parallel-layout"),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2",
         "--decoder-first-pipeline-num-layers"),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3",
         "--num-layers-per-virtual-pipeline-stage"),
        ("--global-batch-size 7", "micro_batch"),
        ("--expert-model-parallel-size 2", "expert"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(words: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        megatron.from_arguments(f"{SMALL} {words}", world_size=24)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_what_is_missing_is_named_together() -> None:
    with pytest.raises(InputError) as caught:
        megatron.from_arguments("--bf16")
    assert [problem.field for problem in caught.value.problems] == [
        "--num-layers",
        "--hidden-size",
        "--num-attention-heads",
        "--vocab-size",
        "--seq-length",
    ]


def test_the_vocabulary_can_be_handed_in() -> None:
    words = SMALL.replace("--vocab-size 1000", "--tokenizer-type HuggingFaceTokenizer").split()
    read = megatron.from_arguments(words, vocabulary=151936)
    assert read.model is not None
    assert read.model.vocabulary == 151936
    assert "plan.data" in read.absent


def test_an_escaped_layout_is_read() -> None:
    text = "\n".join(
        [
            *(f"{name}: {value}" for name, value in zip(*[iter(SMALL.split())] * 2, strict=True)),
            "--pipeline-model-parallel-size: 4",
            r"--pipeline-model-parallel-layout: Et*4\\|\\(tt\\|\\)*5tt\\|L",
        ]
    )
    plan = megatron.from_arguments(text, world_size=4).plan
    assert (plan.schedule, plan.stage_layers) == ("interleaved", (6, 4, 4, 2))


@pytest.mark.parametrize("name", preset_names())
def test_a_known_model_comes_back_or_is_refused(name: str) -> None:
    model = replace(preset(name), name="")
    goal = Goal(sequence_length=min(2048, model.positions or 2048), global_batch=8)
    missing = {
        "embedding_norm": model.embedding_norm,
        "norm_bias": model.norm_bias != (model.norm == "layer"),
        "norms_per_layer": model.norms_per_layer != 2,
        "output_bias": model.output_bias != model.ffn_bias,
        "qk_norm": model.qk_norm == "all",
    }
    if any(missing.values()):
        with pytest.raises(InputError) as caught:
            megatron.to_arguments(model, ParallelPlan(), goal)
        found = {problem.field for problem in caught.value.problems}
        assert found == {field for field, broken in missing.items() if broken}
        return
    words = megatron.to_arguments(model, ParallelPlan(), goal)
    usual = model.head_size * model.heads == model.hidden
    again = megatron.from_arguments(words, world_size=1).model
    assert again == replace(model, head_size=0 if usual else model.head_size)
