"""The rights that the driver needs in a cluster, and no others, as manifests (pure)."""

import msgspec

from gridloom.sites.kube.labels import MANAGED_BY, MANAGED_BY_LABEL
from gridloom.sites.kube.render import Form
from gridloom.sites.kube.render_pod import Manifest

_READ = ("get", "list", "watch")
_OWN = ("get", "list", "watch", "create", "patch", "delete")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what where.

    Attributes:
        name: Of the ServiceAccount, its roles and bindings.
        namespace: Where jobs are made, and where the account lives.
        forms: What attempts are handed in as.
        kueue: Whether queues are read.
    """

    name: str = "gridloom"
    namespace: str
    forms: tuple[Form, ...] = (Form.JOB,)
    kueue: bool = True


def role_manifests(access: Access) -> tuple[Manifest, ...]:
    """Return the account, what it may do in its namespace, and what it may read of the cluster.

    Nodes and what Kueue keeps for the whole cluster are only read. Nothing can be executed in a
    pod, no Secret be read, and nothing be changed outside the namespace.
    """
    wide = f"{access.name}-{access.namespace}"  # names of cluster roles are shared by all
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": access.name, "namespace": access.namespace}
    return (
        _object("v1", "ServiceAccount", access.name, access.namespace),
        {
            **_object(f"{rbac}/v1", "Role", access.name, access.namespace),
            "rules": _namespaced_rules(access),
        },
        {
            **_object(f"{rbac}/v1", "RoleBinding", access.name, access.namespace),
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": access.name},
            "subjects": [subject],
        },
        {
            **_object(f"{rbac}/v1", "ClusterRole", wide),
            "rules": _cluster_rules(access),
        },
        {
            **_object(f"{rbac}/v1", "ClusterRoleBinding", wide),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": wide},
            "subjects": [subject],
        },
    )


def _namespaced_rules(access: Access) -> list[Manifest]:
    rules = [
        _rule("", ("pods",), _READ),
        _rule("", ("pods/log",), ("get",)),
        _rule("", ("events",), _READ),
    ]
    if Form.JOB in access.forms:
        rules.append(_rule("", ("services",), _OWN))
        rules.append(_rule("batch", ("jobs",), _OWN))
    if Form.JOB_SET in access.forms:
        rules.append(_rule("jobset.x-k8s.io", ("jobsets",), _OWN))
    if Form.TRAIN_JOB in access.forms:
        rules.append(_rule("trainer.kubeflow.org", ("trainingruntimes", "trainjobs"), _OWN))
    if access.kueue:
        rules.append(_rule("kueue.x-k8s.io", ("localqueues", "workloads"), _READ))
    return rules


def _cluster_rules(access: Access) -> list[Manifest]:
    rules = [_rule("", ("nodes",), _READ)]
    if access.kueue:
        kinds = (
            "clusterqueues",
            "cohorts",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
        )
        rules.append(_rule("kueue.x-k8s.io", kinds, _READ))
    return rules


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Manifest:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Manifest:
    where = {"namespace": namespace} if namespace else {}
    label = {"labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **where, **label},
    }
