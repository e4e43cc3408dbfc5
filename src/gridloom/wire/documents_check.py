"""What every document shares: its base model, its readable part, and errors in our own words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from gridloom.base.errors import Problem
from gridloom.wire.documents_values import WRONG, Value, did_you_mean, found
from gridloom.wire.source import Source
from gridloom.wire.source_tree import Path, dotted

Finding = tuple[Path, str, str]
"""Place, what was found, what would be right."""

_WORDS_OF_OTHERS = {
    "command": "run", "cmd": "run", "script": "run", "entrypoint": "run",
    "envs": "env", "environment": "env", "working_dir": "workdir", "working_directory": "workdir",
    "gpus": "resources.accelerators", "gpu": "resources.accelerators",
    "devices": "resources.accelerators", "num_gpus": "resources.accelerators",
    "num_nodes": "resources.accelerators", "time": "budget.max_time",
    "timeout": "budget.max_time", "max_duration": "budget.max_time",
    "batch_size": "global_batch", "seq_len": "sequence_length", "lr": "optimizer.learning_rate",
    "max_steps": "steps", "n_layer": "model.layers", "n_head": "model.heads",
    "max_retries": "retry.max_restarts", "ffn_hidden": "model.ffn", "dtype": "precision",
    "zone": "resources.sites", "region": "resources.sites", "price": "price_per_accelerator_hour",
    "partition": "queue", "account": "queue", "project": "queue", "queue_name": "queue",
    "dependency": "after", "dependencies": "after", "depends_on": "after",
    "time_limit": "budget.max_time", "walltime": "budget.max_time",
    "estimate": "forecast.duration", "due": "deadline", "requeue": "preemptible",
    "nodelist": "resources.nodes", "node_selector": "resources.labels",
    "constraint": "resources.labels", "features": "resources.labels",
    "cpus_per_task": "resources.cpus_per_rank", "cpus": "resources.cpus_per_rank",
    "mem": "resources.memory_per_rank", "mem_per_gpu": "resources.memory_per_rank",
    "tasks_per_node": "resources.ranks_per_node_max", "affinity": "placement",
    "quota": "nominal", "guaranteed": "nominal", "nominal_quota": "nominal", "share": "weight",
    "borrowing_limit": "borrow_max", "lending_limit": "lend_max", "parent_name": "parent",
    "carbon_intensity": "carbon", "carbon_g_per_kwh": "carbon", "tree": "topology",
    "switches": "levels", "scheduler": "policy", "reservations": "bookings",
    "start": "from", "begin": "from", "end": "to", "until": "to", "reason": "for",
    "nvlink": "island", "tags": "labels",
}  # fmt: skip
"""What other tools, or other people, call our fields."""

_MAPPING, _LIST = "write `field: value` lines below it", "write a list, one `- item` a line"
_REMEDIES = {
    "model_type": _MAPPING, "dict_type": _MAPPING, "list_type": _LIST, "tuple_type": _LIST,
}  # fmt: skip
"""What would be right for each of pydantic's own errors about the kind of a value."""


class Document(BaseModel):
    """A mapping in a document: unknown fields are refused, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


D = TypeVar("D", bound=Document)
S = TypeVar("S", bound=Document)


@dataclass(frozen=True)
class Reading(Generic[D]):
    """What could be read of a document, whatever is wrong with the rest.

    Attributes:
        model: What the document should be.
        source: Its plain data and lines.
        document: The whole of it; None when something is wrong.
        problems: What is wrong by itself, field by field.
    """

    model: type[D]
    source: Source
    document: D | None
    problems: tuple[Problem, ...]

    def given(self, *path: str | int) -> bool:
        """Whether the document has a value at ``path``, right or wrong."""
        return self.raw(*path) is not None

    def value(self, *path: str | int) -> Any:
        """Return the value at ``path``, or its default; None when it is wrong or missing."""
        field = _fields(_section(self.model, path[:-1]))[str(path[-1])]
        raw = self.raw(*path)
        kind = _kind(field)
        if raw is None or kind is None:
            return None if field.is_required() else field.get_default(call_default_factory=False)
        try:
            return kind.parse(raw)
        except ValueError:
            return None

    def section(self, model: type[S], *path: str | int) -> S | None:
        """Return the mapping at ``path`` as a whole; None when something in it is wrong.

        What is left out, or said in a word, is as its defaults.
        """
        raw = self.raw(*path)
        try:
            return model.model_validate(raw if isinstance(raw, dict) else {})
        except ValidationError:
            return None

    def keys(self, *path: str | int) -> tuple[str, ...]:
        """Return the keys of the mapping at ``path``; none when there is no mapping."""
        raw = self.raw(*path)
        return tuple(raw) if isinstance(raw, dict) else ()

    def size(self, *path: str | int) -> int:
        """Return the length of the list at ``path``; 0 when there is no list."""
        raw = self.raw(*path)
        return len(raw) if isinstance(raw, list) else 0

    def located(self, findings: Iterator[Finding]) -> list[Problem]:
        """Return ``findings`` with file and line."""
        return [self.source.problem(*finding) for finding in findings]

    def raw(self, *path: str | int) -> Any:
        """Return what is written at ``path``; None when nothing is."""
        raw: Any = self.source.data
        for key in path:
            try:
                raw = raw[key]
            except (KeyError, IndexError, TypeError):
                return None
        return raw


def read(model: type[D], source: Source) -> Reading[D]:
    """Return what can be read of ``source`` as ``model``."""
    document, problems = None, list(source.problems)
    try:
        document = model.model_validate(source.data)
    except ValidationError as error:
        problems += [
            _problem(model, source, dict(detail))
            for detail in error.errors(include_url=False)
        ]  # fmt: skip
    return Reading(model, source, None if problems else document, tuple(problems))


def _problem(model: type[Document], source: Source, detail: dict[str, Any]) -> Problem:
    path: Path = detail["loc"]
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == WRONG:
        return source.problem(path, context["message"], context["remedy"])
    if kind == "missing":
        return source.problem(path, "is missing", _remedy_for_missing(model, path))
    if kind == "extra_forbidden":
        return source.problem(path, "unknown field", _remedy_for_unknown(model, path))
    return source.problem(path, found(value), _REMEDIES.get(kind, detail["msg"]))


def _remedy_for_missing(model: type[Document], path: Path) -> str:
    field = _fields(_section(model, path[:-1]))[str(path[-1])]
    kind = _kind(field)
    return f"write {kind.right}" if kind else f"add `{path[-1]}:` with its fields"


def _remedy_for_unknown(model: type[Document], path: Path) -> str:
    word = str(path[-1])
    here = list(_fields(_section(model, path[:-1])))
    places = {name: dotted((*place, name)) for place, name in _all_fields(model)}
    translated = _WORDS_OF_OTHERS.get(word.lower(), "")
    if translated in places.values() or translated in here:
        return f"did you mean `{translated}`?"
    if places.get(word) == word:
        return "it belongs at the top of the file"
    if word in places:
        return f"did you mean `{places[word]}`?"
    return did_you_mean(word, here) or f"known here: {', '.join(here)}"


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields as they are written: `from` and `for` cannot be names in Python."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _all_fields(model: type[BaseModel], place: Path = ()) -> Iterator[tuple[Path, str]]:
    for name, field in _fields(model).items():
        yield place, name
        inner = _model_in(field.annotation)
        if inner is not None and get_origin(field.annotation) not in (dict, tuple):
            yield from _all_fields(inner, (*place, name))


def _section(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """Return the model of the mapping at ``path``, which is a place that the model has."""
    keys = iter(path)
    for key in keys:
        field = _fields(model)[str(key)]
        if get_origin(field.annotation) in (dict, tuple):
            next(keys)  # the member's own key or number
        inner = _model_in(field.annotation)
        assert inner is not None
        model = inner
    return model


def _kind(field: FieldInfo) -> Value | None:
    return next((item for item in field.metadata if isinstance(item, Value)), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for inner in get_args(annotation) if (m := _model_in(inner))), None)
