"""The part of the grid file that says how jobs are handed to the Slurm of a site."""

import ipaddress
import shlex
from typing import Annotated, Any

from pydantic import Field

from gridloom.model.inventory import SlurmAccess, SlurmContainer, SlurmRest
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, MEMORY
from gridloom.wire.documents_values import Choice, Flag, Text, Value, Whole, wrong
from gridloom.wire.documents_variables import VARIABLE_NAMES, VARIABLE_VALUE
from gridloom.wire.ssh_document import SshDocument, to_ssh_access

_WORD = Text("one word", r"[^\s,=]+")
_GRES_PATTERN = r"[^\s,:()=]+(:[^\s,:()=]+)?"
_MOUNTED_PATTERN = r"/[^\s,:]+"
_MOUNTED = Text("an absolute path without commas and colons", _MOUNTED_PATTERN)


class NetworkValue(Value):
    """A network, as ``10.0.0.0/8``."""

    @property
    def right(self) -> str:
        """What would be right."""
        return "a network with its length, as `10.0.0.0/8`"

    def parse(self, value: object) -> str:
        """Return the network as text."""
        try:
            if isinstance(value, str) and "/" in value:  # one address alone is that of one node
                return str(ipaddress.ip_network(value))
            return self._no(value)
        except ValueError:
            return self._no(value)

    def _no(self, value: object) -> str:
        raise self.refuse(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what is accepted."""
        return {"type": "string"}


class WordsValue(Value):
    """A command as one line of words, as ``ssh login scontrol token``."""

    @property
    def right(self) -> str:
        """What would be right."""
        return "a command and its arguments, as `ssh login scontrol token`"

    def parse(self, value: object) -> str:
        """Return the line, whose words can be told apart."""
        try:
            if isinstance(value, str) and shlex.split(value):
                return value
        except ValueError as error:
            raise wrong(f"its words cannot be told apart: {error}", "close the quote") from None
        raise self.refuse(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what is accepted."""
        return {"type": "string"}


class SlurmRestDocument(Document):
    """Where the slurmrestd of a site is, and as whom it is asked."""

    url: Annotated[
        str,
        Text("an address, as `https://login.example.org:6820`", r"https?://[^\s@?#]+"),
        Field(
            description="Where it listens. `http` sends tokens in the clear.",
            examples=["https://login.example.org:6820"],
        ),
    ]
    user: Annotated[str, _WORD, Field(description="Whose jobs they are.")]
    token_file: Annotated[
        str | None,
        Text("the path of a file, as `~/.slurm/token`", r"(/|~/)\S+"),
        Field(description="File with the user's token: that, or `token_command`."),
    ] = None
    token_command: Annotated[
        str | None,
        WordsValue(),
        Field(
            description="Command that prints a token.",
            examples=["ssh login scontrol token lifespan=3600"],
        ),
    ] = None
    ca_file: Annotated[
        str | None,
        Text("the path of a file, as `/etc/ssl/site.pem`", r"(/|~/)\S+"),
        Field(description="Who vouches for the server. Default: whom this machine trusts."),
    ] = None


class SlurmContainerDocument(Document):
    """What the jobs of a site's Slurm run in."""

    engine: Annotated[
        str,
        Choice(("pyxis", "apptainer")),
        Field(description="Pyxis, an addition of srun, or Apptainer, a command."),
    ]
    image: Annotated[
        str,
        Text("an image, as `nvcr.io#nvidia/pytorch:24.10-py3` or `/images/a.sif`", r"\S+"),
        Field(description="Has gridloom, by `python`."),
    ]
    mounts: dict[str, Annotated[str, _MOUNTED]] = Field(
        {},
        description="What it sees of the node besides run directories: path there, by path here.",
        examples=[{"/data": "/scratch/data"}],
        json_schema_extra={"propertyNames": {"pattern": f"^{_MOUNTED_PATTERN}$"}},
    )
    gpus: Annotated[
        str | None,
        Choice(("nvidia", "amd")),
        Field(description="Whose devices Apptainer passes on. Default: none."),
    ] = None


class SlurmDocument(Document):
    """How jobs are handed to the Slurm of a site."""

    account: Annotated[str | None, _WORD, Field(description="Charged to.")] = None
    partition: Annotated[str | None, _WORD, Field(description="Where jobs run.")] = None
    qos: Annotated[str | None, _WORD, Field(description="Quality of service.")] = None
    reservation: Annotated[str | None, _WORD, Field(description="Inside which jobs run.")] = None
    constraint: Annotated[
        str | None,
        Text("features of nodes, as `a100&ib`", r"[^\s,]+"),
        Field(description="Features that nodes must have.", examples=["a100&ib"]),
    ] = None
    switches: Annotated[
        int | None,
        Whole(1, 10**4),
        Field(description="Over how many leaf switches a job may stretch. Default: any."),
    ] = None
    switches_wait: Annotated[
        float | None,
        DURATION,
        Field(description="How long it waits for that. Default: as long as the site lets."),
    ] = None
    segment: Annotated[
        int | None,
        Whole(1, 10**5),
        Field(description="Nodes that must be in one block, where topology is by blocks."),
    ] = None
    exclusive: Annotated[
        bool, Flag(), Field(description="Jobs have nodes alone, with all of their memory.")
    ] = False
    memory: Annotated[
        float | None,
        MEMORY,
        Field(description="On each node. Default: the site's.", examples=["512GiB"]),
    ] = None
    placement: Annotated[
        str,
        Choice(("delegate", "pin")),
        Field(
            description="`delegate`: Slurm chooses the nodes; `pin`: it takes those of gridloom."
        ),
    ] = "delegate"
    time_limit: Annotated[
        float | None,
        DURATION,
        Field(description="Of a job there. Default: the partition's.", examples=["24h"]),
    ] = None
    gres: dict[str, Annotated[str, Text("a name, as `gpu:a100`", _GRES_PATTERN)]] = Field(
        {},
        description="What Slurm calls devices, by kind. Default: `gpu`.",
        examples=[{"a100": "gpu:a100"}],
    )
    network: Annotated[
        str | None,
        NetworkValue(),
        Field(
            description="Addresses by which nodes reach each other. Default: by host name.",
            examples=["10.0.0.0/8"],
        ),
    ] = None
    python: Annotated[
        str | None,
        Text("the path of an interpreter", r"/\S+"),
        Field(
            description="Python there that has gridloom. Default: the one that runs here; over SSH"
            " and in a container `python3`."
        ),
    ] = None
    environment: dict[str, Annotated[str, VARIABLE_VALUE]] = Field(
        {},
        description="Variables of Slurm's commands and jobs, as `SLURM_CONF` for one of several.",
        json_schema_extra=VARIABLE_NAMES,
    )
    rest: SlurmRestDocument | None = Field(
        None, description="Its slurmrestd. Default: Slurm's commands are run."
    )
    container: SlurmContainerDocument | None = Field(
        None, description="What jobs run in. Default: the node itself."
    )
    ssh: SshDocument | None = Field(
        None,
        description="Its login host, where nothing of the site is seen from here. Default: commands"
        " are run here, and nodes see the state directory.",
    )


def to_access(slurm: SlurmDocument) -> SlurmAccess:
    """Return how jobs are handed in."""
    return SlurmAccess(
        account=slurm.account or "",
        partition=slurm.partition or "",
        qos=slurm.qos or "",
        reservation=slurm.reservation or "",
        constraint=slurm.constraint or "",
        switches=slurm.switches or 0,
        switches_wait_s=slurm.switches_wait or 0.0,
        segment=slurm.segment or 0,
        exclusive=slurm.exclusive,
        memory_bytes=int(slurm.memory or 0),
        placement="pin" if slurm.placement == "pin" else "delegate",
        time_limit_s=slurm.time_limit or 0.0,
        gres=slurm.gres,
        network=slurm.network or "",
        python=slurm.python or "",
        environment=slurm.environment,
        rest=_to_rest(slurm.rest) if slurm.rest else None,
        container=_to_container(slurm.container) if slurm.container else None,
        ssh=to_ssh_access(slurm.ssh) if slurm.ssh else None,
    )


def _to_container(said: SlurmContainerDocument) -> SlurmContainer:
    return SlurmContainer(
        engine="pyxis" if said.engine == "pyxis" else "apptainer",
        image=said.image,
        mounts=said.mounts,
        gpus="nvidia" if said.gpus == "nvidia" else "amd" if said.gpus else "",
    )


def _to_rest(rest: SlurmRestDocument) -> SlurmRest:
    return SlurmRest(
        url=rest.url.rstrip("/"),
        user=rest.user,
        token_file=rest.token_file or "",
        token_command=tuple(shlex.split(rest.token_command or "")),
        ca_file=rest.ca_file or "",
    )
