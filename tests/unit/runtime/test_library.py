import dataclasses
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import pytest
from tests.unit.runtime.conftest import UNMEASURED
from torch import nn

import gridloom.runtime as gl
from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import ParallelPlan
from gridloom.runtime.library import start
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish


def test_every_name_is_what_it_says_whatever_else_was_imported() -> None:
    for module in pkgutil.iter_modules(gl.__path__):
        importlib.import_module(f"{gl.__name__}.{module.name}")
    for name in gl.__all__:
        assert not inspect.ismodule(getattr(gl, name)), name


def test_a_name_that_is_none_is_an_error_as_usual() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gl.nothing  # noqa: B018


def test_a_loop_on_one_rank_waits_for_nothing_that_it_does_not_use() -> None:
    names = "import sys, gridloom.runtime as gl; gl.init, gl.sync, gl.data, gl.report"
    loaded = f"{names}; print(*sys.modules)"
    done = subprocess.run(
        ["env", *UNMEASURED, sys.executable, "-c", loaded],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(done.stdout.split())
    assert "torch" in modules
    assert not {"torch.distributed.fsdp", "torch._dynamo", "torch.distributed.checkpoint"} & modules


def test_libraries_that_read_torchruns_variables_see_the_site_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "_RUNS", [])
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    environment = os.environ  # noqa: TID251
    run = gl.init()
    assert environment["WORLD_SIZE"] == "1"
    assert gl.init(own_world=True) is run
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(environment)


def test_a_module_is_spread_as_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def under(plan: ParallelPlan) -> None:
        place = dataclasses.replace(place_in({}), plan=plan)
        monkeypatch.setattr(start, "_RUNS", [Run(place, SystemClock(), StopWish())])

    under(ParallelPlan(data=4, zero=1))  # of which this site has one
    found = gl.parallelize(nn.Linear(2, 2)).axes.plan
    assert (found.data, found.zero, found.precision) == (1, 1, "fp32")
    under(ParallelPlan(tensor=2))
    with pytest.raises(InputError, match="a module of your own is cut along the data axis alone"):
        gl.parallelize(nn.Linear(2, 2))
    own = ParallelPlan(data=1, precision="bf16")
    assert gl.parallelize(nn.Linear(2, 2), own).axes.plan == own
