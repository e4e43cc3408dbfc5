"""From a submission to a JobSet, which gives its pods names without a Service of ours (pure)."""

from gridloom.sites.kube.render_job import job_spec
from gridloom.sites.kube.render_pod import Manifest, all_labels, object_metadata
from gridloom.sites.kube.submission import Submission

REPLICATED_JOB = "node"
"""Name of the one replicated job; Kubeflow's Trainer calls it so, too."""


def job_set(submission: Submission) -> Manifest:
    """Return the JobSet of one Job with one pod a node."""
    spec = job_set_spec(submission)
    if submission.queue:  # Kueue starts it
        spec = {"suspend": True, **spec}
    if submission.keep_s is not None:
        spec["ttlSecondsAfterFinished"] = submission.keep_s
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": object_metadata(submission),
        "spec": spec,
    }


def job_set_spec(submission: Submission, job_labels: dict[str, str] | None = None) -> Manifest:
    """Return the part that a JobSet has in common with what the Trainer makes one from."""
    return {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": submission.name,
        },
        "failurePolicy": _failure_policy(submission),
        "successPolicy": {"operator": "All"},
        "replicatedJobs": [
            {
                "name": REPLICATED_JOB,
                "replicas": 1,
                "template": {
                    "metadata": {"labels": {**all_labels(submission), **(job_labels or {})}},
                    "spec": job_spec(submission),
                },
            }
        ],
    }


def _failure_policy(submission: Submission) -> Manifest:
    """All pods start again together, but never after an exit that another start cannot mend."""
    policy: Manifest = {"maxRestarts": submission.restarts}
    if submission.restarts:
        final = {"name": "final", "action": "FailJobSet"}
        policy["rules"] = [{**final, "onJobFailureReasons": ["PodFailurePolicy"]}]
    return policy
