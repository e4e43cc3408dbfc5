"""What the driver knows of each gang, in memory and, for the next control plane, on disk."""

from pathlib import Path

import yaml

from gridloom.base.codec import decode, encode
from gridloom.base.files import replace_file
from gridloom.model.reason import Reason
from gridloom.sites.kube.endings import Ending
from gridloom.sites.kube.gang import HANDED_FILE, MANIFESTS_FILE, PLACED_FILE, Handed, Placed
from gridloom.sites.kube.render import to_yaml
from gridloom.sites.kube.render_pod import Manifest
from gridloom.sites.kube.tell import Seen
from gridloom.sites.tasks import Heard, read
from gridloom.wire.agent import GANG_FILE, Gang

_MARK_FILE = "submitting"


class KubeGang:
    """Tasks that start together, as one job of a cluster.

    Attributes:
        directory: Where their common files are.
        handed: What is to be handed in; nothing if nobody has written it down.
        placed: Which job of the cluster it is, once that is known.
        seen: What is known of that job.
        taken: What took pods away, by number: what a pod says of it goes with the pod.
        indexes: The number of each task, by its directory.
        stopped: Whether one of its tasks was told to stop.
        kill_s: When what still runs then is taken out of the cluster; nothing before a stop.
        refusal: Why it was not started.
        has_run: Whether a pod of it has run.
        is_deleted: Whether the cluster was told to delete it.
        is_gone: Whether the cluster has it no more.
        is_looked: Whether the watches have shown what there is since it was placed.
        heard: Its tasks that were looked at, by number.
        over_s: When the end of a task was first seen that its supervisor said nothing of.
        silent: About what the cluster says nothing, and since when.
        warning: What it warned of last about that.
        logs: What the pods that ended without a word have printed last, by number.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.handed: Handed | None = None
        self.placed: Placed | None = None
        self.seen = Seen(name="")
        self.indexes: dict[Path, int] = {}
        self.taken: dict[int, Ending] = {}
        self.stopped = False
        self.kill_s: float | None = None
        self.refusal: Reason | None = None
        self.has_run = False
        self.is_deleted = False
        self.is_gone = False
        self.is_looked = False
        self.heard: dict[int, Heard] = {}
        self.over_s: dict[int, float] = {}
        self.silent = ("", 0.0)
        self.warning = ""
        self.logs: dict[int, str] = {}
        self.reload()

    @property
    def may_be_placed(self) -> bool:
        """Whether the cluster may have it, as somebody was killed while handing it in."""
        return self.placed is not None or (self.directory / _MARK_FILE).exists()

    def reload(self) -> None:
        """Read what was written down."""
        said = read(self.directory / GANG_FILE, Gang)
        directories = said.directories if said is not None else ()
        self.indexes = {Path(place): index for index, place in enumerate(directories)}
        self.placed = read(self.directory / PLACED_FILE, Placed)
        self.handed = read(self.directory / HANDED_FILE, Handed)
        self.seen = Seen(name=self.handed.name if self.handed is not None else "")

    def write(self, gang: Gang, manifests: tuple[Manifest, ...], handed: Handed) -> None:
        """Write down what is to be handed in; what says so is written last.

        Raises:
            OSError: That cannot be done.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(self.directory / GANG_FILE, encode(gang))
        replace_file(self.directory / MANIFESTS_FILE, to_yaml(manifests).encode())
        replace_file(self.directory / HANDED_FILE, encode(handed))

    def manifests(self) -> list[Manifest]:
        """Return what is to be handed in.

        Raises:
            OSError: It cannot be read.
        """
        return list(yaml.safe_load_all((self.directory / MANIFESTS_FILE).read_text()))

    def mark(self) -> None:
        """Note that the cluster is about to be asked."""
        (self.directory / _MARK_FILE).touch()

    def unmark(self) -> None:
        """Note that the cluster was not asked, or does not have it."""
        (self.directory / _MARK_FILE).unlink(missing_ok=True)

    def place(self, uid: str) -> None:
        """Note which job of the cluster it is."""
        replace_file(self.directory / PLACED_FILE, encode(Placed(uid=uid)))
        self.placed = decode(encode(Placed(uid=uid)), Placed)
