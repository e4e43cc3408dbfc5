"""Numbers that ride with gradients from site to site, and lost sites that a round waits for."""

from collections.abc import Sequence
from functools import partial

import pytest
from tests.unit.runtime.wan.test_gradient_sync import STEP_S, Site, World

from gridloom.model.parallel import SiteSync
from gridloom.runtime.failure import PeerLostError
from gridloom.runtime.wan.contacts import Contacts
from gridloom.runtime.wan.gradient_sync import GradientSync, Riders
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds

ABSENCE_S = 4.0


class Told(World):
    """Sites whose gradients carry two numbers: the training step, and 1."""

    asked_to_stop = False

    def begin(self, name: str) -> Site:
        site = super().begin(name)
        site.sync = GradientSync(
            site.averaged, site.peers, Riders(2, lambda: self.asked_to_stop and name == "a")
        )

        def combine(given: Sequence[Given]) -> Buffer:
            return site.sync.combine(given)

        policy = RoundPolicy(patience_s=10.0, history_bytes=0, absence_s=ABSENCE_S)
        sizes, looks = site.rounds.payload_bytes, site.peers.check_state
        site.rounds = site.peers.rounds = Rounds(name, self.names, "same", policy, combine)
        site.rounds.payload_bytes, site.peers.check_state = sizes, looks
        return site

    def told(self, site: Site, steps: int) -> list[tuple[float, ...]]:
        found = []
        for number in range(steps):
            self.clock.advance(STEP_S)
            self.turns.hand_on()
            site.averaged.keep()
            site.sync.exchange(6.0, (float(number), 1.0))
            site.averaged.let_go()
            found.append(site.sync.sums)
        return found


@pytest.mark.parametrize("how", [SiteSync(), SiteSync(codec="top_k", share=0.1)])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_every_site_gets_the_sums(names: str, how: SiteSync) -> None:
    world = Told(names, how)
    found: dict[str, list[tuple[float, ...]]] = {}

    def work(site: Site) -> None:
        found[site.name] = world.told(site, 5)

    world.run(dict.fromkeys(names, work))
    count = len(names)
    sums = [(count * step, float(count)) for step in range(5)]
    assert [found[name] for name in names] == [sums] * count


def test_a_lost_site_is_waited_for_and_then_no_more() -> None:
    world = Told("ab")
    cut_s: list[float] = []
    found: list[tuple[float, ...]] = []

    def first(site: Site) -> None:
        found.extend(world.told(site, 3))
        world.network.cut("a", "b")
        cut_s.append(world.clock.monotonic_s())
        found.extend(world.told(site, 1))
        cut_s.append(world.clock.monotonic_s())
        found.extend(world.told(site, 3))
        cut_s.append(world.clock.monotonic_s())

    def second(site: Site) -> None:
        world.told(site, 3)
        while len(cut_s) < 3:
            world.turns.hand_on()

    world.run({"a": first, "b": second})
    assert [sums[1] for sums in found] == [2.0] * 3 + [1.0] * 4
    assert ABSENCE_S - 1 <= cut_s[1] - cut_s[0] <= ABSENCE_S + 2
    assert cut_s[2] - cut_s[1] < ABSENCE_S


def test_a_link_that_is_back_in_time_costs_nobody_a_gradient() -> None:
    for look in range(8, 14):
        world = Told("ab")
        found: dict[str, list[tuple[float, ...]]] = {}

        def work(site: Site, world: Told, found: dict[str, list[tuple[float, ...]]]) -> None:
            found[site.name] = world.told(site, 8)

        at_look = world.sites["b"].wire.at_look
        at_look[look] = partial(world.network.cut, "a", "b")
        at_look[look + 8] = partial(world.network.join, "a", "b")
        world.run(dict.fromkeys("ab", partial(work, world=world, found=found)))
        assert world.level(), look
        assert found["a"] == found["b"] == [(2.0 * step, 2.0) for step in range(8)], look


def test_who_is_to_stop_does_not_wait() -> None:
    world = Told("ab")
    raised: list[str] = []

    def first(site: Site) -> None:
        world.told(site, 2)
        world.network.cut("a", "b")
        world.asked_to_stop = True
        with pytest.raises(PeerLostError) as caught:
            world.told(site, 1)
        raised.append(str(caught.value))
        site.averaged.let_go()

    def second(site: Site) -> None:
        world.told(site, 2)
        while not raised:
            world.turns.hand_on()

    world.run({"a": first, "b": second})
    assert raised == ["b went away"]


def test_who_has_left_or_was_never_met_is_not_missing() -> None:
    contacts = Contacts("a", "abc", "majority", ABSENCE_S)
    contacts.down("b", 1.0)
    assert contacts.missing(1.0) == []
    for peer in "bc":
        contacts.up(peer, resumed=False)
    contacts.left.add("c")
    contacts.down("b", 2.0)
    contacts.down("c", 2.0)
    assert contacts.missing(2.0 + ABSENCE_S / 2) == ["b"]
    assert contacts.missing(2.0 + ABSENCE_S) == []
    contacts.up("b", resumed=True)
    assert contacts.missing(2.0) == []
