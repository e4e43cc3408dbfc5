"""The part of the grid file that says how a login host is reached over SSH."""

from typing import Annotated

from pydantic import Field

from gridloom.model.inventory import SshAccess
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_values import Choice, Text, Whole

_HOST = Text("a host name, an address or an alias", r"[^\s/@-][^\s/@]*")
_USER = Text("a login name", r"[^\s/@:-][^\s/@:]*")
_FILE = Text("the path of a file, as `~/.ssh/id_ed25519`", r"(/|~/)\S+")
_DIRECTORY = Text("an absolute path without spaces, as `/scratch/me/gridloom`", r"/[^\s,:]+")


class SshDocument(Document):
    """How a login host is reached over SSH."""

    host: Annotated[
        str,
        _HOST,
        Field(
            description="Its name or address, or an alias of `~/.ssh/config`.",
            examples=["login.hpc.example"],
        ),
    ]
    directory: Annotated[
        str,
        _DIRECTORY,
        Field(
            description="Where our files are kept there: the site's nodes must see it, too.",
            examples=["/scratch/me/gridloom"],
        ),
    ]
    user: Annotated[
        str | None,
        _USER,
        Field(description="As whom. Default: what `~/.ssh/config` says, else as here."),
    ] = None
    port: Annotated[
        int | None,
        Whole(1, 65535),
        Field(description="Default: what `~/.ssh/config` says, else 22."),
    ] = None
    key_file: Annotated[
        str | None,
        _FILE,
        Field(
            description="Private key. Default: those of the agent, of `~/.ssh/config`, and the"
            " usual ones. Nobody is asked for a password."
        ),
    ] = None
    known_hosts: Annotated[
        str | None,
        _FILE,
        Field(description="File of the keys by which hosts are known. Default: the user's own."),
    ] = None
    workdir: Annotated[
        str | None,
        _DIRECTORY,
        Field(
            description="Where the jobs' working directory is there already. Default: it is copied,"
            " and what has changed since, before each attempt."
        ),
    ] = None
    checkpoints: Annotated[
        str,
        Choice(("there", "fetch")),
        Field(
            description="The newest checkpoint of a job that goes on elsewhere is fetched,"
            " or stays `there`."
        ),
    ] = "fetch"


def to_ssh_access(ssh: SshDocument) -> SshAccess:
    """Return how the host is reached."""
    return SshAccess(
        host=ssh.host,
        directory=ssh.directory.rstrip("/") or "/",
        user=ssh.user or "",
        port=ssh.port or 0,
        key_file=ssh.key_file or "",
        known_hosts=ssh.known_hosts or "",
        workdir=ssh.workdir or "",
        checkpoints="there" if ssh.checkpoints == "there" else "fetch",
    )
