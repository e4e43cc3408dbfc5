"""From what is known of a Slurm to what is wrong with a site, and what helps (pure).

``sbatch --test-only`` alone does not tell: it takes jobs whose time limit is beyond that of their
partition, or whose partition is down, and has one sentence for many causes (seen with 22.05).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from gridloom.base.errors import SiteError
from gridloom.base.units import format_duration
from gridloom.model.inventory import CPU, Site, SlurmAccess
from gridloom.sites.finding import Finding, clock, fail, failed, few, ok, warn, without
from gridloom.sites.slurm.diagnose_answers import trial_remedy, trouble_remedy
from gridloom.sites.slurm.facts import Facts, Trial
from gridloom.sites.slurm.inventory import candidates, partition_of
from gridloom.sites.slurm.records import Node, Partition
from gridloom.sites.slurm.relaxed import NARROWING, relaxed
from gridloom.sites.slurm.states import NodeUse, node_use

_AGE_MIN_S = 30.0
_OLDEST = (20, 11)
_IN_FILE = "under `slurm:` of the site in the grid file"


def diagnose(site: Site, facts: Facts) -> tuple[Finding, ...]:
    """Return what was found, in the order in which a person would look.

    Args:
        site: With the nodes that it shall have.
        facts: What is known of its Slurm.
    """
    if facts.trouble:
        return (fail("slurm", facts.trouble, trouble_remedy(facts.trouble)),)
    access = site.slurm or SlurmAccess()
    found = [*_slurm(facts), *_untold(facts), *_clock(facts)]
    found += [*_account(access, facts), *_qos(access, facts)]
    partition: Partition | None = None
    try:
        partition = partition_of(access, facts.cluster.partitions)
        found += _partition(access, partition)
    except SiteError as error:
        if "partitions" not in facts.untold:
            names = few(sorted(one.name for one in facts.cluster.partitions))
            remedy = f"write `partition:` {_IN_FILE}: {names or 'Slurm shows you none'}"
            found.append(fail("partition", str(error), remedy))
    found += _reservation(access, facts)
    if partition is not None:
        found += _features(access, partition, facts, found)
    nodes = _may_get(access, partition, facts, found)
    if "nodes" not in facts.untold:
        found += _devices(site, access, nodes)
        if partition is not None:
            found += _nodes(site, access, partition, nodes)
    if partition is not None:
        found += _time_limit(access, partition)
    return (*found, *_trials(facts))


def holds_all(findings: Iterable[Finding]) -> bool:
    """Return whether what was found keeps every job of the site waiting for ever."""
    return any((one.check, one.of) in _HOLDS for one in findings if one.state == "fail")


_IN_SERVICE = "in service"
_HOLDS = (("partition", ""), ("nodes", _IN_SERVICE))


def _may_get(
    access: SlurmAccess, partition: Partition | None, facts: Facts, found: Iterable[Finding]
) -> Sequence[Node]:
    """Return the nodes that jobs may get by all that is right in the access."""
    if partition is None:
        return facts.cluster.nodes
    return candidates(_narrowed(access, facts, found), facts.cluster)


def _narrowed(access: SlurmAccess, facts: Facts, found: Iterable[Finding]) -> SlurmAccess:
    wrong = {*failed(found)} | ({"reservation"} if "reservations" in facts.untold else set())
    return relaxed(access, wrong & NARROWING)


def _slurm(facts: Facts) -> Iterator[Finding]:
    parts = facts.release.split(".")
    name = facts.config.get("ClusterName", "")
    what = f"Slurm {facts.release or 'of an unknown release'}{f', cluster {name}' if name else ''}"
    numbers = tuple(int(part) for part in parts[:2] if part.isdigit())
    if numbers and numbers < _OLDEST:
        yield warn("slurm", f"{what} is older than gridloom was tried with", "20.11 is the oldest")
    else:
        yield ok("slurm", f"{what}, asked as {facts.user}")
    age = facts.config.get("MinJobAge", "").split(" ")[0]
    if age.isdigit() and int(age) < _AGE_MIN_S:
        yield warn(
            "slurm",
            f"it forgets jobs {age} s after their end: how a job ended may be missed",
            f"ask who runs the cluster for MinJobAge of {_AGE_MIN_S:g} or more",
            of="MinJobAge",
        )


def _untold(facts: Facts) -> Iterator[Finding]:
    for what, said in facts.untold.items():
        remedy = f"ask who runs the cluster whether {facts.user} may see them (PrivateData)"
        yield warn("slurm", f"it does not tell its {what}: {said}", remedy, of=what)


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.told_s is not None:
        yield clock("Slurm", "Slurm's", facts.told_s, facts.asked_s)


def _account(access: SlurmAccess, facts: Facts) -> Iterator[Finding]:
    if facts.accounts is None:
        if access.account:
            yield ok("account", f"{access.account}; this Slurm does not tell who may charge it")
        return
    mine = list(dict.fromkeys(one.name for one in facts.accounts))
    is_enforced = "associations" in facts.config.get("AccountingStorageEnforce", "")
    wanted = access.account
    if mine and (not wanted or wanted in mine):
        yield ok("account", f"{wanted or 'the default one'} of {facts.user}'s {few(mine)}")
        return
    found = (
        f"{facts.user} may not charge {wanted}" if mine else f"{facts.user} has no account at all"
    )
    if not is_enforced:
        yield warn("account", f"{found}; this Slurm does not mind", "")
    elif mine:
        yield fail("account", found, f"write `account:` {_IN_FILE}: {few(mine)}")
    else:
        yield fail("account", found, "ask who runs the cluster for one (sacctmgr add user)")


def _qos(access: SlurmAccess, facts: Facts) -> Iterator[Finding]:
    wanted = access.qos
    if not wanted or facts.qos is None:
        return
    allowed = {
        name
        for one in facts.accounts or ()
        if not access.account or one.name == access.account
        for name in one.qos
    }
    is_enforced = "qos" in facts.config.get("AccountingStorageEnforce", "")
    if wanted not in facts.qos:
        found = f"there is no quality of service {wanted}"
        names = few(sorted(allowed or facts.qos))
    elif allowed and wanted not in allowed:
        found = f"{facts.user} may not use the quality of service {wanted}"
        names = few(sorted(allowed))
    else:
        yield ok("qos", wanted)
        return
    if is_enforced:
        yield fail("qos", found, f"write `qos:` {_IN_FILE}: {names}; or leave it out")
    else:
        yield warn("qos", f"{found}; this Slurm does not mind", "")


def _partition(access: SlurmAccess, partition: Partition) -> Iterator[Finding]:
    name, states = partition.name, {*partition.states}
    other = f"wait, ask who runs the cluster, or write another `partition:` {_IN_FILE}"
    if not states & {"UP"}:
        state = ", ".join(sorted(states)).lower() or "in no state"
        does = "takes no jobs" if states & {"DRAIN", "INACTIVE"} else "starts no jobs"
        yield fail("partition", f"partition {name} is {state}: it {does}", other)
    account = access.account
    if account and partition.accounts and account not in partition.accounts:
        right = f"it is open to: {few(partition.accounts)}"
        yield fail("partition", f"partition {name} is closed to account {account}", right)
    elif account and account in partition.accounts_denied:
        yield fail("partition", f"partition {name} is closed to account {account}", other)
    elif access.qos and partition.qos_allowed and access.qos not in partition.qos_allowed:
        right = f"it takes: {few(partition.qos_allowed)}"
        yield fail("partition", f"partition {name} does not take qos {access.qos}", right)
    elif states & {"UP"}:
        limit = _long(partition.max_time_s)
        yield ok("partition", f"{name} is up: {len(partition.nodes)} nodes, for {limit}")


def _reservation(access: SlurmAccess, facts: Facts) -> Iterator[Finding]:
    wanted = access.reservation
    if not wanted or "reservations" in facts.untold:
        return
    known = {one.name: one for one in facts.cluster.reservations}
    if wanted not in known:
        names = few(sorted(known)) or "Slurm has none"
        remedy = f"write another `reservation:` {_IN_FILE}, or none: {names}"
        yield fail("reservation", f"there is no reservation {wanted}", remedy)
        return
    one, now_s = known[wanted], facts.asked_s[1]
    whom = (*one.users, *one.accounts)
    if one.end_s is not None and now_s and one.end_s <= now_s:
        yield fail("reservation", f"{wanted} is over", "name another one, or none")
    elif whom and facts.user not in one.users and access.account not in one.accounts:
        remedy = "ask who made it to add you, or name another one, or none"
        yield fail("reservation", f"{wanted} is for {few(whom)}, not for {facts.user}", remedy)
    elif one.start_s is not None and now_s and one.start_s > now_s:
        begins = _moment(one.start_s)
        yield warn("reservation", f"{wanted} begins {begins}", "jobs wait until then")
    else:
        yield ok("reservation", f"{wanted}: {len(one.nodes)} nodes")


def _features(
    access: SlurmAccess, partition: Partition, facts: Facts, found: Iterable[Finding]
) -> Iterator[Finding]:
    words = feature_words(access.constraint)
    if not words or "nodes" in facts.untold:
        return
    cluster = facts.cluster
    nodes = [node for node in cluster.nodes if node.name in {*partition.nodes}]
    there = sorted({feature for node in nodes for feature in node.features})
    missing = [word for word in words if word not in there]
    if missing:
        right = f"they have: {few(there, 12)}" if there else "they have no features at all"
        said = f"no node of partition {partition.name} has the feature {few(missing)}"
        yield fail("features", said, f"mend `constraint:` {_IN_FILE}; {right}")
    elif not candidates(_narrowed(access, facts, found), cluster):
        said = f"no node of partition {partition.name} has all of `{access.constraint}`"
        yield fail("features", said, f"ask for less in `constraint:` {_IN_FILE}")
    else:
        yield ok("features", access.constraint)


def feature_words(constraint: str) -> list[str]:
    """Return the features that a constraint names, as of ``a100&[rack1*2|rack2*1]``."""
    for sign in "|,[]()":
        constraint = constraint.replace(sign, "&")
    return [word.partition("*")[0] for word in constraint.split("&") if word]


def _devices(site: Site, access: SlurmAccess, nodes: Sequence[Node]) -> Iterator[Finding]:
    most: dict[str, int] = {}
    for node in site.nodes:
        most[node.accelerator] = max(node.count, most.get(node.accelerator, 0))
    for kind, count in most.items():
        yield (_cores if kind == CPU else _gres)(access, nodes, kind, count)


def _cores(_: SlurmAccess, nodes: Sequence[Node], kind: str, count: int) -> Finding:
    there = max((node.cpus for node in nodes), default=0)
    if there < count:
        found = f"the grid file gives a node {count} cores, Slurm's largest has {there}"
        return fail("devices", found, f"write `{kind}:{there}`", of=kind)
    return ok("devices", f"{there} cores a node", of=kind)


def _gres(access: SlurmAccess, nodes: Sequence[Node], kind: str, count: int) -> Finding:
    name, _, type_ = access.gres.get(kind, "gpu").partition(":")
    of_name = [(node, one) for node in nodes for one in node.gres if one.name == name]
    types = sorted({one.type for _, one in of_name if one.type})
    said = ", ".join(sorted({one.name for node in nodes for one in node.gres}))
    if not of_name:
        there = f"they have: {said}" if said else "they have none at all"
        return fail(
            "devices",
            f"Slurm knows no `{name}` on these nodes for {kind}; {there}",
            f"write `gres: {{{kind}: NAME}}` {_IN_FILE}, or ask who runs the cluster for Gres= of"
            " its nodes",
            of=kind,
        )
    if type_ and type_ not in types:
        have = few(f"{name}:{one}" for one in types) or f"`{name}` without a type"
        right = f"`gres: {{{kind}: {name}{':' + types[0] if types else ''}}}` {_IN_FILE}"
        found = f"no node has {name}:{type_}; they have: {have}"
        return fail("devices", found, f"write {right}", of=kind)
    per_node: dict[str, int] = {}
    for node, one in of_name:
        if not type_ or one.type == type_:
            per_node[node.name] = per_node.get(node.name, 0) + one.count
    there_are = max(per_node.values())
    if there_are < count:
        found = f"the grid file gives a node {count} {kind}, Slurm's largest has {there_are}"
        return fail("devices", found, f"write `{kind}:{there_are}`", of=kind)
    if not type_ and (len(types) > 1 or (types and types[0].lower() != kind)):
        return warn(
            "devices",
            f"`{name}` without a type gets {kind} jobs any of {few(types)}",
            f"write `gres: {{{kind}: {name}:{types[0]}}}` {_IN_FILE}",
            of=kind,
        )
    type_ = f":{type_}" if type_ else ""
    return ok("devices", f"{there_are} {name}{type_} a node", of=kind)


def _nodes(
    site: Site, access: SlurmAccess, partition: Partition, nodes: Sequence[Node]
) -> Iterator[Finding]:
    names = {node.name for node in nodes}
    alien = [node.name for node in site.nodes if node.name not in names]
    if len(site.nodes) > len(nodes):
        found = f"the grid file has {len(site.nodes)} nodes, its jobs may get {len(nodes)}"
        yield fail("nodes", found, "leave `nodes:` out: they are read from Slurm")
    elif alien and access.placement == "pin":
        found = f"Slurm has no {few(alien)} in partition {partition.name}"
        yield fail("nodes", found, "`placement: pin` needs Slurm's own names")
    elif alien:
        found = f"Slurm calls its nodes otherwise: it has no {few(alien)}"
        yield warn("nodes", found, "leave `nodes:` out: they are read from Slurm")
    if partition.max_nodes is not None and partition.max_nodes < len(site.nodes):
        found = (
            f"a job may have {partition.max_nodes:g} nodes of partition {partition.name} at most"
        )
        yield warn("nodes", found, "jobs over more of them never start there", of="of one job")
    out = [node for node in nodes if node_use(node.states) >= NodeUse.DRAINED]
    if not out:
        yield ok("nodes", f"{len(nodes)} in service", of=_IN_SERVICE)
        return
    reasons = "; ".join(_out_of_service(out))
    if len(out) == len(nodes):
        found = f"none is in service: {reasons}"
        yield fail("nodes", found, "ask who runs the cluster", of=_IN_SERVICE)
    else:
        found = f"{len(out)} of {len(nodes)} are out of service: {reasons}"
        remedy = "nothing is placed there until Slurm has them back"
        yield warn("nodes", found, remedy, of=_IN_SERVICE)


def _out_of_service(nodes: Sequence[Node]) -> Iterable[str]:
    """Return why nodes are out of service, those of one reason together."""

    def why(node: Node) -> tuple[str, str]:
        return node.reason or "no reason is given", "+".join(node.states).lower()

    for (reason, states), group in groupby(sorted(nodes, key=why), key=why):
        together = [*group]
        by = f" ({together[0].reason_by})" if together[0].reason_by else ""
        yield f"{few(node.name for node in together)}: {states}: {reason}{by}"


def _time_limit(access: SlurmAccess, partition: Partition) -> Iterator[Finding]:
    most, default = partition.max_time_s, partition.default_time_s
    wanted = access.time_limit_s
    limit = math.inf if most is None else most
    if wanted > limit:
        found = f"{_long(wanted)} is beyond the {_long(most)} of partition {partition.name}"
        yield fail("time limit", found, f"write `time_limit: {_long(most)}` {_IN_FILE}")
    elif not wanted and default is not None and default < limit:
        found = f"jobs end after {_long(default)}, the default of partition {partition.name}"
        bound = "" if math.isinf(limit) else f", of at most {_long(most)}"
        yield warn("time limit", found, f"write a `time_limit:` {_IN_FILE}{bound}")
    else:
        yield ok("time limit", _long(wanted or most))


def _trials(facts: Facts) -> Iterator[Finding]:
    """Tell of jobs that Slurm would refuse in the same words only once."""

    def answer(one: Trial) -> tuple[tuple[str, ...], bool, str]:
        return one.without, one.is_taken, one.said

    several_kinds = len({trial.kind for trial in facts.trials}) > 1
    first_fails = {
        left_out: not next(group).is_taken
        for left_out, group in groupby(facts.trials, lambda one: one.without)
    }
    for (left_out, is_taken, said), group in groupby(facts.trials, answer):
        together = [*group]
        what = few(trial.what for trial in together) + without(left_out)
        of = few(_size(trial, with_kind=several_kinds) for trial in together)
        of += ", again" if left_out else ""
        if is_taken:
            when = said.partition(" to start at ")[2].partition(" ")[0]
            at = f"{when} UTC" if when else "some time"
            yield ok("trial", f"{what}: Slurm would start it at {at}", of=of)
            continue
        smaller_run = together[0].nodes > 1 and not first_fails[left_out]
        found = f"{what}: Slurm would not take it: {said.removeprefix('allocation failure: ')}"
        yield (warn if smaller_run else fail)("trial", found, trial_remedy(said), of=of)


def _size(trial: Trial, *, with_kind: bool) -> str:
    nodes = "1 node" if trial.nodes == 1 else f"{trial.nodes} nodes"
    return f"{nodes} of {trial.kind}" if with_kind else nodes


def _long(duration_s: float | None) -> str:
    if duration_s is None or math.isinf(duration_s):
        return "any time"
    return format_duration(duration_s)


def _moment(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC"
