"""Where one training process stands: its site, its ranks, and who its counterparts elsewhere are.

A site is a world of its own; its first rank speaks to the first ranks of the other sites. Read
from the launch contract, from torchrun's variables, or from nothing at all.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from gridloom.base.codec import decode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.wire.agent import Rendezvous
from gridloom.wire.launch import Rank

Address = tuple[str, int]

ALONE = "here"
"""Name of the site when nobody has given one."""

_TORCHRUN = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
)  # fmt: skip
"""Variables by which libraries find out that other ranks take part."""


@dataclass(frozen=True)
class Place:
    """Where a process stands.

    Attributes:
        job_id: The job; empty outside of gridloom.
        site: Its site.
        sites: All sites, in the order of the job.
        rank: Number among the ranks of the site.
        size: Ranks of the site.
        local_rank: Number among the ranks of the node.
        address: Of this rank's node; empty if unknown.
        store: Where the first rank of the site serves the store of its process group.
        speakers: Where the first rank of each site listens to the other sites.
        report_file: Where report lines go; empty for nowhere.
        run_dir: The job's run directory; empty outside of gridloom.
        sync: How the sites stay one model, as the job says.
        plan: How the model is cut, as the job says; its ``data`` are the copies at all sites.
        sizes: Ranks of each site, in the order of the sites; empty if all have as many.
        attempt: Which try of the job this is; 1 outside of gridloom.
        speaker_nodes: Number of the node of each site's first rank, among those of all sites.
        rendezvous_file: Where it stands on which nodes all are now; empty where none ever moves.
    """

    job_id: str
    site: str
    sites: tuple[str, ...]
    rank: int
    size: int
    local_rank: int
    address: str
    store: Address
    speakers: Mapping[str, Address]
    report_file: str = ""
    run_dir: str = ""
    sync: SiteSync = field(default_factory=SiteSync)
    plan: ParallelPlan = field(default_factory=ParallelPlan)
    sizes: tuple[int, ...] = ()
    attempt: int = 1
    speaker_nodes: Mapping[str, int] = field(default_factory=dict)
    rendezvous_file: str = ""

    @property
    def number(self) -> int:
        """Number of this rank's site, from 0."""
        return self.sites.index(self.site)

    @property
    def site_sizes(self) -> tuple[int, ...]:
        """Ranks of every site, in the order of the sites."""
        return self.sizes or (self.size,) * len(self.sites)

    @property
    def ranks_by_site(self) -> dict[str, int]:
        """Ranks of every site, by its name."""
        return dict(zip(self.sites, self.site_sizes, strict=True))

    @property
    def first(self) -> int:
        """Number, among the ranks of all sites, of the first one of this site."""
        return sum(self.site_sizes[: self.number])

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank of its site."""
        return self.rank == 0

    def speaker_now(self, site: str) -> Address | None:
        """Return where the first rank of a site listens now, as far as that was written down.

        A site that chooses its nodes itself may come back on other ones.
        """
        try:
            told = decode(Path(self.rendezvous_file).read_bytes(), Rendezvous)
            return told.addresses[self.speaker_nodes[site]], self.speakers[site][1]
        except (OSError, msgspec.MsgspecError, LookupError):
            return None

    def torchrun(self) -> dict[str, str | None]:
        """Return torchrun's variables as they are for the site alone; ``None`` for unset.

        A site of one rank has none of them: it is no distributed training to who reads them.
        """
        if self.size == 1:
            return dict.fromkeys(_TORCHRUN)
        host, port = self.store
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }


def place_in(environment: Mapping[str, str]) -> Place:
    """Return where the environment's process stands.

    Raises:
        InputError: A variable is missing or malformed, or the sites cannot be joined.
    """
    if "GRIDLOOM_JOB_ID" in environment:
        return _contracted(Rank.from_environment(environment))
    try:
        rank, size = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
        local_rank = int(environment.get("LOCAL_RANK", "0"))
        store = (environment.get("MASTER_ADDR", ""), int(environment.get("MASTER_PORT", "0")))
    except ValueError as bad:
        raise InputError(f"a variable of torchrun is malformed: {bad}") from bad
    return Place(
        job_id="",
        site=ALONE,
        sites=(ALONE,),
        rank=rank,
        size=size,
        local_rank=local_rank,
        address="",
        store=store,
        speakers={},
    )


def interface_of(address: str) -> str:
    """Return which network interface of this machine has an address; empty if none has."""
    try:
        found = socket.gethostbyname(address)
    except (OSError, UnicodeError):
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == found for one in addresses):
            return name
    return ""


def _contracted(rank: Rank) -> Place:
    sites = tuple(name for name, _ in rank.site_ranks)
    firsts: dict[str, int] = {}
    start = 0
    for name, count in rank.site_ranks:
        firsts[name] = start
        start += count
    nodes = _node_of_each_rank(rank)
    speaker_nodes = {name: nodes[first] for name, first in firsts.items()}
    hosts = {name: rank.node_addresses[node] for name, node in speaker_nodes.items()}
    return Place(
        job_id=rank.job_id,
        site=rank.site,
        sites=sites,
        rank=rank.rank - firsts[rank.site],
        size=dict(rank.site_ranks)[rank.site],
        local_rank=rank.local_rank,
        address=rank.node_addresses[rank.node_rank],
        # a port for the store of each site, and one for its speaker: several may share a node
        store=(hosts[rank.site], rank.master_port + sites.index(rank.site)),
        speakers={
            name: (hosts[name], rank.master_port + len(sites) + index)
            for index, name in enumerate(sites)
        },
        report_file=rank.report_file,
        run_dir=rank.run_dir,
        sync=rank.sync,
        plan=rank.plan,
        sizes=tuple(count for _, count in rank.site_ranks),
        attempt=rank.attempt,
        speaker_nodes=speaker_nodes,
        rendezvous_file=rank.rendezvous_file,
    )


def _node_of_each_rank(rank: Rank) -> list[int]:
    """Return the node of every rank of the job, by its number."""
    if rank.node_ranks:
        return [node for node, count in enumerate(rank.node_ranks) for _ in range(count)]
    return [number // rank.local_world_size for number in range(rank.world_size)]
