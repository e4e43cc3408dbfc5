"""The grid file: which sites there are, what they have, what lies between them, and by what rules.

A site says its nodes in one of three ways: one by one or in ranges (``nodes``), by how many
children each domain of its topology has (``topology``, with one ``node`` for all), or as one node
of so many ``accelerators``. Where its own scheduler tells its nodes, the file may leave them out.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from gridloom.base.units import parse_duration_s
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import (
    BANDWIDTH,
    CARBON,
    DURATION,
    DURATION_PATTERN,
    POWER,
    Devices,
    DevicesValue,
    PortsValue,
)
from gridloom.wire.documents_names import NODES_MAX, QUEUE_NAME, RANGE_PATTERN, SITE_NAME
from gridloom.wire.documents_values import Choice, Quantity, Text, Texts, Whole
from gridloom.wire.kube_document import KubeDocument
from gridloom.wire.policy_document import PolicyDocument, PolicySection
from gridloom.wire.queue_document import BookingDocument, CohortDocument, QueueDocument
from gridloom.wire.slurm_document import SlurmDocument
from gridloom.wire.topology_document import (
    LEVEL_PATTERN,
    NodeDocument,
    NodeTemplateDocument,
)

TELLS_NODES = ("slurm", "kubernetes")
"""Kinds of sites whose own scheduler tells their nodes where the file does not."""

FORMS_OF_NODES = ("nodes", "accelerators", "topology")
"""Fields of which a site has one, to say what its nodes are."""

_LEASE = Quantity("a duration", parse_duration_s, DURATION_PATTERN, minimum=3.0)
_KINDS_OF_OTHERS = (
    *((word, "kubernetes") for word in ("k8s", "kube", "kueue", "eks", "gke", "aks")),
    *((word, "slurm") for word in ("sbatch", "hpc", "batch")),
    *((word, "local") for word in ("localhost", "here", "machine")),
)

_ONE_FORM_OF_NODES: dict[str, Any] = {
    "oneOf": [
        {"required": ["nodes"]},
        {"required": ["accelerators"]},
        {
            "required": ["topology", "node"],
            "properties": {"node": {"required": ["accelerators"]}},
        },
        {
            "required": ["kind"],
            "properties": {"kind": {"enum": [*TELLS_NODES]}},
            "not": {"anyOf": [{"required": [form]} for form in FORMS_OF_NODES]},
        },
    ],
    "anyOf": [
        {"required": ["node"]},
        {"properties": {"nodes": {"additionalProperties": {"required": ["accelerators"]}}}},
    ],
}


class SiteDocument(Document):
    """One administrative place."""

    model_config = ConfigDict(json_schema_extra=_ONE_FORM_OF_NODES)

    kind: Annotated[
        str,
        Choice(("local", "slurm", "kubernetes"), others=_KINDS_OF_OTHERS),
        Field(
            description="How it is reached. `local`: this machine; `slurm`, `kubernetes`: jobs of"
            " its Slurm or Kubernetes."
        ),
    ] = "local"
    slurm: SlurmDocument | None = Field(
        None, description="How jobs are handed in, where `kind: slurm`. Default: as a user's are."
    )
    kubernetes: KubeDocument | None = Field(
        None, description="How jobs are handed in, where `kind: kubernetes`."
    )
    nodes: dict[str, NodeDocument] = Field(
        {},
        description="Its machines by name, or by a range of names as `n[001-128]`. Where"
        " nothing says what they are, those that its own Slurm or Kubernetes tells.",
        json_schema_extra={"propertyNames": {"pattern": f"^{RANGE_PATTERN}$"}},
    )
    levels: Annotated[
        tuple[str, ...],
        Texts(Text("a level's name", LEVEL_PATTERN), "level names"),
        Field(
            description="Levels of its topology between site and node, outermost first.",
            examples=[["spine", "leaf", "rack"]],
        ),
    ] = ()
    topology: dict[str, Annotated[int, Whole(1, NODES_MAX)]] = Field(
        {},
        description="In place of `nodes`: how many children each domain has, by level, outermost"
        " first; the last is `node`.",
        examples=[{"spine": 4, "leaf": 8, "node": 16}],
        json_schema_extra={"propertyNames": {"pattern": f"^{LEVEL_PATTERN}$"}},
    )
    node: NodeTemplateDocument | None = Field(
        None, description="What each of `topology` has, and each of `nodes` that does not say."
    )
    accelerators: Annotated[
        Devices | None,
        DevicesValue(ranges=False),
        Field(description="Short for one node that is called like the site.", examples=["cpu:2"]),
    ] = None
    queues: Annotated[
        tuple[str, ...],
        Texts(QUEUE_NAME, "queue names"),
        Field(description="Whose jobs may run here. Default: everybody's."),
    ] = ()
    price_per_accelerator_hour: Annotated[
        float, Quantity("an amount of money"), Field(description="In the grid's currency.")
    ] = 0.0
    power_per_accelerator: Annotated[
        float,
        POWER,
        Field(description="Draw of a busy device with its share of the node.", examples=["15W"]),
    ] = 0.0
    carbon: Annotated[
        float,
        CARBON,
        Field(description="Of its electricity, in grams of CO2 a kWh.", examples=["350 g/kWh"]),
    ] = 0.0
    lease: Annotated[
        float | None,
        _LEASE,
        Field(
            description="How long what runs there goes on without a word from the control plane,"
            " which takes for dead what is silent for 4 s longer. Default: 6s where `kind: local`,"
            " a minute over SSH, else 30s.",
            examples=["2min"],
        ),
    ] = None
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
    loss: Annotated[
        float,
        Quantity("a number", maximum=0.5),
        Field(description="Share of the packets that are lost.", examples=[0.001]),
    ] = 0.0


class GridDocument(Document):
    """The sites that jobs can run at, and by which rules they are shared."""

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
    queues: dict[str, QueueDocument] = Field(
        {},
        description="Where jobs wait and what they are charged to, by name. Default: one queue"
        " without limits.",
        json_schema_extra={"propertyNames": {"pattern": f"^{QUEUE_NAME.pattern}$"}},
    )
    cohorts: dict[str, CohortDocument] = Field(
        {},
        description="Queues that borrow from each other, by name.",
        json_schema_extra={"propertyNames": {"pattern": f"^{SITE_NAME.pattern}$"}},
    )
    policy: PolicySection = Field(
        PolicyDocument(),
        description="Who comes first and what may be done for whom: a name, or `base` and what"
        " differs from it. Default: `backfill`.",
    )
    bookings: tuple[BookingDocument, ...] = Field(
        (), description="Nodes that are spoken for from one time to another."
    )
