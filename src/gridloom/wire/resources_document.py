"""What a job file asks for: how many devices of which kind, and at which sites and nodes."""

from typing import Annotated

from pydantic import Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import MEMORY, Devices, DevicesValue
from gridloom.wire.documents_names import SITE_NAME, NodesValue
from gridloom.wire.documents_values import Texts, Whole
from gridloom.wire.topology_document import LABEL, LABEL_KEYS


class ResourcesDocument(Document):
    """Devices that the job needs, over all its sites."""

    accelerators: Annotated[
        Devices,
        DevicesValue(ranges=True),
        Field(
            description="Kind and count over the whole job (not a node): exactly 8, at least 8,"
            " or 4 to 16. `cpu` is one core's share of a node.",
            examples=["cpu:4", "h100:8", "h100:8+", "h100:4-16"],
        ),
    ]
    sites: Annotated[
        tuple[str, ...],
        Texts(SITE_NAME, "site names"),
        Field(description="Sites it may use, in order of preference. Default: any."),
    ] = ()
    min_sites: Annotated[
        int, Whole(1, 1000), Field(description="Sites that must take part at once, at least.")
    ] = 1
    max_sites: Annotated[
        int | None,
        Whole(1, 1000),
        Field(description="At most. Default: as many as are listed, else min_sites."),
    ] = None
    nodes: Annotated[
        tuple[str, ...],
        NodesValue(),
        Field(
            description="Nodes that it must use. Default: any.",
            examples=["north/n7", ["north/n[001-016]"]],
        ),
    ] = ()
    labels: dict[str, Annotated[str, LABEL]] = Field(
        {}, description="What its nodes must be labelled with.", json_schema_extra=LABEL_KEYS
    )
    ranks_per_node_max: Annotated[
        int | None, Whole(1, 10**6), Field(description="Ranks on one node. Default: no limit.")
    ] = None
    cpus_per_rank: Annotated[
        int | None, Whole(1, 10**6), Field(description="Cores that each rank needs of its node.")
    ] = None
    memory_per_rank: Annotated[
        float | None,
        MEMORY,
        Field(description="Memory of the host that each rank needs.", examples=["64GB"]),
    ] = None
    per_rank: dict[str, Annotated[int, Whole(1, 10**12)]] = Field(
        {}, description="What else each rank needs of its node's `resources`, by name."
    )
    spares: Annotated[
        int,
        Whole(0, 10**4),
        Field(description="Nodes that are kept idle beside it, for a loss."),
    ] = 0
