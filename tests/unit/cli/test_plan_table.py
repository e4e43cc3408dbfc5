"""Tables of plans, as a person sees them at 100 columns: figures, bars, what is left out."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from gridloom.cli.plan_figures import Candidate, Part
from gridloom.cli.plan_table import (
    plans_table,
    shares_table,
    step_rows,
)
from gridloom.cli.plan_trust import Error
from gridloom.cli.plan_words import (
    bar,
    gigabytes,
    goodput_sentences,
    money,
    plan_words,
    same_for_all,
    short_seconds,
    training_sentence,
    trust_sentence,
)
from gridloom.model.parallel import ParallelPlan
from gridloom.planner.catalogue import accelerator
from gridloom.planner.goodput import Checkpoint, Goodput
from gridloom.planner.pools import Pool
from gridloom.planner.price import Bill

GOLDEN = Path(__file__).parents[2] / "golden"
H100 = Pool(
    name="north", site="north", accelerator=accelerator("h100"), count=64, price_per_device_hour=2.5
)
A100 = Pool(name="south", site="south", accelerator=accelerator("a100"), count=32)
PLAN = ParallelPlan(tensor=4, pipeline=2, data=8, zero=1, micro_batch=2, virtual_stages=2)


def candidate(
    plan: ParallelPlan = PLAN, *, step_s: float = 26.7, memory: float = 61.2
) -> Candidate:
    part = Part(
        pool=H100,
        plan=plan,
        devices=plan.world_size,
        layers=32,
        sequences=512,
        memory_bytes=memory * 1e9,
    )
    return Candidate(
        way="one_pool",
        parts=(part,),
        global_batch=512,
        step_s=step_s,
        goodput=Goodput(
            useful=0.97,
            checkpoint=0.01,
            restart=0.008,
            lost=0.012,
            interval_s=3600.0,
            mtbf_s=172_800.0,
        ),
        checkpoint=Checkpoint(blocking_s=14.0, state_bytes=112.4e9),
        bill=Bill(
            time_s=2_600_000.0,
            device_hours=46_222.0,
            price=115_555.0,
            energy_kwh=53_400.0,
            carbon_kg=0.0,
        ),
        tokens_per_s=157_089.0,
        mfu=0.412,
    )


def written(table: Table) -> str:
    out = Console(file=StringIO(), width=100, highlight=False)
    out.print(table)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_table_of_plans_at_100_columns() -> None:
    wide = replace(
        candidate(
            ParallelPlan(
                tensor=8,
                pipeline=16,
                context=4,
                data=32,
                expert=8,
                zero=2,
                micro_batch=16,
                virtual_stages=12,
                recompute="selective",
            ),
            step_s=1234.5,
            memory=79.9,
        ),
    )
    text = written(plans_table([candidate(), wide], currency="EUR", stated=True))
    assert max(map(len, text.splitlines())) <= 100
    golden("plan_table.txt", text)


def test_columns_that_say_nothing_are_left_out() -> None:
    plain = ParallelPlan(data=64, zero=3, micro_batch=1)
    free = replace(candidate(plain), bill=replace(candidate().bill, price=0.0))
    head = written(plans_table([free, free], currency="USD", stated=False)).splitlines()[0]
    assert head.split() == [
        *("#", "tp", "pp", "dp", "zero", "mbs", "memory", "step", "tokens/s", "MFU", "h/1B")
    ]


def test_a_plan_over_two_pools_takes_two_lines_with_one_time() -> None:
    one = candidate()
    part = Part(pool=A100, plan=PLAN, devices=32, layers=32, sequences=128, memory_bytes=40e9)
    joint = replace(one, way="replicas", parts=(*one.parts, part))
    text = written(plans_table([joint], currency="EUR", stated=True))
    golden("plan_table_pools.txt", text)


def test_where_a_training_step_goes() -> None:
    lines = {"compute": 18.4, "tensor": 4.1, "bubble": 2.9, "expert": 0.0, "data": 1.3}
    rows = step_rows(lines)
    text = written(shares_table(rows, heads=("a training step: 26.7 s", "time")))
    golden("plan_step.txt", text)
    assert "expert" not in text


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.28, "█▏  "), (1.7, "████"), (-1.0, "    ")],
)
def test_a_bar_is_filled_in_eighths_of_a_character(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn
    assert set(bar(share, 4, plain=True)) <= {"#", " "}
    assert len(bar(share, 4, plain=True)) == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0 ms"), (0.0012, "1.2 ms"), (0.1449, "145 ms"), (0.9996, "1.00 s")),
        *((6.7454, "6.75 s"), (9.996, "10.0 s"), (26.71, "26.7 s"), (123.4, "123 s")),
        (12_345.0, "12,345 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert short_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(61.23e9, "61.2 GB"), (0.05e9, "0.05 GB"), (1.6e12, "1,600 GB"), (0, "0 GB")]
)
def test_gigabytes(size: float, text: str) -> None:
    assert gigabytes(size) == text


def test_money_has_cents_where_they_matter() -> None:
    assert [money(1_234_567.4), money(99.999), money(12.346)] == ["1,234,567", "100", "12.35"]


def test_sentences_of_a_plan() -> None:
    one = candidate()
    assert plan_words(one.parts[0]) == (
        "64 H100-SXM-80 at north, tp=4 pp=2 dp=8 vpp=2 mbs=2 zero=1"
    )
    assert same_for_all([one, one]) == "bf16, adamw, 1f1b, global batch 512"
    lost, kept = (text for _, text in goodput_sentences(one))
    assert lost.startswith("97.0% useful; lost 1.2%, restarts 0.8%, checkpoints 1.0%")
    assert kept == "each 1h 00m (135 training steps): 112.4 GB, written in 14.0 s"
    assert training_sentence(one, "EUR", 1e12, stated=True) == (
        "1.0T tokens: 30d 02h, 46,222 device-hours, 115,555 EUR, 53,400 kWh"
    )
    assert training_sentence(one, "EUR", 1e9, stated=False).startswith("each 1.0B tokens: ")


def test_trust_is_measured_or_said_to_be_unknown() -> None:
    known = trust_sentence(Error(share=0.09, runs=48, groups=3), "h100", "published runs")
    assert known.startswith("±9% for nine of ten predictions, from 48 runs on h100 (3 sources")
    assert "unknown" in trust_sentence(Error(), "h100", "published runs")
    assert "not measured" in trust_sentence(Error(runs=12, groups=1), "h100", "mine.csv")
