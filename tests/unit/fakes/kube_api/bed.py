"""A pretended cluster of two nodes, in time that moves when told."""

from collections.abc import Callable

from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create


class Bed:
    """A cluster of two nodes with four GPUs each."""

    def __init__(self, play: Callable[[Obj], Play] | Play = Play()) -> None:  # noqa: B008 - frozen
        self.clock = FakeClock()
        plays = play if callable(play) else (lambda _: play)
        self.cluster = Cluster(clock=self.clock, plays=plays)
        self.api = self.cluster.api
        for name in ("n1", "n2"):
            sizes = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
            self.cluster.kubelet.add_node(name, sizes)

    def run(self, body: Obj | None = None) -> None:
        if body is not None:
            create(self.api, "jobs", body)
        self.cluster.loops.settle()

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.loops.settle()

    def status(self, name: str = "j") -> Obj:
        got = self.api.do("get", "batch/v1", "jobs", namespace="default", name=name)
        found: Obj = got["status"]
        return found

    def true(self, name: str = "j") -> dict[str, str]:
        """Return the conditions that hold, with their reasons."""
        found = self.status(name).get("conditions", [])
        return {one["type"]: one["reason"] for one in found if one["status"] == "True"}

    def pods(self) -> list[Obj]:
        found: list[Obj] = self.api.do("list", "v1", "pods")["items"]
        return found

    def phases(self) -> list[str]:
        return [one["status"]["phase"] for one in self.pods()]

    def patch(self, body: Obj, name: str = "j") -> None:
        self.api.do("patch", "batch/v1", "jobs", namespace="default", name=name, body=body)
        self.cluster.loops.settle()


def exits(*codes: int, after_s: float = 5.0) -> Callable[[Obj], Play]:
    """Return plays by completion index."""

    def play(pod: Obj) -> Play:
        index = int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", 0))
        return Play(exit_code=codes[index], run_s=after_s)

    return play
