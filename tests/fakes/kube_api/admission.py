"""What a real server's own admission does to pods: their service account and their priority."""

from tests.fakes.kube_api.kernel import Kernel
from tests.fakes.kube_api.status import Obj, forbidden

_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PodAdmission:
    """Refuses pods whose service account or priority class is not there; fills in the priority."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(self, operation: str, obj: Obj, old: Obj | None) -> None:
        """Look at one object that is about to be kept."""
        if obj["kind"] != "Pod" or operation != "CREATE":
            return
        self._service_account(obj)
        obj["spec"]["priority"] = self._priority(obj)

    def _service_account(self, pod: Obj) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        if self._kernel.store.get(("", "serviceaccounts"), (namespace, name)) is None:
            told = (
                f"error looking up service account {namespace}/{name}: "
                f'serviceaccount "{name}" not found'
            )
            raise forbidden("", "pods", _name(pod), told)

    def _priority(self, pod: Obj) -> int:
        name = pod["spec"].get("priorityClassName")
        classes = self._kernel.store.all(("scheduling.k8s.io", "priorityclasses"))
        if not name:
            usual = [one["value"] for one in classes if one.get("globalDefault")]
            return max(usual, default=0)
        known = {one["metadata"]["name"]: one["value"] for one in classes} | _SYSTEM
        if name not in known:
            told = f"no PriorityClass with name {name} was found"
            raise forbidden("", "pods", _name(pod), told)
        return int(known[name])


def _name(pod: Obj) -> str:
    """Return the name as it was sent: generated ones are made after admission."""
    meta = pod["metadata"]
    return str(meta.get("generateName") or meta["name"])
