"""What is known of a cluster when a site is looked at."""

import msgspec

from gridloom.sites.kube.parse_kueue import ClusterQueue, LocalQueue
from gridloom.sites.kube.parse_nodes import KubeNode


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a cluster.

    Attributes:
        trouble: Why the API could not be asked; empty when it could, and else nothing else is
            known.
        release: As ``v1.36.2``.
        told_s: The API server's time when it was asked; ``None`` if it does not tell.
        asked_s: Our time then: before and after the question.
        denied: What the account may not do, as ``create jobs.batch``.
        nodes: Those with the labels that pods of the site want; ``None`` if they may not be read.
        labels: Values that nodes have of each label that these want.
        has_kueue: Whether Kueue's kinds are served.
        queues: LocalQueues of the namespace; ``None`` if they may not be read.
        cluster_queue: Behind the site's LocalQueue, if that could be read.
        flavors: ResourceFlavors by name; ``None`` if they may not be read.
        missing_claims: PersistentVolumeClaims that are not there, as far as that may be known.
        refusal: Why the API would not take a job of the site; empty if it would.
        refusal_code: HTTP code of that.
        warnings: What it warns of.
    """

    trouble: str = ""
    release: str = ""
    told_s: float | None = None
    asked_s: tuple[float, float] = (0.0, 0.0)
    denied: tuple[str, ...] = ()
    nodes: tuple[KubeNode, ...] | None = None
    labels: dict[str, tuple[str, ...]] = {}
    has_kueue: bool = False
    queues: tuple[LocalQueue, ...] | None = None
    cluster_queue: ClusterQueue | None = None
    flavors: tuple[str, ...] | None = None
    missing_claims: tuple[str, ...] = ()
    refusal: str = ""
    refusal_code: int = 0
    warnings: tuple[str, ...] = ()
