"""The part of the grid file that says how jobs are handed to the Kubernetes of a site."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from gridloom.model.inventory import KubeAccess, KubeToleration, KubeVolume
from gridloom.wire.documents_check import Document, Finding, Reading
from gridloom.wire.documents_devices import DURATION, DURATION_ABOVE_0, MEMORY
from gridloom.wire.documents_values import Choice, Flag, Text, Texts
from gridloom.wire.documents_variables import VARIABLE_NAMES, VARIABLE_VALUE, variable_findings
from gridloom.wire.slurm_document import NetworkValue


class _Quantity(Text):
    """A quantity of Kubernetes, which may be a plain number."""

    def parse(self, value: object) -> str:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return super().parse(str(value) if plain else value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [super().schema(), {"type": "number", "minimum": 0}]}


_DNS = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_NAME = Text("the name of an object of the cluster, as `team-a`", _DNS)
_WORD_OF_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL = rf"({_DNS}/)?{_WORD_OF_NAME}"
_LEVEL = Text("a node label, as `topology.kubernetes.io/zone`", _LABEL)
_SECRET = Text("a Secret and its key, as `wandb/api-key`", r"[^/\s]+/[^/\s]+")
_RESOURCE = Text("a resource, as `amd.com/gpu`", r"[^/\s]+/[^/\s]+")
_QUANTITY = _Quantity(
    "a quantity, as `500m`, `96`, `64Gi` or `1Ti`",
    r"[0-9]{1,40}(\.[0-9]{1,40})?([KMGTPE]i|[numkMGTPE]|[eE][0-9]{1,3})?",
)
_LABEL_VALUE = Text("the value of a label", r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_RESOURCE_NAME = rf"cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMG]i|{_DNS}/{_WORD_OF_NAME}"
_OURS = ("gridloom/", "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
"""What labels of ours begin with."""
_GPU = "nvidia.com/gpu"
_ANY_TEXT = Text("text", r"[\s\S]*")
_WORD = Text("one word", r"\S+")
_PATH = Text("an absolute path", r"/[^:\n]*")
_LABELS: dict[str, Any] = {"propertyNames": {"pattern": f"^{_LABEL}$"}}
_PATHS: dict[str, Any] = {"propertyNames": {"pattern": r"^/[^:\n]*$"}}
_WORKLOADS: dict[str, Literal["job", "jobset", "trainjob"]] = {
    "job": "job",
    "jobset": "jobset",
    "trainjob": "trainjob",
}
_SOURCES = ("claim", "host", "secret", "memory")
_ATTACHMENT = r"([a-z0-9][-a-z0-9.]*/)?[a-z0-9][-a-z0-9.]*(@[A-Za-z0-9.-]{1,15})?"


class RunsDocument(Document):
    """Where the run directories come from; pods see them at the path at which we do."""

    claim: Annotated[str | None, _NAME, Field(description="A PersistentVolumeClaim.")] = None
    sub_path: Annotated[
        str | None,
        Text("a path inside the claim, as `gridloom/runs`", r"[^/:\n][^:\n]*"),
        Field(description="What of the claim. Default: all of it."),
    ] = None
    host: Annotated[str | None, _PATH, Field(description="A directory of the nodes.")] = None


class KubeVolumeDocument(RunsDocument):
    """A directory in the pods: from a claim, the node, a Secret or memory."""

    secret: Annotated[str | None, _NAME, Field(description="A Secret, as files.")] = None
    memory: Annotated[
        float | None, MEMORY, Field(description="Memory, at most so much.", examples=["64GiB"])
    ] = None
    read_only: Annotated[bool, Flag(), Field(description="Whether nothing is written.")] = False


class KubeTolerationDocument(Document):
    """A taint that does not keep pods away."""

    key: Annotated[str, Text("the key of a taint", _LABEL), Field(description="Of the taint.")]
    value: Annotated[str | None, _WORD, Field(description="Of it. Default: any.")] = None
    effect: Annotated[
        str | None,
        Choice(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        Field(description="Of it. Default: any."),
    ] = None


class KubeDocument(Document):
    """How jobs are handed to the Kubernetes of a site."""

    kubeconfig: Annotated[
        str | None,
        _PATH,
        Field(description="How the cluster is reached. Default: as `kubectl` does, or as a pod."),
    ] = None
    context: Annotated[
        str | None, _WORD, Field(description="Of the kubeconfig. Default: the current one.")
    ] = None
    namespace: Annotated[str, _NAME, Field(description="Where jobs run.")] = "default"
    workload: Annotated[
        str,
        Choice(tuple(_WORKLOADS)),
        Field(description="What the tasks of an attempt are: a Job, a JobSet, or a TrainJob."),
    ] = "job"
    queue: Annotated[
        str | None, _NAME, Field(description="Kueue's LocalQueue. Default: without Kueue.")
    ] = None
    queue_priority: Annotated[
        str | None, _NAME, Field(description="Kueue's WorkloadPriorityClass.")
    ] = None
    priority_class: Annotated[str | None, _NAME, Field(description="Of the pods.")] = None
    topology_required: Annotated[
        str | None, _LEVEL, Field(description="Level of nodes that all pods must share (Kueue).")
    ] = None
    topology_preferred: Annotated[
        str | None, _LEVEL, Field(description="Level that they share if they can (Kueue).")
    ] = None
    image: Annotated[
        str, Text("a container image", r"\S+"), Field(description="Container that has gridloom.")
    ]
    pull_policy: Annotated[
        str,
        Choice(("IfNotPresent", "Always", "Never")),
        Field(description="When the image is fetched."),
    ] = "IfNotPresent"
    pull_secrets: Annotated[
        tuple[str, ...], Texts(_NAME, "names of Secrets"), Field(description="For its registry.")
    ] = ()
    python: Annotated[str, _WORD, Field(description="Interpreter in the image.")] = "python3"
    runs: RunsDocument | None = Field(
        None, description="Where run directories come from. Default: the same path of the node."
    )
    volumes: dict[str, KubeVolumeDocument] = Field(
        {},
        description="What else pods see, by path. Default: memory at `/dev/shm`.",
        examples=[{"/data": {"claim": "datasets", "read_only": True}}],
        json_schema_extra=_PATHS,
    )
    environment: dict[str, Annotated[str, VARIABLE_VALUE]] = Field(
        {}, description="Variables of the pods.", json_schema_extra=VARIABLE_NAMES
    )
    secrets: dict[str, Annotated[str, _SECRET]] = Field(
        {},
        description="Variables whose values stay in the cluster, as `SECRET/KEY`.",
        examples=[{"WANDB_API_KEY": "wandb/api-key"}],
        json_schema_extra=VARIABLE_NAMES,
    )
    devices: dict[str, Annotated[str, _RESOURCE]] = Field(
        {},
        description="What devices are called there, by kind. Default: `nvidia.com/gpu`.",
        examples=[{"mi300x": "amd.com/gpu"}],
    )
    resources: dict[str, Annotated[str, _QUANTITY]] = Field(
        {},
        description="What each pod asks for besides. Default: a core a `cpu`.",
        examples=[{"cpu": "96", "memory": "1Ti", "rdma/hca": "8"}],
        json_schema_extra={"propertyNames": {"pattern": f"^({_RESOURCE_NAME})$"}},
    )
    labels: dict[str, Annotated[str, _LABEL_VALUE]] = Field(
        {}, description="Of jobs and pods, besides ours.", json_schema_extra=_LABELS
    )
    annotations: dict[str, Annotated[str, _ANY_TEXT]] = Field(
        {},
        description="Of jobs and pods.",
        examples=[{"sidecar.istio.io/inject": "false"}],
        json_schema_extra=_LABELS,
    )
    node_selector: dict[str, Annotated[str, _LABEL_VALUE]] = Field(
        {}, description="Labels that nodes must have.", json_schema_extra=_LABELS
    )
    tolerations: tuple[KubeTolerationDocument, ...] = Field(
        (), description="Taints that do not keep pods away."
    )
    runtime_class: Annotated[str | None, _NAME, Field(description="As `nvidia`.")] = None
    service_account: Annotated[str | None, _NAME, Field(description="Of the pods.")] = None
    networks: Annotated[
        tuple[str, ...],
        Texts(Text("a network, as `fabric/rail-1@net1`", _ATTACHMENT), "networks"),
        Field(description="NetworkAttachmentDefinitions.", examples=[["rail-0", "rail-1"]]),
    ] = ()
    host_network: Annotated[
        bool, Flag(), Field(description="Whether pods use their node's network.")
    ] = False
    network: Annotated[
        str | None,
        NetworkValue(),
        Field(description="Addresses by which pods reach each other. Default: the pod's own."),
    ] = None
    time_limit: Annotated[
        float | None, DURATION_ABOVE_0, Field(description="Of a job there.", examples=["24h"])
    ] = None
    keep: Annotated[
        float, DURATION, Field(description="How long the cluster keeps jobs that have ended.")
    ] = 3600.0


def kube_findings(grid: Reading[Any], here: tuple[str, ...]) -> Iterator[Finding]:
    """Yield what does not fit together in the section at ``here``."""
    plain, secret = grid.keys(*here, "environment"), grid.keys(*here, "secrets")
    yield from variable_findings(plain, (*here, "environment"))
    yield from variable_findings(secret, (*here, "secrets"))
    for name in secret:
        if name in plain:
            message = f"`{name}` is set in `environment`, too"
            yield (*here, "secrets", name), message, "keep one of the two"
    for path in grid.keys(*here, "volumes"):
        given = [one for one in _SOURCES if grid.given(*here, "volumes", path, one)]
        if not path.startswith("/"):
            place = (*here, "volumes", path)
            yield place, f"`{path}` is no absolute path", "write where pods see it, as `/data`"
        if len(given) != 1:
            words = " and ".join(f"`{one}`" for one in given)
            message = f"both {words} are given" if words else "nothing says what it is"
            remedy = "write one of `claim`, `host`, `secret` and `memory`"
            yield (*here, "volumes", path), message, remedy
    yield from _names(grid, here)
    if grid.given(*here, "runs", "claim") and grid.given(*here, "runs", "host"):
        yield (*here, "runs", "host"), "both `claim` and `host` are given", "keep one"
    if all(grid.given(*here, f"topology_{one}") for one in ("required", "preferred")):
        message = "a level is either required or preferred"
        yield (*here, "topology_preferred"), message, "keep one of the two"
    for field in ("queue_priority", "topology_required", "topology_preferred"):
        if grid.given(*here, field) and not grid.given(*here, "queue"):
            yield (*here, field), "it counts only in a queue of Kueue", "name a `queue` too"


def _names(grid: Reading[Any], here: tuple[str, ...]) -> Iterator[Finding]:
    """Yield keys that cannot name a label or a resource, or are not the file's to set."""
    for field in ("labels", "annotations", "node_selector"):
        for key in grid.keys(*here, field):
            if not re.fullmatch(_LABEL, key):
                remedy = "use letters, digits, `-`, `_` and `.`, perhaps a domain and `/` before"
                yield (*here, field, key), f"`{key}` cannot name a label or annotation", remedy
            elif field == "labels" and key.startswith(_OURS):
                yield (*here, field, key), f"gridloom itself sets `{key}`", "remove it"
    devices = {_GPU, *(grid.raw(*here, "devices", kind) for kind in grid.keys(*here, "devices"))}
    for name in grid.keys(*here, "resources"):
        if not re.fullmatch(_RESOURCE_NAME, name):
            remedy = "write `cpu`, `memory`, or a resource with its vendor, as `rdma/hca`"
            yield (*here, "resources", name), f"`{name}` is no resource", remedy
        elif name in devices:
            message = "jobs ask for as many of these as they use"
            yield (*here, "resources", name), message, "remove it"


def to_kube_access(kube: KubeDocument) -> KubeAccess:
    """Return how jobs are handed in."""
    return KubeAccess(
        kubeconfig=kube.kubeconfig or "",
        context=kube.context or "",
        namespace=kube.namespace,
        workload=_WORKLOADS[kube.workload],
        queue=kube.queue or "",
        queue_priority=kube.queue_priority or "",
        priority_class=kube.priority_class or "",
        topology_required=kube.topology_required or "",
        topology_preferred=kube.topology_preferred or "",
        image=kube.image,
        pull_policy=kube.pull_policy,
        pull_secrets=kube.pull_secrets,
        python=kube.python,
        runs=_volume(kube.runs) if kube.runs else None,
        volumes={path: _volume(one) for path, one in kube.volumes.items()},
        environment=kube.environment,
        secrets=kube.secrets,
        devices={kind.lower(): name for kind, name in kube.devices.items()},
        resources=kube.resources,
        labels=kube.labels,
        annotations=kube.annotations,
        node_selector=kube.node_selector,
        tolerations=tuple(map(_toleration, kube.tolerations)),
        runtime_class=kube.runtime_class or "",
        service_account=kube.service_account or "",
        networks=kube.networks,
        host_network=kube.host_network,
        network=kube.network or "",
        time_limit_s=kube.time_limit or 0.0,
        keep_s=kube.keep,
    )


def _volume(volume: RunsDocument) -> KubeVolume:
    more = volume if isinstance(volume, KubeVolumeDocument) else KubeVolumeDocument()
    return KubeVolume(
        claim=volume.claim or "",
        sub_path=volume.sub_path or "",
        host=volume.host or "",
        secret=more.secret or "",
        memory_bytes=int(more.memory or 0),
        read_only=more.read_only,
    )


def _toleration(said: KubeTolerationDocument) -> KubeToleration:
    return KubeToleration(key=said.key, value=said.value or "", effect=said.effect or "")
