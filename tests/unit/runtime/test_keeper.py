"""Whatever a training consists of goes on to the bit, and no crash costs more than one save."""

import functools
import json
import runpy
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.unit.runtime.conftest import Nursery
from tests.unit.runtime.disks import Crash, DyingDisk
from tests.unit.runtime.inside.layouts import DENSE, TRAINING, batch, plan
from tests.unit.runtime.keeping import (
    EXAMPLE,
    LAST,
    SAVED,
    Training,
    is_equal,
    keeper,
    whole_and_resumed,
)
from tests.unit.runtime.wan.two_sites import free_ports
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.runtime.disk import Disk
from gridloom.runtime.failure import StorageError
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize_gpt
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.keeper import Keeper, KeepPolicy
from gridloom.runtime.place import Place
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.shelf import MANIFEST
from gridloom.wire.launch import EXIT_STOPPED, AnyLine, CheckpointDone, Ready, StepDone

PLACE = Place(
    job_id="job-1", site="north", sites=("north", "south"), rank=0, size=1, local_rank=0,
    address="", store=("", 0), speakers={},
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return one process that is a site of two."""
    place = replace(PLACE, report_file=str(tmp_path / "report.jsonl"))
    return Run(place, SystemClock(), StopWish())


def lines(run: Run) -> list[AnyLine]:
    text = Path(run.place.report_file).read_bytes()
    return [msgspec.json.decode(line, type=AnyLine) for line in text.splitlines()]


class Number:
    """The smallest part: a tensor, and as a number."""

    def __init__(self, value: float = 0.0) -> None:
        self.tensor = torch.full((50,), value)

    def state_dict(self) -> dict[str, object]:
        return {"tensor": self.tensor, "value": float(self.tensor[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert set(state["tensor"].tolist()) == {state["value"]}
        self.tensor = state["tensor"]


class DyingWriter(FileSystemWriter):
    """Dies with its disk, before it writes tensors or what they are, or after half of them."""

    def __init__(self, path: Path, disk: DyingDisk) -> None:
        super().__init__(path)
        self.disk, self.where = disk, path

    def write_data(self, plan: Any, planner: Any) -> Any:
        dies = self.disk.next_dies()
        if dies and not self.disk.partial:
            raise self.disk.error
        written = super().write_data(plan, planner)
        if dies:
            for path in self.where.glob("*.distcp"):
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise self.disk.error
        return written

    def finish(self, metadata: Any, results: Any) -> None:
        if self.disk.next_dies():
            raise self.disk.error
        super().finish(metadata, results)


def save(run: Run, directory: Path, step: int, value: float, disk: Disk | None = None) -> None:
    policy = KeepPolicy()
    if isinstance(disk, DyingDisk):
        policy = KeepPolicy(writer=functools.partial(DyingWriter, disk=disk))
    keeping = Keeper(run, directory, policy, {"number": Number(value)}, disk)
    try:
        keeping.save(step)
    finally:
        keeping.close()


def loaded(run: Run, directory: Path) -> tuple[int, float]:
    number = Number()
    keeping = Keeper(run, directory, KeepPolicy(), {"number": number})
    try:
        step = keeping.load()
    finally:
        keeping.close()
    return step, float(number.tensor[0])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "north").glob("step-*"))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_training_is_the_same_to_the_bit(
    run: Run, tmp_path: Path, asynchronous: bool
) -> None:
    whole, resumed = whole_and_resumed(run, tmp_path / "c", asynchronous=asynchronous)
    assert is_equal(whole, resumed)
    assert not is_equal(whole, Training(run).numbers())
    final = str(tmp_path / "c" / "north" / f"step-{SAVED:08d}")
    assert lines(run) == [
        Ready(resumed_step=0),
        CheckpointDone(step=SAVED, path=final),
        Ready(resumed_step=SAVED),
    ]


def test_a_training_goes_back_to_its_own_checkpoint(run: Run, tmp_path: Path) -> None:
    """Parts that have moved on already are set back in place."""
    training = Training(run)
    keeping = keeper(run, tmp_path / "c", training)
    training.train(SAVED)
    keeping.save(SAVED)
    training.train(LAST - SAVED)
    once = training.numbers()
    assert keeping.load() == SAVED
    training.train(LAST - SAVED)
    keeping.close()
    assert is_equal(training.numbers(), once)


def test_what_is_written_behind_training_is_as_it_was(run: Run, tmp_path: Path) -> None:
    """Nothing is written before the training has moved on, and the next save waits for it."""
    has_moved = threading.Event()

    def writer(path: Path) -> FileSystemWriter:
        assert has_moved.wait(30)
        return FileSystemWriter(path)

    number = Number(1.0)
    policy = KeepPolicy(asynchronous=True, writer=writer)
    keeping = Keeper(run, tmp_path, policy, {"number": number})
    keeping.save(1)
    number.tensor += 1
    assert names(tmp_path) in ([], ["step-00000001.tmp-0"])
    has_moved.set()
    keeping.save(2)
    assert "step-00000001" in names(tmp_path)
    keeping.wait()
    keeping.close()
    assert loaded(run, tmp_path) == (2, 2.0)
    shutil.rmtree(tmp_path / "north" / "step-00000002")
    assert loaded(run, tmp_path) == (1, 1.0)


def test_a_model_of_gridloom_s_own_is_kept_with_its_optimizer(run: Run, tmp_path: Path) -> None:
    def model(seed: int) -> SiteModel:
        made = parallelize_gpt(DENSE, seed, Axes(plan(), run.device, DENSE))
        made.optimize(TRAINING)
        return made

    saved, read = model(1), model(2)
    saved.accumulate(*batch(0))
    saved.step(64.0, 1e-3, 1.0)
    for one, action in ((saved, "save"), (read, "load")):
        keeping = Keeper(run, tmp_path, KeepPolicy(), {"model": one})
        if action == "save":
            keeping.save(1)
        else:
            keeping.load()
        keeping.close()
    for name, tensor in saved.state().items():
        assert torch.equal(read.state()[name], tensor), name


@pytest.mark.parametrize("partial", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("step", [30, 20], ids=["new step", "step saved again"])
def test_every_crash_leaves_the_old_or_the_new_checkpoint(
    run: Run, tmp_path: Path, step: int, partial: bool
) -> None:
    outcomes = []
    for last in range(100):
        directory = tmp_path / str(last)
        save(run, directory, 10, 1.0)
        save(run, directory, 20, 2.0)
        try:
            save(run, directory, step, 3.0, DyingDisk(last, partial=partial))
        except Crash:
            pass
        else:
            break
        outcomes.append(loaded(run, directory))
        assert not [name for name in names(directory) if ".tmp" in name or ".old" in name]
        save(run, directory, 40, 4.0)
        assert loaded(run, directory) == (40, 4.0)
        assert len(names(directory)) == 2
    else:
        pytest.fail("the save never came to its end")
    old, new = (20, 2.0), (step, 3.0)
    assert set(outcomes) == {old, new}
    assert outcomes == sorted(outcomes, key=[old, new].index), "once new, never old again"
    assert loaded(run, directory) == new
    assert len(outcomes) >= 9


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_refuses_leaves_the_old_checkpoint(
    run: Run, tmp_path: Path, asynchronous: bool
) -> None:
    save(run, tmp_path, 10, 1.0)
    for last in range(6):
        disk = DyingDisk(last, partial=False, error=OSError(28, "No space left on device"))
        policy = KeepPolicy(
            asynchronous=asynchronous, writer=functools.partial(DyingWriter, disk=disk)
        )
        keeping = Keeper(run, tmp_path, policy, {"number": Number(2.0)}, disk)
        with pytest.raises(StorageError, match=r"step 20 .* No space left .*") as caught:
            _save_and_wait(keeping, 20)
        assert "it needs about" in caught.value.remedy
        keeping.close()
        assert loaded(run, tmp_path) == (10, 1.0)


def test_only_the_newest_are_kept(run: Run, tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(run, tmp_path, step, float(step))
    assert names(tmp_path) == ["step-00000020", "step-00000030"]
    save(run, tmp_path, 25, 25.0)  # after going back to 20
    assert names(tmp_path) == ["step-00000020", "step-00000025"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: (path / MANIFEST).unlink(), "not complete: manifest.json is missing"),
        (lambda path: (path / MANIFEST).write_text("{"), "manifest.json is damaged"),
        (lambda path: (path / ".metadata").unlink(), ".metadata is missing"),
        (lambda path: _flip(path / "parts-00000.pt"), "the checksum of parts-00000.pt"),
        (lambda path: _flip(path / "__0_0.distcp"), "the checksum of __0_0.distcp"),
        (lambda path: (path / "__0_0.distcp").write_bytes(b""), "__0_0.distcp has 0 bytes, not"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_said_so(
    run: Run, tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    save(run, tmp_path, 10, 1.0)
    save(run, tmp_path, 20, 2.0)
    damage(tmp_path / "north" / "step-00000020")
    assert loaded(run, tmp_path) == (10, 1.0)
    ready = lines(run)[-1]
    assert isinstance(ready, Ready)
    assert ready.resumed_step == 10
    assert len(ready.notes) == 1
    assert ready.notes[0].startswith("passed over a checkpoint: step-00000020")
    assert why in ready.notes[0]
    damage(tmp_path / "north" / "step-00000010")
    with pytest.raises(InputError, match=r"none of the checkpoints in .* is whole"):
        loaded(run, tmp_path)


def test_a_site_without_a_checkpoint_goes_on_from_one_that_it_can_see(
    run: Run, tmp_path: Path
) -> None:
    save(run, tmp_path, 10, 1.0)
    save(run, tmp_path, 20, 2.0)
    place = replace(run.place, site="south", job_id="job-2")
    south = Run(place, SystemClock(), StopWish())
    assert loaded(south, tmp_path) == (20, 2.0)
    ready = lines(run)[-1]
    assert isinstance(ready, Ready)
    assert ready.notes == (
        "has no checkpoint of its own, and goes on from north's",
        "goes on from training step 20 of job job-1",
    )
    save(south, tmp_path, 15, 1.5)
    assert loaded(south, tmp_path) == (15, 1.5)  # its own, however old
    shutil.rmtree(tmp_path / "south")
    alone = Run(replace(place, job_id="", report_file=""), SystemClock(), StopWish())
    assert loaded(alone, tmp_path) == (20, 2.0)


def test_a_directory_in_use_is_refused(run: Run, tmp_path: Path) -> None:
    training = Training(run)
    keeping = keeper(run, tmp_path, training)
    with pytest.raises(InputError, match="another training keeps its checkpoints in"):
        keeper(run, tmp_path, training)
    keeping.close()
    keeper(run, tmp_path, training).close()


def test_a_directory_that_cannot_be_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be used: rank 0: Not a directory"):
        save(run, tmp_path / "file", 1, 1.0)


def test_parts_that_do_not_fit_are_named(run: Run, tmp_path: Path) -> None:
    training = Training(run)
    training.train(1)
    keeping = keeper(run, tmp_path, training)
    keeping.save(1)
    keeping.close()

    def load(**parts: object) -> None:
        wrong = Keeper(run, tmp_path, KeepPolicy(), parts)
        try:
            wrong.load()
        finally:
            wrong.close()

    with pytest.raises(InputError, match=r"has no net, other; it has data, model"):
        load(net=nn.Linear(1, 1), other=Number())
    with pytest.raises(InputError, match=r"model/first\.weight is \[16, 6\] in it, \[8, 6\] here"):
        load(model=Training(run, width=8).model)
    with pytest.raises(InputError, match=r"model/weight is not in it, .*, and \d+ more"):
        load(model=nn.Linear(6, 16))
    load(scheduler=training.scheduler)
    ready = lines(run)[-1]
    assert isinstance(ready, Ready)
    assert ready.notes == ("the checkpoint's data, model, optimizer, own is of no use any more",)


def test_another_number_of_ranks_reads_what_all_have_alike(run: Run, tmp_path: Path) -> None:
    training = Training(run)
    training.train(SAVED)
    keeping = keeper(run, tmp_path, training)
    keeping.save(SAVED)
    keeping.close()
    manifest = tmp_path / "north" / f"step-{SAVED:08d}" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"ranks": 1', '"ranks": 2'))
    resumed = Training(run)
    loading = keeper(run, tmp_path, resumed)
    assert loading.load() == SAVED
    loading.close()
    assert is_equal(resumed.numbers()[:-2], training.numbers()[:-2])
    ready = lines(run)[-1]
    assert isinstance(ready, Ready)
    assert ready.notes == ("was saved by 2 ranks, not 1: own, random anew",)


class Heir:
    """Differs from rank to rank, but for one thing."""

    each_rank = True

    def __init__(self, name: str) -> None:
        self.name = name

    def state_dict(self) -> dict[str, str]:
        return {"name": self.name}

    def load_state_dict(self, state: object) -> None:
        raise AssertionError(state)

    def inherit(self, state: dict[str, str]) -> None:
        self.name = f"heir of {state['name']}"


def test_what_holds_for_all_ranks_is_taken_over_by_fewer(run: Run, tmp_path: Path) -> None:
    keeping = Keeper(run, tmp_path, KeepPolicy(), {"own": Heir("first")})
    keeping.save(SAVED)
    keeping.close()
    manifest = tmp_path / "north" / f"step-{SAVED:08d}" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"ranks": 1', '"ranks": 2'))
    heir = Heir("second")
    loading = Keeper(run, tmp_path, KeepPolicy(), {"own": heir})
    loading.load()
    loading.close()
    assert heir.name == "heir of first"


class Careless:
    """Has something in its state that could run code when it is read."""

    def state_dict(self) -> dict[str, object]:
        return {"thing": Path("/")}

    def load_state_dict(self, state: object) -> None:
        raise AssertionError(state)


def test_what_has_no_state_cannot_be_kept(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Keeper(run, tmp_path, KeepPolicy(), {"a": 1, "b": Number(), "c": []})
    assert len(caught.value.problems) == 2
    assert "a is a int, without state_dict" in str(caught.value)
    with pytest.raises(InputError, match="the name random is taken"):
        Keeper(run, tmp_path, KeepPolicy(), {"random": Number()})
    careless = Keeper(run, tmp_path, KeepPolicy(), {"careless": Careless()})
    with pytest.raises(InputError, match=r"the state of careless cannot be kept"):
        careless.save(1)
    careless.close()


def test_when_a_checkpoint_is_due(run: Run, tmp_path: Path) -> None:
    keeping = Keeper(run, tmp_path, KeepPolicy(every=3), {})
    assert [step for step in range(1, 10) if keeping.due(step)] == [3, 6, 9]
    keeping.close()
    never = Keeper(run, tmp_path, KeepPolicy(), {})
    assert not any(never.due(step) for step in range(1, 10))
    never.close()
    with pytest.raises(InputError) as caught:
        Keeper(run, tmp_path, KeepPolicy(every=-1, keep=0), {})
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["checkpoint.every", "checkpoint.keep"]


def test_the_example_on_one_process_is_stopped_and_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to stop after the first training step, then to the end."""
    monkeypatch.chdir(tmp_path)
    place = replace(run.place, site="here", sites=("here",))
    stop = StopWish()
    stop._note(15, None)
    for wish, code in ((stop, EXIT_STOPPED), (StopWish(), 0)):
        process = Run(place, SystemClock(), wish)
        monkeypatch.setattr("gridloom.runtime.library.start._RUNS", [process])
        assert runpy.run_path(str(EXAMPLE))["main"](3) == code
    told = lines(run)
    assert [line.step for line in told if isinstance(line, StepDone)] == [1, 2, 3]
    assert [line.step for line in told if isinstance(line, CheckpointDone)] == [1, 3]
    assert [line.resumed_step for line in told if isinstance(line, Ready)] == [0, 1]


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_two_ranks(tmp_path: Path, nursery: Nursery) -> None:
    shared = {"MASTER_PORT": str(free_ports(1)[0]), "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    program, words = "tests.unit.runtime.keeping", [str(tmp_path)]
    ranks = [
        nursery.run(
            program,
            words,
            shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            tmp_path / f"said-{rank}",
        )
        for rank in range(2)
    ]
    for process in ranks:
        process.lines()
    for rank in range(2):
        told = json.loads((tmp_path / f"told-{rank}.json").read_text())
        refused = told.pop("refused")
        assert told == {
            "zero 0": True, "zero 3": True, "another layout": True, "own": f"rank {rank}",
            "left": SAVED, "example": 0, "example again": 0, "own world": True,
        }  # fmt: skip
        assert "step 9 could not be written" in refused
        assert "rank 1: No space left on device" in refused
    steps = sorted((tmp_path / "own-loop-checkpoints" / "here").glob("step-*"))
    assert [path.name for path in steps] == ["step-00000004", "step-00000006"]


def _save_and_wait(keeping: Keeper, step: int) -> None:
    keeping.save(step)
    keeping.wait()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
