"""The nodes of a site in a grid file: what each has, and which domains it sits in."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import MEMORY, Devices, DevicesValue
from gridloom.wire.documents_names import RANGE_PATTERN, parse_names
from gridloom.wire.documents_values import Text, Value, Whole, found, wrong

NODE_ADDRESS = "127.0.0.1"
"""Address of a node that is given none: a local site's nodes are this machine."""

LEVEL_PATTERN = r"[a-z][a-z0-9_]{0,19}"
LEVEL_WORDS = ("site", "node", "island")
"""Levels that every site has."""

LABEL = Text("text", r"[^\n]{1,253}")
LABEL_KEYS: dict[str, Any] = {"propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9._/-]{0,62}$"}}

ADDRESS_PATTERN = r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"
"""Of a host name or an IPv4 address, or of an IPv6 address."""

_DEVICES = DevicesValue(ranges=False)
_RESOURCE = Whole(0, 10**12)


class AddressValue(Text):
    """A host name or an IP address; ``n[001-128].cluster`` for the nodes of a range."""

    def parse(self, value: object) -> str:
        """Return the address as written."""
        if isinstance(value, str) and "[" in value:
            parse_names(value, self.pattern)
            return value
        return super().parse(value)

    def schema(self) -> dict[str, Any]:
        """Text without a port, perhaps with ranges."""
        return {"type": "string", "pattern": rf"^({self.pattern}|[A-Za-z0-9.,:_-]*\[[^/\s]*)$"}


@dataclass(frozen=True)
class PathValue(Value):
    """Domains from outside in: ``[s1, l3]``; with ranges where the nodes are a range."""

    @property
    def right(self) -> str:
        """The form."""
        return "a domain for each of the site's levels, outermost first, as `[s1, l3]`"

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the domains as written."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise self.refuse(value)
        for item in items:
            if isinstance(item, bool | int | float):
                raise wrong(f"{found(item)}, which is not text", f'put it in quotes: "{item}"')
            if not isinstance(item, str):
                raise self.refuse(value)
            parse_names(item)
        return tuple(items)

    def schema(self) -> dict[str, Any]:
        """Text, or a list of texts."""
        each = {"type": "string", "pattern": f"^{RANGE_PATTERN}$"}
        return {"anyOf": [each, {"type": "array", "items": each, "minItems": 1}]}


class HostDocument(Document):
    """What a node has besides its devices; every name but `cpus` and `memory` is its owner's."""

    model_config = ConfigDict(extra="allow")
    # Pydantic's way to give the type of fields whose names are not known
    __pydantic_extra__: dict[str, Annotated[int, _RESOURCE]] = Field(  # type: ignore[mutable-override]
        init=False
    )

    cpus: Annotated[int | None, _RESOURCE, Field(description="Cores that ranks may use.")] = None
    memory: Annotated[float | None, MEMORY, Field(description="Of the host.", examples=["1TB"])] = (
        None
    )


class NodeTemplateDocument(Document):
    """What every node of a site has, unless its own entry says otherwise."""

    address: Annotated[
        str,
        AddressValue("a host name or an IP address, without a port", ADDRESS_PATTERN),
        Field(
            description="Where other nodes reach it; of a range, one with a range.",
            examples=["n[001-128].example.org"],
        ),
    ] = NODE_ADDRESS
    accelerators: Annotated[
        Devices | None,
        _DEVICES,
        Field(description="Kind and count of its devices.", examples=["cpu:2", "h100:8"]),
    ] = None
    memory: Annotated[
        float | None,
        MEMORY,
        Field(description="Of the node for its devices together.", examples=["8GB"]),
    ] = None
    island: Annotated[
        int | None,
        Whole(1, 9_999_999),
        Field(description="Devices of one island, a divisor of their count. Default: all."),
    ] = None
    labels: dict[str, Annotated[str, LABEL]] = Field(
        default={}, description="What its owner says of it, by name.", json_schema_extra=LABEL_KEYS
    )
    resources: HostDocument = Field(
        default=HostDocument(),
        description="What it has besides; others than these by names of yours.",
    )


class NodeDocument(NodeTemplateDocument):
    """One machine, or many that are alike."""

    path: Annotated[
        tuple[str, ...],
        PathValue(),
        Field(
            description="The domain that it sits in, for each of the site's `levels`, outermost"
            " first. Ranges share the nodes of a range evenly, in order.",
            examples=[["s1", "l3"]],
        ),
    ] = ()
