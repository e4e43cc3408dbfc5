"""What is wrong with a site, from what its Slurm tells; sentences are those of a real 22.05."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.sites.slurm.test_inventory import made

from gridloom.model.inventory import Node, Site, SlurmAccess
from gridloom.sites.finding import Finding
from gridloom.sites.slurm.diagnose import diagnose, holds_all
from gridloom.sites.slurm.diagnose_answers import trial_remedy, trouble_remedy
from gridloom.sites.slurm.facts import Account, Facts, Trial, accounts, config
from gridloom.sites.slurm.records import Partition, Reservation

ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos", "ClusterName": "b"}
NODES = tuple(Node(name=f"n{i}", address="", accelerator="a100", count=8) for i in range(2))
MINE = (Account(name="physics", qos=("normal", "long")), Account(name="bed", qos=("normal",)))


def facts(*said: str, **more: object) -> Facts:
    cluster = made(*(said or ("gpu:a100:8", "gpu:a100:8")), features="a100 ib")
    told = {"release": "22.05.8", "user": "ann", "cluster": cluster, "config": ENFORCED, **more}
    return Facts(**told)  # type: ignore[arg-type]


def site(nodes: tuple[Node, ...] = NODES, **access: object) -> Site:
    access.setdefault("gres", {"a100": "gpu:a100"})
    return Site(
        name="hpc",
        kind="slurm",
        nodes=nodes,
        slurm=SlurmAccess(**access),  # type: ignore[arg-type]
    )


def wrong(site: Site, facts: Facts) -> list[Finding]:
    found = diagnose(site, facts)
    names = [(one.check, one.of) for one in found]
    assert len({*names}) == len(names), "two findings cannot be told apart"
    return [one for one in found if one.state != "ok"]


def part(**more: object) -> Facts:
    """Return facts whose only partition differs."""
    known = facts()
    found: Partition = replace(known.cluster.partitions[0], **more)
    return replace(known, cluster=replace(known.cluster, partitions=(found,)))


def kept(**more: object) -> Facts:
    known = facts(asked_s=(1000.0, 1000.5))
    found = Reservation(name="ours", nodes=("n0", "n1"), **more)  # type: ignore[arg-type]
    return replace(known, cluster=replace(known.cluster, reservations=(found,)))


def drained(*reasons: str) -> Facts:
    known = facts()
    nodes = tuple(
        replace(node, states=("IDLE", "DRAIN"), reason=reason, reason_by="root") if reason else node
        for node, reason in zip(known.cluster.nodes, reasons, strict=True)
    )
    return replace(known, cluster=replace(known.cluster, nodes=nodes))


def test_all_is_well() -> None:
    known = facts(
        accounts=MINE,
        qos=("normal",),
        told_s=1000.0,
        asked_s=(1000.2, 1000.4),
        trials=(
            Trial(
                what="1 node with 8 a100",
                nodes=1,
                is_taken=True,
                said="sbatch: Job 1 to start at 2026-11-30T20:39:59 using 1 processors on nodes",
            ),
        ),
    )
    found = diagnose(site(account="physics", qos="normal", constraint="a100&ib"), known)
    assert {one.state for one in found} == {"ok"}
    assert [one.check for one in found] == [
        *("slurm", "clock", "account", "qos", "partition", "features"),
        *("devices", "nodes", "time limit", "trial"),
    ]
    assert found[-1].found.endswith("would start it at 2026-11-30T20:39:59 UTC")


WRONG = {
    "away": (
        site(),
        Facts(trouble="Unable to contact slurm controller (connect failure)"),
        ("fail", "slurm", "Unable to contact", "slurmctld runs"),
    ),
    "no commands": (
        site(),
        Facts(trouble="there is no command scontrol here"),
        ("fail", "slurm", "no command scontrol", "login host"),
    ),
    "old": (site(), facts(release="19.05.3"), ("warn", "slurm", "19.05.3", "20.11")),
    "it forgets": (
        site(),
        facts(config={"MinJobAge": "2 sec"}),
        ("warn", "slurm", "forgets jobs 2 s", "MinJobAge"),
    ),
    "Slurm's clock is ahead": (
        site(),
        facts(told_s=1100.0, asked_s=(1000.0, 1000.5)),
        ("warn", "clock", "1m 40s ahead", "NTP"),
    ),
    "Slurm's clock is behind": (
        site(),
        facts(told_s=900.0, asked_s=(1000.0, 1000.5)),
        ("warn", "clock", "1m 39s behind", "NTP"),
    ),
    "account": (
        site(account="chem"),
        facts(accounts=MINE),
        ("fail", "account", "ann may not charge chem", "physics, bed"),
    ),
    "account that nobody minds": (
        site(account="chem"),
        facts(accounts=MINE, config={}),
        ("warn", "account", "does not mind", ""),
    ),
    "no account": (site(), facts(accounts=()), ("fail", "account", "no account", "sacctmgr")),
    "no such qos": (
        site(qos="fast"),
        facts(accounts=MINE, qos=("normal", "long")),
        ("fail", "qos", "there is no quality of service fast", "long, normal"),
    ),
    "qos of others": (
        site(account="bed", qos="long"),
        facts(accounts=MINE, qos=("normal", "long")),
        ("fail", "qos", "ann may not use", "normal"),
    ),
    "qos that nobody minds": (
        site(qos="fast"),
        facts(accounts=MINE, qos=("normal",), config={}),
        ("warn", "qos", "does not mind", ""),
    ),
    "partition": (
        site(partition="nowhere"),
        facts(),
        ("fail", "partition", "no partition nowhere", "main"),
    ),
    "partition down": (
        site(),
        part(states=("DOWN",)),
        ("fail", "partition", "is down: it starts no jobs", "partition:"),
    ),
    "partition drained": (
        site(),
        part(states=("DRAIN",)),
        ("fail", "partition", "is drain: it takes no jobs", "partition:"),
    ),
    "partition of others": (
        site(account="physics"),
        part(accounts=("chem",)),
        ("fail", "partition", "closed to account physics", "chem"),
    ),
    "partition not for us": (
        site(account="physics"),
        part(accounts_denied=("physics",)),
        ("fail", "partition", "closed to account physics", "another"),
    ),
    "partition of another qos": (
        site(qos="x"),
        part(qos_allowed=("y",)),
        ("fail", "partition", "does not take qos x", "y"),
    ),
    "reservation": (
        site(reservation="ours"),
        facts(),
        ("fail", "reservation", "no reservation ours", "Slurm has none"),
    ),
    "reservation over": (
        site(reservation="ours"),
        kept(end_s=900.0),
        ("fail", "reservation", "ours is over", "another"),
    ),
    "reservation of others": (
        site(reservation="ours"),
        kept(users=("bob",)),
        ("fail", "reservation", "for bob, not for ann", "add you"),
    ),
    "reservation to come": (
        site(reservation="ours"),
        kept(users=("ann",), start_s=86400.0),
        ("warn", "reservation", "begins 1970-01-02 00:00 UTC", "wait"),
    ),
    "feature": (
        site(constraint="a100&[nvl*2|ib]"),
        facts(),
        ("fail", "features", "has the feature nvl", "they have: a100, ib"),
    ),
    "features of different nodes": (
        site(constraint="a100&x"),
        replace(
            facts(),
            cluster=replace(
                facts().cluster,
                nodes=(
                    facts().cluster.nodes[0],
                    replace(facts().cluster.nodes[1], features=("x",)),
                ),
            ),
        ),
        ("fail", "features", "has all of `a100&x`", "ask for less"),
    ),
    "no devices": (
        site(),
        facts("", ""),
        ("fail", "devices", "no `gpu` on these nodes for a100; they have none", "Gres="),
    ),
    "devices called otherwise": (
        site(),
        facts("npu:x:8", "npu:x:8"),
        ("fail", "devices", "they have: npu", "gres: {a100: NAME}"),
    ),
    "another type": (
        site(gres={"a100": "gpu:h100"}),
        facts(),
        ("fail", "devices", "no node has gpu:h100; they have: gpu:a100", "{a100: gpu:a100}"),
    ),
    "a type that Slurm does not tell": (
        site(),
        facts("gpu:8", "gpu:8"),
        ("fail", "devices", "`gpu` without a type", "{a100: gpu}"),
    ),
    "too many devices": (
        site(tuple(replace(node, count=9) for node in NODES)),
        facts(),
        ("fail", "devices", "9 a100, Slurm's largest has 8", "a100:8"),
    ),
    "any of two types": (
        site(gres={}),
        facts("gpu:a100:8", "gpu:h100:8"),
        ("warn", "devices", "any of a100, h100", "gpu:a100"),
    ),
    "too many cores": (
        site((Node(name="n0", address="", accelerator="cpu", count=64),)),
        facts(),
        ("fail", "devices", "64 cores, Slurm's largest has 8", "cpu:8"),
    ),
    "more nodes than there are": (
        site((*NODES, replace(NODES[0], name="n2"))),
        facts(),
        ("fail", "nodes", "has 3 nodes, its jobs may get 2", "leave `nodes:` out"),
    ),
    "nodes called otherwise": (
        site(tuple(replace(node, name=f"x{node.name}") for node in NODES)),
        facts(),
        ("warn", "nodes", "no xn0, xn1", "leave `nodes:` out"),
    ),
    "pinned to nodes that are not there": (
        site(tuple(replace(node, name=f"x{node.name}") for node in NODES), placement="pin"),
        facts(),
        ("fail", "nodes", "no xn0, xn1", "Slurm's own names"),
    ),
    "more nodes than a job may have": (
        site(),
        part(max_nodes=1.0),
        ("warn", "nodes", "1 nodes of partition main at most", "never start"),
    ),
    "a node drained": (
        site(),
        drained("fan broken", ""),
        ("warn", "nodes", "1 of 2 are out of service: n0: idle+drain: fan broken (root)", "back"),
    ),
    "all nodes drained": (
        site(),
        drained("fan broken", "fan broken"),
        ("fail", "nodes", "none is in service: n0, n1: idle+drain: fan broken", "ask"),
    ),
    "time limit": (
        site(time_limit_s=7200.0),
        part(max_time_s=3600.0),
        ("fail", "time limit", "2h 00m is beyond the 1h 00m of partition main", "1h 00m"),
    ),
    "no time limit": (
        site(),
        part(max_time_s=7200.0, default_time_s=3600.0),
        ("warn", "time limit", "end after 1h 00m", "of at most 2h 00m"),
    ),
    "no time limit, and none at all": (
        site(),
        part(default_time_s=3600.0),
        ("warn", "time limit", "end after 1h 00m", "grid file"),
    ),
    "refused": (
        site(),
        facts(
            trials=tuple(
                Trial(
                    what=f"{count} nodes",
                    nodes=count,
                    is_taken=False,
                    said="allocation failure: Invalid qos specification",
                )
                for count in (1, 2)
            )
        ),
        ("fail", "trial", "1 nodes, 2 nodes: Slurm would not take it: Invalid qos", "qos:"),
    ),
    "all nodes refused": (
        site(),
        facts(
            trials=(
                Trial(what="1 node", nodes=1, is_taken=True, said=""),
                Trial(
                    what="2 nodes",
                    nodes=2,
                    is_taken=False,
                    said="allocation failure: Requested node configuration is not available",
                ),
            )
        ),
        ("warn", "trial", "2 nodes: Slurm would not take it", "not in service there now"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_is_wrong(name: str) -> None:
    asked, known, (state, check, found, remedy) = WRONG[name]
    (only,) = wrong(asked, known)
    assert (only.state, only.check) == (state, check)
    assert found in only.found
    assert remedy in only.remedy
    assert bool(only.remedy) == bool(remedy)


def test_reservation_and_account_that_are_right() -> None:
    known = replace(kept(users=("ann",)), accounts=None)
    found = {one.check: one for one in diagnose(site(reservation="ours", account="x"), known)}
    assert found["reservation"].found == "ours: 2 nodes"
    assert "does not tell" in found["account"].found


def checked(site: Site, facts: Facts) -> list[tuple[str, str]]:
    return [(one.check, one.found) for one in wrong(site, facts)]


def test_a_wrong_reservation_hides_nothing() -> None:
    asked = site(reservation="gone", constraint="a100&ib", gres={"a100": "gpu:h100"})
    found = checked(asked, part(max_nodes=1.0))
    assert [check for check, _ in found] == ["reservation", "devices", "nodes"]
    found = checked(site(reservation="gone", constraint="a100&x"), facts())
    assert [check for check, _ in found] == ["reservation", "features"]


def test_a_wrong_partition_hides_nothing_that_is_not_of_a_partition() -> None:
    asked = site(partition="nowhere", reservation="gone", gres={"a100": "gpu:h100"}, qos="x")
    found = checked(asked, facts(accounts=MINE, qos=("normal",)))
    assert [check for check, _ in found] == ["qos", "partition", "reservation", "devices"]


@pytest.mark.parametrize(
    ("untold", "access", "checks"),
    [
        ("reservations", {"reservation": "ours"}, ["partition", "devices", "nodes", "time limit"]),
        ("nodes", {"constraint": "x"}, ["partition", "time limit"]),
        ("partitions", {"partition": "gpu", "constraint": "x"}, ["devices"]),
        ("licences", {}, ["partition", "devices", "nodes", "time limit"]),
    ],
)
def test_what_slurm_does_not_tell_is_not_guessed_at(
    untold: str, access: dict[str, Any], checks: list[str]
) -> None:
    known = facts(untold={untold: "Access/permission denied"})
    gone = {untold: ()} if untold != "licences" else {}
    known = replace(known, cluster=replace(known.cluster, **gone))
    (only,) = wrong(site(**access), known)
    assert (only.state, only.check, only.of) == ("warn", "slurm", untold)
    assert only.found == f"it does not tell its {untold}: Access/permission denied"
    assert "whether ann may see them" in only.remedy
    assert [one.check for one in diagnose(site(**access), known)][2:] == checks


def test_trials_without_what_is_wrong() -> None:
    tried = [
        Trial(what="1 node", nodes=1, is_taken=False, said="Invalid qos", without=()),
        Trial(what="1 node", nodes=1, is_taken=True, said="", without=("qos", "reservation")),
        Trial(what="2 nodes", nodes=2, is_taken=False, said="x", without=("qos", "reservation")),
    ]
    found = diagnose(site(), facts(trials=tuple(tried)))
    assert [(one.state, one.of) for one in found if one.check == "trial"] == [
        ("fail", "1 node"),
        ("ok", "1 node, again"),
        ("warn", "2 nodes, again"),
    ]
    assert found[-2].found.startswith("1 node without `qos:`, `reservation:`: Slurm would")


def test_what_holds_every_job() -> None:
    for known, asked, holds in [
        (part(states=("DOWN",)), site(), True),
        (drained("fan", "fan"), site(), True),
        (drained("fan", ""), site(), False),
        (facts(), site((*NODES, replace(NODES[0], name="n2"))), False),
        (facts(), site(reservation="gone"), False),
    ]:
        assert holds_all(diagnose(asked, known)) == holds


def said() -> Iterator[tuple[str, str]]:
    """Yield sentences of Slurm 22.05, and what the remedy must name."""
    yield "Invalid generic resource (gres) specification", "gres:"
    yield "allocation failure: Invalid partition name specified", "sinfo -s"
    yield "allocation failure: Invalid feature specification", "constraint:"
    yield "allocation failure: Requested reservation is invalid", "reservation:"
    yield "Invalid account or account/partition combination specified", "account:"
    yield "Required partition not available (inactive or drain)", "until it opens"
    yield "allocation failure: Invalid node name specified", "leave `nodes:` out"
    yield "Requested time limit is invalid (missing or exceeds some limit)", "time_limit:"
    yield "something new", "ask who runs"


@pytest.mark.parametrize(("sentence", "remedy"), [*said()])
def test_remedies_of_refusals(sentence: str, remedy: str) -> None:
    assert remedy in trial_remedy(sentence)


@pytest.mark.parametrize(
    ("sentence", "remedy"),
    [
        ("SLURM_CONF is /x, and there is no such file", "SLURM_CONF: FILE"),
        ("Unable to process configuration file", "SLURM_CONF: FILE"),
        ("Protocol authentication error", "munged"),
        ("scontrol has not answered for 60 s", "overloaded"),
        ("the token of ann has expired", "new token"),
        ("Incompatible versions of client and server code", "own release"),
        ("the token file /nope cannot be read: No such file", "token_file:"),
        (
            "the controller is away, or does not accept the token of /t",
            "whether slurmctld runs; else",
        ),
        (
            "slurm_load_jobs error: Zero Bytes were transmitted or received",
            "whether slurmctld runs",
        ),
        ("something new", "scontrol ping"),
    ],
)
def test_remedies_of_troubles(sentence: str, remedy: str) -> None:
    assert remedy in trouble_remedy(sentence)


def test_settings_and_accounts_as_they_are_printed() -> None:
    told, now_s = config(
        "Configuration data as of 1970-01-01T00:10:00\nClusterName             = b\n"
        "PluginDir = (null)\nSlurmctldHost[0]        = vm\n\nSlurmctld(primary) at vm is UP\n"
    )
    assert (told["ClusterName"], told["PluginDir"], now_s) == ("b", "", 600.0)
    assert config("") == ({}, None)
    assert accounts("physics||long,normal\nbed|gpu|\n\nodd\n") == (
        Account(name="physics", qos=("long", "normal")),
        Account(name="bed", partition="gpu"),
    )
