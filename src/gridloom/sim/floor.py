"""Devices and links of a simulated world: who has them, what they cost, how fast one may be."""

from collections.abc import Iterator
from itertools import pairwise

from gridloom.model.inventory import Inventory
from gridloom.model.life import Placement
from gridloom.sim.conditions import Conditions, link_of
from gridloom.sim.record import SimRecord
from gridloom.sim.run import Link, Run
from gridloom.sim.signals import Meter


class Floor:
    """Who holds which devices and uses which links.

    Attributes:
        conditions: What is down, cut off or slow.
        held: Devices that attempts hold.
        total: Devices of the grid.
        away: Those of them that are not available and that nobody holds.
    """

    def __init__(self, inventory: Inventory, record: SimRecord, *, link_share: float) -> None:
        self.conditions = Conditions(inventory)
        self.held = self.total = self.away = 0
        self._record, self._link_share = record, link_share
        self._tenants: dict[str, dict[int, Run]] = {}
        self._users: dict[Link, dict[int, Run]] = {}
        self._meters: dict[str, Meter] = {}
        self._off: dict[str, None] = {}
        self.take(inventory, 0.0)

    def open(self, now_s: float) -> None:
        """Let meters run from now on."""
        for meter in self._meters.values():
            meter.begin(now_s)

    def take(self, inventory: Inventory, now_s: float) -> None:
        """Let the grid be this from now on; meters of sites that stay run on."""
        self.conditions.take(inventory)
        for site in inventory.sites:
            if site.name not in self._meters:
                self._meters[site.name] = Meter(site, now_s)
        self.total = sum(self.conditions.nodes.values())
        self.away = sum(self._free_on(domain) for domain in self._off)

    def signal(self, site: str, price: float | None, carbon: float | None, now_s: float) -> None:
        """Let a site's price or carbon be another from now on."""
        if site in self._meters:
            self._meters[site].change(now_s, price, carbon)

    def runs_on(self, domain: str) -> list[Run]:
        """Return the live attempts with a task on a node or at a site, oldest first."""
        found: dict[int, Run] = {}
        for node in self.conditions.domains(domain):
            found.update(self._tenants.get(node, {}))
        return [found[epoch] for epoch in sorted(found)]

    def runs_over(self, link: Link) -> list[Run]:
        """Return the live attempts that use a link, oldest first."""
        users = self._users.get(link, {})
        return [users[epoch] for epoch in sorted(users)]

    def set_off(self, domain: str, *, off: bool) -> None:
        """Count the node's free devices as not available, or as available again."""
        if off == (domain in self._off) or domain not in self.conditions.nodes:
            return
        free = self._free_on(domain)
        self.away += free if off else -free
        if off:
            self._off[domain] = None
        else:
            del self._off[domain]

    def enter(self, run: Run) -> None:
        """Give the run its devices, and its links when it spans sites."""
        epoch, counts = run.action.epoch, dict.fromkeys(run.life.sites, run.devices)
        if len(counts) > 1:
            counts = dict.fromkeys(counts, 0)
            for task in run.action.placement.tasks:
                counts[task.site] += len(task.devices)
        for domain, devices in run.placed.items():
            self._tenants.setdefault(domain, {})[epoch] = run
            if domain in self._off:
                self.away -= devices
        self.held += run.devices
        for site, count in counts.items():
            meter = self._meters[site]
            run.meters.append((meter, count, meter.reading(run.started_s)))
        if len(counts) > 1:
            self._link_up(run)

    def leave(self, run: Run, now_s: float) -> None:
        """Take its devices and links back."""
        epoch = run.action.epoch
        for domain, devices in run.placed.items():
            tenants = self._tenants[domain]
            del tenants[epoch]
            if not tenants:
                del self._tenants[domain]
            if domain in self._off:
                self.away += devices
            if self._record.keeps_spans:
                self._record.stayed(
                    run.action.job_id,
                    domain,
                    devices=devices,
                    start_s=run.started_s,
                    end_s=now_s,
                )
        self.held -= run.devices
        for link in run.links:
            del self._users[link][epoch]

    def neighbours(self, run: Run) -> Iterator[Run]:
        """Return the live attempts that use one of its links, a link at a time."""
        for link in run.links:
            yield from self.runs_over(link)

    def rate(self, run: Run) -> float:
        """Return the work a second of training: the slowest node and the fullest link decide."""
        conditions = self.conditions
        rate = run.base / conditions.slowness(run.live)
        if not run.links:
            return rate
        if any(site in conditions.cut for site in run.life.sites):
            return 0.0
        stretch = max(
            len(self._users[link]) * max(conditions.narrow.get(link, _AS_USUAL))
            for link in run.links
        )
        return rate / (1 + run.share * (stretch - 1)) if run.share else rate

    def _link_up(self, run: Run) -> None:
        """Let the run use links, and all others on them go slower: its sites form a ring."""
        sites = run.life.sites
        ring = (*sites, sites[0])
        run.links = tuple(dict.fromkeys(link_of(a, b) for a, b in pairwise(ring)))
        run.share = _share(run.action.placement, self._link_share)
        for link in run.links:
            self._users.setdefault(link, {})[run.action.epoch] = run

    def _free_on(self, domain: str) -> int:
        held = sum(run.placed[domain] for run in self._tenants.get(domain, {}).values())
        return self.conditions.nodes.get(domain, 0) - held


_AS_USUAL = [1.0]


def _share(placement: Placement, usual: float) -> float:
    """Return the share of a step between sites that waits for the network between them.

    What the planner predicts within one site and between several tells it; an exchange that takes
    place once in some steps takes the usual share of that step alone.
    """
    option = placement.option
    within_s = [speed.step_s for speed in option.speeds if speed.level == "site"]
    between_s = placement.step_s or option.step_s
    if within_s and between_s > within_s[0] > 0:
        return 1 - within_s[0] / between_s
    return usual / max(1, option.plan.site_sync.every)
