"""``gridloom eta`` and ``whatif`` over a journal that is written here: nothing really runs."""

import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival, option
from tests.unit.cli.conftest import Answer

from gridloom.base.system import SystemClock
from gridloom.core.machine import RULES, Machine
from gridloom.model.action import StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    InventoryChanged,
    JobSubmitted,
    StopRequested,
    TaskReady,
    TaskRunning,
)
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import Dependency, JobSpec
from gridloom.ports.journal import Record
from gridloom.store.journal import SqlJournal
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import read_grid

Call = Callable[..., Answer]
GRID = """\
sites:
  here:
    node: {accelerators: cpu:2}
    nodes: {n1: {}, n2: {}}
queues:
  red: {}
  blue: {}
"""


class Live:
    """A state directory with jobs that were handed in a minute ago."""

    def __init__(self, home: Path, files: Path) -> None:
        home.mkdir()
        self.journal = SqlJournal(home / "journal.sqlite")
        self.grid = files / "grid.yaml"
        self.grid.write_text(GRID)
        self.files = files
        self.began_s = SystemClock().now_s() - 60.0
        self._machine, self._seq = Machine(), 0
        inventory = to_inventory(read_grid(GRID.encode(), "grid.yaml").document)
        self.step([InventoryChanged(inventory=inventory)])

    def step(self, events: Sequence[AnyEvent]) -> None:
        """Take in facts, and let what starts say that it trains."""
        self._seq += 1
        rng = random.Random(self._seq)
        actions = tuple(self._machine.step(events, self.began_s, rng))
        record = Record(
            seq=self._seq,
            now_s=self.began_s,
            seed=self._seq,
            events=tuple(events),
            actions=actions,
            rules=RULES,
        )
        self.journal.append(record, (), None)
        said = [one for a in actions if isinstance(a, StartAttempt) for one in alive(a)]
        if said:
            self.step(said)

    def submit(self, *jobs: tuple[str, JobSpec]) -> None:
        self.step([JobSubmitted(job_id=i, spec=s, submitted_s=self.began_s) for i, s in jobs])

    def job_file(self) -> str:
        return job_file(self.files, "forecast: {duration: 1m}", "queue: red")


def job_file(files: Path, *more: str) -> str:
    path = files / "new.yaml"
    lines = ("name: new", "run: sleep 1", "resources: {accelerators: 'cpu:2'}", *more)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def alive(start: StartAttempt) -> list[AnyEvent]:
    job_id, attempt, epoch = start.job_id, start.attempt, start.epoch
    domain = start.placement.tasks[0].domain
    running = TaskRunning(job_id=job_id, attempt=attempt, epoch=epoch, domain=domain)
    ready = TaskReady(job_id=job_id, attempt=attempt, epoch=epoch, domain=domain, resumed_step=0)
    return [running, ready]


def spec(duration_s: float = 0.0, spread: float = 0.0, devices: int = 2) -> JobSpec:
    made = arrival("x", forecast={"duration_s": duration_s, "spread": spread}, queue="red")
    return replace(made.spec, options=(replace(option(devices), accelerator="cpu"),))


@pytest.fixture
def live(home: Path, tmp_path: Path) -> Live:
    return Live(home, tmp_path)


def test_a_queue_is_worked_off(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)), ("b", spec(900.0)), ("c", spec(120.0)))
    told = call("eta", "c", "--json").json()
    assert told["start"] == dict.fromkeys(told["start"], pytest.approx(live.began_s + 600, abs=2))
    assert told["end"]["p50_s"] == pytest.approx(live.began_s + 720, abs=2)
    assert (told["runs"], told["unknown"], told["sites"]) == (1, [], {"here": 2})
    answer = call("eta", "c")
    assert answer.code == 0
    assert "c is queued" in answer.out
    assert re.search(r"starts  in (9m 00s|8m [1-5]\ds), at ", answer.out)  # a slow machine is late
    moment = datetime.fromtimestamp(live.began_s + 720, UTC)
    assert re.search(r"ends    in (11m 00s|10m [1-5]\ds), at ", answer.out)
    assert f"at {moment:%Y-%m-%d %H:%M} UTC" in answer.out
    answer = call("eta", "a")
    assert re.search(r"started  1m [0-5]\ds ago", answer.out)
    assert "80 %" not in answer.out


def test_uncertain_durations_are_told_as_an_interval(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0, 0.5)), ("b", spec(9000.0)), ("c", spec(120.0)))
    told = call("eta", "c", "--json").json()
    start = told["start"]
    assert told["runs"] == 40
    assert start["p10_s"] < start["p50_s"] < start["p90_s"]
    assert "; 80 %: in " in call("eta", "c", "--runs", "20").out
    assert call("eta", "c", "--runs", "20", "--json").json()["runs"] == 20


def test_nobody_knows_and_what_to_add(call: Call, live: Live) -> None:
    live.submit(("a", spec()), ("b", spec()), ("c", spec(120.0)), ("d", spec()))
    told = call("eta", "c", "--json").json()
    assert told["start"] == {"p10_s": None, "p50_s": None, "p90_s": None}
    assert told["unknown"] == ["a", "b", "d"]
    answer = call("eta", "c")
    assert "starts  nobody knows" in answer.out
    assert "nobody knows how long a, b, d run: write `forecast: {duration: 8h}`" in answer.out
    assert "nobody knows how long a runs" in call("eta", "a").out


def test_what_can_never_run(call: Call, live: Live) -> None:
    live.submit(("a", spec(100.0, devices=4)), ("b", spec(100.0)))
    from_now = replace(spec(60.0), options=(replace(option(2), accelerator="h100"),))
    live.journal.post([JobSubmitted(job_id="c", spec=from_now, submitted_s=live.began_s)])
    assert "it can never run on this grid" in call("eta", "c").out


def test_what_ends_without_a_start_for_its_dependency(call: Call, live: Live) -> None:
    after = (Dependency(job_id="a", kind="afternotok"),)
    live.submit(("a", spec(100.0)), ("b", replace(spec(60.0), after=after)))
    told = call("eta", "b").out
    assert "ends without a start: what it waits for does not come out as `after` asks" in told
    assert "can never run" not in told


def test_what_waits_for_something_that_never_comes(call: Call, live: Live) -> None:
    after = (Dependency(job_id="b"),)
    live.submit(("a", spec(100.0, devices=4)), ("b", spec(50.0)))
    live.submit(("c", replace(spec(60.0), after=after)))
    live.step([StopRequested(job_id="b")])  # it may be resumed, and nobody says that it will
    answer = call("eta", "c")
    assert "starts  nobody knows" in answer.out
    assert "it waits for something that none of these jobs brings about" in answer.out


def test_letters_are_taken_up(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)), ("b", spec(600.0)))
    live.journal.post([JobSubmitted(job_id="c", spec=spec(60.0), submitted_s=live.began_s)])
    told = call("eta", "c", "--json").json()
    assert told["start"]["p50_s"] == pytest.approx(live.began_s + 600, abs=2)


def test_what_is_over_has_no_forecast(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)), ("b", spec(600.0)), ("c", spec(600.0)))
    live.step([CancelRequested(job_id="c")])
    assert "c is over: cancelled" in call("eta", "c").out
    assert call("eta", "c", "--json").json()["start"] is None


def changes(call: Call, *words: str) -> dict[str, dict[str, Any]]:
    answer = call("whatif", *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    return {one.pop("change"): one for one in answer.json()["changes"]}


def test_what_would_change_a_start(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)), ("b", spec(900.0)), ("c", spec(300.0)))
    words = (live.job_file(), "-g", str(live.grid))
    found = changes(call, *words, "--drain", "n1", "--add", "here=2")
    starts = {name: one["start"]["p50_s"] - live.began_s for name, one in found.items()}
    assert starts["as it is"] == pytest.approx(900, abs=3)  # c goes first, a's node is free at 600
    assert starts["2 nodes more at here"] == pytest.approx(60, abs=30)
    assert starts["without here/n1"] > starts["as it is"] + 200
    assert starts["policy sjf"] == pytest.approx(600, abs=3)
    assert starts["priority 1"] < starts["as it is"]
    assert starts["policy fifo"] == starts["as it is"] == starts["queue blue"]
    assert found["4 devices"]["end"]["p50_s"] < found["as it is"]["end"]["p50_s"] + 900
    answer = call("whatif", *words)
    assert "new, if it were handed in now:" in answer.out
    assert "no difference: queue blue" in answer.out
    assert max(map(len, answer.out.partition("no difference")[0].splitlines())) <= 100


def test_what_if_nothing_runs(call: Call, home: Path, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.partition("queues")[0])
    known = job_file(tmp_path, "forecast: {duration: 1m}")
    found = changes(call, known, "-g", str(path))
    assert found["as it is"]["sites"] == {"here": 2}
    unsure = job_file(tmp_path)
    answer = call("whatif", unsure, "-g", str(path))
    assert "now" in answer.out
    assert "unknown" in answer.out
    assert "nobody knows how long new-" in answer.out
    assert not home.exists()


def test_a_change_that_no_start_survives(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)))
    live.grid.write_text(GRID)
    path = Path(live.job_file())
    path.write_text(path.read_text().replace("cpu:2", "cpu:4"))
    answer = call("whatif", str(path), "-g", str(live.grid))
    assert "8 devices" in answer.out
    assert "cannot run so" in answer.out


def test_what_if_a_node_were_gone(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)), ("b", spec(900.0)), ("c", spec(300.0)))
    answer = call("whatif", "--drain", "here/n1", "--add", "here=1")
    assert answer.out.startswith("without here/n1 and 1 node more at here:")
    told = call("whatif", "--drain", "n1", "--json").json()
    assert told["changes"] == ["without here/n1"]
    shifts = {
        one["job"]: one["after"]["end"]["p50_s"] - one["before"]["end"]["p50_s"]
        for one in told["jobs"]
    }
    assert shifts["a"] > 250
    assert shifts["b"] == pytest.approx(0, abs=1)
    live.step([CancelRequested(job_id=job_id) for job_id in ("c",)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eta", "nope"), "there is no job 'nope'"),
        (("eta", "a", "--runs", "-1"), "--runs: -1 futures cannot be"),
        (("whatif",), "name a job file, or what to change"),
        (("whatif", "--drain", "n9"), "there is no node or site 'n9'"),
        (("whatif", "--add", "here"), "'' nodes cannot be; write here=2"),
        (("whatif", "--add", "there=1"), "there is no site `there`; there are: here"),
        (("whatif", "nope.yaml"), "nope.yaml"),
    ],
)
def test_bad_input_is_told(call: Call, live: Live, words: tuple[str, ...], said: str) -> None:
    live.submit(("a", spec(600.0)))
    answer = call(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err.replace("\n", " ")


def test_another_grid_than_that_of_the_jobs(call: Call, live: Live) -> None:
    live.submit(("a", spec(600.0)))
    other = live.files / "other.yaml"
    other.write_text(GRID.replace("n2", "n7"))
    answer = call("whatif", live.job_file(), "-g", str(other))
    assert answer.code == 2
    assert "a is under way on another grid" in answer.err
    assert call("eta", "a").code == 0


def test_a_job_is_for_the_grid_of_those_under_way(call: Call, live: Live, home: Path) -> None:
    live.submit(("a", spec(600.0)))
    run = home / "runs" / "a"
    run.mkdir(parents=True)
    (run / "grid.yaml").write_text(GRID)
    path = Path(live.job_file())
    path.write_text(path.read_text().replace("cpu:2", "cpu:4"))
    found = changes(call, str(path))
    assert found["as it is"]["start"]["p50_s"] == pytest.approx(live.began_s + 600, abs=2)


def test_nothing_is_under_way(call: Call, live: Live) -> None:
    assert "no job is under way" in call("whatif", "--drain", "n1").out
    live.grid.write_text(GRID.replace("n2", "n7"))
    assert call("whatif", live.job_file(), "-g", str(live.grid)).code == 0


def trains(steps: int, step_s: float) -> JobSpec:
    """Return a job of gridloom's own training program, with the predicted time of a step."""
    recipe = GptRecipe(
        shape=GptShape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8),
        data=TextData(),
        training=Training(steps=steps, global_batch=1, sequence_length=8),
        checkpoint=CheckpointPolicy(directory="checkpoints"),
    )
    made = replace(spec(), recipe=recipe)
    return replace(made, options=tuple(replace(one, step_s=step_s) for one in made.options))


def test_training_steps_tell_a_duration(call: Call, live: Live, home: Path) -> None:
    """The first job trains at a speed that is measured; the last waits, and is predicted."""
    live.submit(("a", trains(100, 99.0)), ("b", spec(9000.0)), ("c", trains(50, 2.0)))
    run = home / "runs" / "a"
    run.mkdir(parents=True)
    line = (
        '{"attempt": 1, "step": %d, "loss": 2.5, "tokens": 10, "tokens_per_s": 2.0, "step_s": 5.0}'
    )
    (run / "metrics.jsonl").write_text("".join(f"{line % step}\n" for step in range(1, 13)))
    told = call("eta", "c", "--json").json()
    assert told["unknown"] == []
    now_s = live.began_s + 60
    assert told["start"]["p50_s"] == pytest.approx(now_s + 88 * 5, abs=30)
    assert told["end"]["p50_s"] == pytest.approx(now_s + 88 * 5 + 100, abs=30)
    (run / "metrics.jsonl").unlink()  # then only the prediction is left
    told = call("eta", "a", "--json").json()
    assert told["end"]["p50_s"] == pytest.approx(live.began_s + 9900, abs=4)


def test_without_a_state_directory(call: Call, home: Path) -> None:
    del home
    for words in (("eta", "a"), ("whatif", "--drain", "n1")):
        answer = call(*words)
        assert answer.code == 2
        assert "there are no jobs in" in answer.err
