"""One cluster as the driver uses it: what is seen of it, and what is done there meanwhile."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

import msgspec

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.sites.kube import hands
from gridloom.sites.kube.api import PODS, WORKLOADS, Api, AwayError, Place, Resource
from gridloom.sites.kube.labels import PLANE_LABEL, RUN_LABEL
from gridloom.sites.kube.mirror import Mirror, Watched
from gridloom.sites.kube.parse_pods import PodSight, read_pod
from gridloom.sites.kube.parse_runs import RunSight, read_run
from gridloom.sites.kube.parse_workloads import WorkloadSight, read_workload
from gridloom.sites.kube.render import Form
from gridloom.sites.kube.state import KubeGang

_PAUSE_S = 1.0
"""After a cluster did not do what it was asked."""
_SILENCE_S = 5.0
"""How long an answer may take until it is told that there is none."""

_RESOURCES = {
    Form.JOB: Resource(api_version="batch/v1", plural="jobs"),
    Form.JOB_SET: Resource(api_version="jobset.x-k8s.io/v1alpha2", plural="jobsets"),
    Form.TRAIN_JOB: Resource(api_version="trainer.kubeflow.org/v1alpha1", plural="trainjobs"),
}

Copies = tuple[RunSight | None, tuple[PodSight, ...], WorkloadSight | None]
"""A job, its pods, and Kueue's view of it."""


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What reaches out of this process.

    Attributes:
        clock: Where the time comes from.
        connect: Makes the client of a place; raises ``SiteError`` if that cannot be.
        executor: Where requests and watches last.
    """

    clock: Clock
    connect: Callable[[Place], Api]
    executor: Executor


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a gang at its cluster.

    Attributes:
        hands_in: Hand it in.
        confirms: Look whether it is gone, for the watches do not show it.
        deletes: Delete it.
        logs: Fetch what these of its pods have printed.
        warns_of: Fetch what was warned of about the object of this name.
    """

    hands_in: bool = False
    confirms: bool = False
    deletes: bool = False
    logs: tuple[int, ...] = ()
    warns_of: str = ""


class Cluster:
    """One place where jobs of one form are handed in.

    Attributes:
        form: Which form.
    """

    def __init__(
        self, place: Place, form: Form, *, queued: bool, plane: str, outside: Outside
    ) -> None:
        """Use a place; nothing is asked of it yet.

        Args:
            place: Where.
            form: What attempts are handed in as.
            queued: Whether Kueue starts them.
            plane: Names this control plane.
            outside: What reaches out of this process.
        """
        self.form = form
        self._place, self._main, self._queued = place, _RESOURCES[form], queued
        self._plane = plane
        self._outside = outside
        self._api: Api | None = None
        self._mirror: Mirror | None = None
        self._asked: Future[None] | None = None
        self._asked_s = 0.0
        self._resume_s = 0.0
        self._trouble = ""

    @property
    def is_free(self) -> bool:
        """Whether nothing is being done there now."""
        return self._asked is None or self._asked.done()

    def trouble(self) -> str:
        """Return why the cluster cannot be looked at; empty if it can."""
        late_s = self._outside.clock.monotonic_s() - self._asked_s
        if not self.is_free and late_s >= _SILENCE_S:
            return "it takes long"
        return self._trouble or (self._mirror.trouble() if self._mirror is not None else "")

    def copies(self, name: str, uid: str) -> Copies | None:
        """Return what the watches show of a job; nothing before they have shown everything."""
        if self._mirror is None or not self._mirror.touch():
            return None
        runs = self._mirror.look(self._main.plural, name)
        pods = self._mirror.look(PODS.plural, name)
        held = self._mirror.look(WORKLOADS[0].plural, uid) if self._queued else ()
        if runs is None or pods is None or held is None:
            return None
        return next((one for one in runs if one.uid == uid), None), pods, next(iter(held), None)

    def have_done(self, todos: Sequence[tuple[KubeGang, Todo]]) -> None:
        """Begin what is to be done, if nothing is being done, and look on in any case."""
        now_s = self._outside.clock.monotonic_s()
        watches = self._mirror is not None and self._mirror.touch()
        if self._asked is not None:
            if not self._asked.done():
                return
            self._asked.result()  # a fault of ours is raised here
            self._asked = None
        if now_s < self._resume_s or (watches and not todos):
            return
        self._asked_s = now_s
        self._asked = self._outside.executor.submit(self._work, todos)

    def _work(self, todos: Sequence[tuple[KubeGang, Todo]]) -> None:
        """Do what is to be done at one cluster, in a thread of its own."""
        trouble = ""
        try:
            api = self._connected()
            for one, todo in todos:
                trouble = self._tried(api, one, todo) or trouble
        except AwayError as error:
            trouble = str(error)
        except SiteError as error:  # there is no client at all
            trouble = str(error)
            for one, todo in todos:
                one.refusal = hands.refusal(error) if todo.hands_in else None
        self._trouble = trouble
        pause_s = _PAUSE_S if trouble or any(todo.confirms for _, todo in todos) else 0.0
        self._resume_s = self._outside.clock.monotonic_s() + pause_s

    def _connected(self) -> Api:
        if self._api is None or self._mirror is None or not self._mirror.touch():
            self._api = self._outside.connect(self._place)
            ours = f"{PLANE_LABEL}={self._plane}"
            watched = [
                Watched([self._main], ours, read_run, _run_of),
                Watched([PODS], ours, read_pod, _run_of),
            ]
            if self._queued:
                watched.append(Watched(WORKLOADS, "", read_workload, _owner_of))
            self._mirror = Mirror(self._api, watched, self._outside.clock, self._outside.executor)
        return self._api

    def _tried(self, api: Api, one: KubeGang, todo: Todo) -> str:
        """Do what is to be done for a gang; return why that could not be, if it could not.

        Raises:
            AwayError: Nothing can be done for others either.
        """
        try:
            self._do(api, one, todo)
        except AwayError:
            raise
        except SiteError as error:
            return str(error)
        return ""

    def _do(self, api: Api, one: KubeGang, todo: Todo) -> None:
        if todo.hands_in:
            hands.hand_in(api, one)
        if todo.logs:
            hands.fetch_logs(api, one, todo.logs)
        if todo.warns_of:
            hands.fetch_warning(api, one, todo.warns_of)
        if todo.confirms:
            one.is_gone = hands.is_gone(api, one, self._main)
        if todo.deletes:
            hands.delete(api, one, self._main)


def _run_of(sight: RunSight | PodSight) -> str:
    return sight.labels.get(RUN_LABEL, "")


def _owner_of(sight: WorkloadSight) -> str:
    return sight.owner_uid
