"""Laws of the step time: what is slower never makes it faster, and what hides never slower."""

import hashlib
import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.step_cases import DENSE, LATENT, MIXTURE, between_sites, case, parts

from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.cases import Cases, stack
from gridloom.planner.constants import Constants
from gridloom.planner.priors import PRIORS
from gridloom.planner.step_time import step_time

ROUNDING = 1 + 1e-9
DEGREES = st.sampled_from([1, 2, 4, 8])
CONSTANTS = Constants(**{name: prior.value for name, prior in PRIORS.items()})


@st.composite
def models(draw: st.DrawFn) -> Transformer:
    hidden = draw(st.sampled_from([768, 1024, 2048, 5120, 8192]))
    heads = hidden // draw(st.sampled_from([64, 128]))
    experts = Experts(count=64, per_token=draw(st.integers(1, 8)), ffn=hidden)
    window = draw(st.sampled_from([0, 0, 512]))
    model = Transformer(
        name="any",
        layers=draw(st.sampled_from([8, 24, 64])),
        hidden=hidden,
        ffn=draw(st.sampled_from([2, 4])) * hidden + draw(st.sampled_from([0, 8, 3])),
        heads=heads,
        kv_heads=draw(st.sampled_from([heads, 4])),
        vocabulary=draw(st.sampled_from([32000, 50257, 256000])),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        window=window,
        full_every=2 if window else 0,
        experts=experts if draw(st.booleans()) else None,
    )
    return draw(st.sampled_from([model, model, model, LATENT]))


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    tensor, data = draw(DEGREES), draw(DEGREES)
    chunks = draw(st.sampled_from([1, 1, 2]))
    pipeline = draw(st.sampled_from([1, 2, 4])) if chunks == 1 else 4
    schedule = "interleaved" if chunks > 1 else draw(st.sampled_from(["1f1b", "zero_bubble"]))
    offloads = ("optimizer", "gradients", "parameters", "activations")
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "context": draw(st.sampled_from([1, 1, 2, 4])),
        "expert": draw(st.sampled_from([1, data])),
        "sequence_parallel": tensor > 1 and draw(st.booleans()),
        "virtual_stages": chunks,
        "schedule": schedule,
        "zero": draw(st.sampled_from([0, 1, 2, 3])),
        "shard": draw(st.sampled_from([0, 0, 1])) * data,
        "gather_unit": draw(st.sampled_from(["layer", "tensor"])),
        "micro_batch": draw(st.sampled_from([1, 2, 4])),
        "recompute": draw(st.sampled_from(["none", "selective", "operators", "full"])),
        "flash_attention": draw(st.booleans()),
        "native_attention": draw(st.booleans()),
        "fused": draw(st.booleans()),
        "blocking_launches": draw(st.booleans()),
        "precision": draw(st.sampled_from(["fp32", "fp16", "bf16", "bf16_pure", "fp8"])),
        "optimizer": draw(st.sampled_from(["adamw", "adamw_8bit", "muon"])),
        "offload": tuple(draw(st.lists(st.sampled_from(offloads), unique=True, max_size=2))),
        "overlap_gradients": draw(st.booleans()),
        "overlap_parameters": draw(st.booleans()),
        "overlap_tensor": draw(st.booleans()),
    }


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    sites = draw(st.sampled_from([1, 1, 2, 5]))
    return {
        "node": draw(st.sampled_from([1, 4, 8, 72])),
        "leaf": draw(st.sampled_from([0, 16, 64])),
        "spine_share": draw(st.sampled_from([0.25, 0.5, 1.0])),
        "sharp": draw(st.sampled_from([0, 1])),
        "units": draw(st.sampled_from([0, 108, 132])),
        "sites": sites,
        "wan_bytes_per_s": 1.25e9 if sites > 1 else 0.0,
        "wan_latency_s": 0.02 if sites > 1 else 0.0,
    }


@st.composite
def cases(draw: st.DrawFn) -> Cases:
    return case(
        draw(models()),
        sequence=draw(st.sampled_from([1024, 4096, 32768])),
        batch=draw(st.sampled_from([8, 96, 1024])),
        machine=draw(machines()),
        **draw(plans()),
    )


def total(one: Cases, constants: Constants = CONSTANTS) -> float:
    return float(step_time(one, constants).total_s)


def on(one: Cases, **machine: float) -> Cases:
    return replace(one, machine=replace(one.machine, **machine))


def planned(one: Cases, **plan: float) -> Cases:
    return replace(one, plan=replace(one.plan, **plan))


@given(cases())
def test_every_part_is_finite_and_none_is_negative(one: Cases) -> None:
    found = step_time(one, CONSTANTS)
    by_kind = parts(found)
    assert all(math.isfinite(value) for value in by_kind.values())
    # The last stage's logits are a difference of sums.
    assert all(value >= -1e-9 * float(found.total_s) for value in by_kind.values())
    assert float(found.total_s) > 0
    assert float(found.total_s) == pytest.approx(sum(by_kind.values()))


LINKS = ["scaleup_bytes_per_s", "network_bytes_per_s", "host_bytes_per_s", "wan_bytes_per_s"]


@given(cases(), st.sampled_from([*LINKS, "spine_share"]), st.sampled_from([0.99, 0.5, 0.01]))
def test_a_slower_link_is_never_faster(one: Cases, link: str, factor: float) -> None:
    slower = on(one, **{link: getattr(one.machine, link) * factor})
    assert total(slower) * ROUNDING >= total(one)


@given(cases(), st.sampled_from([name for name in PRIORS if name.endswith("_s")]))
def test_a_longer_latency_is_never_faster(one: Cases, name: str) -> None:
    longer = replace(CONSTANTS, **{name: 3 * getattr(CONSTANTS, name)})
    assert total(one, longer) * ROUNDING >= total(one)
    farther = on(one, wan_latency_s=one.machine.wan_latency_s + 0.1)
    assert total(farther) * ROUNDING >= total(one)


RATES = ["flops_32", "flops_16", "flops_8", "hbm_bytes_per_s"]


@given(cases(), st.sampled_from(RATES), st.sampled_from([0.99, 0.5, 0.01]))
def test_a_slower_device_is_never_faster(one: Cases, rate: str, factor: float) -> None:
    slower = on(one, **{rate: getattr(one.machine, rate) * factor})
    assert total(slower) * ROUNDING >= total(one)


@given(cases(), st.sampled_from([name for name in PRIORS if name.endswith("_share")]))
def test_reaching_less_of_a_limit_is_never_faster(one: Cases, name: str) -> None:
    if name == "recompute_share":  # of a forward, not of a limit
        return
    less = replace(CONSTANTS, **{name: getattr(CONSTANTS, name) * 0.5})
    assert total(one, less) * ROUNDING >= total(one)


@given(cases(), st.sampled_from(["gradients", "parameters", "tensor"]))
def test_overlap_is_never_slower(one: Cases, what: str) -> None:
    apart, over = (planned(one, **{f"overlap_{what}": on_}) for on_ in (0, 1))
    assert total(over) <= total(apart) * ROUNDING


@given(cases())
def test_more_sites_are_never_faster(one: Cases) -> None:
    spread = [
        on(one, sites=sites, wan_bytes_per_s=1e9, wan_latency_s=0.01) for sites in (1, 2, 3, 8)
    ]
    times = [total(each) for each in spread]
    assert times == sorted(times)


@given(cases(), st.integers(2, 500))
def test_an_exchange_once_in_so_many_steps_costs_that_part_of_it(one: Cases, every: int) -> None:
    far = on(one, sites=3, wan_bytes_per_s=1e9, wan_latency_s=0.01)
    always = parts(step_time(planned(far, sync_every=1), CONSTANTS))
    rarely = parts(step_time(planned(far, sync_every=every), CONSTANTS))
    assert rarely["sites_s"] * every == pytest.approx(always["sites_s"])
    kept = {name for name in always if name not in {"sites_s", "jitter_s"}}
    assert all(rarely[name] == always[name] for name in kept)
    assert rarely["jitter_s"] <= always["jitter_s"]


@given(cases())
def test_a_larger_batch_takes_longer_but_no_longer_than_it_is_larger(one: Cases) -> None:
    larger = replace(one, global_batch=2 * one.global_batch)
    once, twice = total(one), total(larger)
    assert once <= twice * ROUNDING
    assert twice <= 2 * once * ROUNDING


@given(cases(), st.sampled_from(["layers", "vocabulary"]))
def test_a_larger_model_takes_longer(one: Cases, what: str) -> None:
    # Not of the widths: a wider product may fill tiles and waves better.
    columns = {what: 2 * getattr(one.model, what)}
    if what == "layers":
        columns["expert_layers"] = 2 * one.model.expert_layers
    larger = replace(one, model=replace(one.model, **columns))
    assert total(larger) * ROUNDING >= total(one)


@given(cases())
def test_recomputation_is_never_faster(one: Cases) -> None:
    # Fewer activations to offload is what may pay for it.
    one = planned(one, offload_activations=0)
    flags = dict.fromkeys(("recompute_selective", "recompute_operators", "recompute_full"), 0)
    none = total(planned(one, **flags))
    for flag in flags:
        assert none <= total(planned(one, **flags | {flag: 1})) * ROUNDING


@given(st.lists(cases(), min_size=1, max_size=6))
def test_a_table_is_computed_as_each_of_its_cases(table: list[Cases]) -> None:
    together = step_time(stack(table), CONSTANTS).total_s
    assert np.allclose(together, [total(each) for each in table], rtol=1e-9)


def digest() -> str:
    """Return a hash of the bytes of a table's step times."""
    each = [
        case(DENSE, tensor=8, pipeline=4, data=4, zero=1),
        case(MIXTURE, data=16, expert=8, zero=3, offload=("optimizer", "gradients")),
        case(msgspec.structs.replace(DENSE, window=512), context=4, precision="fp8"),
        case(LATENT, data=8, site_sync=between_sites(10), machine={"sites": 2}),
    ]
    found = step_time(stack(each), CONSTANTS)
    columns = [np.broadcast_to(value, 4).tobytes() for value in vars(found).values()]
    return hashlib.sha256(b"".join(columns)).hexdigest()


@pytest.mark.parametrize("seed", ["0", "1"])
def test_every_process_predicts_alike(seed: str) -> None:
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from tests.property.test_step_time_laws import digest; print(digest())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == digest()
