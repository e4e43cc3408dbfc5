"""From a submission to a TrainJob of Kubeflow's Trainer with a runtime of its own (pure).

A TrainJob carries what differs between jobs (image, command, variables, resources, nodes); pods,
volumes, tolerations and what a failure means belong to the TrainingRuntime that it refers to.
"""

from typing import Any

from gridloom.sites.kube.labels import TRAINER_STEP_LABEL
from gridloom.sites.kube.render_jobset import job_set_spec
from gridloom.sites.kube.render_pod import (
    Manifest,
    all_labels,
    container_env,
    container_resources,
    literal,
    object_metadata,
)
from gridloom.sites.kube.submission import Submission

_API_GROUP = "trainer.kubeflow.org"
_ITEMS_MAX = 128
"""Words of a command, or variables, that a TrainJob takes; its runtime, which says them too, takes
more."""


def training_runtime(submission: Submission) -> Manifest:
    """Return the runtime: a template of a JobSet, with no framework's own way to start ranks."""
    spec = job_set_spec(submission, {TRAINER_STEP_LABEL: "trainer"})
    return {
        "apiVersion": f"{_API_GROUP}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {
            "name": submission.name,
            "namespace": submission.namespace,
            "labels": all_labels(submission),
        },
        "spec": {"mlPolicy": {"numNodes": submission.replicas}, "template": {"spec": spec}},
    }


def train_job(submission: Submission) -> Manifest:
    """Return the TrainJob."""
    trainer = {
        "image": submission.image,
        "command": [literal(word) for word in submission.command],
        "env": container_env(submission),
        "numNodes": submission.replicas,
        "resourcesPerNode": container_resources(submission),
    }
    runtime = {"apiGroup": _API_GROUP, "kind": "TrainingRuntime", "name": submission.name}
    return {
        "apiVersion": f"{_API_GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": object_metadata(submission),
        "spec": {
            **({"suspend": True} if submission.queue else {}),
            "runtimeRef": runtime,
            "trainer": {key: value for key, value in trainer.items() if _fits(value)},
        },
    }


def _fits(value: Any) -> bool:
    return bool(value) and not (isinstance(value, list) and len(value) > _ITEMS_MAX)
