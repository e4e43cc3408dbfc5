"""Runs of real ranks: equal losses however they are cut, resumed, stopped or broken."""

import os
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.unit.runtime.conftest import ENTRY, Nursery, Run, launcher, recipe_in
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from gridloom.base.system import SystemClock
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape
from gridloom.model.transformer import Experts
from gridloom.runtime.records import Result, StepMetrics
from gridloom.wire.launch import (
    EXIT_CONFIG,
    EXIT_DONE,
    EXIT_IO,
    EXIT_PEER_LOST,
    EXIT_POISONED,
    EXIT_STOPPED,
    CheckpointDone,
    Failure,
    Ready,
    StepDone,
)

EXIT_FAILED = 1
STEPS = 30
"""Of each training that is cut in one way or another: enough to learn something."""
DEVICE_FLOPS = 1e12

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def changed(recipe: GptRecipe, **fields: Any) -> GptRecipe:
    """Return the recipe with fields of its training, or of its checkpoint policy, replaced."""
    policy = {name: fields.pop(name) for name in ("interval_steps", "keep") if name in fields}
    return msgspec.structs.replace(
        recipe,
        training=msgspec.structs.replace(recipe.training, **fields),
        checkpoint=msgspec.structs.replace(recipe.checkpoint, **policy),
    )


def in_directory(recipe: GptRecipe, run: str) -> GptRecipe:
    """Return the recipe with the checkpoints of another run."""
    directory = Path(recipe.checkpoint.directory).parents[1] / run / "checkpoints"
    policy = msgspec.structs.replace(recipe.checkpoint, directory=str(directory))
    return msgspec.structs.replace(recipe, checkpoint=policy)


@dataclass(frozen=True)
class Cut:
    """Ranks of every site, how a site cuts the model, and how near the losses must be."""

    sites: tuple[int, ...]
    plan: ParallelPlan = field(default_factory=ParallelPlan)
    sync: SiteSync = field(default_factory=SiteSync)
    training: Mapping[str, Any] = field(default_factory=dict)
    within: float = 1e-4


ANEW = "was saved by {} ranks, not {}: random, sync anew"


def load_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a checkpoint, whole."""
    reader = FileSystemReader(path)
    found = reader.read_metadata().state_dict_metadata
    rooms = {
        name: torch.empty(facts.size)
        for name, facts in found.items()
        if name.startswith("model/weight.") and isinstance(facts, TensorStorageMetadata)
    }
    with warnings.catch_warnings():  # it says that there is one process
        warnings.simplefilter("ignore")
        load(rooms, storage_reader=reader, no_dist=True)
    return rooms


@pytest.fixture(scope="module")
def module_recipe(tmp_path_factory: pytest.TempPathFactory) -> GptRecipe:
    recipe = recipe_in(tmp_path_factory.mktemp("cuts"))
    return msgspec.structs.replace(changed(recipe, steps=STEPS), device_flops=DEVICE_FLOPS)


@pytest.fixture(scope="module")
def module_launch(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Any]:
    yield launcher(tmp_path_factory.mktemp("runs"), nursery)
    nursery.end_all()


def furthest(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


CUTS: dict[str, Cut] = {
    "again": Cut((1,)),
    "two": Cut((2,)),
    "two-two": Cut((2, 2)),
    "three-one": Cut((3, 1)),
    "three sites": Cut((1, 1, 1)),
    "tensor": Cut((2, 2), ParallelPlan(tensor=2, sequence_parallel=True)),
    "pipeline": Cut((2, 2), ParallelPlan(pipeline=2, micro_batch=1)),
    "context": Cut((2,), ParallelPlan(context=2)),
    "zero 3": Cut((2, 2), ParallelPlan(zero=3)),
    "8 bits": Cut((2, 2), sync=SiteSync(codec="blocks", bits=8), within=0.01),
    "bf16": Cut((2, 1), training={"precision": "bf16"}, within=0.01),
    "fp16": Cut((2, 2), training={"precision": "fp16"}, within=0.01),
    "small batches": Cut((2,), training={"micro_batch": 3}),
}


@pytest.fixture(scope="module")
def alone(module_recipe: GptRecipe, module_launch: Any) -> Run:
    run = module_launch(in_directory(module_recipe, "alone"), run="alone")
    assert run.wait() == [EXIT_DONE], run.errors
    assert len(run.losses) == STEPS
    assert run.losses[-1] < run.losses[0] - 1
    check_parts(run.metrics, run.result, sites=1)
    for row in run.metrics:
        assert row.between_site_s == row.within_site_hidden_s == 0.0
        use = row.tokens_per_s * run.result.flops_per_token / DEVICE_FLOPS
        assert row.mfu == pytest.approx(use)
    return run  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CUTS)
def test_however_the_ranks_are_cut_the_losses_are_the_same(
    name: str, module_recipe: GptRecipe, module_launch: Any, alone: Run
) -> None:
    cut = CUTS[name]
    recipe = msgspec.structs.replace(module_recipe, plan=cut.plan, sync=cut.sync)
    run = module_launch(in_directory(changed(recipe, **cut.training), name), cut.sites, run=name)
    assert run.wait() == [EXIT_DONE] * sum(cut.sites), run.errors
    assert furthest(alone.losses, run.losses) <= cut.within
    result, whole = run.result, alone.result
    assert result.bits_per_byte == pytest.approx(whole.bits_per_byte, abs=cut.within)
    assert result.bigram_bits_per_byte == whole.bigram_bits_per_byte
    assert (result.steps, result.ranks, result.parameters) == (STEPS, sum(cut.sites), 8032)
    check_parts(run.metrics, result, len(cut.sites))
    is_split = cut.plan.pipeline == 1  # else stages have the passes take turns
    assert {row.forward_s is not None for row in run.metrics} == {is_split}
    has_copies = cut.plan.replica_ranks == 1 and not cut.plan.zero
    assert {row.within_site_hidden_s is not None for row in run.metrics} == {has_copies}
    counts = result.bytes
    assert counts.between_sites.measured == pytest.approx(counts.between_sites.predicted, rel=0.1)
    if counts.within_sites.predicted is not None:
        assert counts.within_sites.measured == pytest.approx(counts.within_sites.predicted, rel=0.1)


def test_experts_are_trained_the_same_wherever_they_are(recipe: GptRecipe, launch: Any) -> None:
    experts = Experts(count=4, per_token=2, ffn=16)
    recipe = msgspec.structs.replace(
        recipe, shape=msgspec.structs.replace(recipe.shape, experts=experts)
    )
    whole = launch(in_directory(recipe, "whole"), run="whole")
    assert whole.wait() == [EXIT_DONE], whole.errors
    spread = msgspec.structs.replace(recipe, plan=ParallelPlan(expert=2))
    run = launch(in_directory(spread, "spread"), (2, 2), run="spread")
    assert run.wait() == [EXIT_DONE] * 4, run.errors
    assert furthest(whole.losses, run.losses) <= 1e-4


def test_what_a_run_writes(recipe: GptRecipe, launch: Any) -> None:
    recipe = changed(recipe, steps=5, interval_steps=2, precision="bf16")
    run = launch(recipe, (2, 1))
    assert run.wait() == [EXIT_DONE] * 3, run.errors
    lines = run.lines()
    assert lines[0] == Ready(independent_sites=True)
    assert [line.step for line in lines if isinstance(line, StepDone)] == [1, 2, 3, 4, 5]
    saved = [Path(line.path).name for line in lines if isinstance(line, CheckpointDone)]
    assert saved == ["step-00000002", "step-00000004", "step-00000005"]
    for site in ("site0", "site1"):
        kept = sorted(os.listdir(Path(recipe.checkpoint.directory) / site))
        assert kept == ["in-use.lock", *saved[1:]]
    assert run.lines(1) == []
    assert run.lines(2)[0] == Ready(independent_sites=True)
    assert not (run.directory / "metrics-site1.jsonl").exists()  # the same would stand in it
    row = run.metrics[3]
    assert (row.attempt, row.step, row.tokens) == (1, 4, 8 * 32)
    assert row.sites["site0"].tokens + row.sites["site1"].tokens == row.tokens
    assert (row.sites["site0"].ranks, row.sites["site1"].ranks) == (2, 1)
    assert row.checkpoint_s > 0 == row.sites["site0"].checkpoint_s
    assert run.metrics[4].sites["site1"].checkpoint_s > 0
    assert min(row.compute_s, row.within_site_s, row.between_site_s, row.data_s, row.now_s) > 0
    check_row(row, before=run.metrics[2])
    assert row.within_sites_bytes
    assert row.between_sites_bytes
    result = run.result
    assert (result.steps, result.ranks, result.sites) == (5, 3, {"site0": 2, "site1": 1})
    assert (result.loss_first, result.loss_last) == (run.losses[0], run.losses[-1])
    assert result.tokens == 5 * 8 * 32
    assert result.held_out_files >= 1
    assert result.device_flops is not None  # measured: nobody has told
    check_parts(run.metrics, result, sites=2)
    assert result.memory.peak_bytes_per_rank >= result.memory.before_model_bytes_per_rank > 0


def check_parts(rows: Sequence[StepMetrics], result: Result, sites: int) -> None:
    """Check that the parts of each step are all of it, and that links sum to the result."""
    for row in rows:
        parts_s = row.compute_s + row.within_site_s + row.between_site_s + row.data_s
        parts_s += row.optimizer_s + row.other_s
        assert row.step_s == pytest.approx(parts_s)
        assert row.other_s >= 0
        assert row.between_site_hidden_s >= 0
        if row.forward_s is not None:
            assert row.backward_s is not None
            assert row.compute_s == pytest.approx(row.forward_s + row.backward_s)
        assert len(row.links) == sites - 1
    over = [link.sent + link.received for row in rows for link in row.links.values()]
    assert sum(over) == result.bytes.between_sites.measured


def check_row(row: StepMetrics, before: StepMetrics) -> None:
    """Check what a row tells of two sites whose ranks have whole copies."""
    assert row.forward_s is not None
    assert row.backward_s is not None
    assert row.within_site_hidden_s is not None
    assert min(row.forward_s, row.backward_s, row.optimizer_s) > 0 <= row.within_site_hidden_s
    assert row.mfu is not None
    assert row.mfu > 0
    for site in row.sites.values():
        assert site.forward_s is not None
        assert 0 < site.forward_s < site.compute_s
        assert min(site.optimizer_s, site.step_s) > 0 <= site.between_site_hidden_s
    assert row.sites["site0"].between_site_hidden_s == pytest.approx(before.between_site_hidden_s)


def test_a_large_bucket_costs_what_is_predicted(recipe: GptRecipe, launch: Any) -> None:
    wide = GptShape(layers=1, hidden=512, heads=4, kv_heads=4, ffn=1024, tied_embeddings=False)
    recipe = msgspec.structs.replace(changed(recipe, steps=2), shape=wide)
    run = launch(recipe, (2,))
    assert run.wait() == [EXIT_DONE] * 2, run.errors
    count = run.result.bytes.within_sites
    assert count.predicted > 2 * 2 * 11e6
    assert count.measured == pytest.approx(count.predicted, rel=0.01)
    two = launch(in_directory(recipe, "two"), (2, 1), run="two")
    assert two.wait() == [EXIT_DONE] * 3, two.errors
    for count in (two.result.bytes.within_sites, two.result.bytes.between_sites):
        assert count.predicted > 2 * 2 * 11e6
        assert count.measured == pytest.approx(count.predicted, rel=0.01)


def test_stopped_and_resumed_with_other_ranks_is_as_if_undisturbed(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=80, interval_steps=1000)
    straight = launch(in_directory(recipe, "straight"), (1,), run="straight")
    stopped = launch(recipe, (1, 1))
    while len(stopped.lines()) < 6:
        SystemClock().sleep(0.01)
    stopped.signal(1, signal.SIGINT)  # not a request: the agent's terminal
    stopped.signal(1, signal.SIGTERM)
    assert stopped.wait() == [EXIT_STOPPED] * 2, stopped.errors
    done = len(stopped.losses)
    assert 5 <= done < 80
    assert [line.step for line in (stopped.lines()[-1], stopped.lines(1)[-1])] == [done, done]
    told = len(stopped.lines())
    sharded = msgspec.structs.replace(recipe, plan=ParallelPlan(zero=3))
    resumed = launch(sharded, (2,), attempt=2)
    while len(resumed.lines()) < told + 6:
        SystemClock().sleep(0.01)
    resumed.signal(0, signal.SIGTERM)
    assert resumed.wait() == [EXIT_STOPPED] * 2, resumed.errors
    assert Ready(resumed_step=done, notes=(ANEW.format(1, 2),)) in resumed.lines()
    again = len(resumed.losses)
    assert done + 5 <= again < 80
    cut = msgspec.structs.replace(recipe, plan=ParallelPlan(tensor=2))
    last = launch(cut, (2, 2), attempt=3)
    assert last.wait() == [EXIT_DONE] * 4, last.errors
    assert straight.wait() == [EXIT_DONE], straight.errors
    ready = [line for line in last.lines(2) if isinstance(line, Ready)]
    assert ready[-1].resumed_step == again
    assert ready[-1].notes[-1] == f"takes over training step {again} from another site"
    assert furthest(straight.losses, last.losses) <= 1e-4
    assert [row.step for row in last.metrics] == list(range(1, 81))
    assert last.metrics[-1].attempt == 3
    once_more = launch(recipe, (1,), attempt=4)
    assert once_more.wait() == [EXIT_DONE], once_more.errors
    assert len(once_more.losses) == 80
    assert once_more.result.bytes.steps == 0
    assert once_more.result.bits_per_byte == pytest.approx(last.result.bits_per_byte, abs=1e-6)


def test_a_site_with_an_older_checkpoint_takes_the_others_state(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=9, interval_steps=4, min_learning_rate=3e-3)
    first = launch(recipe, (2, 1))
    assert first.wait() == [EXIT_DONE] * 3, first.errors
    newest = Path(recipe.checkpoint.directory) / "site1" / "step-00000009"
    for file in newest.iterdir():
        file.write_bytes(b"")
    longer = changed(recipe, steps=12)
    second = launch(longer, (2, 1), attempt=2)
    assert second.wait() == [EXIT_DONE] * 3, second.errors
    (ready,) = [line for line in second.lines(2) if isinstance(line, Ready)][1:]
    assert ready.resumed_step == 9
    assert ready.notes[-1] == "takes over training step 9 from another site"
    straight = launch(in_directory(longer, "straight"), run="straight")
    assert straight.wait() == [EXIT_DONE], straight.errors
    assert furthest(straight.losses[9:], second.losses[9:]) <= 1e-4
    assert len(second.losses) == 12


def test_sites_that_exchange_weights_train_by_themselves_and_end_with_one_model(
    recipe: GptRecipe, launch: Any
) -> None:
    how = SiteSync(kind="outer", every=4, fragments=2, codec="blocks", bits=8)
    recipe = msgspec.structs.replace(changed(recipe, steps=24, interval_steps=10), sync=how)
    run = launch(recipe, (2, 2))
    assert run.wait() == [EXIT_DONE] * 4, run.errors
    mine, theirs = run.metrics, run.metrics_in("metrics-site1.jsonl")
    assert [row.step for row in mine] == [row.step for row in theirs] == list(range(1, 25))
    assert [list(row.sites) for row in (mine[0], theirs[0])] == [["site0"], ["site1"]]
    assert mine[0].loss != theirs[0].loss
    assert mine[0].tokens == theirs[0].tokens == 4 * 32
    assert mine[-1].loss < mine[0].loss - 0.3
    rounds = [one for row in mine for one in row.rounds]
    both = ("site0", "site1")
    # who trains more slowly may hold a round alone when the other has done its steps; after the
    # last step each fragment passes twice, between both
    assert {one.sites for one in rounds} <= {both, ("site0",), ("site1",)}
    assert [one.sites for one in rounds[-4:]] == [both] * 4, run.errors
    assert all(one.norm > 0 and (one.cosine is None) == (one.sites != both) for one in rounds)
    counts = run.result.bytes
    assert counts.within_sites.measured is None
    check_parts(mine, run.result, sites=2)
    assert 0.5 < counts.between_sites.measured / counts.between_sites.predicted < 3
    weights = [
        load_weights(Path(recipe.checkpoint.directory) / site / "step-00000024")
        for site in ("site0", "site1")
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_another_cut_or_method_goes_on_with_the_same_weights(
    recipe: GptRecipe, launch: Any
) -> None:
    how = SiteSync(kind="outer", every=4, fragments=2)
    recipe = changed(recipe, steps=12, min_learning_rate=3e-3)
    first = launch(msgspec.structs.replace(recipe, sync=how), (1, 1))
    assert first.wait() == [EXIT_DONE] * 2, first.errors
    second = launch(changed(msgspec.structs.replace(recipe, sync=how), steps=20), (2, 2), attempt=2)
    assert second.wait() == [EXIT_DONE] * 4, second.errors
    third = launch(changed(recipe, steps=28), (2, 2), attempt=3)
    assert third.wait() == [EXIT_DONE] * 4, third.errors
    losses = third.losses
    assert len(losses) == 28
    for end in (12, 20):  # no jump up where the next one begins
        assert losses[end] < losses[end - 2]
    notes = [line.notes for line in third.lines() if isinstance(line, Ready)]
    assert notes == [(), (ANEW.format(1, 2),), ()]


def test_gradients_of_several_steps_are_exchanged_together(recipe: GptRecipe, launch: Any) -> None:
    gathered = msgspec.structs.replace(
        changed(recipe, steps=10, interval_steps=3), sync=SiteSync(kind="accumulated", every=4)
    )
    run = launch(gathered, (2, 1))
    assert run.wait() == [EXIT_DONE] * 3, run.errors
    rows = run.metrics
    assert [row.step for row in rows] == list(range(1, 11))
    assert [row.grad_norm is not None for row in rows] == [
        step in (4, 8, 10) for step in range(1, 11)
    ]
    assert {row.tokens for row in rows if row.grad_norm is not None} == {8 * 32}
    saved = [line.step for line in run.lines() if isinstance(line, CheckpointDone)]
    assert saved == [4, 8, 10]
    # the same as if there were one process
    whole = launch(in_directory(gathered, "whole"), run="whole")
    assert whole.wait() == [EXIT_DONE], whole.errors
    for row, other in zip(rows, whole.metrics, strict=True):
        if row.grad_norm is not None:
            assert row.loss == pytest.approx(other.loss, abs=1e-4)


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=8, interval_steps=3)
    first = launch(recipe)
    assert first.wait() == [EXIT_DONE], first.errors
    shard = Path(recipe.checkpoint.directory) / "site0" / "step-00000008" / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    second = launch(recipe, attempt=2)
    assert second.wait() == [EXIT_DONE], second.errors
    ready = [line for line in second.lines() if isinstance(line, Ready)][1]
    assert ready.resumed_step == 6
    assert "step-00000008: __0_0.distcp has" in ready.notes[0]
    losses = second.losses
    assert furthest(losses[6:8], losses[8:10]) <= 1e-6
    narrower = msgspec.structs.replace(recipe.shape, ffn=16)
    other = launch(msgspec.structs.replace(recipe, shape=narrower), attempt=3)
    assert other.wait() == [EXIT_CONFIG]
    failure = other.lines()[-1]
    assert isinstance(failure, Failure)
    assert failure.message.startswith("model.ffn: is 16, the checkpoint")
    assert failure.remedy == "restore it, or give the job a fresh checkpoint.directory"


def test_a_resumed_job_reads_the_same_text_in_the_same_order(
    recipe: GptRecipe, launch: Any
) -> None:
    first = launch(changed(recipe, steps=2))
    assert first.wait() == [EXIT_DONE], first.errors
    more = launch(changed(recipe, steps=4, learning_rate=1e-4), job="job-2")
    assert more.wait() == [EXIT_DONE], more.errors
    ready = [line for line in more.lines() if isinstance(line, Ready)][1]
    assert ready == Ready(resumed_step=2, notes=("goes on from training step 2 of job job-1",))
    text = next(Path(recipe.data.text[0]).iterdir())
    text.write_text(text.read_text() + "another line\n")
    other = launch(changed(recipe, steps=6, seed=7))
    assert other.wait() == [EXIT_CONFIG]
    message = other.lines()[-1].message
    assert "seed: is 7, the checkpoint" in message
    assert "data.text: the text is not what the checkpoint" in message


def test_damaged_checkpoints_are_not_started_over_from(recipe: GptRecipe, launch: Any) -> None:
    first = launch(changed(recipe, steps=2))
    assert first.wait() == [EXIT_DONE], first.errors
    saved = Path(recipe.checkpoint.directory) / "site0" / "step-00000002"
    (saved / "manifest.json").unlink()
    second = launch(changed(recipe, steps=4), attempt=2)
    assert second.wait() == [EXIT_CONFIG]
    failure = second.lines()[-1]
    assert "none of the checkpoints" in failure.message
    assert "step-00000002 is not complete" in failure.message
    assert failure.remedy == "restore one, or remove them to start over"


def test_two_jobs_do_not_share_a_directory(recipe: GptRecipe, launch: Any) -> None:
    first = launch(changed(recipe, steps=100_000))
    while len(first.lines()) < 3:
        SystemClock().sleep(0.01)
    second = launch(changed(recipe, steps=4), (2,), run="second", job="job-2")
    assert second.wait() == [EXIT_CONFIG] * 2
    failure = second.lines()[-1]
    assert "another training keeps its checkpoints" in failure.message
    assert failure.remedy == "give each one of its own"


def test_a_dead_peer_is_told_in_one_line(recipe: GptRecipe, launch: Any) -> None:
    run = launch(changed(recipe, steps=100_000), (2,))
    while len(run.lines()) < 3:
        SystemClock().sleep(0.01)
    run.signal(1, signal.SIGKILL)
    assert run.wait() == [EXIT_PEER_LOST, -signal.SIGKILL]
    assert "another rank went away" in run.errors[0]
    assert "Traceback" not in run.errors[0]
    assert not [line for line in run.lines() if isinstance(line, Failure)]


def test_who_waits_for_a_lost_site_and_is_stopped_is_its_victim(
    recipe: GptRecipe, launch: Any
) -> None:
    run = launch(changed(recipe, steps=100_000), (1, 1))
    while len(run.lines()) < 3:
        SystemClock().sleep(0.01)
    run.signal(1, signal.SIGKILL)
    assert run.wait_for(1) == -signal.SIGKILL
    run.signal(0, signal.SIGTERM)  # as the control plane does
    assert run.wait() == [EXIT_PEER_LOST, -signal.SIGKILL]
    assert "site1 went away" in run.errors[0]


def test_a_site_that_exchanges_weights_outlives_the_others(recipe: GptRecipe, launch: Any) -> None:
    how = SiteSync(kind="outer", every=4)
    recipe = msgspec.structs.replace(changed(recipe, steps=100_000), sync=how)
    run = launch(recipe, (1, 1))
    while len(run.lines()) < 3:
        SystemClock().sleep(0.01)
    run.signal(1, signal.SIGKILL)
    assert run.wait_for(1) == -signal.SIGKILL
    seen = len(run.lines())
    while len(run.lines()) < seen + 5:
        SystemClock().sleep(0.01)
    run.signal(0, signal.SIGTERM)
    assert run.wait() == [EXIT_STOPPED, -signal.SIGKILL], run.errors
    assert isinstance(run.lines()[-2], CheckpointDone) or isinstance(
        run.lines()[-1], CheckpointDone
    )


def test_a_disk_that_is_full_at_one_rank_stops_all_of_them(recipe: GptRecipe, launch: Any) -> None:
    recipe = changed(recipe, steps=4, interval_steps=2)
    first = launch(recipe, (2,), run="first", small_files_rank=1)
    assert first.wait() == [EXIT_IO] * 2, first.errors
    assert os.listdir(Path(recipe.checkpoint.directory) / "site0") == ["in-use.lock"]
    failure = first.lines()[-1]
    assert isinstance(failure, Failure)
    assert "rank 1: " in failure.message
    assert "File too large" in failure.message
    assert "bytes) there: make room" in failure.remedy


def test_a_checkpoint_directory_that_cannot_be(recipe: GptRecipe, launch: Any) -> None:
    (Path(recipe.checkpoint.directory).parents[1] / "file").write_text("")
    blocked = str(Path(recipe.checkpoint.directory).parents[1] / "file" / "checkpoints")
    policy = CheckpointPolicy(directory=blocked)
    run = launch(msgspec.structs.replace(recipe, checkpoint=policy))
    assert run.wait() == [EXIT_IO], run.errors
    assert "Not a directory" in run.lines()[-1].message


def test_a_loss_that_is_no_number_stops_all_and_saves_nothing(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=60, interval_steps=60, learning_rate=1e38, clip_norm=0)
    run = launch(recipe, (1, 1))
    assert run.wait() == [EXIT_POISONED] * 2, run.errors
    failure = run.lines()[-1]
    assert isinstance(failure, Failure)
    assert failure.message.startswith("the loss of step")
    assert "lower optimizer.learning_rate" in failure.remedy
    assert os.listdir(Path(recipe.checkpoint.directory) / "site0") == ["in-use.lock"]


def test_data_that_is_missing_is_the_jobs_fault(recipe: GptRecipe, launch: Any) -> None:
    data = msgspec.structs.replace(recipe.data, text=("/nowhere",))
    run = launch(msgspec.structs.replace(recipe, data=data))
    assert run.wait() == [EXIT_CONFIG]
    failure = run.lines()[-1]
    assert isinstance(failure, Failure)
    assert failure.message == "data.text: /nowhere names no file"
    assert "give a file" in failure.remedy


def test_sites_with_other_text_do_not_train_on(
    recipe: GptRecipe, launch: Any, tmp_path: Path
) -> None:
    places = [tmp_path / "here", tmp_path / "there"]
    for place in places:
        place.mkdir()
        (place / "book.txt").write_text(f"What is written {place.name}. " * 20)
    data = msgspec.structs.replace(recipe.data, text=("book.txt",), held_out=0.0)
    run = launch(msgspec.structs.replace(recipe, data=data), (1, 1), started_in=places)
    assert run.wait() == [EXIT_CONFIG] * 2, run.errors
    failure = run.lines()[-1]
    assert failure.message == "sync: site1 and this site do not train the same thing"
    assert "the same model, cut, seed, text" in failure.remedy


def test_cuts_that_cannot_be_are_the_jobs_fault(recipe: GptRecipe, launch: Any) -> None:
    cases = {
        "parallel: a copy of the model takes 2 ranks, and a site has 1": (
            (2, 1), ParallelPlan(tensor=2), {},
        ),
        "resources.accelerators: a model is spread over the ranks of a site": (
            (2, 1), ParallelPlan(zero=3), {"global_batch": 9},
        ),
        "global_batch: is 9, and 2 copies of the model must have equal shares": (
            (2,), ParallelPlan(zero=1), {"global_batch": 9},
        ),
        "global_batch: is 1, fewer sequences than there are copies of the model (2)": (
            (1, 1), ParallelPlan(), {"global_batch": 1},
        ),
    }  # fmt: skip
    for message, (sites, plan, training) in cases.items():
        run = launch(changed(msgspec.structs.replace(recipe, plan=plan), **training), sites)
        assert run.wait() == [EXIT_CONFIG] * sum(sites), run.errors
        assert run.lines()[-1].message.startswith(message)


def test_a_fault_of_ours_is_told_in_full(recipe: GptRecipe, launch: Any) -> None:
    policy = msgspec.structs.replace(recipe.checkpoint, directory="a\0b")
    run = launch(msgspec.structs.replace(recipe, checkpoint=policy))
    assert run.wait() == [EXIT_FAILED]
    assert "Traceback" in run.errors[0]
    assert run.lines()[-1].message.startswith("ValueError: ")


def test_a_recipe_that_is_none(recipe: GptRecipe, launch: Any) -> None:
    broken = launch(msgspec.structs.replace(recipe, shape="round"))
    assert broken.wait() == [EXIT_CONFIG]
    assert "recipe.json cannot be used" in broken.lines()[-1].message


def test_outside_of_gridloom_it_says_who_starts_it(tmp_path: Path, nursery: Nursery) -> None:
    run = nursery.run(ENTRY, [], {}, tmp_path / "said")
    assert run.lines(code=EXIT_CONFIG) == []
    assert "is not set: this program is started by gridloom" in run.errors.read_text()
