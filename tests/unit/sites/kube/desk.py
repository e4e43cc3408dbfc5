"""A driver beside a pretended cluster whose pods are scripted, and the supervisors in them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.fakes.kube_api.account import kubeconfig
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.faults import Fault
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.codec import encode
from gridloom.base.system import SystemClock
from gridloom.model.event import AnyEvent, TaskEnded, TaskWaiting
from gridloom.model.inventory import KubeAccess, Site
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.sites.kube.client import KubeClient
from gridloom.sites.kube.driver import KubeDriver
from gridloom.sites.kube.render import Form
from gridloom.sites.threads import DaemonExecutor
from gridloom.wire.agent import REPORTS_FILE, TaskRef, task_directory
from gridloom.wire.reports import Alive, Ended, Report

T = TypeVar("T")

KUEUE, JOBSET, TRAINER = "kueue-v0.13.1", "jobset-v0.12.0", "trainer-v2.3.0"
JOBS, WORKLOADS = ("batch/v1", "jobs"), ("kueue.x-k8s.io/v1beta1", "workloads")
PATIENCE_S = 20.0
CPUS = 8


class Hasty(SystemClock):
    """The machine's clock, which can be put forward; sleeping takes no time to speak of."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self._ahead_s

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._ahead_s

    def sleep(self, duration_s: float) -> None:
        super().sleep(min(duration_s, 0.02))

    def advance(self, duration_s: float) -> None:
        self._ahead_s += duration_s


class Desk:
    """A driver over a directory, a cluster, and the supervisors that write there."""

    def __init__(self, place: Path, *, form: Form = Form.JOB, window: int = 10_000) -> None:
        self.runs = place / "runs"
        self.clock = Hasty()
        self.play = Play()
        projects = {Form.JOB: (), Form.JOB_SET: (JOBSET,), Form.TRAIN_JOB: (JOBSET, TRAINER)}[form]
        self.cluster = Cluster(
            KUEUE, *projects, plays=lambda _: self.play, api=KubeApi(window=window)
        )
        self.api = self.cluster.api
        self.cluster.__enter__()
        self.cluster.kubelet.add_node("k1", {"cpu": str(CPUS)})
        self.config = kubeconfig(self.api, place, namespace="team", form=form)
        self.site = self.at()
        self.orders = [order(self.runs, "n1"), order(self.runs, "n2")]
        self.driver = self.again()
        self._seq = 0

    def at(self, **more: Any) -> Site:
        """Return a site, with so much said of how jobs are handed in."""
        said = {"kubeconfig": str(self.config), "namespace": "team", "image": "gridloom:1"}
        return Site(name="hpc", kind="kubernetes", nodes=(), kubernetes=KubeAccess(**said | more))

    def queue(self, cpus: int = CPUS) -> None:
        """Let jobs wait in a queue of Kueue with so much quota."""
        self.add("resourceflavors", "any", spec={})
        group = {"coveredResources": ["cpu"]}
        flavor = {"name": "any", "resources": [{"name": "cpu", "nominalQuota": cpus}]}
        self.add(
            "clusterqueues",
            "all",
            spec={
                "namespaceSelector": {},
                "resourceGroups": [{**group, "flavors": [flavor]}],
                "preemption": {"withinClusterQueue": "LowerPriority"},
            },
        )
        self.add("localqueues", "training", "team", spec={"clusterQueue": "all"})
        self.add("workloadpriorityclasses", "urgent", value=1000)
        self.site = self.at(queue="training")

    def add(self, plural: str, name: str, namespace: str = "", **body: Any) -> None:
        meta = {"metadata": {"name": name}, **body}
        self.api.do("create", WORKLOADS[0], plural, namespace=namespace, body=meta)

    def rival(self, name: str = "rival") -> None:
        """Let an urgent job of somebody else take all of the queue."""
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(CPUS)}}}
        labels = {
            "kueue.x-k8s.io/queue-name": "training",
            "kueue.x-k8s.io/priority-class": "urgent",
        }
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"suspend": True, **spec}}
        self.api.do("create", *JOBS, namespace="team", body=body)

    def again(self, connect: Callable[[Any], Any] | None = None) -> KubeDriver:
        """Return a driver that remembers nothing."""
        make = connect or (lambda place: KubeClient(place, self.clock))
        self.driver = KubeDriver(self.runs, self.clock, make, DaemonExecutor())
        return self.driver

    def submit(self) -> Mapping[TaskRef, Reason]:
        return self.driver.submit(self.site, self.orders)

    def look(self) -> list[AnyEvent]:
        return self.driver.observe([one.task for one in self.orders])

    def until(self, found: Callable[[list[AnyEvent]], T]) -> T:
        """Look until ``found`` finds something in what is seen; return that."""
        until_s = SystemClock().monotonic_s() + PATIENCE_S
        while not (seen := found(facts := self.look())):
            assert SystemClock().monotonic_s() < until_s, (facts, self.jobs(), self.pods())
            SystemClock().sleep(0.01)
        return seen

    def waits(self, words: str) -> str:
        """Look until both tasks wait for this; return the sentence of the first."""

        def both(facts: Sequence[AnyEvent]) -> str:
            said = [one.sentence for one in facts if isinstance(one, TaskWaiting)]
            return said[0] if len(said) == 2 and all(words in one for one in said) else ""

        return self.until(both)

    def ends(self, count: int = 2) -> list[Outcome]:
        """Look until so many tasks have ended; return how."""

        def all_(facts: Sequence[AnyEvent]) -> list[Outcome]:
            found = [one.outcome for one in facts if isinstance(one, TaskEnded)]
            return found if len(found) == count else []

        return self.until(all_)

    def jobs(self, plural: tuple[str, str] = JOBS) -> list[Obj]:
        """Return the jobs that the cluster has of us."""
        found: list[Obj] = self.api.do("list", *plural, namespace="team")["items"]
        return [one for one in found if "gridloom/run" in one["metadata"].get("labels", {})]

    def pods(self) -> list[Obj]:
        found: list[Obj] = self.api.do("list", "v1", "pods", namespace="team")["items"]
        ours = [one for one in found if "gridloom/run" in one["metadata"]["labels"]]
        return sorted(ours, key=lambda one: str(one["metadata"]["name"]))

    def run(self) -> None:
        """Let all pods run, and their supervisors say that they do."""
        self.until(lambda _: [one["status"]["phase"] for one in self.pods()] == ["Running"] * 2)
        for node in ("n1", "n2"):
            self.says(Alive, node)

    def end_pods(self, *which: int, **play: Any) -> None:
        for number in which or (0, 1):
            self.cluster.kubelet.end(self.pods()[number]["metadata"]["uid"], **play)

    def says(self, kind: type[Report], node: str = "n1", **more: Any) -> None:
        self._seq += 1
        line = encode(kind(seq=self._seq, epoch=5, now_s=self.clock.now_s(), **more))
        with (self.place(node) / REPORTS_FILE).open("ab") as file:
            file.write(line + b"\n")

    def place(self, node: str = "n1") -> Path:
        return Path(task_directory(self.runs, ref(node)))

    def reports(self, code: Why, *nodes: str) -> None:
        """Let supervisors report how their tasks ended."""
        for node in nodes or ("n1", "n2"):
            self.says(Ended, node, outcome=Outcome(code=code, sentence=f"it {code}", ended_s=5.0))

    def fails(self, verb: str, resource: str, **how: Any) -> None:
        self.api.faults.add(Fault(verb, resource, **how))

    def asked(self, verb: str, resource: str = "jobs") -> int:
        """Return how often we, not the controllers, have asked for this."""
        ours = "gridloom/"
        return sum(
            one[:2] == (verb, resource) and one[2].startswith(ours) for one in self.api.requests
        )

    def close(self) -> None:
        self.clock.advance(1000.0)  # nobody looks any more
        self.cluster.__exit__()
