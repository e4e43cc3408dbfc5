"""From a submission to the pods' template, the same under every kind of job (pure)."""

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from gridloom.sites.kube import labels
from gridloom.sites.kube.quantity import bytes_quantity, cpu_quantity
from gridloom.sites.kube.submission import (
    ClaimVolume,
    EmptyVolume,
    HostVolume,
    NetworkAttachment,
    SecretVolume,
    Submission,
    Toleration,
    Volume,
)

Manifest = dict[str, Any]
"""An object of the API as plain data."""

CONTAINER = "node"
"""Name of the one container; Kubeflow's Trainer looks for it under this name."""

_HOOK_MARGIN_S = 5
"""How long after the grace the hook still waits: the supervisor kills what is left by then."""
_KILL_MARGIN_S = 10
"""How long after the grace the kubelet kills: never before the supervisor did."""


def object_metadata(submission: Submission) -> Manifest:
    """Return the metadata of an object of the attempt that Kueue is to queue."""
    queue = {
        labels.QUEUE_LABEL: submission.queue,
        labels.QUEUE_PRIORITY_LABEL: submission.queue_priority,
    }
    return _without_empty(
        {
            "name": submission.name,
            "namespace": submission.namespace,
            "labels": {**all_labels(submission), **_without_empty(queue)},
            "annotations": dict(submission.annotations),
        }
    )


def all_labels(submission: Submission) -> dict[str, str]:
    """Return the labels of everything that belongs to the attempt."""
    return {
        **submission.labels,
        labels.MANAGED_BY_LABEL: labels.MANAGED_BY,
        **fence_labels(submission),
    }


def fence_labels(submission: Submission) -> dict[str, str]:
    """Return the labels that only this life of this attempt has."""
    return {
        labels.JOB_LABEL: submission.job_id,
        labels.ATTEMPT_LABEL: str(submission.attempt),
        labels.EPOCH_LABEL: str(submission.epoch),
        labels.LIFE_LABEL: str(submission.life),
    }


def pod_template(submission: Submission) -> Manifest:
    """Return the template that all pods of the attempt are made from."""
    annotations = {**submission.annotations, **_topology(submission)}
    if submission.networks:
        annotations[labels.NETWORKS] = ",".join(map(_network, submission.networks))
    metadata = {"labels": all_labels(submission), "annotations": annotations}
    return {"metadata": _without_empty(metadata), "spec": _pod_spec(submission)}


def container_resources(submission: Submission) -> Manifest:
    """Return requests and limits, which are equal: nothing is shared, and nothing overcommitted."""
    wanted = dict(submission.resources)
    if submission.cpu_millis:
        wanted["cpu"] = cpu_quantity(submission.cpu_millis)
    if submission.memory_bytes:
        wanted["memory"] = bytes_quantity(submission.memory_bytes)
    if submission.accelerators:
        wanted[submission.accelerators.resource] = str(submission.accelerators.count)
    wanted |= {name: str(count) for name, count in submission.rdma.items()}
    ordered = dict(sorted(wanted.items()))
    return {"requests": ordered, "limits": dict(ordered)} if ordered else {}


def container_env(submission: Submission) -> list[Manifest]:
    """Return the container's variables, by name: literal ones, from the pod, and from Secrets."""
    found: dict[str, Manifest] = {
        name: {"value": literal(value)} for name, value in submission.environment.items()
    }
    for name, path in submission.fields.items():
        found[name] = {"valueFrom": {"fieldRef": {"fieldPath": path}}}
    for one in submission.secrets:
        found[one.name] = {"valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
    return [{"name": name, **value} for name, value in sorted(found.items())]


def literal(text: str) -> str:
    """Return ``text`` as the cluster must be told it: it would expand ``$(NAME)`` and ``$$``."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def stop_hook(submission: Submission) -> tuple[str, ...]:
    """Return the command that asks the supervisor to stop and waits until it has.

    The kubelet signals process 1 only, and only after this hook; where that is a shell or an init,
    the supervisor would never hear of it. The hook ends with the container, or with its patience.
    """
    patience_s = math.ceil(submission.grace_s) + _HOOK_MARGIN_S
    process = f"$(cat {shlex.quote(submission.supervisor_pid_file)})"
    script = (
        f'pid="{process}"; kill -TERM "$pid" || exit 0; left={patience_s}; '
        'while [ "$left" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do sleep 1; left=$((left-1)); done'
    )
    return ("/bin/sh", "-c", script)


def _pod_spec(submission: Submission) -> Manifest:
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(submission.grace_s) + _KILL_MARGIN_S,
        "subdomain": submission.name,
        "hostNetwork": submission.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if submission.host_network else "",
        "runtimeClassName": submission.runtime_class,
        "schedulerName": submission.scheduler,
        "priorityClassName": submission.pod_priority,
        "serviceAccountName": submission.service_account,
        "nodeSelector": dict(sorted(submission.node_selector.items())),
        "tolerations": _tolerations(submission),
        "imagePullSecrets": [{"name": name} for name in submission.pull_secrets],
        "containers": [_container(submission)],
        "volumes": [_volume(volume) for volume in submission.volumes],
    }
    # Training needs no access to the API, and no variable for each service of the namespace
    closed = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    return {**_without_empty(spec), **closed}


def _container(submission: Submission) -> Manifest:
    container = {
        "name": CONTAINER,
        "image": submission.image,
        "imagePullPolicy": submission.pull_policy,
        "command": [literal(word) for word in submission.command],
        "workingDir": submission.workdir,
        "env": container_env(submission),
        "ports": [{"name": "rendezvous", "containerPort": submission.port}],
        "resources": container_resources(submission),
        "volumeMounts": [_mount(volume) for volume in submission.volumes],
        "lifecycle": {"preStop": {"exec": {"command": list(stop_hook(submission))}}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if not submission.port:
        del container["ports"]
    if not submission.grace_s or not submission.supervisor_pid_file:
        del container["lifecycle"]
    if not submission.rdma:  # registering memory with a network card locks it
        del container["securityContext"]
    return _without_empty(container)


def _tolerations(submission: Submission) -> list[Manifest]:
    found = [_toleration(one) for one in submission.tolerations]
    if submission.accelerators:
        # Nodes are often tainted with the name of their accelerator, to keep others away
        own = Toleration(key=submission.accelerators.resource, exists=True, effect="NoSchedule")
        if _toleration(own) not in found:
            found.append(_toleration(own))
    return found


def _toleration(toleration: Toleration) -> Manifest:
    found = {
        "key": toleration.key,
        "operator": "Exists" if toleration.exists else "Equal",
        "value": toleration.value,
        "effect": toleration.effect,
    }
    seconds = {} if toleration.seconds is None else {"tolerationSeconds": toleration.seconds}
    return {**_without_empty(found), **seconds}


def _volume(volume: Volume) -> Manifest:
    source: Manifest
    match volume:
        case ClaimVolume():
            source = {"persistentVolumeClaim": {"claimName": volume.claim}}
        case HostVolume():
            kind = "Directory" if volume.must_exist else "DirectoryOrCreate"
            source = {"hostPath": {"path": volume.host_path, "type": kind}}
        case EmptyVolume():
            medium = "Memory" if volume.in_memory else ""
            limit = bytes_quantity(volume.size_bytes) if volume.size_bytes else ""
            source = {"emptyDir": _without_empty({"medium": medium, "sizeLimit": limit})}
        case _:
            source = {"secret": {"secretName": volume.secret}}
    return {"name": volume.name, **source}


def _mount(volume: Volume) -> Manifest:
    mount: Manifest = {"name": volume.name, "mountPath": volume.path}
    if isinstance(volume, SecretVolume) or getattr(volume, "read_only", False):
        mount["readOnly"] = True
    if isinstance(volume, ClaimVolume) and volume.sub_path:
        mount["subPath"] = volume.sub_path
    return mount


def _topology(submission: Submission) -> dict[str, str]:
    topology = submission.topology
    size = str(topology.slice_size) if topology.slice_size else ""
    found = {
        labels.REQUIRED_TOPOLOGY: topology.required,
        labels.PREFERRED_TOPOLOGY: topology.preferred,
        labels.SLICE_TOPOLOGY: topology.slice_level,
        labels.SLICE_SIZE: size,
    }
    return _without_empty(found)


def _network(network: NetworkAttachment) -> str:
    name = f"{network.namespace}/{network.name}" if network.namespace else network.name
    return f"{name}@{network.interface}" if network.interface else name


def _without_empty(mapping: Mapping[str, Any]) -> Manifest:
    """Leave out what is not said: empty text, lists and mappings, and what is false."""
    return {key: value for key, value in mapping.items() if value}
