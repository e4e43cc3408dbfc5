"""Faults between two sites that train on an emulated WAN: no step waits, and nobody starts anew."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from bench.wan_bed import Bed
from bench.wan_faults_party import Party, Site, Step

pytestmark = [
    pytest.mark.bed,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]

LINK = "* delay=20ms rate=100mbit"
NOISY = "* delay=20ms jitter=40ms rate=100mbit loss=1%"
OPTIONS = ("--shape=tiny", "--every=24", "--fragments=4", "--patience=10")
STEPS = 150  # of the healthy site, in each part of a fault
SLOW_S = 200.0  # no limit of ours: what a machine that others use too may take


@pytest.fixture(scope="module")
def party() -> Iterator[tuple[Bed, Party]]:
    with Bed(("a", "b"), [LINK]) as bed:
        party = Party(bed, OPTIONS, patience_s=SLOW_S)
        party.until(lambda: all(site.steps for site in party.sites.values()), "both train")
        yield bed, party


def train_on(party: Party, *names: str) -> None:
    """Wait until sites have made some more steps: a step that hangs ends the test."""
    before = {name: len(party.sites[name].steps) for name in names}
    party.until(
        lambda: all(len(party.sites[n].steps) >= before[n] + STEPS for n in names),
        f"{names} train on",
    )


def shared(site: Site, since: int) -> set[int]:
    """Return the fragments that were averaged over both sites from a step of a site on."""
    return {
        number % 4 for step in site.steps[since:] for number, sites in step.rounds if sites == 2
    }


def become_one(party: Party) -> None:
    """Wait until all fragments were averaged over both sites, as both see it."""
    since = {name: len(site.steps) for name, site in party.sites.items()}
    party.until(
        lambda: all(len(shared(site, since[n])) == 4 for n, site in party.sites.items()),
        "all fragments are averaged over both sites",
    )


def steps_of_one_process(steps: Sequence[Step]) -> bool:
    return len({step.pid for step in steps}) == 1 and all(
        two.number == one.number + 1 for one, two in pairwise(steps)
    )


def test_a_link_that_is_cut_stops_nobody_and_comes_back(party: tuple[Bed, Party]) -> None:
    bed, sites = party
    become_one(sites)
    bed.shape(LINK, "a b down")
    lost = "out of contact: silent"
    sites.until(
        lambda: all(any(lost in event for event in s.events) for s in sites.sites.values()),
        "both sites know that the link is cut",
    )
    cut_off = len(sites.sites["b"].steps)
    train_on(sites, "a", "b")
    assert not shared(sites.sites["b"], cut_off + 1)
    bed.shape(LINK)
    become_one(sites)
    assert all(steps_of_one_process(site.steps) for site in sites.sites.values())


def test_a_killed_site_comes_back_with_the_state_of_the_other(party: tuple[Bed, Party]) -> None:
    _, sites = party
    healthy, other = sites.sites["a"], sites.sites["b"]
    sites.kill("b")
    train_on(sites, "a")
    died = len(other.steps)
    sites.restart("b")
    become_one(sites)
    assert other.steps[died].pid != other.steps[died - 1].pid
    first = sum(step.loss for step in healthy.steps[:20]) / 20
    again = sum(step.loss for step in other.steps[died : died + 20]) / 20
    assert again < first - 0.5  # it goes on where the other is, not where all began
    assert steps_of_one_process(healthy.steps)


def test_a_site_of_a_third_of_the_speed_and_a_noisy_link_stop_nobody(
    party: tuple[Bed, Party],
) -> None:
    bed, sites = party
    with sites.slowed("b", 3.0):
        train_on(sites, "a")
        become_one(sites)
    bed.shape(NOISY)
    train_on(sites, "a", "b")
    become_one(sites)
    assert steps_of_one_process(sites.sites["a"].steps)


def test_at_the_end_all_are_one_model(party: tuple[Bed, Party]) -> None:
    _, sites = party
    sites.stop()
    first, second = (site.end["weights"] for site in sites.sites.values())
    assert first == second
    told = [event for site in sites.sites.values() for event in site.events]
    assert not [event for event in told if "a model of this site's own" in event]
