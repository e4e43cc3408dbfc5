"""Simulated: kubelets. They play the pods of all nodes, by script or as real local processes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.fakes.kube_api.controllers.loop import Hands, is_true, set_condition
from tests.fakes.kube_api.controllers.process import ContainerProcess, environment
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj

_PULL_FAULTS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_SIGTERM, _SIGKILL = 143, 137


@dataclass(frozen=True)
class Play:
    """How one pod goes.

    Attributes:
        exit_code: With which its containers end by themselves.
        run_s: After how long; None for not by themselves.
        start_s: Seconds from being bound to running, as an image is pulled.
        fault: ``ImagePullBackOff``, ``ErrImagePull``, ``CreateContainerConfigError`` and the like
            keep it waiting; ``OOMKilled`` and ``Evicted`` end it after ``run_s``.
        message: Said beside the fault.
        on_term: Exit code after SIGTERM; None: it does not hear it and is killed.
        term_s: Seconds from SIGTERM to its end.
        lines: What its first container prints when it starts.
        real: Runs the container's command as a process of this machine; of the rest only
            ``start_s``, ``fault`` and ``message`` are heeded.
    """

    exit_code: int = 0
    run_s: float | None = None
    start_s: float = 0.0
    fault: str = ""
    message: str = ""
    on_term: int | None = _SIGTERM
    term_s: float = 0.0
    lines: tuple[str, ...] = ()
    real: bool = False


@dataclass
class _Run:
    """What the kubelet remembers of a pod."""

    play: Play
    bound_s: float
    started_s: float | None = None
    term_s: float | None = None
    processes: tuple[ContainerProcess, ...] = ()


class Kubelet:
    """Plays every pod that is bound to a node.

    Args:
        api: Whose pods.
        plays: Says how a pod goes; asked once for each pod.
        folder: Where real processes work, a folder a pod; needed for ``Play.real``.

    Left out: init containers of scripted pods (they pass), probes, restarts, volumes.
    """

    name = "kubelet"

    def __init__(
        self,
        api: KubeApi,
        plays: Callable[[Obj], Play] = lambda _: Play(),
        folder: Path | None = None,
    ) -> None:
        self._api, self._hands = api, Hands(api, "kubelet")
        self._plays, self._folder = plays, folder
        self._runs: dict[str, _Run] = {}
        self._lost: set[str] = set()

    def add_node(self, name: str, resources: dict[str, str], **labels: str) -> Obj:
        """Register a node that is ready; ``__`` in a label's name stands for ``/``."""
        marks = {key.replace("__", "/"): value for key, value in labels.items()}
        return self.add_node_with(name, resources, marks)

    def add_node_with(self, name: str, resources: dict[str, str], labels: dict[str, str]) -> Obj:
        """Register a node that is ready, with these labels."""
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        node = self._hands.create("nodes", {"metadata": meta})
        sizes = {"pods": "110", **resources}
        node["status"] = {
            "capacity": sizes,
            "allocatable": sizes,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.2",
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "containerd://2.1.0",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
            },
        }
        set_condition(
            node["status"],
            "Ready",
            "True",
            reason="KubeletReady",
            message="kubelet is posting ready status",
            now=self._api.kernel.now(),
        )
        node = self._hands.status("nodes", node)
        node["spec"]["taints"] = [
            one
            for one in node["spec"].get("taints") or ()
            if one["key"] != "node.kubernetes.io/not-ready"
        ]
        return self._hands.write("nodes", node)

    def lose_node(self, name: str) -> None:
        """Let a node fall silent: its pods are played no more, and are marked for eviction."""
        self._lost.add(name)
        node = self._hands.get("nodes", "", name)
        assert node is not None, name
        now = self._api.kernel.now()
        set_condition(
            node["status"],
            "Ready",
            "Unknown",
            reason="NodeStatusUnknown",
            message="Kubelet stopped posting node status.",
            now=now,
        )
        node = self._hands.status("nodes", node)
        taints = node["spec"].setdefault("taints", [])
        taints += [
            {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": now}
            for effect in ("NoSchedule", "NoExecute")
        ]
        self._hands.write("nodes", node)

    def end(self, uid: str, **play: Any) -> None:
        """Let a scripted pod that runs go on in another way: to its end at once unless told."""
        run = self._runs[uid]
        run.play = replace(run.play, **{"run_s": 0.0, "fault": "", **play})
        self._api.kernel.store.wake()

    def due_s(self) -> float | None:
        """Return when the next pod starts or ends."""
        now_s = self._api.kernel.clock.monotonic_s()
        times = [self._next_s(run) for run in self._runs.values()]
        return min((one for one in times if one is not None and one >= now_s), default=None)

    def step(self) -> None:
        """Look at every bound pod once."""
        pods = [one for one in self._hands.all("pods") if one["spec"].get("nodeName")]
        uids = {one["metadata"]["uid"] for one in pods}
        for uid in [one for one in self._runs if one not in uids]:
            run = self._runs.pop(uid)  # deleted by force: what runs is killed
            for process in run.processes:
                process.kill()
        for pod in pods:
            if pod["spec"]["nodeName"] in self._lost:
                continue
            try:
                self._look(pod)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    def close(self) -> None:
        """Kill every real process."""
        for run in self._runs.values():
            for process in run.processes:
                process.kill()

    def _look(self, pod: Obj) -> None:
        is_over = pod["status"]["phase"] in ("Succeeded", "Failed")
        is_leaving = "deletionTimestamp" in pod["metadata"]
        now_s = self._api.kernel.clock.monotonic_s()
        uid = pod["metadata"]["uid"]
        if is_over:
            if is_leaving:
                self._gone(pod)
            return
        if uid not in self._runs:
            self._runs[uid] = _Run(self._plays(pod), now_s)
        run = self._runs[uid]
        if is_leaving:
            self._stop(pod, run, now_s)
        elif run.started_s is None:
            self._start(pod, run, now_s)
        else:
            self._watch(pod, run, now_s)

    def _next_s(self, run: _Run) -> float | None:
        if run.term_s is not None:
            return run.term_s + run.play.term_s
        if run.started_s is None:
            return run.bound_s + run.play.start_s
        return None if run.play.run_s is None else run.started_s + run.play.run_s

    def _gone(self, pod: Obj) -> None:
        self._runs.pop(pod["metadata"]["uid"], None)
        if pod["metadata"].get("deletionGracePeriodSeconds"):
            self._hands.delete("pods", pod, gracePeriodSeconds=0)

    def _start(self, pod: Obj, run: _Run, now_s: float) -> None:
        fault = run.play.fault
        if fault and fault not in ("OOMKilled", "Evicted"):
            self._wait(pod, fault, run.play.message)
        elif now_s < run.bound_s + run.play.start_s:
            self._wait(pod, "ContainerCreating", "")
        else:
            self._run(pod, run, now_s)

    def _wait(self, pod: Obj, reason: str, message: str) -> None:
        state: Obj = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        states = [state] * len(pod["spec"]["containers"])
        if self._tell(pod, "Pending", states, ready=False) and reason in _PULL_FAULTS:
            self._hands.event(pod, "Warning", "Failed", message or f"Error: {reason}")

    def _run(self, pod: Obj, run: _Run, now_s: float) -> None:
        if run.play.real:
            try:
                run.processes = self._spawn(pod)
            except (LookupError, OSError) as error:
                reason = (
                    "CreateContainerConfigError"
                    if isinstance(error, LookupError)
                    else "RunContainerError"
                )
                self._wait(pod, reason, str(error))
                return
        run.started_s = now_s
        meta = pod["metadata"]
        first = pod["spec"]["containers"][0]["name"]
        self._api.logs.setdefault((meta["namespace"], meta["name"], first), []).extend(
            run.play.lines
        )
        state = {"running": {"startedAt": self._api.kernel.now()}}
        self._tell(pod, "Running", [state] * len(pod["spec"]["containers"]), ready=True)
        self._watch(pod, run, now_s)

    def _spawn(self, pod: Obj) -> tuple[ContainerProcess, ...]:
        assert self._folder is not None, "real processes need a folder"
        meta = pod["metadata"]
        folder = self._folder / meta["uid"]
        folder.mkdir(parents=True, exist_ok=True)
        started: list[ContainerProcess] = []
        for container in pod["spec"]["containers"]:
            variables = environment(self._hands, pod, container)
            lines = self._api.logs.setdefault(
                (meta["namespace"], meta["name"], container["name"]), []
            )
            started.append(
                ContainerProcess(container, variables, folder, lines, self._api.kernel.store.wake)
            )
        return tuple(started)

    def _watch(self, pod: Obj, run: _Run, now_s: float) -> None:
        """End a pod that has run its course."""
        if run.processes:
            codes = [one.exit_code() for one in run.processes]
            if all(one is not None for one in codes):
                self._finish(pod, [one or 0 for one in codes])
            return
        assert run.started_s is not None
        if run.play.run_s is None or now_s < run.started_s + run.play.run_s:
            return
        count = len(pod["spec"]["containers"])
        if run.play.fault == "Evicted":
            told = run.play.message or "The node was low on resource: memory."
            set_condition(
                pod["status"],
                "DisruptionTarget",
                "True",
                message=told,
                reason="TerminationByKubelet",
                now=self._api.kernel.now(),
            )
            pod["status"] |= {"reason": "Evicted", "message": told}
            self._finish(pod, [_SIGKILL] * count)
        elif run.play.fault == "OOMKilled":
            self._finish(pod, [_SIGKILL] * count, reason="OOMKilled")
        else:
            self._finish(pod, [run.play.exit_code] * count)

    def _stop(self, pod: Obj, run: _Run, now_s: float) -> None:
        """End a pod that is being deleted: preStop, SIGTERM, and SIGKILL when its grace is over."""
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        if run.started_s is None:
            self._finish(pod, [_SIGKILL] * len(pod["spec"]["containers"]))
            self._gone(self._again(pod))
            return
        if run.term_s is None:
            run.term_s = now_s
            for process in run.processes:
                process.stop(grace_s)
        if run.processes:
            codes = [one.exit_code() for one in run.processes]
            if any(one is None for one in codes):
                return
        else:
            is_deaf = run.play.on_term is None or run.play.term_s > grace_s
            wait_s = grace_s if is_deaf else run.play.term_s
            if now_s < run.term_s + wait_s:
                return
            code = _SIGKILL if is_deaf else run.play.on_term
            codes = [code] * len(pod["spec"]["containers"])
        self._finish(pod, [one or 0 for one in codes])
        self._gone(self._again(pod))

    def _again(self, pod: Obj) -> Obj:
        meta = pod["metadata"]
        found = self._hands.get("pods", meta["namespace"], meta["name"])
        return pod if found is None else found

    def _finish(self, pod: Obj, codes: list[int], *, reason: str = "") -> None:
        now = self._api.kernel.now()
        states: list[Obj] = []
        for code in codes:
            why = reason or ("Error" if code else "Completed")
            states.append({"terminated": {"exitCode": code, "reason": why, "finishedAt": now}})
        self._tell(pod, "Failed" if any(codes) else "Succeeded", states, ready=False)

    def _tell(self, pod: Obj, phase: str, states: list[Obj], *, ready: bool) -> bool:
        """Report a pod's status; say whether it is news."""
        status, now = pod["status"], self._api.kernel.now()
        before = self._again(pod)["status"]
        status |= {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
        }
        status.setdefault("startTime", now)
        old = {one["name"]: one for one in status.get("containerStatuses") or ()}
        status["containerStatuses"] = [
            _container(one, state, old.get(one["name"], {}), ready=ready)
            for one, state in zip(pod["spec"]["containers"], states, strict=True)
        ]
        for kind in ("PodReadyToStartContainers", "Initialized"):
            set_condition(status, kind, "True", now=now)
        told = (
            {}
            if ready
            else {"reason": "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"}
        )
        for kind in ("Ready", "ContainersReady"):
            set_condition(status, kind, str(ready), now=now, **told)
        if status == before:
            return False
        self._hands.status("pods", pod)
        return True


def _container(container: Obj, state: Obj, old: Obj, *, ready: bool) -> Obj:
    state = {kind: dict(one) for kind, one in state.items()}
    if "terminated" in state:
        begun = old.get("state", {}).get("running", {}).get("startedAt")
        state["terminated"].setdefault("startedAt", begun or state["terminated"]["finishedAt"])
    found: dict[str, Any] = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }
    return found


class TaintEviction:
    """Simulated: deletes pods that do not tolerate a NoExecute taint of their node.

    Args:
        api: Whose pods.
        tolerated_s: Tolerations with a time are taken for this long; None for as long as they say.
    """

    name = "taint-eviction"

    def __init__(self, api: KubeApi, tolerated_s: float | None = None) -> None:
        self._api, self._hands = api, Hands(api, "taint-eviction-controller")
        self._tolerated_s = tolerated_s
        self._since_s: dict[tuple[str, str], float] = {}
        self._due_s: float | None = None

    def due_s(self) -> float | None:
        """Return when the next toleration runs out."""
        return self._due_s

    def step(self) -> None:
        """Look at every node's taints once."""
        self._due_s = None
        for node in self._hands.all("nodes"):
            taints = [
                one
                for one in node.get("spec", {}).get("taints") or ()
                if one["effect"] == "NoExecute"
            ]
            if not taints or is_true(node, "Gone"):
                continue
            for pod in self._hands.all("pods"):
                if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                    self._check(pod, taints)

    def _check(self, pod: Obj, taints: list[Obj]) -> None:
        now_s = self._api.kernel.clock.monotonic_s()
        for taint in taints:
            left_s = self._patience_s(pod, taint)
            if left_s is None or "deletionTimestamp" in pod["metadata"]:
                continue
            since_s = self._since_s.setdefault((pod["metadata"]["uid"], taint["key"]), now_s)
            if now_s < since_s + left_s:
                due_s = since_s + left_s
                self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
                continue
            set_condition(
                pod["status"],
                "DisruptionTarget",
                "True",
                reason="DeletionByTaintManager",
                now=self._api.kernel.now(),
                message="Taint manager: deleting due to NoExecute taint",
            )
            self._hands.status("pods", pod)
            self._hands.delete("pods", pod)
            return

    def _patience_s(self, pod: Obj, taint: Obj) -> float | None:
        """Return for how long a pod bears a taint; None for ever."""
        found = [
            one
            for one in pod["spec"].get("tolerations") or ()
            if one.get("key") in (None, "", taint["key"])
            and one.get("effect") in (None, "", "NoExecute")
        ]
        if not found:
            return 0.0
        times = [one["tolerationSeconds"] for one in found if "tolerationSeconds" in one]
        if not times:
            return None
        return float(min(times)) if self._tolerated_s is None else self._tolerated_s
