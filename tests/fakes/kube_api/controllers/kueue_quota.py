"""Simulated: Kueue's arithmetic. What a workload needs, where it fits, whom it may preempt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from tests.fakes.kube_api.controllers.scheduler import tolerates
from tests.fakes.kube_api.quantity import quantity, shown
from tests.fakes.kube_api.status import Obj

Usage = Mapping[tuple[str, str], Fraction]
"""Used quantity by flavor and resource."""


@dataclass(frozen=True)
class Claim:
    """One workload that holds or wants quota."""

    key: tuple[str, str]
    queue: str
    priority: int
    since: str
    uid: str
    usage: Mapping[tuple[str, str], Fraction]


@dataclass(frozen=True)
class Fit:
    """Where a workload could go.

    Attributes:
        flavors: Flavor by pod set and resource.
        usage: What it would use.
        victims: Whom it must preempt first, each with why; empty when it fits.
        message: Why it does not fit; empty when it does.
    """

    flavors: Mapping[str, Mapping[str, str]]
    usage: Usage
    victims: tuple[tuple[Claim, str], ...] = ()
    message: str = ""


def requests_of(pod_spec: Obj, count: int) -> dict[str, Fraction]:
    """Return what so many pods ask for; Kueue counts limits where no request is given."""
    total: dict[str, Fraction] = {}
    for container in pod_spec.get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, size in asked.items():
            total[name] = total.get(name, Fraction(0)) + quantity(size)
    largest: dict[str, Fraction] = {}
    for container in pod_spec.get("initContainers") or ():
        for name, size in ((container.get("resources") or {}).get("requests") or {}).items():
            largest[name] = max(largest.get(name, Fraction(0)), quantity(size))
    for name, size in largest.items():
        total[name] = max(total.get(name, Fraction(0)), size)
    return {name: size * count for name, size in sorted(total.items())}


@dataclass(frozen=True)
class Quotas:
    """The queues of one cluster, as one pass sees them.

    Attributes:
        queues: ClusterQueues by name.
        flavors: ResourceFlavors by name.
        claims: Workloads that hold quota.
    """

    queues: Mapping[str, Obj]
    flavors: Mapping[str, Obj]
    claims: Sequence[Claim]

    def used(self, queue: str, without: frozenset[str] = frozenset()) -> Counter[tuple[str, str]]:
        """Return what a queue's workloads use; those of some uids left out."""
        total: Counter[tuple[str, str]] = Counter()
        for one in self.claims:
            if one.queue == queue and one.uid not in without:
                for key, size in one.usage.items():
                    total[key] += size  # type: ignore[assignment] # Counter adds fractions, too
        return total

    def fit(self, workload: Obj, queue: str, priority: int) -> Fit:
        """Return where a workload fits, whom it would preempt, or why neither."""
        flavors: dict[str, dict[str, str]] = {}
        usage: Counter[tuple[str, str]] = Counter()
        victims: dict[str, tuple[Claim, str]] = {}
        for pod_set in workload["spec"]["podSets"]:
            wanted = requests_of(pod_set["template"]["spec"], pod_set["count"])
            chosen: dict[str, str] = {}
            for group in self.queues[queue]["spec"].get("resourceGroups") or ():
                covered = {n: s for n, s in wanted.items() if n in group["coveredResources"]}
                if not covered:
                    continue
                found = self._flavor(workload, queue, priority, pod_set, group, covered, usage)
                if isinstance(found, str):
                    text = f"couldn't assign flavors to pod set {pod_set['name']}: {found}"
                    return Fit({}, {}, message=text)
                flavor, more = found
                chosen |= dict.fromkeys(covered, flavor)
                victims |= {one.uid: (one, why) for one, why in more}
                for name, size in covered.items():
                    usage[flavor, name] += size  # type: ignore[assignment]
            uncovered = [name for name in wanted if name not in chosen]
            if uncovered:
                return Fit(
                    {},
                    {},
                    message=f"couldn't assign flavors to pod set {pod_set['name']}: "
                    f"resource {uncovered[0]} unavailable in ClusterQueue",
                )
            flavors[pod_set["name"]] = chosen
        return Fit(flavors, usage, tuple(victims.values()))  # type: ignore[arg-type]

    def _flavor(
        self,
        workload: Obj,
        queue: str,
        priority: int,
        pod_set: Obj,
        group: Obj,
        wanted: Mapping[str, Fraction],
        taken: Counter[tuple[str, str]],
    ) -> tuple[str, tuple[tuple[Claim, str], ...]] | str:
        whys: list[str] = []
        later: tuple[str, tuple[tuple[Claim, str], ...]] | None = None
        for quota in group["flavors"]:
            name = quota["name"]
            why = self._taint(name, pod_set)
            if why is None:
                sizes = {(name, n): s + taken[name, n] for n, s in wanted.items()}
                short = self.short(queue, sizes)
                if not short:
                    return name, ()
                victims = self._victims(workload, queue, priority, sizes)
                if victims and later is None:
                    later = (name, victims)
                whys += short
            else:
                whys.append(why)
        return later or ", ".join(whys)

    def _taint(self, flavor: str, pod_set: Obj) -> str | None:
        found = self.flavors.get(flavor)
        if found is None:
            return f"flavor {flavor} not found"
        spec = found.get("spec") or {}
        pod = pod_set["template"]["spec"]
        both = {"tolerations": [*(pod.get("tolerations") or ()), *(spec.get("tolerations") or ())]}
        for taint in spec.get("nodeTaints") or ():
            if taint["effect"] != "PreferNoSchedule" and not tolerates(both, taint):
                return (
                    f"untolerated taint {{{taint['key']} {taint.get('value', '')} "
                    f"{taint['effect']} <nil>}} in flavor {flavor}"
                )
        labels, asked = spec.get("nodeLabels") or {}, pod.get("nodeSelector") or {}
        if any(key in labels and labels[key] != value for key, value in asked.items()):
            return f"flavor {flavor} doesn't match node affinity"
        return None

    def short(
        self,
        queue: str,
        sizes: Mapping[tuple[str, str], Fraction],
        without: frozenset[str] = frozenset(),
    ) -> list[str]:
        """Return what is short for these sizes, in Kueue's words; empty when they fit."""
        whys: list[str] = []
        used = self.used(queue, without)
        for (flavor, name), size in sizes.items():
            nominal, borrow = self._limits(queue, flavor, name)
            total = used[flavor, name] + size
            if borrow is not None and size > nominal + borrow:
                whys.append(
                    f"insufficient quota for {name} in flavor {flavor}, request > maximum "
                    f"capacity ({shown(size)} > {shown(nominal + borrow)})"
                )
                continue
            own = Fraction(0) if borrow is None else total - nominal - borrow
            room, everybody = self._cohort(queue, flavor, name, without)
            more = max(own, everybody + size - room)
            if more > 0:
                whys.append(
                    f"insufficient unused quota for {name} in flavor {flavor}, "
                    f"{shown(more)} more needed"
                )
        return whys

    def _limits(self, queue: str, flavor: str, name: str) -> tuple[Fraction, Fraction | None]:
        """Return the nominal quota, and how much may be borrowed; None for without a limit."""
        spec = self.queues[queue]["spec"]
        quota = _quota(spec, flavor, name)
        if quota is None:
            return Fraction(0), Fraction(0)
        nominal = quantity(quota["nominalQuota"])
        if not cohort_of(spec):
            return nominal, Fraction(0)
        limit = quota.get("borrowingLimit")
        return nominal, None if limit is None else quantity(limit)

    def _members(self, queue: str) -> list[str]:
        cohort = cohort_of(self.queues[queue]["spec"])
        if not cohort:
            return [queue]
        return [name for name, one in self.queues.items() if cohort_of(one["spec"]) == cohort]

    def _cohort(
        self, queue: str, flavor: str, name: str, without: frozenset[str]
    ) -> tuple[Fraction, Fraction]:
        """Return what the cohort has, less what others do not lend, and what is used of it."""
        room, used = Fraction(0), Fraction(0)
        for one in self._members(queue):
            quota = _quota(self.queues[one]["spec"], flavor, name)
            nominal = Fraction(0) if quota is None else quantity(quota["nominalQuota"])
            mine = Fraction(self.used(one, without)[flavor, name])
            lent = None if quota is None else quota.get("lendingLimit")
            kept = (
                Fraction(0)
                if lent is None or one == queue
                else max(nominal - quantity(lent), Fraction(0))
            )
            room += nominal - kept
            used += max(mine - kept, Fraction(0))
        return room, used

    def borrows(self, queue: str, usage: Usage) -> bool:
        """Say whether a queue would use more than its own quota with this on top."""
        used = self.used(queue)
        return any(used[key] + size > self._limits(queue, *key)[0] for key, size in usage.items())

    def borrowed(self, queue: str, flavor: str, name: str) -> Fraction:
        """Return how much of a resource a queue uses beyond its nominal quota."""
        nominal, _ = self._limits(queue, flavor, name)
        return max(Fraction(self.used(queue)[flavor, name]) - nominal, Fraction(0))

    def _victims(
        self,
        workload: Obj,
        queue: str,
        priority: int,
        sizes: Mapping[tuple[str, str], Fraction],
    ) -> tuple[tuple[Claim, str], ...]:
        """Return the fewest of the least important whose leaving makes room; empty for none."""
        policy = self.queues[queue]["spec"].get("preemption") or {}
        found: list[tuple[Claim, str]] = []
        since = workload["metadata"]["creationTimestamp"]
        within = policy.get("withinClusterQueue", "Never")
        reclaim = policy.get("reclaimWithinCohort", "Never")
        needed = set(sizes)
        for one in self.claims:
            if not needed & set(one.usage):
                continue
            if one.queue == queue and _is_lower(one, priority, since, within):
                found.append((one, "InClusterQueue"))
            elif one.queue in self._members(queue) and one.queue != queue:
                is_borrower = any(self.borrowed(one.queue, *key) > 0 for key in needed)
                if (
                    is_borrower
                    and self._is_owed(queue, sizes)
                    and (
                        reclaim == "Any" or (reclaim == "LowerPriority" and one.priority < priority)
                    )
                ):
                    found.append((one, "InCohortReclamation"))
        # Those of other queues first, then the least important, then the newest
        found.sort(
            key=lambda pair: (
                pair[0].queue == queue,
                pair[0].priority,
                -_seconds(pair[0].since),
                pair[0].uid,
            )
        )
        return self._fewest(queue, sizes, found)

    def _fewest(
        self,
        queue: str,
        sizes: Mapping[tuple[str, str], Fraction],
        candidates: list[tuple[Claim, str]],
    ) -> tuple[tuple[Claim, str], ...]:
        chosen: list[tuple[Claim, str]] = []
        for one in candidates:
            chosen.append(one)
            if not self.short(queue, sizes, _uids(chosen)):
                break
        else:
            return ()
        for one in list(chosen[:-1])[::-1]:  # whoever need not go stays
            fewer = [other for other in chosen if other is not one]
            if not self.short(queue, sizes, _uids(fewer)):
                chosen = fewer
        return tuple(chosen)

    def _is_owed(self, queue: str, sizes: Mapping[tuple[str, str], Fraction]) -> bool:
        used = self.used(queue)
        return all(used[key] + size <= self._limits(queue, *key)[0] for key, size in sizes.items())


def _uids(claims: list[tuple[Claim, str]]) -> frozenset[str]:
    return frozenset(one.uid for one, _ in claims)


def _quota(spec: Obj, flavor: str, name: str) -> Obj | None:
    for group in spec.get("resourceGroups") or ():
        for one in group["flavors"]:
            if one["name"] == flavor:
                for resource in one["resources"]:
                    if resource["name"] == name:
                        found: Obj = resource
                        return found
    return None


def cohort_of(spec: Obj) -> str:
    """Return the cohort that a ClusterQueue names, in either version."""
    return str(spec.get("cohort") or spec.get("cohortName") or "")


def _is_lower(claim: Claim, priority: int, since: str, policy: str) -> bool:
    if policy == "Never":
        return False
    if claim.priority < priority:
        return True
    is_newer = claim.priority == priority and claim.since > since
    return policy == "LowerOrNewerEqualPriority" and is_newer


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
