"""Documents to nouns."""

from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import Budget, JobSpec, Option, Program, RetryPolicy, ShapeRequest
from gridloom.wire.convert import to_job_spec, to_request
from gridloom.wire.documents import read_job
from gridloom.wire.job_document import JobDocument

OPTIONS = (Option(accelerator="cpu", plan=ParallelPlan(data=4)),)

RECIPE = """
name: j
recipe: gpt
model: {layers: 2, hidden: 64, heads: 4}
tokens: 10_000
global_batch: 8
sequence_length: 16
resources: {accelerators: cpu:4, sites: [b, a], min_sites: 2}
"""


def job(text: str) -> JobDocument:
    return read_job(text.encode(), "j").document


def spec(text: str) -> JobSpec:
    return to_job_spec(job(text), OPTIONS, workdir="/w", checkpoint_directory="/c")


def test_a_recipe_takes_the_defaults_of_the_model() -> None:
    shape = GptShape(layers=2, hidden=64, heads=4, kv_heads=4, ffn=192)
    training = Training(
        steps=79,  # 10 000 tokens of 128 a step, rounded up
        global_batch=8,
        sequence_length=16,
        min_learning_rate=3e-3 / 10,
        warmup_steps=7,
    )
    assert spec(RECIPE) == JobSpec(
        name="j",
        program=Program(argv=("python", "-m", "gridloom.runtime.entry"), workdir="/w"),
        options=OPTIONS,
        sites=("b", "a"),
        min_sites=2,
        max_sites=2,
        recipe=GptRecipe(
            shape=shape,
            data=TextData(),
            training=training,
            checkpoint=CheckpointPolicy(directory="/c"),
        ),
    )
    assert to_request(job(RECIPE)) == ShapeRequest(
        accelerator="cpu",
        count_min=4,
        count_max=4,
        sites=("b", "a"),
        min_sites=2,
        max_sites=2,
        cut="auto",
        shape=shape,
        training=training,
    )


def test_everything_that_can_be_said_arrives() -> None:
    recipe = spec(
        RECIPE.replace("heads: 4", "heads: 4, kv_heads: 2, ffn: 100, tied_embeddings: false,"
                       " rope_base: 500")
        .replace("tokens: 10_000", "steps: 1_000")
        + "data: {text: [a, b], held_out: 0.1}\nmicro_batch: 2\nprecision: bf16\nseed: 5\n"
        "device_flops: 2.5e12\n"
        "optimizer: {learning_rate: 1, min_learning_rate: 0, warmup_steps: 0, weight_decay: 0,"
        " beta1: 0.8, beta2: 0.9, clip_norm: 0}\ncheckpoint: {interval: 7, keep: 9}\n"
    ).recipe  # fmt: skip
    assert recipe == GptRecipe(
        shape=GptShape(
            layers=2, hidden=64, heads=4, kv_heads=2, ffn=100, tied_embeddings=False, rope_base=500
        ),
        data=TextData(text=("a", "b"), held_out=0.1),
        training=Training(
            steps=1000, global_batch=8, sequence_length=16, micro_batch=2, learning_rate=1,
            min_learning_rate=0, warmup_steps=0, weight_decay=0, beta1=0.8, beta2=0.9, clip_norm=0,
            precision="bf16", seed=5,
        ),
        checkpoint=CheckpointPolicy(directory="/c", interval_steps=7, keep=9),
        device_flops=2.5e12,
    )  # fmt: skip


RUN = "name: j\nrun: torchrun --max-restarts 5 t.py x\nresources: {accelerators: h100:8+}\n"


def test_a_program_of_ones_own() -> None:
    text = RUN + (
        "parallel: {tensor: 2, pipeline: 3, context: 4, data: 5}\npriority: -2\ngrace: 2m\n"
        "budget: {max_cost: 7, max_time: 1h}\nenv: {A: 1}\n"
    )
    assert spec(text) == JobSpec(
        name="j",
        program=Program(argv=("python", "t.py", "x"), workdir="/w", env={"A": "1"}),
        options=OPTIONS,
        priority=-2,
        grace_s=120.0,
        retry=RetryPolicy(max_restarts=5, on="any"),
        budget=Budget(cost_max=7.0, run_s_max=3600.0),
    )
    assert to_request(job(text)) == ShapeRequest(
        accelerator="h100",
        count_min=8,
        count_max=0,
        cut=ParallelPlan(tensor=2, pipeline=3, context=4),
        data=5,
    )


def test_retry_of_the_job_goes_before_torchruns() -> None:
    retry = "retry: {max_restarts: 1, on: lost, backoff: 2s, backoff_max: 3s}\n"
    assert spec(RUN + retry).retry == RetryPolicy(
        max_restarts=1, on="lost", backoff_s=2.0, backoff_s_max=3.0
    )
    assert spec(RUN.replace("--max-restarts 5", "")).retry == RetryPolicy()


def test_sites_at_most() -> None:
    for wanted, most in (
        ("cpu:4", 1),
        ("cpu:4, min_sites: 3", 3),
        ("cpu:4, sites: [a, b]", 2),
        ("cpu:4, sites: [a, b], max_sites: 1", 1),
    ):
        document = job(f"name: j\nrun: x\nresources: {{accelerators: {wanted}}}\n")
        assert to_request(document).max_sites == most
