"""One pretended cluster: the API server with the controllers of a real one."""

from collections.abc import Callable
from pathlib import Path

from tests.fakes.kube_api.controllers.garbage import Garbage
from tests.fakes.kube_api.controllers.job import JobController
from tests.fakes.kube_api.controllers.jobset import JobSetController
from tests.fakes.kube_api.controllers.kubelet import Kubelet, Play, TaintEviction
from tests.fakes.kube_api.controllers.kueue import Kueue
from tests.fakes.kube_api.controllers.loop import Controller, Loops
from tests.fakes.kube_api.controllers.scheduler import Scheduler
from tests.fakes.kube_api.controllers.trainjob import TrainJobController
from tests.fakes.kube_api.resources import crds_of
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj

from gridloom.base.clock import Clock


class Cluster:
    """A Kubernetes cluster whose controllers are simulated.

    Use it as a context manager to serve HTTP and run the controllers in threads; or leave it, and
    call ``api.do`` and ``loops.settle`` with a clock that only moves when told.

    Args:
        projects: Whose CRDs are installed, as folders of the test data; Kueue, JobSet and
            Trainer get their controllers.
        plays: How pods go.
        folder: Where real processes of pods work.
        clock: The machine's where none is given.
        api: A server of one's own settings.
    """

    def __init__(
        self,
        *projects: str,
        plays: Callable[[Obj], Play] = lambda _: Play(),
        folder: Path | None = None,
        clock: Clock | None = None,
        api: KubeApi | None = None,
    ) -> None:
        self.api = api or KubeApi(clock=clock)
        for project in projects:
            self.api.install(crds_of(project))
        self.kubelet = Kubelet(self.api, plays, folder)
        controllers: list[Controller] = [
            JobController(self.api),
            Scheduler(self.api),
            self.kubelet,
            TaintEviction(self.api),
            Garbage(self.api),
        ]
        if any(one.startswith("jobset") for one in projects):
            controllers.insert(0, JobSetController(self.api))
        if any(one.startswith("trainer") for one in projects):
            controllers.insert(0, TrainJobController(self.api))
        self.kueue: Kueue | None = None
        if any(one.startswith("kueue") for one in projects):
            self.kueue = Kueue(self.api)
            controllers.insert(0, self.kueue)
        self.loops = Loops(self.api, controllers)

    def __enter__(self) -> "Cluster":
        self.api.start()
        self.loops.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.loops.stop()
        finally:
            self.kubelet.close()
            self.api.stop()
