"""``gridloom simulate`` in this process: figures, files, what is left out, what is refused."""

import csv
import gzip
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival
from tests.unit.cli.conftest import Answer, plain, run_in_terminal

from gridloom.cli.simulate_forecast import on_calendar
from gridloom.cli.simulate_progress import Bar, stoppable
from gridloom.sim.report_gantt import ROWS_MAX
from gridloom.sim.workload import Workload, journal_inventory, read

Call = Callable[..., Answer]
GOLDEN = Path(__file__).parents[2] / "golden"
GRID = """\
currency: EUR
sites:
  north:
    node: {accelerators: h100:8}
    nodes: {n1: {}, n2: {}}
    price_per_accelerator_hour: 2.0
    power_per_accelerator: 1kW
    carbon: 100 g/kWh
queues:
  red: {cohort: all, nominal: {h100: 8}}
cohorts: {all: {nominal: {h100: 8}}}
bookings:
  - name: works
    from: 2017-11-01T08:00+00:00
    to: 2017-11-01T09:00+00:00
    sites: north
"""
FAULTS = "at,kind,domain,for\n100,down,north/n1,500\n"
SIGNALS = "at_s,site,price_per_accelerator_hour\n0,north,4\n"


def rows(count: int = 60, seed: int = 0) -> list[tuple[Any, ...]]:
    """Jobs drawn here: about two thirds of what eight devices can do."""
    rng = random.Random(seed)
    return [
        (f"j{i}", 40 * i, rng.randint(20, 400), rng.choice([1, 1, 1, 2, 4]), f"u{i % 3}")
        for i in range(count)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 60 jobs, one line of which is no job."""
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as opened:
        out = csv.writer(opened)
        out.writerow(("id", "submit", "duration", "gpus", "user"))
        out.writerows(rows())
        out.writerow(("broken", 7, 0, 1, "u0"))
    return path


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def strict_fifo(jobs: list[tuple[Any, ...]], devices: int) -> list[tuple[float, float]]:
    """Return start and end of each job on counted devices, nobody passing anybody."""
    free, now, running = devices, 0.0, list[tuple[float, int]]()
    found = []
    for _, submit, duration, count, *_ in jobs:
        now = max(now, float(submit))
        while free < count:
            running.sort()
            end, back = running.pop(0)
            now, free = max(now, end), free + back
        for end, back in [one for one in running if one[0] <= now]:
            running.remove((end, back))
            free += back
        found.append((now, now + duration))
        running.append((now + duration, count))
        free -= count
    return found


def simulated(call: Call, *words: str) -> list[dict[str, Any]]:
    answer = call("simulate", *words, "--json")
    assert answer.err == ""
    assert answer.code == 0
    results: list[dict[str, Any]] = answer.json()
    return results


def test_figures_are_those_of_another_simulator(call: Call, log: Path) -> None:
    (told,) = simulated(call, "-w", str(log), "--accelerators", "4", "-p", "fifo")
    stays = strict_fifo(rows(), 4)
    jcts = sorted(end - row[1] for row, (_, end) in zip(rows(), stays, strict=True))
    waits = [start - row[1] for row, (start, _) in zip(rows(), stays, strict=True)]
    assert told["completed"] == told["jobs"] == 60
    assert told["jct_mean_s"] == pytest.approx(math.fsum(jcts) / 60)
    assert (told["jct_p50_s"], told["jct_p90_s"]) == (jcts[29], jcts[53])
    assert told["wait_mean_s"] == pytest.approx(math.fsum(waits) / 60)
    assert told["makespan_s"] == max(end for _, end in stays)
    work = sum(row[2] * row[3] for row in rows())
    assert told["utilisation"] == pytest.approx(work / (4 * told["makespan_s"]))
    assert told["dropped"] == {"zero_duration": 1}
    assert told["goodput"] == 1.0
    assert told["wall_s"] > 0
    assert told["cpu_s"] >= 0
    assert told["fairness_over"] == "user"


def test_the_same_again_and_packed_alike(call: Call, log: Path) -> None:
    packed = log.with_suffix(".anything")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    words = ("--accelerators", "4", "-p", "las,backfill", "--noise", "0.1", "--seed", "3")
    one, other = (simulated(call, "-w", str(path), *words) for path in (log, packed))
    for row in (*one, *other):
        del row["wall_s"], row["cpu_s"]
    assert one == other
    assert [row["policy"] for row in one] == ["las", "backfill"]


@pytest.mark.unmeasured
def test_the_order_of_hashes_changes_nothing(tmp_path: Path) -> None:
    made = "generate:seren,jobs=150,devices=64,load=2,queues=a|b|c,elastic=0.5,forecast_spread=1"
    words = (sys.executable, "-m", "gridloom.cli.main", "simulate", "-w", made, "--json")
    found = []
    for seed in ("1", "2"):
        page, events = tmp_path / "page.html", tmp_path / "events.jsonl"
        more = ("-p", "fair+elastic", "--report", str(page), "--events", str(events))
        done = subprocess.run(
            (*words, *more), env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        (told,) = json.loads(done.stdout)
        del told["wall_s"], told["cpu_s"]
        found.append((told, page.read_text(), events.read_bytes()))
    assert found[0] == found[1]


def test_table_is_as_it_was(call: Call, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    words = ("-w", "log.csv", "--accelerators", "4", "-p", "fifo,backfill-greedy,srtf")
    answer = call("simulate", *words)
    lines = [line.rstrip() for line in answer.out.splitlines()]
    head = next(i for i, line in enumerate(lines) if "CPU s" in line)
    cut = lines[head].index("CPU")
    for place in range(head, head + 5):  # what the machine took is never the same
        lines[place] = lines[place][:cut].rstrip()
    assert "\n".join(lines) + "\n" == (GOLDEN / "simulate_table.txt").read_text()


def test_every_policy_fits_a_hundred_columns(call: Call, log: Path) -> None:
    answer = call("simulate", "-w", str(log), "--accelerators", "4", "-p", "all", "--limit", "20")
    tables = answer.out.partition("\n")[2]
    assert max(map(len, tables.partition("left out")[0].splitlines())) <= 100
    assert "backfill-conservative" in tables
    assert "left out 1 row: 1 zero_duration; --dropped lists them" in answer.out


def test_what_was_left_out_is_listed_on_request(call: Call, log: Path) -> None:
    answer = call("simulate", "-w", str(log), "--accelerators", "3", "-p", "fifo", "--dropped")
    assert "--dropped" not in answer.out
    assert "zero_duration" in answer.out
    assert "ran 0 s" in answer.out
    assert "larger_than_grid" in answer.out


def test_a_grid_prices_queues_and_calendar(call: Call, log: Path, grid: Path) -> None:
    (told,) = simulated(call, "-w", str(log), "-g", str(grid))
    work_h = sum(row[2] * row[3] for row in rows()) / 3600
    assert told["policy"] == "backfill"
    assert told["currency"] == "EUR"
    assert told["cost"] == pytest.approx(2.0 * work_h)
    assert told["energy_kwh"] == pytest.approx(work_h)
    assert told["carbon_kg"] == pytest.approx(0.1 * work_h)
    signals = grid.with_name("signals.csv")
    signals.write_text(SIGNALS)
    (dearer,) = simulated(call, "-w", str(log), "-g", str(grid), "--signals", str(signals))
    assert dearer["cost"] == pytest.approx(4.0 * work_h)


def test_queues_that_the_grid_does_not_have_are_told(
    call: Call, tmp_path: Path, grid: Path
) -> None:
    path = tmp_path / "q.csv"
    path.write_text("id,submit,duration,gpus,queue\na,0,10,8,red\nb,0,10,8,blue\n")
    answer = call("simulate", "-w", str(path), "-g", str(grid))
    assert "queues of the log that the grid does not have are without limits: blue" in answer.out
    (told,) = simulated(call, "-w", str(path), "-g", str(grid))
    assert {queue: one["completed"] for queue, one in told["by_queue"].items()} == {
        "blue": 1,
        "red": 1,
    }


def test_faults_cost_time(call: Call, log: Path, grid: Path) -> None:
    faults = grid.with_name("faults.csv")
    faults.write_text(FAULTS)
    words = ("-w", str(log), "-g", str(grid))
    (calm,), (hit,) = simulated(call, *words), simulated(call, *words, "--faults", str(faults))
    assert calm["lost_device_s"] == calm["restarts"] == 0
    assert hit["lost_device_s"] > 0
    assert hit["restarts"] > 0
    assert hit["completed"] == 60


def test_a_calendar_booking_holds_in_a_log_with_a_calendar(
    call: Call, tmp_path: Path, grid: Path
) -> None:
    path = tmp_path / "log.csv"
    zero_s = 1504508400  # Philly's own
    first_s = 1509523200 - zero_s  # 2017-11-01 08:00
    path.write_text(
        "job_id,submit_local,submit_s,submit_utc_s,duration_s,num_gpus\n"
        f"a,2017-11-01 01:00:00,{first_s},{first_s},600,1\n"
    )
    (told,) = simulated(call, "-w", str(path), "-g", str(grid))
    assert told["wait_mean_s"] == 3600.0


def test_forecasts(call: Call, log: Path) -> None:
    words = ("-w", str(log), "--accelerators", "4", "-p", "sjf", "--forecast")
    exact, wrong, none = (
        simulated(call, *words, how)[0]["jct_mean_s"] for how in ("exact", "spread=3", "none")
    )
    (user,) = simulated(call, *words[:-1])
    assert exact == user["jct_mean_s"]
    assert len({exact, wrong, none}) == 3
    assert exact < wrong
    for more in (("-p", "sjf+predict"), ("-p", "sjf", "--forecast", "learned")):
        (learned,) = simulated(call, *words[:4], *more)
        assert learned["completed"] == 60


def test_deadlines_move_with_the_calendar() -> None:
    made = replace(arrival("a", 5.0).spec, deadline_s=100.0)
    one = Workload(arrivals=(replace(arrival("a", 5.0), spec=made),), origin_s=1e9)
    (moved,) = on_calendar(one).arrivals
    assert (moved.submit_s, moved.spec.deadline_s) == (1e9 + 5, 1e9 + 100)
    (plain,) = on_calendar(replace(one, origin_s=0.0)).arrivals
    assert plain.submit_s > 1e9


def test_long_lists_of_rows_are_cut(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    bad = "".join(f"b{i},0,0,1\n" for i in range(250))
    path.write_text(f"id,submit,duration,gpus\na,0,10,1\n{bad}")
    answer = call("simulate", "-w", str(path), "--accelerators", "1", "--dropped")
    assert answer.out.rstrip().endswith("and 50 more")


@pytest.mark.unmeasured
def test_made_jobs_and_several_seeds(call: Call) -> None:
    made = "generate:kalos,jobs=80,load=2,devices=64,"
    (told,) = simulated(call, "-w", made, "--seeds", "3", "--seed", "5", "--laws", "full")
    alone = [simulated(call, "-w", made, "--seed", str(seed))[0] for seed in (5, 6, 7)]
    assert told["seeds"] == [5, 6, 7]
    values = [one["jct_mean_s"] for one in alone]
    assert told["jct_mean_s"] == pytest.approx(math.fsum(values) / 3)
    mean = math.fsum(values) / 3
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / 2)
    assert told["spread"]["jct_mean_s"] == pytest.approx(spread)
    assert told["by_size"]["1"]["jobs"] == pytest.approx(
        sum(one["by_size"]["1"]["jobs"] for one in alone) / 3
    )
    answer = call("simulate", "-w", made, "--seeds", "2")
    assert "mean over 2 seeds" in answer.out
    assert " ±" in answer.out


def test_made_jobs_fill_the_queues_of_a_grid(call: Call, grid: Path) -> None:
    (told,) = simulated(call, "-w", "generate:seren,jobs=50,elastic=1", "-g", str(grid))
    assert set(told["by_queue"]) == {"red"}
    words = ("-w", "generate:seren,jobs=50,queues=a|b", "-g", str(grid), "--elastic")
    (told,) = simulated(call, *words, "--gang", "packed", "-p", "fair+elastic")
    assert set(told["by_queue"]) == {"a", "b"}


def test_until_ends_it_early(call: Call, log: Path) -> None:
    (told,) = simulated(call, "-w", str(log), "--accelerators", "4", "--until", "10m")
    assert told["simulated_s"] == 600.0
    assert 0 < told["completed"] < told["jobs"] == 16
    lone = log.with_name("lone.csv")
    lone.write_text("id,submit,duration,gpus\na,0,1000,1\n")
    (alone,) = simulated(call, "-w", str(lone), "--accelerators", "4", "--until", "10m")
    assert (alone["completed"], alone["utilisation"]) == (0, 0.25)  # nothing happens till the end
    page = log.with_name("early.html")
    words = ("-w", str(log), "--accelerators", "4", "--until", "10m", "--report", str(page))
    answer = call("simulate", *words)
    bars = re.findall(
        r'class="bar edged[^"]*" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', page.read_text()
    )
    assert max(float(x) + float(width) for x, width in bars) == pytest.approx(948, abs=1)
    assert f"backfill: {told['unfinished']} job" in answer.out


def test_events_are_a_journal_that_can_be_simulated_again(call: Call, log: Path) -> None:
    out = log.with_name("out.jsonl")
    words = ("-w", str(log), "--accelerators", "4", "-p", "fifo", "--events", str(out))
    (told,) = simulated(call, *words)
    text = out.read_text()
    assert len(text.splitlines()) == told["steps"]
    inventory = journal_inventory(text)
    assert inventory is not None
    assert inventory.sites[0].nodes[0].count == 4
    assert len(read(text).arrivals) == 60
    (again,) = simulated(call, "-w", str(out))
    assert again["policy"] == "fifo"
    assert again["jct_mean_s"] == pytest.approx(told["jct_mean_s"])
    simulated(call, *words[:4], "-p", "fifo,sjf", "--events", str(out), "--seeds", "2")
    names = sorted(path.name for path in out.parent.glob("out.*.jsonl"))
    assert names == [f"out.{p}.{s}.jsonl" for p in ("fifo", "sjf") for s in (0, 1)]


def test_report_is_written(call: Call, log: Path, grid: Path) -> None:
    page = log.with_name("r.html")
    words = ("-w", str(log), "-g", str(grid), "-p", "fifo,las", "--report", str(page))
    answer = call("simulate", *words)
    assert answer.code == 0
    assert f"report: {page}" in answer.out
    text = page.read_text()
    assert "Policies side by side" in text
    assert text.count("<svg") == 5
    assert ROWS_MAX >= 2


def test_jobs_that_can_never_run_are_told(call: Call, tmp_path: Path, grid: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("id,submit,duration,gpus\na,0,10,16\nb,0,10,1\n")
    answer = call("simulate", "-w", str(path), "-g", str(grid), "--gang", "packed")
    assert answer.code == 0
    grid.write_text(GRID.replace("n2: {}", "n2: {accelerators: a100:8}"))
    path.write_text("id,submit,duration,gpus\na,0,10,12\nb,0,10,1\n")
    answer = call("simulate", "-w", str(path), "-g", str(grid))
    assert "backfill: 1 job never ran; the first: a: " in answer.out


def test_kinds_that_the_grid_does_not_have(call: Call, tmp_path: Path, grid: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("id,submit,duration,gpus,accelerator\na,0,10,1,t4\n")
    answer = call("simulate", "-w", str(path), "-g", str(grid))
    assert "the grid has none of the log's kinds of device (t4)" in answer.out
    answer = call("simulate", "-w", str(path), "--accelerators", "2")
    assert "1 job on 2 t4" in answer.out


def test_a_list_of_nodes_is_a_grid(call: Call, log: Path) -> None:
    nodes = log.with_name("nodes.csv")
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nx,1000,1000,4,T4\ny,1000,1000,0,\n")
    (told,) = simulated(call, "-w", str(log), "-g", str(nodes), "-p", "fifo")
    assert told["completed"] == 60


def test_ctrl_c_asks_once_and_then_interrupts() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may come in ignored
    with stoppable() as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGINT)
        asked = vars(stop)["asked"]
        assert asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_prints_what_there_is(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(self: Any, what: str, done: int, simulated_s: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 500:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Bar, "tell", look)
    words = ("-w", "generate:seren,jobs=300,devices=64", "-p", "fifo,las")
    answer = call("simulate", *words, "--json")
    assert answer.code == 130
    (told,) = answer.json()
    assert (told["policy"], told["interrupted"]) == ("fifo", True)
    assert 0 < told["completed"] < 300
    looks = 0
    answer = call("simulate", *words)
    assert answer.code == 130
    assert "fifo: interrupted after" in answer.out


SOON = """\
import sys
from gridloom.cli import simulate_progress
from gridloom.cli.main import main
simulate_progress.WAIT_S = float(sys.argv.pop(1))
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("wait_s", "shown"), [("0.2", True), ("60", False)])
def test_a_bar_shows_on_a_terminal_after_a_while(wait_s: str, shown: bool) -> None:
    words = (wait_s, "simulate", "-w", "generate:seren,jobs=600,devices=128,load=2", "-p", "fifo")
    code, text = run_in_terminal(100, words, program=("-c", SOON))
    assert code == 0
    assert ("/600 jobs" in plain(text)) == shown
    assert (" simulated" in plain(text)) == shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "--workload: is needed"),
        ("-w log.csv", "--workload: says nothing of its machine, and no grid is given"),
        ("-w log.csv --accelerators 4 -p fifoo", "did you mean `fifo`? There are fifo, backfill"),
        ("-w log.csv --accelerators 4 -p las+elastc", "no policy `elastc` in `las+elastc`"),
        ("-w log.csv --accelerators 4 -p ,", "--policy: there is no policy"),
        ("-w log.csv --accelerators 4 -g grid.yaml", "--accelerators: stands beside --grid"),
        ("-w log.csv --accelerators -4", "-4 devices cannot be"),
        ("-w log.csv --accelerators 0", "0 devices cannot be; write a number from 1"),
        ("-w log.csv --accelerators 4 -p zzzz", "no policy `zzzz`; there are fifo, backfill"),
        ("-w log.csv --limit -1 --accelerators 4", "-1 jobs cannot be"),
        ("-w log.csv --accelerators 4 --noise 9", "--noise: 9 cannot be"),
        ("-w log.csv --accelerators 4 --seeds 0", "--seeds: 0 seeds cannot be"),
        ("-w log.csv --accelerators 4 --until soon", "--until: 'soon' cannot be"),
        ("-w log.csv --accelerators 4 --until 0", "--until: '0' cannot be"),
        ("-w log.csv --accelerators 4 --forecast spread=-1", "--forecast: 'spread=-1' is not"),
        ("-w log.csv --accelerators 4 --forecast spred=1", "--forecast: 'spred=1' is not"),
        ("-w log.csv --accelerators 4 --report no/r.html", "--report: there is no directory no"),
        ("-w log.csv --accelerators 4 --events log.csv/e", "--events: there is no directory"),
        ("-w log.csv --accelerators 4 --events .", "--events: . is a directory"),
        ("-w log.csv --accelerators 4 --format swff", "there is no format swff"),
        ("-w nope.csv --accelerators 4", "nope.csv: the workload cannot be read: No such file"),
        ("-w cut.gz --accelerators 4", "cut.gz: the workload cannot be unpacked"),
        ("-w grid.yaml --accelerators 4", "grid.yaml:1: has an unknown format"),
        ("-w log.csv -g log.csv", "log.csv"),
        ("-w log.csv -g nope.yaml", "nope.yaml: the grid file cannot be read"),
        ("-w log.csv -g grid.yaml --faults faults.csv", "faults.csv:2: domain: the grid has no"),
        ("-w log.csv -g grid.yaml --signals faults.csv", "faults.csv:1: unknown column"),
        ("-w log.csv -g grid.yaml --faults bytes", "bytes:2: the script of faults is not UTF-8"),
        ("-w huge.csv --accelerators 4", "every job is larger than the grid with its 4 devices"),
        ("-w generate:sern --accelerators 4", "did you mean `seren`?"),
        ("-w generate:seren,lod=1 --accelerators 4", "unknown key `lod`; did you mean `load`?"),
        ("-w generate:seren,load=x --accelerators 4", "--workload load: 'x' cannot be"),
        ("-w generate:seren,endings=perhaps --accelerators 4", "write yes or no"),
        ("-w generate:seren,restart_s=x --accelerators 4", "write a duration"),
        ("-w generate:seren,jobs=1.5 --accelerators 4", "write a whole number"),
        ("-w generate:seren,jobs=99M --accelerators 4", "99000000 jobs are too many"),
        ("-w generate:seren,load=0 --accelerators 4", "load: 0.0 makes no workload"),
        ("-w generate:seren", "says nothing of the grid"),
    ],
)
def test_bad_input_is_told(
    call: Call,
    log: Path,
    grid: Path,
    words: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(log.parent)
    Path("cut.gz").write_bytes(gzip.compress(log.read_bytes())[:200])
    Path("faults.csv").write_text(FAULTS.replace("north/n1", "north/n9"))
    Path("bytes").write_bytes(b"at,kind,domain\n\xff\xfe\n")
    Path("huge.csv").write_text("id,submit,duration,gpus\na,0,10,16\n")
    answer = call("simulate", *words.split())
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err.replace("\n", " ")
    assert "Traceback" not in answer.err
    wrong = call("simulate", *words.split(), "--json")
    assert wrong.code == 2
    assert json.loads(wrong.out)["event"] == "error"
