"""What a real server refuses of a pod's spec beyond its schema."""

import re
from collections.abc import Generator, Iterator

from tests.fakes.kube_api.quantity import quantity
from tests.fakes.kube_api.status import Obj, cause, required, unsupported

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PORT = re.compile(r"^(?=.*[a-z])[a-z0-9]([a-z0-9]|-(?!-))*(?<!-)$")
_POLICIES = ("Always", "OnFailure", "Never")
_PULL = ("Always", "IfNotPresent", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def check_pod_spec(spec: Obj, path: str) -> Iterator[Obj]:
    """Yield what is wrong with a pod's spec, as causes of an ``Invalid``."""
    if spec["restartPolicy"] not in _POLICIES:
        yield unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _POLICIES)
    for name in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"):
        if spec.get(name, 1) < (1 if name.startswith("active") else 0):
            yield cause(f"{path}.{name}", f"Invalid value: {spec[name]}: must be positive")
    for name in ("hostname", "subdomain"):
        if name in spec and (not _NAME.match(spec[name]) or len(spec[name]) > 63):
            yield cause(f"{path}.{name}", f'Invalid value: "{spec[name]}": must be a DNS label')
    yield from _containers(spec, path)
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{at}]")


def _containers(spec: Obj, path: str) -> Iterator[Obj]:
    volumes = yield from _volumes(spec, path)
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for part in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(part) or ()):
            here, name = f"{path}.{part}[{at}]", container.get("name", "")
            if name in seen:
                yield cause(f"{here}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
            seen.add(name)
            yield from _container(container, here, volumes)


def _volumes(spec: Obj, path: str) -> Generator[Obj, None, set[str]]:
    names: set[str] = set()
    for at, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{path}.volumes[{at}]", volume.get("name", "")
        if not _NAME.match(name) or len(name) > 63:
            yield cause(f"{here}.name", f'Invalid value: "{name}": must be a DNS label')
        if name in names:
            yield cause(f"{here}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        names.add(name)
        sources = [key for key in volume if key != "name"]
        if len(sources) > 1:
            yield cause(
                f"{here}.{sources[1]}",
                "Forbidden: may not specify more than 1 volume type",
                "FieldValueForbidden",
            )
    return names


def _container(container: Obj, path: str, volumes: set[str]) -> Iterator[Obj]:
    name = container.get("name", "")
    if not _NAME.match(name) or len(name) > 63:
        yield cause(f"{path}.name", f'Invalid value: "{name}": must be a DNS label')
    if not container.get("image"):
        yield required(f"{path}.image")
    pull = container["imagePullPolicy"]
    if pull not in _PULL:
        yield unsupported(f"{path}.imagePullPolicy", pull, _PULL)
    yield from _env(container, path)
    yield from _mounts(container, path, volumes)
    yield from _resources(container["resources"], f"{path}.resources")
    for at, port in enumerate(container.get("ports") or ()):
        here = f"{path}.ports[{at}]"
        if not 1 <= port["containerPort"] <= 65535:
            yield cause(f"{here}.containerPort", "Invalid value: must be between 1 and 65535")
        if "name" in port and (len(port["name"]) > 15 or not _PORT.match(port["name"])):
            yield cause(
                f"{here}.name",
                f'Invalid value: "{port["name"]}": must be at most 15 characters of a-z, 0-9 and -',
            )


def _env(container: Obj, path: str) -> Iterator[Obj]:
    for at, one in enumerate(container.get("env") or ()):
        here, name = f"{path}.env[{at}]", one.get("name", "")
        if not name:
            yield required(f"{here}.name")
        elif "=" in name or not name.isprintable():
            yield cause(f"{here}.name", f'Invalid value: "{name}": must be printable, without =')
        if one.get("value") and one.get("valueFrom"):
            yield cause(
                f"{here}.valueFrom", "Invalid value: may not be specified when `value` is not empty"
            )
        if "valueFrom" in one and len(one["valueFrom"]) != 1:
            yield cause(f"{here}.valueFrom", "Invalid value: must specify exactly one source")


def _mounts(container: Obj, path: str, volumes: set[str]) -> Iterator[Obj]:
    places: set[str] = set()
    for at, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{path}.volumeMounts[{at}]"
        if mount["name"] not in volumes:
            yield cause(f"{here}.name", f'Not found: "{mount["name"]}"', "FieldValueNotFound")
        if mount["mountPath"] in places:
            yield cause(
                f"{here}.mountPath", f'Invalid value: "{mount["mountPath"]}": must be unique'
            )
        places.add(mount["mountPath"])


def _resources(resources: Obj, path: str) -> Iterator[Obj]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for part, sizes in (("requests", requests), ("limits", limits)):
        for name, size in sizes.items():
            here = f"{path}.{part}.{name}"
            is_standard = name in _NATIVE or "/" in name or name.startswith("hugepages-")
            if not is_standard:
                yield cause(
                    here,
                    f'Invalid value: "{name}": must be a standard resource for '
                    "containers or fully qualified",
                )
            if quantity(size) < 0:
                yield cause(here, f'Invalid value: "{size}": must be greater than or equal to 0')
            if _is_extended(name) and quantity(size).denominator != 1:
                yield cause(here, f'Invalid value: "{size}": must be an integer')
    for name, size in requests.items():
        here = f"{path}.requests.{name}"
        if _is_extended(name) and quantity(limits.get(name, -1)) != quantity(size):
            yield cause(here, f'Invalid value: "{size}": must be equal to {name} limit')
        elif name in limits and quantity(size) > quantity(limits[name]):
            told = f"must be less than or equal to {name} limit of {limits[name]}"
            yield cause(here, f'Invalid value: "{size}": {told}')


def _is_extended(name: str) -> bool:
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io")


def _toleration(toleration: Obj, path: str) -> Iterator[Obj]:
    operator = toleration.get("operator", "Equal")
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
    if not toleration.get("key") and operator != "Exists":
        yield cause(
            f"{path}.operator",
            f'Invalid value: "{operator}": operator must be Exists '
            'when `key` is empty, which means "match all"',
        )
    if operator == "Exists" and toleration.get("value"):
        yield cause(
            f"{path}.operator",
            "Invalid value: \"Exists\": value must be empty when `operator` is 'Exists'",
        )
    effect = toleration.get("effect", "")
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{path}.effect", effect, _EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield cause(
            f"{path}.effect",
            f"Invalid value: \"{effect}\": effect must be 'NoExecute' "
            "when `tolerationSeconds` is set",
        )
