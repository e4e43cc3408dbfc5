"""Names of the labels and annotations that gridloom and Kueue put on objects (pure)."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "gridloom"
JOB_LABEL = "gridloom/job"
ATTEMPT_LABEL = "gridloom/attempt"
EPOCH_LABEL = "gridloom/epoch"
LIFE_LABEL = "gridloom/life"
PLANE_LABEL = "gridloom/plane"
SITE_LABEL = "gridloom/site"
RUN_LABEL = "gridloom/run"

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"

NETWORKS = "k8s.v1.cni.cncf.io/networks"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
TRAINER_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"

SITE_LABELS = (JOB_LABEL, ATTEMPT_LABEL, EPOCH_LABEL, LIFE_LABEL)
"""Labels that tell the objects of one life of one attempt from all others."""
