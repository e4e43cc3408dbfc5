"""From a submission to all that is sent to a cluster, and to the text that people read (pure)."""

import re
from collections.abc import Iterable
from enum import StrEnum

import yaml

from gridloom.sites.kube.check import check
from gridloom.sites.kube.render_job import job, service
from gridloom.sites.kube.render_jobset import REPLICATED_JOB, job_set
from gridloom.sites.kube.render_pod import Manifest
from gridloom.sites.kube.render_trainjob import train_job, training_runtime
from gridloom.sites.kube.submission import Submission

_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
_SPOKEN_FOR = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class Form(StrEnum):
    """What an attempt is handed in as."""

    JOB = "job"
    """An Indexed Job of Kubernetes itself, with a headless Service."""
    JOB_SET = "job_set"
    """A JobSet."""
    TRAIN_JOB = "train_job"
    """A TrainJob of Kubeflow's Trainer, with a TrainingRuntime."""


def manifests(submission: Submission, form: Form) -> tuple[Manifest, ...]:
    """Return the objects of the attempt, in the order in which they must be made.

    Raises:
        InputError: A cluster would not take them; every problem is named.
    """
    check(submission)
    match form:
        case Form.JOB:
            return (service(submission), job(submission))
        case Form.JOB_SET:
            return (job_set(submission),)
        case Form.TRAIN_JOB:
            return (training_runtime(submission), train_job(submission))


def hosts(submission: Submission, form: Form) -> tuple[str, ...]:
    """Return the name under which every pod of the attempt is reached, by its number."""
    prefix = submission.name if form is Form.JOB else f"{submission.name}-{REPLICATED_JOB}-0"
    domain = f"{submission.name}.{submission.namespace}.svc"
    return tuple(f"{prefix}-{index}.{domain}" for index in range(submission.replicas))


def owner_patch(owner: Manifest, uid: str) -> Manifest:
    """Return the merge patch that makes an object go when its owner goes.

    Args:
        owner: The object that was made, as of ``manifests``.
        uid: What the cluster calls it.
    """
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid,
    }
    return {"metadata": {"ownerReferences": [reference]}}


def to_yaml(objects: Iterable[Manifest]) -> str:
    """Return objects as one file for ``kubectl apply -f``.

    Text that some reader of YAML would take for a number or a truth value stands in quotes.
    """
    return yaml.dump_all(
        objects,
        Dumper=_Dumper,
        explicit_start=True,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(data) and data.lower() not in _SPOKEN_FOR
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')


_Dumper.add_representer(str, _text)
