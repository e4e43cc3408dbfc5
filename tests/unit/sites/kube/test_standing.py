"""Which nodes a Kubernetes keeps from work."""

from collections.abc import Callable

from tests.unit.sites.kube.desk import PATIENCE_S, Desk

from gridloom.base.errors import SiteError
from gridloom.base.system import SystemClock
from gridloom.model.event import NodeMarked
from gridloom.model.inventory import Site


def until(desk: Desk, found: Callable[[list[NodeMarked] | None], bool]) -> list[NodeMarked]:
    until_s = SystemClock().monotonic_s() + PATIENCE_S
    while True:
        told = desk.driver.standing(desk.site)
        seen = None if told is None else [*told]
        if found(seen):
            assert seen is not None
            return seen
        assert SystemClock().monotonic_s() < until_s, seen
        SystemClock().sleep(0.01)


def cordon(desk: Desk, *, is_closed: bool) -> None:
    body = {"spec": {"unschedulable": is_closed}}
    desk.api.do("patch", "v1", "nodes", name="k1", body=body)


def test_a_cordoned_node_is_told_and_told_again_when_it_is_open(desk: Desk) -> None:
    assert desk.driver.standing(desk.site) is None, "it never waits"
    assert until(desk, lambda told: told is not None) == []
    cordon(desk, is_closed=True)
    (found,) = until(desk, bool)
    assert (found.domain, found.mark, found.by_site) == ("hpc/k1", "cordon", True)
    assert found.sentence == "the node is cordoned: its owner lets no new pods on it"
    cordon(desk, is_closed=False)
    until(desk, lambda told: told == [])
    assert desk.asked("list", "nodes") == 1, "the rest was watched"


def test_a_cluster_that_cannot_be_reached_is_tried_again_later(desk: Desk) -> None:
    tries: list[str] = []

    def refuse(_: object) -> None:
        tries.append("")
        raise SiteError("no kubeconfig")

    desk.again(refuse)
    for _ in range(200):
        assert desk.driver.standing(desk.site) is None
        desk.clock.sleep(0.01)
        if tries:
            break
    assert desk.driver.standing(desk.site) is None
    assert tries == [""]
    desk.clock.advance(31.0)
    for _ in range(200):
        desk.driver.standing(desk.site)
        desk.clock.sleep(0.01)
        if len(tries) == 2:
            break
    assert len(tries) == 2


def test_after_a_while_without_a_look_it_begins_anew(desk: Desk) -> None:
    until(desk, lambda told: told is not None)
    desk.clock.advance(60.0)
    cordon(desk, is_closed=True)
    assert until(desk, bool)[0].domain == "hpc/k1"


def test_of_a_site_that_is_none_nothing_is_known(desk: Desk) -> None:
    assert desk.driver.standing(Site(name="x", kind="kubernetes", nodes=())) is None
