"""From a submission to an Indexed Job of Kubernetes itself and its headless Service (pure)."""

from gridloom.sites.kube.render_pod import (
    CONTAINER,
    Manifest,
    all_labels,
    fence_labels,
    object_metadata,
    pod_template,
)
from gridloom.sites.kube.submission import Disruption, Submission
from gridloom.wire.launch import EXIT_CONFIG, EXIT_IO, EXIT_POISONED, EXIT_STOPPED

FINAL_EXITS = (EXIT_IO, EXIT_STOPPED, EXIT_CONFIG, EXIT_POISONED)
"""Exit codes after which the same pod again would end the same way, or was not wanted any more."""


def job(submission: Submission) -> Manifest:
    """Return the Job: one pod a node, all at once, numbered from 0."""
    spec = job_spec(submission)
    if submission.queue:  # Kueue starts it
        spec = {"suspend": True, **spec}
    if submission.keep_s is not None:
        spec["ttlSecondsAfterFinished"] = submission.keep_s
    spec["backoffLimit"] = submission.restarts
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": object_metadata(submission),
        "spec": spec,
    }


def service(submission: Submission) -> Manifest:
    """Return the headless Service that gives every pod of the Job a name before it is ready."""
    port = {"name": "rendezvous", "port": submission.port, "targetPort": submission.port}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": submission.name,
            "namespace": submission.namespace,
            "labels": all_labels(submission),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": fence_labels(submission),
            **({"ports": [port]} if submission.port else {}),
        },
    }


def job_spec(submission: Submission) -> Manifest:
    """Return the part that a Job alone and a Job inside a JobSet have in common."""
    deadline = {"activeDeadlineSeconds": submission.deadline_s} if submission.deadline_s else {}
    return {
        "parallelism": submission.replicas,
        "completions": submission.replicas,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **deadline,
        # Two pods with one index would be two writers of one rank
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules(submission)},
        "template": pod_template(submission),
    }


def _failure_rules(submission: Submission) -> list[Manifest]:
    """The first rule that fits decides, so that a pod that was taken away is not called failed."""
    action = "FailJob" if submission.disruption is Disruption.FAIL else "Ignore"
    exits = {"containerName": CONTAINER, "operator": "In", "values": sorted(FINAL_EXITS)}
    taken = [{"type": "DisruptionTarget", "status": "True"}]
    return [
        {"action": action, "onPodConditions": taken},
        # Kubernetes 1.28 requires the second list of every rule, even where it stands for nothing
        {"action": "FailJob", "onExitCodes": exits, "onPodConditions": []},
    ]
