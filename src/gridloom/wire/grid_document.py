"""The grid file: which sites there are, what they have, what lies between them."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import (
    BANDWIDTH,
    DURATION,
    MEMORY,
    POWER,
    Devices,
    DevicesValue,
    PortsValue,
)
from gridloom.wire.documents_values import Choice, Quantity, Text, Texts
from gridloom.wire.job_document import SITE_NAME

NODE_ADDRESS = "127.0.0.1"
"""Address of a node that is given none: a local site's nodes are this machine."""

NODE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"

_DEVICES = DevicesValue(ranges=False)
_ADDRESS = Text(
    "a host name or an IP address, without a port",
    r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*",
)
_NODE_XOR_SHORT: dict[str, Any] = {
    "oneOf": [{"required": ["nodes"]}, {"required": ["accelerators"]}]
}


class NodeDocument(Document):
    """One machine."""

    address: Annotated[str, _ADDRESS, Field(description="Where other nodes reach it.")] = (
        NODE_ADDRESS
    )
    accelerators: Annotated[
        Devices,
        _DEVICES,
        Field(description="Kind and count of its devices.", examples=["cpu:2", "h100:8"]),
    ]
    memory: Annotated[
        float | None,
        MEMORY,
        Field(description="Of the node for its devices together.", examples=["8GB"]),
    ] = None


class SiteDocument(Document):
    """One administrative place."""

    model_config = ConfigDict(json_schema_extra=_NODE_XOR_SHORT)

    kind: Annotated[
        str, Choice(("local",)), Field(description="How it is reached; `local`: this machine.")
    ] = "local"
    nodes: dict[str, NodeDocument] = Field(
        {},
        description="Its machines by name.",
        json_schema_extra={"propertyNames": {"pattern": f"^{NODE_NAME_PATTERN}$"}},
    )
    accelerators: Annotated[
        Devices | None,
        _DEVICES,
        Field(description="Short for one node that is called like the site.", examples=["cpu:2"]),
    ] = None
    price_per_accelerator_hour: Annotated[
        float, Quantity("an amount of money"), Field(description="In the grid's currency.")
    ] = 0.0
    power_per_accelerator: Annotated[
        float,
        POWER,
        Field(description="Draw of a busy device with its share of the node.", examples=["15W"]),
    ] = 0.0
    ports: Annotated[
        tuple[int, int],
        PortsValue(),
        Field(description="On which rank 0 of a job may listen.", examples=["29400-29999"]),
    ] = (29400, 29999)


class LinkDocument(Document):
    """The network between two sites, the same in both directions."""

    between: Annotated[
        tuple[str, ...], Texts(SITE_NAME, "two site names"), Field(description="The two sites.")
    ]
    bandwidth: Annotated[
        float | None,
        BANDWIDTH,
        Field(description="What one job can expect.", examples=["1Gbit/s"]),
    ] = None
    latency: Annotated[float | None, DURATION, Field(description="One way.", examples=["20ms"])] = (
        None
    )


class GridDocument(Document):
    """The sites that jobs can run at."""

    currency: Annotated[
        str,
        Text("three capital letters, as `USD`", "[A-Z]{3}"),
        Field(description="Of all prices and budgets."),
    ] = "USD"
    sites: dict[str, SiteDocument] = Field(
        description="Sites by name.",
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"pattern": f"^{SITE_NAME.pattern}$"},
        },
    )
    links: tuple[LinkDocument, ...] = Field((), description="Networks between sites.")
