"""One process of a training: what it reports, and whether it should stop."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fakes.clock import FakeClock
from tests.unit.runtime.conftest import UNMEASURED, Nursery
from tests.unit.runtime.test_place import rank
from tests.unit.runtime.wan.two_sites import free_ports

from gridloom.base.errors import InputError
from gridloom.runtime.accelerator import backend_for, local_device, synchronize
from gridloom.runtime.failure import PeerLostError, PoisonedError, StorageError
from gridloom.runtime.place import Place, place_in
from gridloom.runtime.run import Run, StopWish
from gridloom.wire.launch import CheckpointDone


def run(stop: StopWish | None = None, **changes: Any) -> Run:
    place: Place = dataclasses.replace(place_in({}), **changes)
    return Run(place, FakeClock(), stop or StopWish())


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_report_says_that_training_runs_and_from_where(tmp_path: Path) -> None:
    path = tmp_path / "report"
    one = run(report_file=str(path))
    one.report(51, 2.5, 1000.0)
    one.report(52, None, None)
    found = lines(path)
    assert [line["kind"] for line in found] == ["ready", "step", "step"]
    assert (found[0]["resumed_step"], found[0]["independent_sites"]) == (50, False)
    assert (found[1]["step"], found[1]["loss"], found[1]["tokens_per_s"]) == (51, 2.5, 1000.0)
    assert found[2]["step"] == 52


def test_a_loop_whose_sites_go_on_without_one_another_says_so(tmp_path: Path) -> None:
    path = tmp_path / "report"
    one = run(report_file=str(path))
    one.independent_sites = True
    one.report(1, 2.5, None)
    assert lines(path)[0]["independent_sites"] is True


def test_it_says_where_it_begins_when_its_sites_have_met(tmp_path: Path) -> None:
    path = tmp_path / "report"
    one = run(report_file=str(path))
    one.independent_sites = True
    one.begin(40, ("passed over",))
    assert not path.exists()
    one.report(61, 2.5, None)
    (ready, step) = lines(path)
    assert (ready["resumed_step"], ready["notes"]) == (40, ["passed over"])
    assert ready["independent_sites"] is True
    assert step["step"] == 61


@pytest.mark.parametrize("is_late", [False, True])
def test_it_says_so_before_it_says_anything_else(tmp_path: Path, *, is_late: bool) -> None:
    path = tmp_path / "report"
    one = run(report_file=str(path))
    one.independent_sites = True
    if is_late:
        one.met()
    one.begin(40, ())
    if not is_late:
        one.met()
    one.tell(CheckpointDone(step=41, path="there"))
    one.report(41, 2.5, None)
    assert [line["kind"] for line in lines(path)] == ["ready", "checkpoint", "step"]


def test_only_the_first_rank_of_a_node_reports_and_nobody_outside_of_gridloom(
    tmp_path: Path,
) -> None:
    path = tmp_path / "report"
    run(report_file=str(path), local_rank=1).report(1, 2.5, None)
    assert not path.exists()
    run().report(1, 2.5, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_a_wish_to_stop(number: int) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    try:
        stop = StopWish()
        stop.listen()
        one = run(stop)
        assert not one.should_stop()
        os.kill(os.getpid(), number)
        assert one.should_stop()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGUSR1, before[1])


def test_where_there_is_no_accelerator_the_cpu_and_gloo_do() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    assert local_device(3) == torch.device("cpu")
    assert backend_for(torch.device("cpu")) == "cpu:gloo"
    synchronize(torch.device("cpu"))


def test_all_ranks_of_a_site_stop_after_the_same_step_when_one_is_asked(
    tmp_path: Path, nursery: Nursery
) -> None:
    port = str(free_ports(1)[0])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        nursery.run(
            "tests.unit.runtime.asked", [], shared | {"RANK": str(rank)}, tmp_path / f"{rank}"
        )
        for rank in range(2)
    ]
    assert [rank.told() for rank in ranks] == [[[False, True]]] * 2


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (PeerLostError("rank 3 went away"), 76, None),
        (StorageError("the disk is full", "make room"), 74, ("the disk is full", "make room")),
        (PoisonedError("the loss is nan", "lower it"), 79, ("the loss is nan", "lower it")),
        (InputError("a bad flag"), 78, ("a bad flag", "")),
        (FileNotFoundError(2, "No such file", "x"), 74, ("[Errno 2] No such file: 'x'", "")),
        (ValueError("my own"), 1, ("ValueError: my own", "see the rank's log")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_is_told_as_the_contract_has_it(
    error: Exception, code: int, told: tuple[str, str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "report"
    assert run(report_file=str(path)).fail(error) == code
    found = [(line["message"], line["remedy"]) for line in lines(path)] if told else []
    assert found == ([told] if told else [])
    assert path.exists() == (told is not None)


LOOP = """
import gridloom.runtime as gl
from gridloom.base.errors import InputError
gl.init()
raise InputError("a bad flag")
"""


def test_an_error_that_a_loop_does_not_catch_is_told(tmp_path: Path) -> None:
    path = tmp_path / "report"
    place = rank(site_ranks=(("north", 1),), world_size=1, node_ranks=(1,), report_file=str(path))
    variables = [f"{name}={value}" for name, value in place.environment().items()]
    done = subprocess.run(
        ["env", *UNMEASURED, *variables, sys.executable, "-c", LOOP],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "Traceback" in done.stderr
    assert [line["message"] for line in lines(path)] == ["a bad flag"]
