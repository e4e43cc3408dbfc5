"""What a real server fills in when Kubernetes' own kinds are written."""

import base64
import hashlib
from collections.abc import Callable, Mapping

from tests.fakes.kube_api.status import Obj

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer by which the Job controller counts each pod once."""


def fill(obj: Obj, *, is_new: bool) -> None:
    """Fill in defaults, in place.

    Args:
        obj: The object; its metadata is complete.
        is_new: Whether it is being created.
    """
    known = _FILLERS.get((obj["apiVersion"], obj["kind"]))
    if known is not None:
        known(obj, is_new)


def pod_spec(spec: Obj) -> None:
    """Fill in a pod's, or a pod template's, ``spec``."""
    _put(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        terminationGracePeriodSeconds=30,
        schedulerName="default-scheduler",
        securityContext={},
    )
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        image = container.get("image", "")
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        is_latest = "@" not in image and tag in ("", "latest")
        _put(
            container,
            terminationMessagePath="/dev/termination-log",
            terminationMessagePolicy="File",
            imagePullPolicy="Always" if is_latest else "IfNotPresent",
            resources={},
        )
        resources = container["resources"]
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for volume in spec.get("volumes") or ():
        for kind in ("secret", "configMap", "projected", "downwardAPI"):
            if kind in volume:
                _put(volume[kind], defaultMode=0o644)
        if "hostPath" in volume:
            _put(volume["hostPath"], type="")


def _put(target: Obj, **values: object) -> None:
    for name, value in values.items():
        target.setdefault(name, value)


def _pod(obj: Obj, is_new: bool) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    if not is_new:
        return
    _put(
        spec,
        serviceAccountName="default",
        enableServiceLinks=True,
        preemptionPolicy="PreemptLowerPriority",
    )
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(one.get("key") in (key, None) for one in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    obj["status"] = {"phase": "Pending", "qosClass": _qos(spec)}


def _qos(spec: Obj) -> str:
    asked = [one.get("resources", {}) for one in spec.get("containers", ())]
    main = [
        {name: size for name, size in (one.get(part) or {}).items() if name in ("cpu", "memory")}
        for one in asked
        for part in ("requests", "limits")
    ]
    if not any(main):
        return "BestEffort"
    is_full = all(len(one) == 2 for one in main)
    is_equal = all(a == b for a, b in zip(main[::2], main[1::2], strict=True))
    return "Guaranteed" if is_full and is_equal else "Burstable"


def _job(obj: Obj, is_new: bool) -> None:
    spec = obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    per_index = "backoffLimitPerIndex" in spec
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    _put(
        spec,
        parallelism=1,
        backoffLimit=2**31 - 1 if per_index else 6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy=policy,
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules", ()):
        for one in rule.get("onPodConditions") or ():
            _put(one, status="True")
    template = spec.setdefault("template", {})
    pod_spec(template.setdefault("spec", {}))
    if is_new and not spec["manualSelector"]:
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = uid
            labels[f"{prefix}job-name"] = name
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


def _service(obj: Obj, is_new: bool) -> None:
    spec = obj.setdefault("spec", {})
    _put(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        _put(port, protocol="TCP", targetPort=port.get("port"))
    if spec["type"] == "ExternalName" or not is_new:
        return
    digest = hashlib.sha256(obj["metadata"]["uid"].encode()).digest()
    _put(spec, clusterIP=f"10.96.{digest[0]}.{digest[1]}")
    _put(spec, clusterIPs=[spec["clusterIP"]], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    obj.setdefault("status", {"loadBalancer": {}})


def _namespace(obj: Obj, is_new: bool) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
    if is_new:
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}


def _node(obj: Obj, is_new: bool) -> None:
    if is_new:
        taints = obj.setdefault("spec", {}).setdefault("taints", [])
        if not any(one["key"] == "node.kubernetes.io/not-ready" for one in taints):
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def _secret(obj: Obj, is_new: bool) -> None:
    _put(obj, type="Opaque")
    plain = obj.pop("stringData", None) or {}
    if plain:
        told = {name: base64.b64encode(one.encode()).decode() for name, one in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **told}


def _binding(obj: Obj, is_new: bool) -> None:
    for one in obj.get("subjects") or ():
        if one.get("kind") in ("User", "Group"):
            _put(one, apiGroup="rbac.authorization.k8s.io")
    obj.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")


def _priority(obj: Obj, is_new: bool) -> None:
    _put(obj, preemptionPolicy="PreemptLowerPriority")


def _claim(obj: Obj, is_new: bool) -> None:
    _put(obj.setdefault("spec", {}), volumeMode="Filesystem")
    if is_new:
        obj["status"] = {"phase": "Pending"}


_RBAC = "rbac.authorization.k8s.io/v1"
_FILLERS: Mapping[tuple[str, str], Callable[[Obj, bool], None]] = {
    ("v1", "Pod"): _pod,
    ("v1", "Service"): _service,
    ("v1", "Namespace"): _namespace,
    ("v1", "Node"): _node,
    ("v1", "Secret"): _secret,
    ("v1", "PersistentVolumeClaim"): _claim,
    ("batch/v1", "Job"): _job,
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
    ("scheduling.k8s.io/v1", "PriorityClass"): _priority,
}
