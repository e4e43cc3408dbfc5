"""What the tasks of a gang need is there before their site is asked to start them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.fakes.remote_files import FakeFiles, fake_host
from tests.unit.sites.remote.test_checkpoints import save
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.codec import decode, encode, pretty
from gridloom.base.errors import InputError
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import Batch
from gridloom.sites.remote import workdir
from gridloom.sites.remote.errors import LinkDownError, RemoteFileError
from gridloom.sites.remote.places import Places, moved_order
from gridloom.sites.remote.sender import Sender
from gridloom.wire.agent import BATCH_FILE, Gang, TaskOrder, gang_directory, task_directory
from gridloom.wire.launch import RECIPE_ARGV

RECIPE = GptRecipe(
    shape=GptShape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8),
    data=TextData(text=("text",)),
    training=Training(steps=1, global_batch=1, sequence_length=8),
    checkpoint=CheckpointPolicy(directory=""),
)


class Desk:
    """A gang of two tasks, here; and the other end."""

    def __init__(self, place: Path) -> None:
        self.runs, self.work = place / "home" / "runs", place / "work"
        self.there = place / "there"
        self.to = Places(
            runs=str(self.runs),
            runs_there=str(self.there / "runs"),
            work=str(self.work),
            work_there=str(self.there / "work"),
        )
        self.job, self.gang = self.runs / "train-abc", Path(gang_directory(self.runs, ref()))
        (self.work / "text").mkdir(parents=True)
        for name in ("train.py", "text/a"):
            (self.work / name).write_text(name)
        self.clock, self.executor = FakeClock(), Now()
        self.files, self.bulk = FakeFiles(), FakeFiles()
        host = fake_host(self.files, self.bulk)
        self.sender = Sender(self.runs, lambda: host, self.clock, self.executor)
        self.write()

    def write(self, **more: Any) -> None:
        """Write what the driver writes."""
        orders = [order(self.runs, node, workdir=str(self.work), **more) for node in ("n1", "n2")]
        places = [Path(task_directory(self.runs, one.task)) for one in orders]
        moved = [moved_order(one, self.to) for one in orders]
        for path, one in zip(places, moved, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            (path / "order.json").write_bytes(encode(one))
        self.gang.mkdir(parents=True, exist_ok=True)
        names = [str(path.relative_to(self.runs)) for path in places]
        gang = Gang(directories=tuple(f"{self.to.runs_there}/{name}" for name in names))
        (self.gang / "gang.json").write_bytes(encode(gang))

    def send(self, after_s: float = 2.0) -> str:
        self.clock.advance(after_s)
        return self.sender.send(self.gang, self.to)

    def sent(self) -> None:
        """Have all of it sent."""
        self.send()
        assert self.send() == ""

    def has(self, name: str) -> str:
        return (self.there / name).read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_tasks_find_their_orders_their_directories_and_their_program(desk: Desk) -> None:
    assert desk.send() == "its files are on their way: 100 % of 14 B"
    assert desk.send() == ""
    place = desk.there / "runs" / "train-abc"
    one = decode((place / "attempts/2/hpc.n1/order.json").read_bytes(), TaskOrder)
    assert one.workdir == str(desk.there / "work")
    assert (place / "attempts/2/hpc.n2/order.json").exists()
    gang = decode((place / "attempts/2/gang.hpc/gang.json").read_bytes(), Gang)
    assert all(Path(directory).is_dir() for directory in gang.directories)
    assert all(Path(rank.log_file).parent.is_dir() for rank in one.ranks)
    assert all(Path(rank.rank.report_file).parent.is_dir() for rank in one.ranks)
    assert desk.has("work/train.py") == "train.py"
    assert desk.has("work/text/a") == "text/a"
    assert "upload" in desk.bulk.calls
    assert "upload" not in desk.files.calls


def test_it_is_sent_once_whoever_asks(desk: Desk) -> None:
    desk.sent()
    desk.files.calls.clear()
    again = Sender(desk.runs, lambda: fake_host(desk.files), desk.clock, desk.executor)
    assert again.send(desk.gang, desk.to) == ""
    assert desk.files.calls == []


def test_a_recipe_goes_with_its_texts_alone(desk: Desk) -> None:
    desk.write(argv=RECIPE_ARGV)
    kept = replace(RECIPE.checkpoint, directory=f"{desk.job}/checkpoints")
    (desk.job / "recipe.json").write_text(pretty(replace(RECIPE, checkpoint=kept)))
    desk.sent()
    recipe = json.loads(desk.has("runs/train-abc/recipe.json"))
    assert recipe["checkpoint"]["directory"] == f"{desk.there}/runs/train-abc/checkpoints"
    assert desk.has("work/text/a") == "text/a"
    assert not (desk.there / "work" / "train.py").exists()
    assert not (desk.there / "runs" / "train-abc" / BATCH_FILE).exists()


def test_a_batch_script_goes_as_it_is(desk: Desk) -> None:
    desk.write(batch=Batch(submitted_in=str(desk.work)))
    (desk.job / BATCH_FILE).write_text("#!/bin/sh\n")
    desk.sent()
    assert desk.has(f"runs/train-abc/{BATCH_FILE}") == "#!/bin/sh\n"


def test_a_working_directory_that_is_there_is_left_alone(desk: Desk) -> None:
    desk.to = replace(desk.to, is_copied=False)
    desk.sent()
    assert not (desk.there / "work").exists()


def test_the_state_directory_is_no_part_of_the_working_directory(desk: Desk) -> None:
    desk.work = desk.runs.parent.parent
    desk.to = replace(desk.to, work=str(desk.work))
    (desk.work / "there").mkdir(exist_ok=True)
    desk.write()
    desk.sent()
    assert not (desk.there / "work" / "home").exists()
    assert (desk.there / "work" / "work" / "train.py").exists()


def test_rows_of_other_attempts_come_before_those_of_this_one(desk: Desk) -> None:
    (desk.job / "metrics.jsonl").write_text("1\n2\n")
    desk.sent()
    assert desk.has("runs/train-abc/metrics.jsonl") == "1\n2\n"


@pytest.mark.parametrize(
    ("here", "there", "after"),
    [
        ("1\n2\n", "1\n2\n3\n", "1\n2\n3\n"),  # what is there goes on from what is here
        ("1\n2\nx\n", "1\n2\n3\n", "1\n2\nx\n"),  # another site has gone on
        ("1\n2\n3\n", "1\n", "1\n2\n3\n"),
        ("", "1\n", "1\n"),
    ],
)
def test_rows_that_are_there_already_stay(desk: Desk, here: str, there: str, after: str) -> None:
    place = desk.there / "runs" / "train-abc"
    place.mkdir(parents=True)
    (place / "metrics.jsonl").write_text(there)
    (desk.job / "metrics.jsonl").write_text(here)
    desk.sent()
    assert desk.has("runs/train-abc/metrics.jsonl") == after


def test_a_dead_link_is_waited_for(desk: Desk) -> None:
    desk.bulk.error = LinkDownError("login is not reached")
    desk.send()
    said = "its files cannot be sent: login is not reached"
    assert desk.send(0.1) == said
    calls = len(desk.bulk.calls)
    assert desk.send(1.0) == said
    assert len(desk.bulk.calls) == calls, "not without a pause"
    desk.bulk.error = None
    desk.send()
    assert desk.send(0.1) == ""


def test_what_the_other_end_will_not_have_is_refused(desk: Desk) -> None:
    desk.bulk.error = RemoteFileError("the disk is full", "free space there")
    desk.send()
    with pytest.raises(RemoteFileError, match="full"):
        desk.send()
    desk.bulk.error = None
    desk.send()
    assert desk.send() == "", "whoever asks again may be luckier"


def test_what_is_too_much_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workdir, "FILES_MAX", 1)
    desk.send()
    with pytest.raises(InputError, match="the working directory"):
        desk.send()


def test_how_far_it_is_is_told_in_tenths(desk: Desk) -> None:
    desk.executor.is_slow = True
    assert desk.send() == "its files are on their way"
    for number in range(30):
        (desk.work / f"{number}").write_text("x" * 100)
    said = []

    def look(verb: str) -> None:
        if verb == "upload":
            said.append(desk.sender.send(desk.gang, desk.to))

    desk.bulk.before = look
    desk.executor.answer()
    assert said == ["its files are on their way: 0 % of 3.0 kB"]
    assert desk.send() == ""


def test_what_was_saved_elsewhere_goes_along_if_it_is_the_newest(desk: Desk) -> None:
    save(desk.job / "ckpt" / "lab", 40)
    save(desk.there / "runs" / "train-abc" / "ckpt" / "hpc", 20)
    desk.sent()
    shelf = desk.there / "runs" / "train-abc" / "ckpt" / "hpc"
    assert sorted(path.name for path in shelf.iterdir()) == ["step-00000020", "step-00000040"]
    assert not (desk.there / "runs" / "train-abc" / "ckpt" / "lab").exists()


def test_what_sites_of_the_same_attempt_have_saved_stays_with_them(desk: Desk) -> None:
    save(desk.job / "ckpt" / "lab", 40)
    sites = (("hpc", 2), ("lab", 2))
    ranks = order(desk.runs).ranks
    desk.write(ranks=tuple(replace(one, rank=replace(one.rank, site_ranks=sites)) for one in ranks))
    desk.sent()
    assert not (desk.there / "runs" / "train-abc" / "ckpt").exists()


def test_a_recipes_checkpoints_go_where_it_looks_for_them(desk: Desk) -> None:
    desk.write(argv=RECIPE_ARGV)
    kept = replace(RECIPE.checkpoint, directory=f"{desk.work}/kept")
    (desk.job / "recipe.json").write_text(pretty(replace(RECIPE, checkpoint=kept)))
    save(desk.work / "kept" / "lab", 40)
    desk.sent()
    assert (desk.there / "work" / "kept" / "hpc" / "step-00000040" / "manifest.json").exists()
