"""Series become facts only where they change; bills are exact integrals."""

import itertools
import random

import pytest
from tests.fakes.simulated import Played, arrival, grid

from gridloom.base.errors import InputError
from gridloom.model.event import SignalChanged
from gridloom.model.inventory import Site
from gridloom.sim.signals import (
    Bill,
    Change,
    Meter,
    Series,
    accelerator_price,
    changes,
    parse_signals,
)


def change(
    at_s: float, site: str, price: float | None = None, carbon: float | None = None
) -> Change:
    event = SignalChanged(site=site, price_per_accelerator_hour=price, carbon_g_per_kwh=carbon)
    return Change(at_s=at_s, event=event)


def test_only_what_changes_is_told() -> None:
    series = Series(
        site="a", start_s=100.0, prices=(1.0, 1.0, 2.0, 2.0), carbon=(300.0, 200.0, 200.0)
    )
    assert list(changes([series])) == [
        change(100.0, "a", 1.0, 300.0),
        change(3700.0, "a", None, 200.0),
        change(7300.0, "a", 2.0),
    ]


def test_sites_and_single_changes_are_merged_in_order() -> None:
    signals: list[Series | Change] = [
        Series(site="b", step_s=10.0, prices=(1.0, 2.0)),
        Series(site="a", step_s=10.0, carbon=(5.0, 6.0)),
        change(10.0, "aa", 9.0),
        change(5.0, "c", 9.0),
    ]
    told = [(one.at_s, one.event.site) for one in changes(signals)]
    assert told == [(0.0, "a"), (0.0, "b"), (5.0, "c"), (10.0, "a"), (10.0, "aa"), (10.0, "b")]


def test_a_series_that_repeats_has_no_end() -> None:
    series = Series(site="a", step_s=1.0, prices=(1.0, 2.0, 2.0), repeat=True)
    told = [
        (one.at_s, one.event.price_per_accelerator_hour)
        for one in itertools.islice(changes([series]), 5)
    ]
    assert told == [(0.0, 1.0), (1.0, 2.0), (3.0, 1.0), (4.0, 2.0), (6.0, 1.0)]
    single = Series(site="a", prices=(1.0,), repeat=True)
    assert len(list(changes([single]))) == 1


def test_a_market_price_to_the_price_of_an_accelerator_hour() -> None:
    # 100 a MWh at 700 W for an hour: 0.7 kWh for 0.1 each
    assert accelerator_price(100.0, 700.0) == pytest.approx(0.07)
    assert accelerator_price(100.0, 700.0, base_per_hour=2.0) == pytest.approx(2.07)


def test_a_file_of_changes() -> None:
    text = "at_s,site,carbon_g_per_kwh,price_per_accelerator_hour\n60,b,,2\n\n0,a,300,1.5\n"
    assert parse_signals(text, "f") == (change(0.0, "a", 1.5, 300.0), change(60.0, "b", 2.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            [
                "f: the file is empty; begin with at_s,site,price_per_accelerator_hour,"
                "carbon_g_per_kwh"
            ],
        ),
        (
            "at_s,sites,price_per_accelerator_hour\n",
            [
                "f:1: unknown column `sites`; did you mean `site`?",
                "f:1: the column `site` is missing; add it to the first line",
            ],
        ),
        (
            "at_s,site\n",
            ["f:1: no column holds a signal; add price_per_accelerator_hour or carbon_g_per_kwh"],
        ),
        (
            "at_s,site,carbon_g_per_kwh\nx,a,1\n1,aa,1\n,a,nan\n3,a\n4,,1\n",
            [
                "f:2: at_s: found `x`; write a number",
                "f:3: site: unknown site 'aa'; did you mean `a`?",
                "f:4: carbon_g_per_kwh: found `nan`; write a number",
                "f:4: at_s: no time is given; write seconds",
                "f:5: found 2 cells under 3 columns",
                "f:6: site: no site is given; write the name of a site",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_file(text: str, said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_signals(text, "f", ("a",))
    assert [problem.sentence() for problem in caught.value.problems] == said


def test_a_bill_is_the_integral_over_all_pieces() -> None:
    rng = random.Random(0)
    site = Site(name="a", kind="x", nodes=(), power_w_per_accelerator=500.0)
    meter = Meter(site, 0.0)
    reading, cost, energy, co2 = meter.reading(0.0), 0.0, 0.0, 0.0
    now_s, price, carbon = 0.0, 0.0, 0.0
    for _ in range(500):
        passed_s = rng.uniform(0.0, 5000.0)
        hours, kwh = passed_s / 3600, 8 * 0.5 * passed_s / 3600
        cost, energy, co2 = cost + 8 * price * hours, energy + kwh, co2 + kwh * carbon / 1000
        now_s += passed_s
        price = rng.choice([price, rng.uniform(0.0, 5.0)])
        carbon = rng.uniform(0.0, 600.0)
        meter.change(now_s, price, carbon)
    bill = Bill()
    meter.bill(8, reading, now_s, bill)
    assert (bill.cost, bill.energy_kwh, bill.co2_kg) == pytest.approx((cost, energy, co2))


def test_jobs_are_billed_for_what_was_in_force_while_they_ran() -> None:
    inventory = grid(
        4, price_per_accelerator_hour=1.0, power_w_per_accelerator=1000.0, carbon_g_per_kwh=100.0
    )
    played = Played(
        inventory,
        [arrival("j", 0.0, devices=2, work_s=7200.0), arrival("k", 100.0, work_s=60.0)],
        signals=[change(-50.0, "s", 2.0), change(3600.0, "s", 4.0, 500.0)],
    )
    row = played.job("j")
    assert (row.cost, row.energy_kwh, row.co2_kg) == pytest.approx((12.0, 4.0, 0.2 + 1.0))
    assert played.job("k").cost == pytest.approx(2.0 / 60)
    told = played.facts(SignalChanged)
    assert [at_s for at_s, _ in told] == [0.0, 3600.0]


def test_a_signal_that_a_story_hands_in_counts_too() -> None:
    event = SignalChanged(site="s", price_per_accelerator_hour=3.0)
    played = Played(grid(1), [arrival(work_s=7200.0)], (3600.0, event))
    assert played.job().cost == pytest.approx(3.0)
    other = SignalChanged(site="nowhere", price_per_accelerator_hour=3.0)
    assert Played(grid(1), [arrival(work_s=7200.0)], (3600.0, other)).job().cost == 0.0


def test_endless_signals_do_not_keep_a_simulation_going() -> None:
    series = Series(site="s", prices=(1.0, 2.0), repeat=True)
    played = Played(grid(1), [arrival("j", work_s=9000.0)], signals=[series])
    assert played.sim.now_s == 9000.0
    assert played.job().cost == pytest.approx(1.0 + 2.0 + 0.5)
