"""Simulated: the scheduler. Binds pods to nodes by resources, taints and node affinity."""

from collections import Counter
from fractions import Fraction

from tests.fakes.kube_api.controllers.loop import Hands, is_true, set_condition
from tests.fakes.kube_api.quantity import quantity
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj

_BLOCKS = ("NoSchedule", "NoExecute")


class Scheduler:
    """Places pods one by one, the highest priority first; each goes where least is left free.

    Left out: preemption, affinity between pods, topology spread, volumes, dynamic resources.
    """

    name = "scheduler"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "kube-scheduler")

    def due_s(self) -> float | None:
        """Nothing is due by time."""
        return None

    def step(self) -> None:
        """Look at every pod that waits for a node."""
        pods = self._hands.all("pods")
        waiting = [one for one in pods if _waits(one)]
        if not waiting:
            return
        nodes = self._hands.all("nodes")
        used = {node["metadata"]["name"]: _used(node["metadata"]["name"], pods) for node in nodes}
        waiting.sort(
            key=lambda one: (
                -one["spec"].get("priority", 0),
                one["metadata"]["creationTimestamp"],
                one["metadata"]["name"],
            )
        )
        for pod in waiting:
            if pod["spec"].get("schedulingGates"):
                self._say(
                    pod,
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                )
                continue
            self._place(pod, nodes, used)

    def _place(self, pod: Obj, nodes: list[Obj], used: dict[str, "Counter[str]"]) -> None:
        whys: Counter[str] = Counter()
        free: list[tuple[Fraction, str]] = []
        for node in nodes:
            name = node["metadata"]["name"]
            why = why_not(pod, node, used[name])
            whys.update(why)
            if not why:
                free.append((_left(pod, node, used[name]), name))
        if free:
            name = min(free)[1]
            if self._bind(pod, name):
                used[name].update(requests_of(pod))
            return
        told = ", ".join(sorted(f"{count} {why}" for why, count in whys.items()))
        many = (
            f"0/{len(nodes)} nodes are available: {told}."
            if nodes
            else "no nodes available to schedule pods"
        )
        self._say(pod, "Unschedulable", many)

    def _bind(self, pod: Obj, node: str) -> bool:
        meta = pod["metadata"]
        body = {"metadata": {"name": meta["name"]}, "target": {"kind": "Node", "name": node}}
        try:
            self._api.do(
                "create",
                "v1",
                "pods",
                namespace=meta["namespace"],
                name=meta["name"],
                subresource="binding",
                body=body,
            )
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return False
        told = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._hands.event(pod, "Normal", "Scheduled", told)
        return True

    def _say(self, pod: Obj, reason: str, message: str) -> None:
        now = self._api.kernel.now()
        if set_condition(
            pod["status"], "PodScheduled", "False", reason=reason, message=message, now=now
        ):
            self._hands.status("pods", pod)
            if reason == "Unschedulable":
                self._hands.event(pod, "Warning", "FailedScheduling", message)


def _waits(pod: Obj) -> bool:
    is_open = not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"
    return is_open and "deletionTimestamp" not in pod["metadata"]


def requests_of(pod: Obj) -> "Counter[str]":
    """Return what a pod asks for, in thousandths; init containers count by their largest."""
    total: Counter[str] = Counter({"pods": 1000})
    for container in pod["spec"]["containers"]:
        total.update(_asked(container))
    for container in pod["spec"].get("initContainers") or ():
        for name, size in _asked(container).items():
            total[name] = max(total[name], size)
    return total


def _asked(container: Obj) -> dict[str, int]:
    asked = container.get("resources", {}).get("requests") or {}
    return {name: int(quantity(size) * 1000) for name, size in asked.items()}


def _used(node: str, pods: list[Obj]) -> "Counter[str]":
    total: Counter[str] = Counter()
    for pod in pods:
        is_here = pod["spec"].get("nodeName") == node
        if is_here and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            total.update(requests_of(pod))
    return total


def _room(node: Obj) -> dict[str, int]:
    sizes = node.get("status", {}).get("allocatable") or {}
    return {name: int(quantity(size) * 1000) for name, size in sizes.items()}


def _left(pod: Obj, node: Obj, used: "Counter[str]") -> Fraction:
    room = _room(node)
    asked = requests_of(pod)
    return sum(
        (
            Fraction(room[name] - used[name] - size, room[name])
            for name, size in asked.items()
            if room.get(name)
        ),
        Fraction(0),
    )


def why_not(pod: Obj, node: Obj, used: "Counter[str]") -> list[str]:
    """Return why a pod cannot go to a node, in the scheduler's words; empty when it can."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if node.get("spec", {}).get("unschedulable") and not tolerates(
        spec, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return ["node(s) were unschedulable"]
    for taint in node.get("spec", {}).get("taints") or ():
        if taint["effect"] in _BLOCKS and not tolerates(spec, taint):
            value = taint.get("value", "")
            return [f"node(s) had untolerated taint {{{taint['key']}: {value}}}"]
    wanted = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()) or not _is_near(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if not is_true(node, "Ready"):
        return ["node(s) were not ready"]
    room = _room(node)
    short = [
        name
        for name, size in requests_of(pod).items()
        if size and used[name] + size > room.get(name, 0)
    ]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in sorted(short)]


def tolerates(spec: Obj, taint: Obj) -> bool:
    """Say whether a pod's tolerations cover a taint."""
    return any(_covers(one, taint) for one in spec.get("tolerations") or ())


def _covers(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def _is_near(spec: Obj, node: Obj) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not needed:
        return True
    labels = node["metadata"].get("labels") or {}
    return any(
        _meets(term, labels, node["metadata"]["name"]) for term in needed["nodeSelectorTerms"]
    )


def _meets(term: Obj, labels: dict[str, str], name: str) -> bool:
    fields = [(one, {"metadata.name": name}) for one in term.get("matchFields") or ()]
    tests = [(one, labels) for one in term.get("matchExpressions") or ()] + fields
    return bool(tests) and all(_holds(one, values) for one, values in tests)


def _holds(test: Obj, labels: dict[str, str]) -> bool:
    value, values = labels.get(test["key"]), test.get("values") or []
    match test["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case _:
            return value is not None and int(value) < int(values[0])
