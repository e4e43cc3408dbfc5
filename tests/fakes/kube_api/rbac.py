"""Who may do what: Roles, ClusterRoles and their bindings, evaluated as a real server does."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fakes.kube_api.kernel import AUTHENTICATED, MASTERS, Kernel, User
from tests.fakes.kube_api.selectors import object_matcher
from tests.fakes.kube_api.status import Obj

_GROUP = "rbac.authorization.k8s.io"
_OPEN_PATHS = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")
_OPEN_KINDS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")


@dataclass(frozen=True)
class Deed:
    """What a user wants to do to a resource.

    Attributes:
        resource: The plural, with the subresource: ``pods/log``.
        namespace: Empty for cluster-wide deeds.
        name: Empty where no one object is named.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def service_account(namespace: str, name: str) -> User:
    """Return the user that a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def may(kernel: Kernel, user: User, deed: Deed) -> bool:
    """Say whether a rule allows it."""
    if MASTERS in user.groups:
        return True
    if deed.resource in _OPEN_KINDS and AUTHENTICATED in user.groups:
        return True
    return any(_allows(rule, deed) for rule in rules_of(kernel, user, deed.namespace))


def may_path(user: User, path: str) -> bool:
    """Say whether a path that is no resource may be read: discovery is open to whoever is known."""
    is_open = AUTHENTICATED in user.groups and path.startswith(_OPEN_PATHS)
    return is_open or MASTERS in user.groups


def rules_of(kernel: Kernel, user: User, namespace: str) -> Iterator[Obj]:
    """Yield the rules that hold for a user in a namespace."""
    for binding in kernel.store.all((_GROUP, "clusterrolebindings")):
        if _binds(binding, user):
            yield from _rules(kernel, binding["roleRef"], "")
    if namespace:
        for binding in kernel.store.all((_GROUP, "rolebindings"), namespace):
            if _binds(binding, user):
                yield from _rules(kernel, binding["roleRef"], namespace)


def _binds(binding: Obj, user: User) -> bool:
    own = binding["metadata"].get("namespace", "")
    return any(_is(one, user, own) for one in binding.get("subjects") or ())


def _is(subject: Obj, user: User, own: str) -> bool:
    kind, name = subject["kind"], subject["name"]
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        name = f"system:serviceaccount:{subject.get('namespace', own)}:{name}"
    return bool(name == user.name)


def _rules(kernel: Kernel, reference: Obj, namespace: str) -> list[Obj]:
    is_cluster = reference["kind"] == "ClusterRole"
    plural = "clusterroles" if is_cluster else "roles"
    place = ("" if is_cluster else namespace, reference["name"])
    role = kernel.store.get((_GROUP, plural), place)
    if role is None:  # a binding may come before its role, and then gives nothing
        return []
    found: list[Obj] = list(role.get("rules") or ())
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        fits = object_matcher(selector)
        for other in kernel.store.all((_GROUP, "clusterroles")):
            if fits(other) and other["metadata"]["name"] != reference["name"]:
                found += other.get("rules") or ()
    return found


def _allows(rule: Obj, deed: Deed) -> bool:
    names = rule.get("resourceNames") or ()
    if names and deed.name not in names:
        return False
    return (
        _has(rule.get("verbs"), deed.verb)
        and _has(rule.get("apiGroups"), deed.group)
        and _has_resource(rule.get("resources"), deed.resource)
    )


def _has(values: list[str] | None, one: str) -> bool:
    return bool(values) and ("*" in (values or ()) or one in (values or ()))


def _has_resource(values: list[str] | None, resource: str) -> bool:
    _, _, sub = resource.partition("/")
    return _has(values, resource) or (bool(sub) and f"*/{sub}" in (values or ()))
