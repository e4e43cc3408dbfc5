"""Environment variables in documents: what their names and values may be."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gridloom.wire.documents_check import Finding
from gridloom.wire.documents_values import Text
from gridloom.wire.source_tree import Path

_NAME = "[A-Za-z_][A-Za-z0-9_]*"

VARIABLE_NAMES: dict[str, Any] = {"propertyNames": {"pattern": f"^{_NAME}$"}}
"""Of a mapping of variables, for the JSON Schema."""

VARIABLE_VALUE = Text("text", r"[\s\S]*")
"""What a variable is set to: any text, also none."""


def variable_findings(names: Iterable[str], here: Path) -> Iterator[Finding]:
    """Yield what cannot be the name of a variable.

    Args:
        names: Of the mapping.
        here: Where it stands.
    """
    for name in names:
        if not re.fullmatch(_NAME, name):
            shown = f"`{name}`" if name and name.isprintable() else repr(name)
            message = f"{shown} cannot be the name of a variable"
            yield (*here, name), message, "use letters, digits and `_`, not beginning with a digit"
