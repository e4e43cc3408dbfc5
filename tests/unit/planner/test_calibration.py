"""Fitted constants: by family, bounded, written and read, and what they predict."""

from dataclasses import fields

import msgspec
import numpy as np
import pytest
from tests.unit.planner.measured_runs import PLAN, RUN, TRUTH, timed, varied_runs

from gridloom.base import codec
from gridloom.planner.calibration import Calibration, bounded, predicted_s, runs_as_cases
from gridloom.planner.cases import Cases, model_columns, plan_columns
from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.constants import Constants
from gridloom.planner.hardware import Fabric, machine_columns
from gridloom.planner.priors import PRIORS
from gridloom.planner.step_time import step_time

PLAIN = Calibration(shared={name: prior.value for name, prior in PRIORS.items()}, families={})


def test_priors_name_constants_and_keep_their_bounds() -> None:
    names = {field.name for field in fields(Constants)}
    assert set(PRIORS) <= names
    for prior in PRIORS.values():
        assert prior.value > 0
        assert prior.spread > 0
        assert prior.family_spread >= 0
        assert prior.most == 0 or prior.value <= prior.most
    # A share of a limit has a bound, or it could be reached more than wholly.
    shares = [name for name in PRIORS if name.endswith("_share") and name != "unaligned_8_share"]
    assert [name for name in shares if not PRIORS[name].most] == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("matrix_share", 0.5, 0.5),
        ("matrix_share", 2.0, PRIORS["matrix_share"].most),
        ("data_hidden", 1.7, 1.0),
        ("step_fixed_s", 1e6, 1e6),
    ],
)
def test_a_constant_is_no_more_than_it_can_be(name: str, value: float, expected: float) -> None:
    assert bounded(name, value) == expected


def test_a_family_scales_the_shared_constants() -> None:
    found, shared = TRUTH.constants("h100"), TRUTH.constants("mi300")
    assert found.matrix_share == pytest.approx(0.75 * 0.92)
    assert found.network_share == shared.network_share == 0.55
    assert shared.matrix_share == 0.75
    assert PLAIN.constants("a100") == PLAIN.constants("never measured")


def test_a_family_cannot_pass_a_bound() -> None:
    most = PRIORS["matrix_share"].most
    fast = msgspec.structs.replace(TRUTH, families={"h100": {"matrix_share": 5.0}})
    assert fast.constants("h100").matrix_share == most


def test_constants_that_were_not_fitted_keep_their_defaults() -> None:
    few = Calibration(shared={"matrix_share": 0.6}, families={})
    found = few.constants("a100")
    assert found.matrix_share == 0.6
    assert found.score_passes == Constants().score_passes


def test_written_and_read() -> None:
    full = msgspec.structs.replace(
        TRUTH, runs={"a100": 30}, groups={"a100": 3}, error={"a100": 0.12}, note="two tables"
    )
    written = codec.encode(full)
    assert codec.decode(written, Calibration) == full
    assert codec.encode(codec.decode(written, Calibration)) == written
    assert codec.decode(codec.pretty(full), Calibration) == full


def test_runs_as_cases() -> None:
    other = timed(RUN, 1.0, accelerator=ACCELERATORS["a100"], sequence=2048, global_batch=8)
    cases = runs_as_cases([RUN, other])
    assert cases.sequence.tolist() == [4096, 2048]
    assert cases.global_batch.tolist() == [64, 8]
    assert cases.machine.flops_16.tolist() == [989e12, 312e12]
    assert cases.plan.tensor.tolist() == [2, 2]


def test_a_prediction_is_the_step_of_the_runs_own_family() -> None:
    fabric = Fabric(network_bytes_per_s=10e9, node=4)
    runs = [RUN, timed(RUN, 1.0, accelerator=ACCELERATORS["a100"], fabric=fabric)]
    found = predicted_s(TRUTH, runs)
    for index, run in enumerate(runs):
        cases = Cases(
            model=model_columns(run.model),
            plan=plan_columns(PLAN),
            machine=machine_columns(run.accelerator, run.fabric),
            sequence=run.sequence,
            global_batch=run.global_batch,
        )
        constants = TRUTH.constants(run.accelerator.family)
        assert found[index] == pytest.approx(float(step_time(cases, constants).total_s))


def test_one_run_is_predicted_as_among_others() -> None:
    runs = varied_runs(12)
    together = predicted_s(TRUTH, runs)
    assert np.allclose(together, [predicted_s(TRUTH, [run])[0] for run in runs], rtol=1e-12)
    assert np.allclose(together, [run.step_s for run in runs], rtol=1e-12)
