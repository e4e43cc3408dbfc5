"""What a hand-in puts into the journal: jobs, arrays, the grid and what is booked of it."""

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.conftest import Answer

from gridloom.base.errors import InputError, SiteError
from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.dependencies import with_known_dependencies
from gridloom.cli.handin import hand_in
from gridloom.cli.prepare import prepare
from gridloom.cli.wiring import Plane
from gridloom.control import rundir
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    InventoryChanged,
    JobSubmitted,
)
from gridloom.model.spec import Dependency, JobSpec
from gridloom.wire.launch import ARRAY_INDEX_VARIABLE

Call = Callable[..., Answer]
GRID = "sites: {north: {accelerators: 'cpu:2'}, south: {accelerators: 'cpu:2'}}\n"
QUEUES = "queues: {vision: {}}\n"
RECIPE = """recipe: gpt
model: {layers: 1, hidden: 32, heads: 2}
steps: 2
global_batch: 2
sequence_length: 16
"""


def booking(name: str, start: str, end: str) -> str:
    return f"  - {{name: {name}, from: '{start}', to: '{end}', sites: south, for: new switches}}\n"


UPGRADE = booking("upgrade", "2090-03-01T08:00Z", "2090-03-01T10:00Z")
EXAM = booking("exam", "2090-04-01T08:00Z", "2090-04-02T08:00Z")
PAST = booking("past", "2020-04-01T08:00Z", "2020-04-02T08:00Z")


class Desk:
    """Hands jobs in over one state directory; nothing runs them."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self.plane = Plane(settings.read())

    def hand_in(self, lines: str = "", *, grid: str = GRID, work: str = "run: sleep 1\n") -> Any:
        """Hand in a job with these lines; return the new facts."""
        (self.files / "grid.yaml").write_text(grid)
        resources = "resources: {accelerators: 'cpu:1'}\n"
        (self.files / "job.yaml").write_text(f"name: j\ngrid: grid.yaml\n{work}{resources}{lines}")
        before = len(self.plane.journal.letters())
        found = settings.read()
        prepared = prepare(self.files / "job.yaml", None, found, SystemIds())
        hand_in(self.plane, with_known_dependencies(prepared, found))
        return [letter.event for letter in self.plane.journal.letters()[before:]]


@pytest.fixture
def desk(home: Path, tmp_path: Path) -> Desk:
    home.mkdir()
    return Desk(tmp_path)


def submitted(facts: Sequence[AnyEvent]) -> list[JobSubmitted]:
    return [fact for fact in facts if isinstance(fact, JobSubmitted)]


def only(facts: Sequence[AnyEvent]) -> JobSpec:
    (fact,) = submitted(facts)
    return fact.spec


# ----- deadline, queue, user


def test_a_deadline_that_is_a_duration_begins_with_the_hand_in(desk: Desk) -> None:
    (fact,) = submitted(desk.hand_in("deadline: 8h\n"))
    assert fact.spec.deadline_s == fact.submitted_s + 8 * 3600
    assert only(desk.hand_in("deadline: '2090-03-01T08:00Z'\n")).deadline_s == 3792038400.0
    assert only(desk.hand_in()).deadline_s == 0.0


def test_the_run_directory_says_what_was_handed_in(desk: Desk) -> None:
    (fact,) = submitted(desk.hand_in("deadline: 8h\n", grid=GRID + QUEUES))
    path = desk.plane.settings.runs / fact.job_id / "job.resolved.json"
    assert msgspec.json.decode(path.read_bytes(), type=JobSpec) == fact.spec


def test_the_only_queue_is_taken_and_of_several_one_must_be_named(desk: Desk) -> None:
    assert only(desk.hand_in(grid=GRID + QUEUES)).queue == "vision"
    assert only(desk.hand_in("queue: vision\n", grid=GRID + QUEUES)).queue == "vision"
    with pytest.raises(InputError, match=r"queue: is missing.*vision, text"):
        desk.hand_in(grid=GRID + "queues: {vision: {}, text: {}}\n")
    with pytest.raises(InputError, match=r"no queue `vison`; did you mean `vision`"):
        desk.hand_in("queue: vison\n", grid=GRID + QUEUES)
    with pytest.raises(InputError, match=r"no queue `x`; remove it: the grid has no queues"):
        desk.hand_in("queue: x\n")


def test_a_queue_that_never_has_enough_is_told_at_once(desk: Desk) -> None:
    with pytest.raises(InputError, match=r"queue `vision` owns no cpu .*raise `nominal`"):
        desk.hand_in(grid=GRID + "queues: {vision: {nominal: {}}}\n")


def test_a_job_without_a_user_is_of_who_hands_it_in(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only(desk.hand_in()).user == pwd.getpwuid(os.getuid()).pw_name
    assert only(desk.hand_in("user: ada\n")).user == "ada"

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert only(desk.hand_in()).user == str(os.getuid())


# ----- arrays


def test_an_array_is_a_job_for_each_index(desk: Desk) -> None:
    facts = submitted(desk.hand_in("array: 0-3%2\n"))
    ids = [fact.job_id for fact in facts]
    base = ids[0].removesuffix("-0")
    assert ids == [f"{base}-{index}" for index in range(4)]
    assert [fact.spec.program.env for fact in facts] == [
        {ARRAY_INDEX_VARIABLE: str(index)} for index in range(4)
    ]
    after = [[need.job_id for need in fact.spec.after] for fact in facts]
    assert after == [[], [], [ids[0]], [ids[1]]]
    runs = desk.plane.settings.runs
    assert sorted(path.name for path in runs.iterdir()) == ids
    assert all((runs / job_id / "environment.json").is_file() for job_id in ids)


@pytest.mark.parametrize("where", ["", "checkpoint: {directory: saved}\n"])
def test_jobs_of_an_array_do_not_share_checkpoints(desk: Desk, where: str) -> None:
    facts = submitted(desk.hand_in(f"array: 2\n{where}", work=RECIPE))
    recipes = [fact.spec.recipe for fact in facts]
    found = [recipe.checkpoint.directory for recipe in recipes if recipe]
    runs = desk.plane.settings.runs
    expected = [str(runs / fact.job_id / "checkpoints") for fact in facts]
    if where:
        expected = [str(desk.files / "saved" / str(index)) for index in range(2)]
    assert found == expected
    told = [msgspec.json.decode((runs / f.job_id / "recipe.json").read_bytes()) for f in facts]
    assert [one["checkpoint"]["directory"] for one in told] == expected


def test_nothing_is_left_of_an_array_that_cannot_be_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = rundir.create
    made: list[Path] = []

    def full(runs: Path, job_id: str, files: dict[str, object], *, durable: bool) -> Path:
        assert not durable, "the disk is waited for once, not for every file"
        if len(made) == 2:
            raise InputError("the disk is full")
        made.append(create(runs, job_id, files))
        return made[-1]

    monkeypatch.setattr(rundir, "create", full)
    with pytest.raises(InputError, match="disk is full"):
        desk.hand_in("array: 3\n")
    assert len(made) == 2
    assert not any(path.exists() for path in made)
    assert desk.plane.journal.letters() == []


def test_nothing_is_left_of_a_job_that_cannot_be_posted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise SiteError("no journal")

    monkeypatch.setattr(desk.plane.journal, "post", broken)
    with pytest.raises(SiteError):
        desk.hand_in("array: 2\n")
    assert list(desk.plane.settings.runs.iterdir()) == []


def test_run_does_not_follow_an_array(call: Call, home: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nrun: sleep 1\narray: 3\nresources: {accelerators: 'cpu:1'}\n")
    answer = call("run", str(path), "-y")
    assert answer.code == 2
    assert f"{path}:3: array: `run` follows one job" in answer.err
    assert f"`gridloom submit {path}`" in answer.err
    assert not home.exists()


# ----- after whom


def test_jobs_that_are_waited_for_must_exist(desk: Desk) -> None:
    with pytest.raises(InputError, match=r"job.yaml:5: after: there is no job `x-1`.*no jobs yet"):
        desk.hand_in("after: x-1\n")
    (first,) = submitted(desk.hand_in())
    need = only(desk.hand_in(f"after: {{job: {first.job_id}, when: afterany}}\n")).after
    assert need == (Dependency(job_id=first.job_id, kind="afterany"),)
    wrong = first.job_id[:-1] + "0"
    with pytest.raises(InputError) as refused:
        desk.hand_in(f"after: [{first.job_id}, {wrong}, nowhere]\n")
    said = [problem.sentence() for problem in refused.value.problems]
    assert len(said) == 2
    assert f"after[1]: there is no job `{wrong}`; did you mean `{first.job_id}`?" in said[0]
    assert said[1].endswith("there is no job `nowhere`; `gridloom ps --all` lists the jobs")


def test_to_wait_for_an_array_is_to_wait_for_all_of_it(desk: Desk) -> None:
    ids = [fact.job_id for fact in submitted(desk.hand_in("array: 3\n"))]
    base = ids[0].removesuffix("-0")
    assert [need.job_id for need in only(desk.hand_in(f"after: {base}\n")).after] == ids
    assert [need.job_id for need in only(desk.hand_in(f"after: {ids[1]}\n")).after] == [ids[1]]
    with pytest.raises(InputError, match=f"did you mean `{base}`"):
        desk.hand_in(f"after: {base[:-1]}\n")
    with pytest.raises(InputError, match="there is no job `j`"):  # a name is no id
        desk.hand_in("after: j\n")


# ----- bookings


def booked(facts: Sequence[AnyEvent]) -> list[str]:
    made = [f"+{fact.booking.name}" for fact in facts if isinstance(fact, BookingMade)]
    return [*(f"-{fact.name}" for fact in facts if isinstance(fact, BookingDropped)), *made]


def test_the_bookings_of_the_grid_file_are_made_and_dropped(desk: Desk) -> None:
    facts = desk.hand_in(grid=f"{GRID}bookings:\n{UPGRADE}{PAST}")
    assert [type(fact) for fact in facts] == [InventoryChanged, BookingMade, JobSubmitted]
    made = facts[1].booking
    assert (made.name, made.nodes, made.sentence) == ("upgrade", ("south",), "new switches")
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{UPGRADE}{PAST}")) == []
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{UPGRADE}{EXAM}")) == ["+exam"]
    later = UPGRADE.replace("10:00", "11:00")
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{later}{EXAM}")) == ["+upgrade"]
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{EXAM}")) == ["-upgrade"]
    assert booked(desk.hand_in()) == ["-exam"]
    assert booked(desk.hand_in()) == []


def test_bookings_are_compared_with_what_the_scheduler_has_taken_in(desk: Desk) -> None:
    desk.hand_in(grid=f"{GRID}bookings:\n{UPGRADE}")
    assert desk.plane.try_to_lead()
    desk.plane.beat()
    assert set(desk.plane.state().bookings) == {"upgrade"}
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{UPGRADE}")) == []
    assert booked(desk.hand_in(grid=f"{GRID}bookings:\n{EXAM}")) == ["-upgrade", "+exam"]
    desk.plane.end()
