"""The tables in docs/how/documents.md: of fields, from their own descriptions, and of policies.

Run as a program it rewrites the page; the test beside it holds that nobody forgot to.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gridloom.model.policy import POLICIES, Policy
from gridloom.wire.documents_values import Whole
from gridloom.wire.grid_document import GridDocument
from gridloom.wire.job_document import JobDocument
from gridloom.wire.policy_document import POLICY_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "how" / "documents.md"
DOCUMENTS: dict[str, type[BaseModel]] = {"job": JobDocument, "grid": GridDocument}


def table(model: type[BaseModel]) -> str:
    """Return all fields of a document as a Markdown table."""
    lines = ["| field | meaning | default |", "|---|---|---|"]
    for name, field in fields(model, ""):
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}` | {meaning} | {of_policy(name) or default(field)} |")
    return "\n".join(lines)


def fields(model: type[BaseModel], place: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        path = f"{place}{field.alias or name}"
        yield path, field
        inner = section(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation)
            mark = ".NAME" if many is dict else "[]" if many is tuple else ""
            yield from fields(inner, f"{path}{mark}.")


def section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := section(inner))), None)


def default(field: FieldInfo) -> str:
    value = field.default
    if any(
        isinstance(kind, Whole) and value is not None and kind.auto == value
        for kind in field.metadata
    ):
        return "`auto`"
    if field.is_required():
        return "required"
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{'-'.join(str(item) for item in value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def of_policy(path: str) -> str:
    """Return what the default policy has at a field of the grid file; nothing for other fields."""
    section, *names = path.split(".")
    value: Any = Policy()
    for name in names:
        value = getattr(value, POLICY_NAMES.get(name, name), None)
    if section != "policy" or not names or value is None or isinstance(value, Struct):
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(f'{item:g}' for item in value)}]`"
    return f"`{value if isinstance(value, str) else shown(value)}`"


def policies() -> str:
    """Return the named policies as a Markdown table."""
    lines = ["| policy | order | blocked | besides |", "|---|---|---|---|"]
    for name, policy in POLICIES.items():
        besides = [
            f"`{section}: {{{field}: {shown(getattr(getattr(policy, section), field))}}}`"
            for section in ("weights", "preemption")
            for field in getattr(policy, section).__struct_fields__
            if getattr(getattr(policy, section), field)
            != getattr(getattr(Policy(), section), field)
        ]
        lines.append(f"| `{name}` | {policy.order} | {policy.blocked} | {', '.join(besides)} |")
    return "\n".join(lines)


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def rewritten(text: str) -> str:
    """Return the page with its tables as they should be."""
    tables = {f"{name} file": table(model) for name, model in DOCUMENTS.items()}
    marks = {name: f"<!-- fields of a {name} -->\n" for name in tables}
    marks["policies"], tables["policies"] = "<!-- the policies -->\n", policies()
    for name, rows in tables.items():
        start, end = marks[name], f"<!-- end of the {name} -->"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = f"{before}{start}{rows}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
