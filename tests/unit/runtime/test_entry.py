"""Runs of real ranks: equal losses however they are cut, resumed, stopped or broken."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridloom.base.system import SystemClock
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape
from gridloom.wire.launch import (
    EXIT_CONFIG,
    EXIT_DONE,
    EXIT_IO,
    EXIT_PEER_LOST,
    EXIT_STOPPED,
    CheckpointDone,
    Failure,
    Ready,
    StepDone,
)

EXIT_FAILED = 1

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # importing torch is seconds a rank


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


def furthest(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def test_however_the_ranks_are_cut_the_losses_are_the_same(recipe: GptRecipe, launch: Any) -> None:
    recipe = changed(recipe, steps=50, micro_batch=3)
    cuts: dict[str, tuple[int, ...]] = {
        "one": (1,), "again": (1,), "two-two": (2, 2), "three-one": (3, 1),
    }  # fmt: skip
    runs = {}
    for name, sites in cuts.items():
        runs[name] = launch(in_directory(recipe, name), sites, run=name)
        assert runs[name].wait() == [EXIT_DONE] * sum(sites), runs[name].errors
    alone = runs["one"].losses
    assert len(alone) == 50
    assert alone[-1] < alone[0] - 1
    assert furthest(alone, runs["again"].losses) <= 1e-6
    assert furthest(alone, runs["two-two"].losses) <= 1e-4
    assert furthest(alone, runs["three-one"].losses) <= 1e-4
    whole = runs["one"].result
    for run in (runs["two-two"], runs["three-one"]):
        result = run.result
        assert result.bits_per_byte == pytest.approx(whole.bits_per_byte, abs=1e-4)
        assert result.bigram_bits_per_byte == whole.bigram_bits_per_byte
        for count in (result.bytes.within_sites, result.bytes.between_sites):
            assert count.measured == pytest.approx(count.predicted, rel=0.03)
    assert whole.bytes.between_sites.predicted == whole.bytes.between_sites.measured == 0


def test_what_a_run_writes(recipe: GptRecipe, launch: Any) -> None:
    recipe = changed(recipe, steps=5, interval_steps=2, precision="bf16")
    run = launch(recipe, (2, 1))
    assert run.wait() == [EXIT_DONE] * 3, run.errors
    lines = run.lines()
    assert lines[0] == Ready()
    assert [line.step for line in lines if isinstance(line, StepDone)] == [1, 2, 3, 4, 5]
    saved = [Path(line.path).name for line in lines if isinstance(line, CheckpointDone)]
    assert saved == ["step-00000002", "step-00000004", "step-00000005"]
    kept = sorted(os.listdir(recipe.checkpoint.directory))
    assert kept == ["in-use.lock", *saved[1:]]
    assert run.lines(1) == []
    assert run.lines(2)[0] == Ready()
    row = run.metrics[3]
    assert (row.attempt, row.step, row.tokens) == (1, 4, 8 * 32)
    assert row.sites["site0"].tokens + row.sites["site1"].tokens == row.tokens
    assert (row.sites["site0"].ranks, row.sites["site1"].ranks) == (2, 1)
    assert row.checkpoint_s > 0 == row.sites["site0"].checkpoint_s
    assert run.metrics[4].sites["site1"].checkpoint_s > 0
    assert min(row.compute_s, row.within_site_s, row.between_site_s, row.data_s, row.now_s) > 0
    assert row.within_sites_bytes
    assert row.between_sites_bytes
    result = run.result
    assert (result.steps, result.ranks, result.sites) == (5, 3, {"site0": 2, "site1": 1})
    assert (result.loss_first, result.loss_last) == (run.losses[0], run.losses[-1])
    assert result.tokens == 5 * 8 * 32
    assert result.held_out_files >= 1
    assert result.memory.peak_bytes_per_rank >= result.memory.before_model_bytes_per_rank > 0


def test_a_large_bucket_costs_what_is_predicted(recipe: GptRecipe, launch: Any) -> None:
    wide = GptShape(layers=1, hidden=512, heads=4, kv_heads=4, ffn=1024, tied_embeddings=False)
    recipe = msgspec.structs.replace(changed(recipe, steps=2), shape=wide)
    run = launch(recipe, (2,))
    assert run.wait() == [EXIT_DONE] * 2, run.errors
    count = run.result.bytes.within_sites
    assert count.predicted > 2 * 2.5 * 11e6
    assert count.measured == pytest.approx(count.predicted, rel=0.01)


def test_stopped_and_resumed_with_other_ranks_is_as_if_undisturbed(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=200, interval_steps=1000)
    straight = launch(in_directory(recipe, "straight"), (1,), run="straight")
    stopped = launch(recipe, (1, 1))
    while len(stopped.lines()) < 6:
        SystemClock().sleep(0.01)
    stopped.processes[1].send_signal(signal.SIGINT)  # not a request: the agent's terminal
    stopped.processes[1].send_signal(signal.SIGTERM)
    assert stopped.wait() == [EXIT_STOPPED] * 2, stopped.errors
    done = len(stopped.losses)
    assert 5 <= done < 200
    assert stopped.lines()[-1].step == done
    resumed = launch(recipe, (1,), attempt=2)
    assert resumed.wait() == [EXIT_DONE], resumed.errors
    assert straight.wait() == [EXIT_DONE], straight.errors
    assert Ready(resumed_step=done) in resumed.lines()
    assert furthest(straight.losses, resumed.losses) <= 1e-4
    assert [row.step for row in resumed.metrics] == list(range(1, 201))
    assert resumed.metrics[-1].attempt == 2
    again = launch(recipe, (1,), attempt=3)
    assert again.wait() == [EXIT_DONE], again.errors
    assert len(again.losses) == 200
    assert again.result.bytes.steps == 0
    assert again.result.bits_per_byte == pytest.approx(resumed.result.bits_per_byte, abs=1e-9)


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(
    recipe: GptRecipe, launch: Any
) -> None:
    recipe = changed(recipe, steps=8, interval_steps=3)
    first = launch(recipe)
    assert first.wait() == [EXIT_DONE], first.errors
    shard = Path(recipe.checkpoint.directory) / "step-00000008" / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    second = launch(recipe, attempt=2)
    assert second.wait() == [EXIT_DONE], second.errors
    ready = [line for line in second.lines() if isinstance(line, Ready)][1]
    assert ready.resumed_step == 6
    assert "step-00000008: shard-00000.safetensors has" in ready.notes[0]
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
    (Path(recipe.checkpoint.directory) / "step-00000002" / "manifest.json").unlink()
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
    second = launch(changed(recipe, steps=4), (1, 1), run="second", job="job-2")
    assert second.wait() == [EXIT_CONFIG] * 2
    failure = second.lines()[-1]
    assert "another job keeps its checkpoints" in failure.message
    assert failure.remedy == "give each job a directory of its own"


def test_a_dead_peer_is_told_in_one_line(recipe: GptRecipe, launch: Any) -> None:
    run = launch(changed(recipe, steps=100_000), (1, 1))
    while len(run.lines()) < 3:
        SystemClock().sleep(0.01)
    run.processes[1].kill()
    assert run.wait() == [EXIT_PEER_LOST, -signal.SIGKILL]
    assert "another rank went away" in run.errors[0]
    assert "Traceback" not in run.errors[0]
    assert not [line for line in run.lines() if isinstance(line, Failure)]


def test_a_disk_that_is_full_at_one_rank_stops_all_of_them(recipe: GptRecipe, launch: Any) -> None:
    recipe = changed(recipe, steps=4, interval_steps=2)
    first = launch(recipe, (2,), run="first", small_files_rank=1)
    assert first.wait() == [EXIT_IO] * 2, first.errors
    assert os.listdir(recipe.checkpoint.directory) == ["in-use.lock"]
    failure = first.lines()[-1]
    assert isinstance(failure, Failure)
    assert "rank 1: File too large" in failure.message
    assert "bytes) there: make room" in failure.remedy
    assert str(8032 * 3 * 4) in failure.remedy


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
    assert run.wait() == [EXIT_FAILED] * 2, run.errors
    failure = run.lines()[-1]
    assert isinstance(failure, Failure)
    assert failure.message.startswith("the loss of step")
    assert "lower optimizer.learning_rate" in failure.remedy
    assert os.listdir(recipe.checkpoint.directory) == ["in-use.lock"]


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
    assert run.lines()[-1].message == "data.text: rank 1 reads other text than rank 0"


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


def test_outside_of_gridloom_it_says_who_starts_it() -> None:
    run = subprocess.run(
        ["env", "--unset=RANK", sys.executable, "-m", "gridloom.runtime.entry"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == EXIT_CONFIG
    assert "is not set: this program is started by gridloom" in run.stderr
