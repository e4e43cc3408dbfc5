"""Every driver: what a rank finds around it, and what it can do to those who watch it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.harness import CLOCK, Control, DriverHarness
from tests.contract.programs import python

from gridloom.base.system import SystemClock
from gridloom.model.event import CheckpointSaved, StepReported, TaskArrived
from gridloom.model.reason import Why
from gridloom.wire.agent import TASK_VARIABLE, Rendezvous
from gridloom.wire.launch import Rank

IGNORED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
DUMP = """
with open(f"{MARKS}/env-{RANK}.json", "w") as file:
    json.dump(dict(os.environ), file)
"""

OF_TORCHRUN_ONLY = {
    "TORCHELASTIC_ERROR_FILE": "a failure is told in the report file",
    "TORCHELASTIC_MAX_RESTARTS": "how often to try again is the control plane's to know",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "for torchrun's agent, not for its workers",
}


def environments(harness: DriverHarness, ranks: int) -> list[dict[str, str]]:
    order = harness.order(python(DUMP), ranks=ranks, env={"MY": "own"})
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    assert Control(driver, order).end().code is Why.COMPLETED
    marks = Path(order.env["MARKS"])
    found = [json.loads((marks / f"env-{rank}.json").read_text()) for rank in range(ranks)]
    for number, env in enumerate(found):
        assert Rank.from_environment(env) == order.ranks[number].rank
        assert env[TASK_VARIABLE] == order.task.token
        assert env["MY"] == "own"
    return found


@pytest.mark.slow
def test_a_rank_finds_what_torchrun_would_tell_it(
    harness: DriverHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the real torchrun, in the same run."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    marks = tmp_path / "torchrun"
    marks.mkdir()
    script = tmp_path / "dump.py"
    script.write_text(f"import json, os\nMARKS, RANK = {str(marks)!r}, os.environ['RANK']\n{DUMP}")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    # What this very test may have been given is not torchrun's doing
    clean = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
    subprocess.run([*argv, str(script)], env=clean, check=True, capture_output=True)
    for number, ours in enumerate(environments(harness, 2)):
        theirs = json.loads((marks / f"env-{number}.json").read_text())
        told = {
            name
            for name in theirs.keys() - clean.keys() - OF_TORCHRUN_ONLY.keys()
            if name.startswith(("TORCHELASTIC_", "MASTER_", "ROLE_", "GROUP_", "LOCAL_", "OMP_"))
            or name in {"RANK", "WORLD_SIZE"}
        }
        assert len(told) >= 14
        assert told <= ours.keys()
        same = {
            n for n in told if "RANK" in n or "SIZE" in n or n in {"ROLE_NAME", "OMP_NUM_THREADS"}
        }
        assert {n: ours[n] for n in same} == {n: theirs[n] for n in same}


def test_a_rank_does_not_inherit_what_the_control_plane_ignores(harness: DriverHarness) -> None:
    """What a parent ignores or blocks stays so through an exec, unless somebody undoes it."""
    handlers = "[str(signal.getsignal(n)) for n in (1, 3, 10, 15, 17)]"
    body = f"print({handlers}, signal.pthread_sigmask(0, ()))"
    order = harness.order(python(body))
    kept = {n: signal.signal(n, signal.SIG_IGN) for n in IGNORED}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    driver = harness.driver()
    try:
        assert not driver.submit(harness.site, [order])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert Control(driver, order).end().code is Why.COMPLETED
    said = Path(order.ranks[0].log_file).read_text()
    assert "SIG_IGN" not in said
    assert said.endswith("] set()\n")


@pytest.mark.slow
def test_reports_of_any_size_and_kind_do_no_harm(harness: DriverHarness) -> None:
    body = r"""
report = os.environ["GRIDLOOM_REPORT_FILE"]
with open(report, "ab") as file:
    file.write(b"\xff\xfe no text\n{}\n[1]\n" + b"x" * 3_000_000 + b"\n")
    file.write(b'{"kind": "step", "step": 1, "more": ' + b"[" * 90_000 + b"\n")
    for step in range(1, 50_001):
        file.write(b'{"kind": "step", "step": %d}\n' % step)
    file.write(b'{"kind": "step", "st')
with open(report + ".new", "w") as file:
    file.write('{"kind": "checkpoint", "step": 50000, "path": "/c"}\n')
    file.write('{"kind": "step", "step": 50001}\n')
wait_for("go")
os.replace(report + ".new", report)
"""
    order = harness.order(python(body))
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    control = Control(driver, order)
    clock, until_s = SystemClock(), SystemClock().monotonic_s() + 30
    while not any(isinstance(f, StepReported) and f.step == 50_000 for f in control.facts):
        assert clock.monotonic_s() < until_s
        control.beat()
        clock.sleep(0.02)
    harness.go(order)
    assert control.end().code is Why.COMPLETED
    assert [f.step for f in control.facts if isinstance(f, StepReported)][-1] == 50_001
    assert control.sees(CheckpointSaved).step == 50_000


@pytest.mark.parametrize(
    "spoil", ["os.mkfifo(report)", "os.mkdir(report)", "os.symlink(report, report)"]
)
def test_a_report_file_that_is_none_does_no_harm(harness: DriverHarness, spoil: str) -> None:
    body = f"report = os.environ['GRIDLOOM_REPORT_FILE']; {spoil}; time.sleep(0.2); sys.exit(4)"
    order = harness.order(python(body))
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    assert Control(driver, order).end().exit_code == 4


def test_ranks_that_are_to_meet_wait_until_they_are_told_where(harness: DriverHarness) -> None:
    tells = (
        'names = ("MASTER_ADDR", "MASTER_PORT", "GRIDLOOM_NODE_ADDRESSES");'
        "print(*(os.environ[name] for name in names))"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        order = harness.order(python(tells), meets=(port, port + 3))
        driver = harness.driver()
        assert not driver.submit(harness.site, [order])
        control = Control(driver, order)
        arrival = control.sees(TaskArrived).arrival
        assert arrival.node
        assert arrival.address == "127.0.0.1"
        free = {port for first, last in arrival.free_ports for port in range(first, last + 1)}
        assert free <= {port + 1, port + 2, port + 3}
    for _ in range(3):
        control.beat()
        CLOCK.sleep(0.2)
    assert not Path(order.ranks[0].log_file).exists(), "no rank has started"
    told = Rendezvous(addresses=("127.0.0.1",), port=port + 2)
    for _ in range(2):  # after a crash it is told again
        harness.driver().meet(order.task, told)
    assert control.end().code is Why.COMPLETED
    assert Path(order.ranks[0].log_file).read_text() == f"127.0.0.1 {port + 2} 127.0.0.1\n"


def test_what_waits_for_others_can_be_cancelled(harness: DriverHarness) -> None:
    order = harness.order(python("print('never')"), meets=(29400, 29403))
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    control = Control(driver, order)
    control.sees(TaskArrived)
    driver.stop(order.task, 0.0, "cancelled")
    outcome = control.end()
    assert (outcome.code, outcome.sentence) == (
        Why.STOP_REQUESTED,
        "cancelled: no rank was started yet",
    )
    assert not Path(order.ranks[0].log_file).exists()
