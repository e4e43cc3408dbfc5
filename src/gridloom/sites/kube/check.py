"""Whether a cluster would take a submission: every problem at once, before anything is sent (pure).

The rules are those of the API server and of Kueue, so that what is wrong is told in gridloom's
words and not as the refusal of a manifest that nobody wrote by hand.
"""

import re
from collections.abc import Iterator, Mapping

from gridloom.base.errors import InputError, Problem
from gridloom.sites.kube.names import NAME_MAX
from gridloom.sites.kube.quantity import parse_quantity
from gridloom.sites.kube.submission import EmptyVolume, HostVolume, Submission

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(
    rf"(?:{_LABEL}(?:\.{_LABEL})*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
_EXTENDED = re.compile(
    rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PULL_POLICIES = ("IfNotPresent", "Always", "Never")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def check(submission: Submission) -> None:
    """Return if a cluster would take the submission.

    Raises:
        InputError: It would not; every problem is named with its field.
    """
    problems = [
        *_names(submission),
        *_numbers(submission),
        *_labels(submission),
        *_resources(submission),
        *_container(submission),
        *_volumes(submission),
        *_tolerations(submission),
        *_topology(submission),
    ]
    if problems:
        raise InputError(problems)


def _problem(field: str, message: str, remedy: str = "") -> Problem:
    return Problem(message, remedy, field=field)


def _names(submission: Submission) -> Iterator[Problem]:
    name = submission.name
    if not (_DNS_LABEL.fullmatch(name) and name[0].isalpha()) or len(name) > NAME_MAX:
        rule = f"at most {NAME_MAX} lower-case letters, digits and hyphens, a letter first"
        yield _problem("name", f"{name!r} cannot name objects of a cluster", f"use {rule}")
    named = {
        "queue": submission.queue,
        "queue_priority": submission.queue_priority,
        "pod_priority": submission.pod_priority,
        "runtime_class": submission.runtime_class,
        "scheduler": submission.scheduler,
        "service_account": submission.service_account,
        **{f"pull_secrets[{i}]": name for i, name in enumerate(submission.pull_secrets)},
        **{f"secrets[{i}].secret": one.secret for i, one in enumerate(submission.secrets)},
        **{f"networks[{i}].name": one.name for i, one in enumerate(submission.networks)},
    }
    for field, value in {k: v for k, v in named.items() if v}.items():
        if not _DNS_NAME.fullmatch(value):
            yield _problem(field, f"{value!r} cannot be the name of an object")
    if not _DNS_LABEL.fullmatch(submission.namespace):
        yield _problem("namespace", f"{submission.namespace!r} cannot be the name of a namespace")
    if submission.queue_priority and not submission.queue:
        yield _problem("queue_priority", "it counts only in a queue", "name a queue too")


def _numbers(submission: Submission) -> Iterator[Problem]:
    least = {
        "replicas": (submission.replicas, 1),
        "attempt": (submission.attempt, 1),
        "life": (submission.life, 1),
        "epoch": (submission.epoch, 0),
        "cpu_millis": (submission.cpu_millis, 0),
        "memory_bytes": (submission.memory_bytes, 0),
        "grace_s": (submission.grace_s, 0),
        "deadline_s": (submission.deadline_s, 0),
        "restarts": (submission.restarts, 0),
        "keep_s": (submission.keep_s or 0, 0),
        "topology.slice_size": (submission.topology.slice_size, 0),
    }
    for field, (value, low) in least.items():
        if value < low:
            yield _problem(field, f"{value} is less than {low}")
    if submission.port != 0 and not 1 <= submission.port <= 65535:
        yield _problem("port", f"{submission.port} is no port", "use 1 to 65535")


def _labels(submission: Submission) -> Iterator[Problem]:
    for field, mapping in (
        ("labels", submission.labels),
        ("node_selector", submission.node_selector),
    ):
        yield from _keys(field, mapping)
        for key, value in mapping.items():
            if not _VALUE.fullmatch(value):
                rule = "use at most 63 letters, digits, '-', '_' and '.', no sign first or last"
                yield _problem(f"{field}.{key}", f"{value!r} cannot be the value of a label", rule)
    yield from _keys("annotations", submission.annotations)
    if not submission.job_id or not _VALUE.fullmatch(submission.job_id):
        yield _problem("job_id", f"{submission.job_id!r} cannot be the value of a label")


def _keys(field: str, mapping: Mapping[str, str]) -> Iterator[Problem]:
    for key in mapping:
        if not _KEY.fullmatch(key):
            yield _problem(f"{field}.{key}", f"{key!r} cannot name a label or annotation")


def _resources(submission: Submission) -> Iterator[Problem]:
    accelerators = submission.accelerators
    counts = {"accelerators.count": accelerators.count} if accelerators else {}
    names = {"accelerators.resource": accelerators.resource} if accelerators else {}
    counts |= {f"rdma.{name}": count for name, count in submission.rdma.items()}
    names |= {f"rdma.{name}": name for name in submission.rdma}
    for field, count in counts.items():
        if count < 1:
            yield _problem(field, f"{count} devices cannot be asked for", "use 1 or more")
    for field, name in names.items():
        if not _EXTENDED.fullmatch(name):
            yield _problem(field, f"{name!r} is no resource of a vendor", "as nvidia.com/gpu")
    for name, quantity in submission.resources.items():
        if name in ("cpu", "memory") or not _KEY.fullmatch(name):
            yield _problem(f"resources.{name}", "cpu and memory have fields of their own")
        try:
            parse_quantity(quantity)
        except ValueError as bad:
            yield _problem(f"resources.{name}", str(bad))


def _container(submission: Submission) -> Iterator[Problem]:
    if not submission.image.strip():
        yield _problem("image", "a pod needs a container image")
    if not submission.command:
        yield _problem("command", "it is empty", "name the program and its arguments")
    if submission.pull_policy not in _PULL_POLICIES:
        known = ", ".join(_PULL_POLICIES)
        yield _problem("pull_policy", f"{submission.pull_policy!r} is none of {known}")
    seen: set[str] = set()
    variables = [*submission.environment, *submission.fields, *(s.name for s in submission.secrets)]
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            yield _problem(f"environment.{name}", f"{name!r} cannot name a variable")
        if name in seen:
            yield _problem(f"environment.{name}", "the variable is set twice")
        seen.add(name)


def _volumes(submission: Submission) -> Iterator[Problem]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, volume in enumerate(submission.volumes):
        field = f"volumes[{index}]"
        if not _DNS_LABEL.fullmatch(volume.name):
            yield _problem(f"{field}.name", f"{volume.name!r} cannot name a volume")
        if volume.name in names:
            yield _problem(f"{field}.name", f"two volumes are called {volume.name!r}")
        if not volume.path.startswith("/") or ":" in volume.path:
            yield _problem(f"{field}.path", f"{volume.path!r} is no absolute path without colon")
        if volume.path in paths:
            yield _problem(f"{field}.path", f"two volumes are mounted at {volume.path!r}")
        if isinstance(volume, HostVolume) and not volume.host_path.startswith("/"):
            yield _problem(f"{field}.host_path", f"{volume.host_path!r} is no absolute path")
        if isinstance(volume, EmptyVolume) and volume.size_bytes < 0:
            yield _problem(f"{field}.size_bytes", f"{volume.size_bytes} is less than 0")
        names.add(volume.name)
        paths.add(volume.path)


def _tolerations(submission: Submission) -> Iterator[Problem]:
    for index, toleration in enumerate(submission.tolerations):
        field = f"tolerations[{index}]"
        if toleration.effect not in _EFFECTS:
            known = ", ".join(filter(None, _EFFECTS))
            yield _problem(f"{field}.effect", f"{toleration.effect!r} is none of {known}")
        if not toleration.key and not toleration.exists:
            yield _problem(f"{field}.key", "it is empty", "with exists, it stands for every key")
        if toleration.exists and toleration.value:
            yield _problem(f"{field}.value", "with exists, every value is tolerated")
        if toleration.seconds is not None and toleration.effect != "NoExecute":
            yield _problem(f"{field}.seconds", "only NoExecute taints are borne for a time")


def _topology(submission: Submission) -> Iterator[Problem]:
    topology = submission.topology
    levels = {
        "required": topology.required,
        "preferred": topology.preferred,
        "slice_level": topology.slice_level,
    }
    for field, level in levels.items():
        if level and not _KEY.fullmatch(level):
            yield _problem(f"topology.{field}", f"{level!r} is no node label")
    if any(levels.values()) and not submission.queue:
        yield _problem("topology", "only Kueue places by topology", "name a queue too")
    if topology.required and topology.preferred:
        yield _problem("topology", "a level is either required or preferred", "drop one of them")
    if bool(topology.slice_level) != bool(topology.slice_size):
        yield _problem("topology", "slices need both slice_level and slice_size")
    if topology.slice_size > submission.replicas:
        whole = f"a slice of {topology.slice_size} is larger than all {submission.replicas} pods"
        yield _problem("topology.slice_size", whole)
