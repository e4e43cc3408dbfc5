"""What is wrong with a site under Kubernetes, asked of a pretended cluster with gridloom's role."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.account import POD_ENVIRONMENT, kubeconfig
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.faults import Fault
from tests.fakes.kube_api.server import ADMIN_TOKEN

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.system import SystemClock
from gridloom.model.inventory import KubeAccess, KubeToleration, KubeVolume, Node, Site
from gridloom.sites.finding import Finding
from gridloom.sites.kube.api import PODS, Place
from gridloom.sites.kube.client import KubeClient
from gridloom.sites.kube.diagnose import diagnose, holds_all
from gridloom.sites.kube.facts import Facts
from gridloom.sites.kube.gather import gather
from gridloom.sites.kube.inventory import with_nodes
from gridloom.sites.kube.parse_kueue import ClusterQueue, FlavorQuota, LocalQueue
from gridloom.sites.kube.probe import probe
from gridloom.sites.probe import Probed, diagnose_probe

KUEUE = "kueue.x-k8s.io/v1beta1"
GPU = "nvidia.com/gpu"
NODES = tuple(Node(name=f"n{i}", address="", accelerator="h100", count=4) for i in range(2))
RUNS = Path("/runs")


class Bed:
    """A cluster of two nodes with a queue, and a site there that is well."""

    def __init__(self, place: Path, *projects: str) -> None:
        self.place = place
        self.clock = FakeClock()
        self.cluster = Cluster(*projects, clock=self.clock)
        self.api = self.cluster.api
        self.api.start()
        for name in ("n1", "n2"):
            self.cluster.kubelet.add_node(name, {"cpu": "8", GPU: "4"})
        self.config = kubeconfig(self.api, place, namespace="team")
        if projects:
            self.add("resourceflavors", "any", {})
            quota = {"name": GPU, "nominalQuota": "8"}
            flavor = {"name": "any", "resources": [quota]}
            groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
            self.add("clusterqueues", "all", {"namespaceSelector": {}, "resourceGroups": groups})
            self.add("localqueues", "ours", {"clusterQueue": "all"}, "team")
            self.cluster.loops.settle()

    def add(self, plural: str, name: str, spec: object, namespace: str = "") -> None:
        body = {"metadata": {"name": name}, "spec": spec}
        self.api.do("create", KUEUE, plural, namespace=namespace, body=body)

    def change(self, version: str, plural: str, name: str, body: object, where: str = "") -> None:
        self.api.do("patch", version, plural, namespace=where, name=name, body=body)
        self.cluster.loops.settle()

    def drop(self, version: str, plural: str, name: str, where: str = "") -> None:
        self.api.do("delete", version, plural, namespace=where, name=name)

    def site(self, nodes: tuple[Node, ...] = NODES, **access: Any) -> Site:
        access.setdefault("namespace", "team")
        access.setdefault("queue", "ours")
        access.setdefault("kubeconfig", str(self.config))
        found = KubeAccess(image="registry.example/gridloom:1", **access)
        return Site(name="cloud", kind="kubernetes", nodes=nodes, kubernetes=found)

    def look(self, site: Site, clock: Clock | None = None) -> tuple[Finding, ...]:
        return diagnose(site, self.facts(site, clock))

    def facts(self, site: Site, clock: Clock | None = None) -> Facts:
        assert site.kubernetes is not None
        try:
            client = KubeClient(Place.of(site.kubernetes), clock or self.clock)
        except SiteError as error:
            return Facts(trouble=str(error))
        try:
            return gather(site, client, RUNS, clock or self.clock)
        finally:
            client.close()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path, "kueue-v0.13.1")
    yield made
    made.api.stop()


def only(found: tuple[Finding, ...]) -> Finding:
    names = [(one.check, one.of) for one in found]
    assert len({*names}) == len(names), "two findings cannot be told apart"
    (wrong,) = [one for one in found if one.state != "ok"]
    return wrong


def test_all_is_well(bed: Bed) -> None:
    found = bed.look(bed.site())
    assert {one.state for one in found} == {"ok"}
    assert [one.check for one in found] == [
        *("api", "clock", "rights", "queue", "devices", "nodes", "trial"),
    ]
    assert "v1.36" in found[0].found
    assert found[3].found == "ours: 0 of 8 used"


Change = Callable[[Bed], Site]


def _taint(bed: Bed) -> Site:
    taint = {"spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}}
    for name in ("n1", "n2"):
        bed.change("v1", "nodes", name, taint)
    return bed.site()


def _cordon(bed: Bed) -> Site:
    bed.change("v1", "nodes", "n1", {"spec": {"unschedulable": True}})
    return bed.site()


def _quota(amount: str) -> Change:
    def change(bed: Bed) -> Site:
        quota = {"name": GPU, "nominalQuota": amount}
        groups = [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [quota]}]}]
        bed.change(KUEUE, "clusterqueues", "all", {"spec": {"resourceGroups": groups}})
        return bed.site()

    return change


def _small_quota(bed: Bed) -> Site:
    quotas = [{"name": GPU, "nominalQuota": "8"}, {"name": "cpu", "nominalQuota": "1"}]
    flavors = [{"name": "any", "resources": quotas}]
    groups = [{"coveredResources": [GPU, "cpu"], "flavors": flavors}]
    bed.change(KUEUE, "clusterqueues", "all", {"spec": {"resourceGroups": groups}})
    return bed.site(resources={"cpu": "2"})


def _other_resource(bed: Bed) -> Site:
    quota = {"name": "cpu", "nominalQuota": "8"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}]
    bed.change(KUEUE, "clusterqueues", "all", {"spec": {"resourceGroups": groups}})
    return bed.site()


def _stopped(plural: str, where: str, name: str) -> Change:
    def change(bed: Bed) -> Site:
        bed.change(KUEUE, plural, name, {"spec": {"stopPolicy": "Hold"}}, where)
        return bed.site()

    return change


def _queue_of_nothing(bed: Bed) -> Site:
    bed.add("localqueues", "lost", {"clusterQueue": "nowhere"}, "team")
    bed.cluster.loops.settle()
    return bed.site(queue="lost")


def _no_jobs(bed: Bed) -> Site:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    bed.change("rbac.authorization.k8s.io/v1", "roles", "gridloom", {"rules": rules}, "team")
    return bed.site(queue="")


def _old_token(bed: Bed) -> Site:
    said = bed.config.read_text()
    token = said.partition("token: ")[2].split()[0]
    bed.config.write_text(said.replace(token, "expired"))
    return bed.site()


def _elsewhere(bed: Bed) -> Site:
    bed.config.write_text(bed.config.read_text().replace(bed.api.url, "http://127.0.0.1:9"))
    return bed.site()


WRONG: dict[str, tuple[Change, tuple[str, str, str, str]]] = {
    "no LocalQueue": (
        lambda bed: bed.site(queue="theirs"),
        ("fail", "queue", "namespace team has no LocalQueue theirs", "ours"),
    ),
    "LocalQueue without ClusterQueue": (
        _queue_of_nothing,
        ("fail", "queue", "LocalQueue lost passes nothing on", "ask who runs"),
    ),
    "LocalQueue stopped": (
        _stopped("localqueues", "team", "ours"),
        ("fail", "queue", "LocalQueue ours passes nothing on: it is stopped (Hold)", "ask"),
    ),
    "quota zero": (
        _quota("0"),
        ("fail", "queue", "quota of 0 nvidia.com/gpu, and cannot borrow", "for quota"),
    ),
    "flavour missing the resource": (
        _other_resource,
        (
            "fail",
            "queue",
            "no flavour of ClusterQueue all has nvidia.com/gpu, they have cpu",
            "add",
        ),
    ),
    "no device plugin": (
        lambda bed: bed.site(devices={"h100": "amd.com/gpu"}, queue=""),
        ("fail", "devices", "no node offers amd.com/gpu for h100", "device plugin"),
    ),
    "too many devices": (
        lambda bed: bed.site(tuple(replace(node, count=8) for node in NODES)),
        ("fail", "devices", "a node 8 h100, the largest has 4", "`h100:4`"),
    ),
    "a taint on all": (
        _taint,
        ("fail", "nodes", "none takes our pods: n1", "tolerations: [{key: team}]"),
    ),
    "a cordoned node": (
        _cordon,
        ("warn", "nodes", "1 of 2 do not take our pods: n1", "ask who runs"),
    ),
    "rights": (
        _no_jobs,
        ("fail", "rights", "create, patch, delete jobs.batch in team", "gridloom site manifest"),
    ),
    "no namespace": (
        lambda bed: bed.site(namespace="nowhere", queue=""),
        ("fail", "rights", "anything of what is needed in nowhere", "another `namespace:`"),
    ),
    "no claim": (
        lambda bed: bed.site(runs=KubeVolume(claim="gone")),
        ("fail", "volumes", "namespace team has no PersistentVolumeClaim gone", "runs:"),
    ),
    "more processors than a node has": (
        lambda bed: bed.site(resources={"cpu": "8500m"}, queue=""),
        ("fail", "pods", "asks for 8.5 of cpu, the largest node with h100 has 8", "`resources:`"),
    ),
    "a resource that no node has": (
        lambda bed: bed.site(resources={"rdma/hca": "1"}, queue=""),
        ("fail", "pods", "asks for rdma/hca, and no node with h100 has any", "device plugin"),
    ),
    "a resource that the queue has not": (
        lambda bed: bed.site(resources={"cpu": "1"}),
        ("fail", "queue", "no flavour of ClusterQueue all has cpu", "add"),
    ),
    "a pod beyond the quota": (
        _small_quota,
        ("fail", "queue", "asks for 2 of cpu, ClusterQueue all has 1", "`resources:`"),
    ),
    "labels that no node has": (
        lambda bed: bed.site(node_selector={"pool": "x"}),
        ("fail", "nodes", "no node has the labels pool=x", "none has the label pool"),
    ),
    "another value of a label": (
        lambda bed: bed.site(node_selector={"kubernetes.io/hostname": "x"}),
        ("fail", "nodes", "hostname=x", "kubernetes.io/hostname: n1, n2"),
    ),
    "no context": (
        lambda bed: bed.site(context="prod"),
        ("fail", "api", "cannot be used: it has no context prod, only us", "context:"),
    ),
    "token": (_old_token, ("fail", "api", "does not accept our token", "log in")),
    "unreachable": (_elsewhere, ("fail", "api", "Connection refused", "kubectl version")),
    "no kubeconfig": (
        lambda bed: bed.site(kubeconfig="/nowhere"),
        ("fail", "api", "/nowhere cannot be used", "kubeconfig:"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_is_wrong(bed: Bed, name: str) -> None:
    change, (state, check, found, remedy) = WRONG[name]
    site = change(bed)
    if name == "no claim":  # whoever may read claims; with our role the probe finds it
        rule = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]}
        role = bed.api.do(
            "get", "rbac.authorization.k8s.io/v1", "roles", namespace="team", name="gridloom"
        )
        body = {"rules": [*role["rules"], rule]}
        bed.change("rbac.authorization.k8s.io/v1", "roles", "gridloom", body, "team")
    wrong = only(bed.look(site))
    assert (wrong.state, wrong.check) == (state, check)
    assert found in wrong.found
    assert remedy in wrong.remedy


def test_two_kinds_of_devices_and_two_taints(bed: Bed) -> None:
    bed.cluster.kubelet.add_node("n3", {"cpu": "8", "amd.com/gpu": "4"})
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("a", "b")]
    bed.change("v1", "nodes", "n3", {"spec": {"taints": taints}})
    nodes = (*NODES, replace(NODES[0], name="n3", accelerator="mi300"))
    found = bed.look(bed.site(nodes, devices={"mi300": "amd.com/gpu"}, queue=""))
    assert [(one.check, one.of) for one in found[3:-1]] == [
        ("devices", "h100"),
        ("nodes", "h100"),
        ("devices", "mi300"),
        ("nodes", "mi300"),
    ]
    assert "`tolerations: [{key: a}, {key: b}]`" in only(found).remedy


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        (Facts(has_kueue=False), True),
        (Facts(nodes=()), True),
        (Facts(has_kueue=True, queues=(), missing_claims=("gone",)), True),
        (Facts(has_kueue=True, denied=("create jobs",)), False),
        (Facts(has_kueue=True, refusal="a webhook says no"), False),
    ],
)
def test_what_holds_every_job(facts: Facts, holds: bool) -> None:
    access = KubeAccess(image="i", namespace="team", queue="ours")
    site = Site(name="cloud", kind="kubernetes", nodes=NODES, kubernetes=access)
    assert holds_all(site, diagnose(site, facts)) == holds


def test_a_taint_that_is_tolerated(bed: Bed) -> None:
    _taint(bed)
    site = bed.site(tolerations=(KubeToleration(key="team"),))
    assert {one.state for one in bed.look(site)} == {"ok"}


def test_nodes_that_the_cluster_tells(bed: Bed) -> None:
    taint = {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}
    bed.change("v1", "nodes", "n1", taint)
    bed.cluster.kubelet.add_node("n3", {"cpu": "8"})
    rack = {"metadata": {"labels": {"topology.kubernetes.io/rack": "r1", "pool": "x"}}}
    bed.change("v1", "nodes", "n2", rack)
    answer = bed.api.do("list", "v1", "nodes")
    found = with_nodes(bed.site(()), answer)
    assert [(n.name, n.accelerator, n.count) for n in found.nodes] == [("n2", "gpu", 4)]
    assert found.kubernetes is not None
    assert found.kubernetes.devices == {"gpu": GPU}
    chosen = with_nodes(bed.site((), node_selector={"pool": "x"}), answer)
    assert (chosen.levels, chosen.nodes[0].path) == (("rack",), ("r1",))
    tolerant = bed.site((), tolerations=(KubeToleration(key="team"),))
    assert [node.name for node in with_nodes(tolerant, answer).nodes] == ["n1", "n2"]
    with pytest.raises(SiteError, match="no node for the pods of site cloud with pool=y, as its"):
        with_nodes(bed.site((), node_selector={"pool": "y"}), answer)
    with pytest.raises(SiteError, match="cannot be read"):
        with_nodes(bed.site((), node_selector={"a": "b"}), {"items": "x"})


def test_a_clock_apart(bed: Bed) -> None:
    late = FakeClock(bed.clock.now_s() - 60.0)
    wrong = only(bed.look(bed.site(), late))
    assert (wrong.state, wrong.check) == ("warn", "clock")
    assert "ahead of ours" in wrong.found


def test_a_cluster_without_kueue_or_job_sets(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    try:
        wrong = only(bed.look(bed.site()))
        assert (wrong.check, wrong.found) == ("queue", "the cluster has no Kueue")
        other = kubeconfig(bed.api, tmp_path, namespace="sets")
        site = bed.site(queue="", workload="jobset", namespace="sets", kubeconfig=str(other))
        checks = [one.check for one in bed.look(site) if one.state == "fail"]
        assert "workload" in checks
    finally:
        bed.api.stop()


def test_a_namespace_that_is_not_there(bed: Bed) -> None:
    """Whoever has no rights in it cannot be told; an administrator is."""
    said = bed.config.read_text()
    token = said.partition("token: ")[2].split()[0]
    bed.config.write_text(said.replace(token, ADMIN_TOKEN))
    wrong = only(bed.look(bed.site(namespace="nowhere", queue="")))
    assert (wrong.state, wrong.check) == ("fail", "namespace")
    assert wrong.found == "there is no namespace nowhere"


@pytest.mark.parametrize("resource", ["nodes", "localqueues", "clusterqueues", "resourceflavors"])
def test_what_may_not_be_read_is_not_guessed_at(bed: Bed, resource: str) -> None:
    bed.api.faults.add(Fault("*", resource, code=403, times=0))
    assert {one.state for one in bed.look(bed.site())} == {"ok"}


LOCAL = LocalQueue(
    namespace="team",
    name="ours",
    cluster_queue="all",
    stop="",
    active=True,
    sentence="",
    pending=0,
    reserving=0,
    admitted=0,
    used={},
)
SHARED = ClusterQueue(
    name="all",
    cohort="",
    quotas=(FlavorQuota(flavor="new", resource=GPU, nominal=8),),
    strict=False,
    within_queue="Never",
    reclaim="Never",
    borrow_preemption="Never",
    fair_weight=1.0,
    stop="",
    active=True,
    sentence="",
    pending=0,
    reserving=0,
    admitted=0,
)
SAID = {
    "pod security": (
        Facts(warnings=('would violate PodSecurity "restricted:latest": hostPath volumes',)),
        ("fail", "pod security", "hostPath volumes", "runs: {claim: ...}"),
    ),
    "another warning": (
        Facts(warnings=("batch/v1 Job is deprecated", "x")),
        ("warn", "warnings", "deprecated; x", "ask"),
    ),
    "a namespace that is not there": (
        Facts(refusal='namespaces "team" not found', refusal_code=404),
        ("fail", "namespace", "no namespace team", "namespace:"),
    ),
    "a webhook": (
        Facts(refusal='admission webhook "x" denied the request', refusal_code=403),
        ("fail", "trial", "admission webhook", "kubernetes:"),
    ),
    "a certificate": (
        Facts(trouble="https://k: [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired"),
        ("fail", "api", "CERTIFICATE_VERIFY_FAILED", "certificate authority"),
    ),
    "no library": (
        Facts(trouble="no module; sites under Kubernetes need `pip install 'gridloom[kube]'`"),
        ("fail", "api", "gridloom[kube]", "install"),
    ),
    "a stopped ClusterQueue": (
        Facts(has_kueue=True, queues=(LOCAL,), cluster_queue=replace(SHARED, stop="Hold")),
        ("fail", "queue", "ClusterQueue all admits nothing: it is stopped (Hold)", "ask"),
    ),
    "a flavour that is not there": (
        Facts(has_kueue=True, queues=(LOCAL,), cluster_queue=SHARED, flavors=("old",)),
        ("fail", "queue", "names flavours that are not there: new", "ResourceFlavor"),
    ),
    "no nodes": (Facts(nodes=()), ("fail", "nodes", "no nodes", "ask")),
}


@pytest.mark.parametrize("name", SAID)
def test_what_real_clusters_say_besides(name: str) -> None:
    facts, (state, check, found, remedy) = SAID[name]
    access = KubeAccess(image="i", namespace="team", queue="ours" if facts.has_kueue else "")
    site = Site(name="cloud", kind="kubernetes", nodes=NODES, kubernetes=access)
    wrong = only(diagnose(site, facts))
    assert (wrong.state, wrong.check) == (state, check)
    assert found in wrong.found
    assert remedy in wrong.remedy


# ----- probes: pods that are processes of this machine


def probed(tmp_path: Path, play: Play, taint: str = "", **access: Any) -> tuple[Probed, list[Any]]:
    """Probe a cluster of one node whose pods go so; return what came, and what pods are left."""
    clock = SystemClock()
    runs = tmp_path / "runs"
    with Cluster(plays=lambda _: play, folder=tmp_path / "pods") as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        if taint:
            body = {"spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}}
            cluster.api.do("patch", "v1", "nodes", name="n1", body=body)
        found = KubeAccess(
            kubeconfig=str(kubeconfig(cluster.api, tmp_path, namespace="team")),
            namespace="team",
            image="registry.example/gridloom:1",
            python=sys.executable,
            network="127.0.0.0/8",
            environment=POD_ENVIRONMENT,
            **access,
        )
        nodes = (Node(name="n1", address="", accelerator="cpu", count=8),)
        site = Site(name="cloud", kind="kubernetes", nodes=nodes, kubernetes=found)
        client = KubeClient(Place.of(found), clock)
        try:
            came = probe(site, client, runs / "probe-x", timeout_s=2.5, clock=clock)
            until_s = clock.monotonic_s() + 20.0
            while (left := client.list(PODS, "")[0]) and clock.monotonic_s() < until_s:
                clock.sleep(0.05)
        finally:
            client.close()
    assert not (runs / "probe-x").exists()
    return came, left


def findings(came: Probed) -> tuple[Finding, ...]:
    return diagnose_probe(
        came, network="127.0.0.0/8", many_nodes=True, version="0.1.0", lease_s=6.0
    )


def test_a_pod_reports(tmp_path: Path) -> None:
    came, left = probed(tmp_path, Play(real=True))
    assert came.seen is not None, came
    assert came.seen.heard_s is not None
    assert {one.state for one in findings(came)} == {"ok"}
    assert left == []


@pytest.mark.parametrize(
    ("play", "taint", "check", "words", "remedy"),
    [
        (
            Play(fault="ErrImagePull", message="not found"),
            "",
            "probe",
            "image cannot be fetched",
            "`image:`",
        ),
        (
            Play(
                fault="RunContainerError",
                message=f"{sys.executable}: no such file or directory",
            ),
            "",
            "python",
            "no such file",
            "in the image",
        ),
        (Play(), "team", "probe", "taint", "--probe-timeout"),
        (Play(exit_code=1, run_s=0.1, lines=("No module named gridloom",)), "", "python", "No", ""),
    ],
)
def test_a_pod_that_does_not_report(
    tmp_path: Path, play: Play, taint: str, check: str, words: str, remedy: str
) -> None:
    came, left = probed(tmp_path, play, taint)
    assert came.seen is None
    (wrong,) = findings(came)
    assert wrong.check == check
    assert words in wrong.found
    assert remedy in wrong.remedy
    assert left == []


def test_a_pod_that_runs_and_says_nothing(tmp_path: Path) -> None:
    came, left = probed(tmp_path, Play(lines=("hm",)))
    assert (came.seen, came.ended, came.log) == (None, "", "hm\n")
    assert left == []


def test_a_probe_that_waits_for_quota(bed: Bed, tmp_path: Path) -> None:
    _quota("0")(bed)
    site, runs = bed.site(), tmp_path / "runs"
    assert site.kubernetes is not None
    client = KubeClient(Place.of(site.kubernetes), bed.clock)

    class Settling(FakeClock):
        def sleep(self, duration_s: float) -> None:
            bed.cluster.loops.settle()
            super().sleep(duration_s)

    try:
        came = probe(site, client, runs / "probe-x", timeout_s=2.5, clock=Settling())
    finally:
        client.close()
    assert "quota" in came.waits
    assert bed.api.do("list", "batch/v1", "jobs")["items"] == []


def test_what_cannot_be_written_is_told(bed: Bed) -> None:
    wrong = [one for one in bed.look(bed.site(queue="", queue_priority="x")) if one.state != "ok"]
    assert [one.check for one in wrong] == ["trial"]
    assert "it counts only in a queue" in wrong[0].found


def test_a_refused_probe(tmp_path: Path) -> None:
    came, _ = probed(tmp_path, Play(), queue_priority="high")
    assert "it counts only in a queue" in came.refusal
