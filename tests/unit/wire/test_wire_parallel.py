"""The `parallel` of a job file: what it means, and every cut that cannot be, with its line."""

from typing import Any

import pytest
import yaml

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts
from gridloom.wire.convert import to_request
from gridloom.wire.documents import read_job

JOB: dict[str, Any] = {
    "name": "j",
    "recipe": "gpt",
    "model": {"layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96},
    "steps": 10,
    "global_batch": 16,
    "sequence_length": 64,
    "resources": {"accelerators": "cpu:4"},
}
EXPERTS = {"count": 6, "per_token": 2, "ffn": 32}
SPARSE = JOB["model"] | {"experts": EXPERTS}
TWO_SITES = {"accelerators": "cpu:8", "min_sites": 2}


def text(parallel: Any, **changes: Any) -> bytes:
    return yaml.safe_dump(JOB | changes | {"parallel": parallel}, sort_keys=False).encode()


def problems(parallel: Any, **changes: Any) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read_job(text(parallel, **changes), "job.yaml")
    return caught.value.problems


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"tensor": 4}, {}, "parallel.tensor: is 4, must divide the model's kv_heads (2); choose a"),
    ({"tensor": 2}, {"model": SPARSE | {"experts": EXPERTS | {"ffn": 31}}},
     "parallel.tensor: is 2, must divide the model's experts.ffn (31); choose a divisor of 31"),
    ({"tensor": 2}, {"sequence_length": 63},
     "sequence_length: 63 tokens cannot be cut into 2 equal chunks; choose a multiple of 2"),
    ({"context": 2, "tensor": 2}, {"sequence_length": 68 + 2},
     "sequence_length: 70 tokens cannot be cut into 8 equal chunks; choose a multiple of 8"),
    ({"pipeline": 8}, {"resources": {"accelerators": "cpu:8"}},
     "parallel.pipeline: 8 stages are more than the 4 layers; at most 4 stages"),
    ({"pipeline": 4}, {"global_batch": 3},
     "parallel.pipeline: a batch of 3 sequences a rank is 3 micro-batches of 1, fewer than"),
    ({"pipeline": 4}, {"micro_batch": 3},
     "micro_batch: a batch of 16 sequences a rank is not whole micro-batches of 3; choose a batch"),
    ({"pipeline": 2}, {"global_batch": 15},
     "global_batch: is 15, and 2 copies of the model must have equal shares of it; choose a multi"),
    ({"zero": 2}, {"global_batch": 6},
     "global_batch: is 6, and 4 copies of the model must have equal shares of it; choose a multip"),
    ({"tensor": 2}, {"global_batch": 1},
     "global_batch: is 1, fewer sequences than there are copies of the model (2); write at least"),
    ({}, {"global_batch": 2, "resources": {"accelerators": "cpu:4-8"}},
     "global_batch: is 2, fewer sequences than there are copies of the model (4); write at least"),
    ({}, {"global_batch": 3}, "global_batch: is 3, fewer sequences than there are copies of the "
     "model (4); write at least 4"),
    ({"tensor": 2, "context": 2, "pipeline": 2}, {},
     "parallel: a copy of the model takes 8 devices (tensor x pipeline x context); ask for a mult"),
    ({"tensor": 2}, {"resources": {"accelerators": "cpu:6", "min_sites": 2}},
     "parallel: a copy of the model takes 2 devices (tensor x pipeline x context), and 2 sites"),
    ({"tensor": 2, "data": 3}, {"resources": {"accelerators": "cpu:2-8", "min_sites": 2}},
     "parallel.data: 3 copies cannot be shared evenly among 2 sites; write a multiple of 2"),
    ({"tensor": 2, "data": 4}, {},
     "parallel.data: the degrees make 8 devices, which `accelerators` does not allow; ask for `cp"),
    ({"zero": 1}, {"resources": {"accelerators": "cpu:4", "sites": ["a", "b"]}},
     "resources.min_sites: a model is cut over the ranks of a site, so all sites must have as many"
     ", and this job may run at 1 to 2 sites; write `min_sites: 2`, or `max_sites: 1`"),
    ({"expert": 2}, {}, "parallel.expert: is 2, and the model has no experts; write 1"),
    ({"expert": 4}, {"model": SPARSE}, "parallel.expert: is 4, must divide the 6 experts; choose"),
    ({"expert": 3}, {"model": SPARSE},
     "parallel.expert: is 3, must divide data x context of a site (4); choose a divisor of 4"),
    ({"shard": 2}, {}, "parallel.shard: nothing is sharded with zero 0; set zero to 1, 2 or 3"),
    ({"zero": 3, "shard": 3}, {}, "parallel.shard: is 3, must divide data x context of a site (4)"),
    ({"recompute_layers": 1}, {}, "parallel.recompute_layers: counts layers that `recompute"),
    ({"offload": "parameters"}, {}, "parallel.offload: parameters, gradients and optimizer go "),
    ({"pipeline": 2, "virtual_stages": 2}, {}, "parallel.virtual_stages: need another schedule; i"),
    ({"pipeline": 2, "stage_layers": [3, 3]}, {}, "parallel.stage_layers: [3, 3] must be at"),
    ({"zero": 4}, {}, "parallel.zero: found `4`; write a whole number from 0 to 3"),
    ({"schedule": "gpipe"}, {}, "parallel.schedule: found `gpipe`; write one of `1f1b`, `inter"),
    ({"offload": ["weights"]}, {}, "parallel.offload: found `weights`; write one of `optimizer`"),
    ({"stage_layers": 2}, {}, "parallel.stage_layers: found `2`; write a list of layers a stage"),
    ({"zero": 3}, {"resources": TWO_SITES, "sync": {"codec": "low_rank"}},
     "sync.codec: `low_rank` works on whole matrices, and with `zero` ranks have parts of them; w"),
]  # fmt: skip


@pytest.mark.parametrize(("parallel", "changes", "said"), BAD)
def test_a_cut_that_cannot_be_is_told_when_the_job_is_read(
    parallel: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    found = problems(parallel, **changes)
    lines = yaml.safe_dump(JOB | changes | {"parallel": parallel}, sort_keys=False).splitlines()
    (one, *_) = [p for p in found if f"{p.field}: {p.message}; {p.remedy}".startswith(said)]
    assert one.remedy
    # where it is written, or what is nearest around it
    assert set(one.field.split(".")) & set(lines[one.line - 1].replace(":", "").split())


def test_all_of_a_cut_s_faults_are_told_at_once() -> None:
    found = problems({"tensor": 4, "zero": 1}, sequence_length=31, global_batch=0)
    assert sorted(p.field for p in found) == ["global_batch", "parallel.tensor", "sequence_length"]


MODELS: list[tuple[dict[str, Any], str]] = [
    ({"per_token": 7}, "model.experts.per_token: is 7, but a layer has 6 experts; write at most 6"),
    ({"dense_layers": 4}, "model.experts.dense_layers: is 4, and no layer of 4 is left for expert"),
    ({"shared_gate": True}, "model.experts.shared_gate: weighs shared experts, and there are none"),
    ({"capacity_factor": 1}, "model.experts.capacity_factor: unknown field; known here: count, pe"),
]


@pytest.mark.parametrize(("experts", "said"), MODELS)
def test_experts_that_cannot_be(experts: dict[str, Any], said: str) -> None:
    (one,) = problems({}, model=SPARSE | {"experts": EXPERTS | experts})
    assert f"{one.field}: {one.message}; {one.remedy}".startswith(said)


@pytest.mark.parametrize(
    ("parallel", "changes", "plan"),
    [
        ({"tensor": 2}, {}, ParallelPlan(tensor=2)),
        ({"tensor": 1}, {}, ParallelPlan()),  # whole copies, and not as the planner likes
        (
            {"tensor": 2, "sequence_parallel": True, "zero": 3, "recompute": "selective"},
            {"resources": TWO_SITES},
            ParallelPlan(tensor=2, sequence_parallel=True, zero=3, recompute="selective"),
        ),
        (
            {"pipeline": 2, "virtual_stages": 2, "schedule": "interleaved"},
            {},
            ParallelPlan(pipeline=2, virtual_stages=2, schedule="interleaved"),
        ),
        (
            {"pipeline": 2, "stage_layers": [3, 1], "offload": ["activations"]},
            {},
            ParallelPlan(pipeline=2, stage_layers=(3, 1), offload=("activations",)),
        ),
        (
            {"expert": 2, "tensor": 2},
            {"model": SPARSE | {"router_loss": 0.1}, "resources": TWO_SITES},
            ParallelPlan(expert=2, tensor=2, expert_tensor=2),
        ),
        ({"context": 2, "data": 2}, {}, ParallelPlan(context=2)),
    ],
)
def test_a_cut_is_a_plan(
    parallel: dict[str, Any], changes: dict[str, Any], plan: ParallelPlan
) -> None:
    request = to_request(read_job(text(parallel, **changes), "job.yaml").document)
    assert (request.cut, request.data) == (plan, parallel.get("data", 0))


@pytest.mark.parametrize("parallel", ["auto", {}, {"data": "auto"}, {"data": 4}])
def test_where_nothing_is_said_of_the_cut_it_is_the_planner_s(parallel: Any) -> None:
    assert to_request(read_job(text(parallel), "job.yaml").document).cut == "auto"


def test_devices_that_the_planner_knows_may_be_more_than_the_sequences() -> None:
    more = {"resources": {"accelerators": "h100:64"}}
    assert to_request(read_job(text("auto", **more), "job.yaml").document).cut == "auto"
    (one,) = problems({"tensor": 1}, **more)
    assert one.field == "global_batch"


def test_a_program_of_one_s_own_is_cut_as_it_says_and_no_model_is_asked() -> None:
    own = b"name: j\nrun: x\nresources: {accelerators: cpu:6, sites: [a, b]}\n"
    request = to_request(read_job(own + b"parallel: {tensor: 3, zero: 1}\n", "j").document)
    assert request.cut == ParallelPlan(tensor=3, zero=1)
    assert to_request(read_job(own, "j").document).cut == ParallelPlan()


def test_a_model_of_experts_is_the_planner_s_noun() -> None:
    said = EXPERTS | {"shared_ffn": 16, "shared_gate": True, "dense_layers": 1, "every": 3}
    request = to_request(
        read_job(text({}, model=SPARSE | {"experts": said, "router_loss": 0.2}), "j").document
    )
    assert request.shape is not None
    assert request.shape.experts == Experts(
        count=6, per_token=2, ffn=32, shared_ffn=16, shared_gate=True, dense_layers=1, every=3
    )
    assert request.shape.router_loss == 0.2
