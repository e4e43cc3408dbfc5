"""From the orders of the tasks that start together at a site to one job of its cluster (pure).

All of them are one Job, JobSet or TrainJob with one pod for each task. Which of ours a pod gets is
decided by its number. Pods of one job are alike: each asks for as many devices as the largest task.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from gridloom.model.inventory import CPU, KubeAccess, KubeVolume
from gridloom.sites.kube.inventory import tolerations_of
from gridloom.sites.kube.labels import PLANE_LABEL, RUN_LABEL, SITE_LABEL
from gridloom.sites.kube.names import object_name
from gridloom.sites.kube.quantity import amount, parse_quantity
from gridloom.sites.kube.render import Form
from gridloom.sites.kube.submission import (
    Accelerators,
    ClaimVolume,
    EmptyVolume,
    HostVolume,
    NetworkAttachment,
    SecretVariable,
    SecretVolume,
    Submission,
    Topology,
    Volume,
)
from gridloom.sites.tasks import plane_of
from gridloom.wire.agent import (
    ADDRESS_VARIABLE,
    NODE_VARIABLES,
    Gang,
    TaskOrder,
    TaskRef,
    gang_directory,
    task_directory,
)

MANIFESTS_FILE = "manifests.yaml"
HANDED_FILE = "kubernetes.json"
PLACED_FILE = "job.json"

FORMS = {"job": Form.JOB, "jobset": Form.JOB_SET, "trainjob": Form.TRAIN_JOB}
"""What the grid file calls each form."""

_GPU = "nvidia.com/gpu"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where programs look for it, not a file of ours


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be handed in, written down before it is.

    Attributes:
        access: How.
        name: Of the objects.
        grace_s: How long tasks may take to save.
    """

    access: KubeAccess
    name: str
    grace_s: float = 0.0


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Which job of the cluster a gang is.

    Attributes:
        uid: What the cluster calls it.
    """

    uid: str


def gang(orders: Sequence[TaskOrder], runs: PurePath, access: KubeAccess) -> Gang:
    """Return what the supervisors must know to tell which of the tasks is theirs."""
    directories = tuple(str(task_directory(runs, order.task)) for order in orders)
    return Gang(directories=directories, network=access.network)


def name_of(task: TaskRef, plane: str) -> str:
    """Return the name of the objects of a task's gang."""
    scope = f"{plane}/{task.site}"
    return object_name(task.job_id, task.attempt, life=task.life, scope=scope)


def submission(orders: Sequence[TaskOrder], runs: PurePath, access: KubeAccess) -> Submission:
    """Return what the cluster is asked for."""
    first = orders[0]
    count = max(len(_devices(order)) for order in orders)
    return replace(
        pods(first.task, runs, access, first.accelerator, devices=count),
        replicas=len(orders),
        command=supervisor_argv(access.python, gang_directory(runs, first.task)),
        grace_s=max(order.grace_s for order in orders),
    )


def pods(
    task: TaskRef, runs: PurePath, access: KubeAccess, accelerator: str, *, devices: int
) -> Submission:
    """Return what the cluster is asked for by one pod as those of a site are, with no command.

    Args:
        task: By which it is known again.
        runs: Directory of all run directories, which it sees.
        access: How jobs are handed in.
        accelerator: Kind of its devices.
        devices: How many of them.
    """
    plane = plane_of(runs)
    name = name_of(task, plane)
    sizes = _sizes(access.resources)
    if accelerator == CPU:
        sizes.setdefault("cpu", 1000 * devices)
    return Submission(
        name=name,
        namespace=access.namespace,
        job_id=task.job_id,
        attempt=task.attempt,
        epoch=task.epoch,
        life=task.life,
        labels={**access.labels, PLANE_LABEL: plane, SITE_LABEL: task.site, RUN_LABEL: name},
        annotations=access.annotations,
        queue=access.queue,
        queue_priority=access.queue_priority,
        pod_priority=access.priority_class,
        topology=Topology(required=access.topology_required, preferred=access.topology_preferred),
        replicas=1,
        accelerators=_accelerators(accelerator, devices, access),
        cpu_millis=sizes.get("cpu", 0),
        memory_bytes=sizes.get("memory", 0),
        resources={k: v for k, v in access.resources.items() if k not in sizes},
        image=access.image,
        pull_policy=access.pull_policy,
        pull_secrets=access.pull_secrets,
        command=(),
        environment=access.environment,
        secrets=tuple(_secret(*one) for one in sorted(access.secrets.items())),
        fields={NODE_VARIABLES[1]: "spec.nodeName", ADDRESS_VARIABLE: "status.podIP"},
        volumes=_volumes(runs, access),
        tolerations=tolerations_of(access),
        node_selector=access.node_selector,
        runtime_class=access.runtime_class,
        service_account=access.service_account,
        networks=tuple(map(_network, access.networks)),
        host_network=access.host_network,
        deadline_s=int(access.time_limit_s),
        keep_s=int(access.keep_s),
    )


def supervisor_argv(python: str, directory: PurePath) -> tuple[str, ...]:
    """Return what each pod runs: the supervisor of whichever task of the gang is its own."""
    return (python, "-P", "-m", "gridloom.agent", "--gang", str(directory))


def _devices(order: TaskOrder) -> set[int]:
    return {device for rank in order.ranks for device in rank.devices}


def _accelerators(kind: str, count: int, access: KubeAccess) -> Accelerators | None:
    if kind == CPU:
        return None
    return Accelerators(resource=access.devices.get(kind, _GPU), count=count)


def _sizes(resources: Mapping[str, str]) -> dict[str, int]:
    return {
        name: amount(name, parse_quantity(resources[name]))
        for name in ("cpu", "memory")
        if name in resources
    }


def _secret(variable: str, place: str) -> SecretVariable:
    secret, _, key = place.partition("/")
    return SecretVariable(name=variable, secret=secret, key=key)


def _network(text: str) -> NetworkAttachment:
    place, _, interface = text.partition("@")
    namespace, _, name = place.rpartition("/")
    return NetworkAttachment(name=name, namespace=namespace, interface=interface)


def _volumes(runs: PurePath, access: KubeAccess) -> tuple[Volume, ...]:
    """Return what pods see: first of all the run directories, where our orders say they are."""
    given = access.runs if access.runs and (access.runs.claim or access.runs.host) else None
    found = [_volume("runs", str(runs), given or KubeVolume(host=str(runs)))]
    for number, (path, volume) in enumerate(sorted(access.volumes.items())):
        found.append(_volume(f"volume-{number}", path, volume))
    if _SHARED_MEMORY not in access.volumes:  # containers have 64 MiB of it otherwise
        found.append(EmptyVolume(name="shm", path=_SHARED_MEMORY, in_memory=True))
    return tuple(found)


def _volume(name: str, path: str, said: KubeVolume) -> Volume:
    if said.claim:
        return ClaimVolume(
            name=name,
            claim=said.claim,
            path=path,
            sub_path=said.sub_path,
            read_only=said.read_only,
        )
    if said.host:
        return HostVolume(name=name, host_path=said.host, path=path, read_only=said.read_only)
    if said.secret:
        return SecretVolume(name=name, secret=said.secret, path=path)
    return EmptyVolume(name=name, path=path, in_memory=True, size_bytes=said.memory_bytes)
