"""The role: enough for all that is made and read, and not one right more."""

from typing import Any

import pytest
from tests.unit.sites.kube.submissions import LEAST

from gridloom.sites.kube.render import Form, manifests
from gridloom.sites.kube.role import Access, role_manifests

WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def rules(access: Access, kind: str) -> list[dict[str, Any]]:
    (role,) = [one for one in role_manifests(access) if one["kind"] == kind]
    found: list[dict[str, Any]] = role["rules"]
    return found


def allowed(access: Access, kind: str) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules(access, kind)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("form", Form)
def test_what_a_form_makes_may_be_made_and_deleted(form: Form) -> None:
    rights = allowed(Access(namespace="n", forms=(form,)), "Role")
    for manifest in manifests(LEAST, form):
        group = manifest["apiVersion"].rpartition("/")[0]
        resource = f"{manifest['kind'].lower()}s"
        assert {"get", "list", "watch", "create", "patch", "delete"} == rights[group, resource]
    written = {key for key, verbs in rights.items() if verbs & WRITES}
    assert len(written) == len(manifests(LEAST, form))


def test_the_cluster_is_only_read() -> None:
    rights = allowed(Access(namespace="n", forms=tuple(Form)), "ClusterRole")
    assert ("", "nodes") in rights
    assert all(verbs == {"get", "list", "watch"} for verbs in rights.values())


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_nothing_is_granted_wholesale(kind: str) -> None:
    for group, resource in allowed(Access(namespace="n", forms=tuple(Form)), kind):
        assert "*" not in group + resource
        assert resource not in ("secrets", "pods/exec", "configmaps", "roles", "nodes/proxy")


def test_without_kueue_nothing_of_it_is_read() -> None:
    access = Access(namespace="n", kueue=False)
    for kind in ("Role", "ClusterRole"):
        assert not any("kueue" in group for group, _ in allowed(access, kind))


def test_bindings_bind_the_account_to_the_roles() -> None:
    by_kind = {one["kind"]: one for one in role_manifests(Access(name="g", namespace="n"))}
    account = {"kind": "ServiceAccount", "name": "g", "namespace": "n"}
    for kind in ("Role", "ClusterRole"):
        binding = by_kind[f"{kind}Binding"]
        assert binding["subjects"] == [account]
        assert binding["roleRef"]["name"] == by_kind[kind]["metadata"]["name"]
    assert by_kind["ClusterRole"]["metadata"]["name"] == "g-n"
