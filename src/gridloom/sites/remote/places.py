"""What directories of ours are called at the other end, and orders as tasks there must have them.

Tasks get absolute paths. At a site that sees nothing of ours the same files lie elsewhere, so that
every path below one of our directories is written anew wherever a program there will read it. Pure.
"""

import re
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec
from msgspec.structs import replace

from gridloom.model.inventory import SshAccess
from gridloom.model.recipe import GptRecipe
from gridloom.wire.agent import RankOrder, TaskOrder

RUNS = "runs"
WORK = "work"
_BEFORE = r"(?<![^\s=:,;'\"])"
_BEHIND = r"(?=$|[\s/:,;'\"])"


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Directories that are here and there.

    Attributes:
        runs: Of all run directories, here.
        runs_there: The same there.
        work: Where the job's ranks start, here.
        work_there: The same there.
        is_copied: Whether what is in ``work`` is ours to bring there.
    """

    runs: str
    runs_there: str
    work: str
    work_there: str
    is_copied: bool = True

    def there(self, text: str) -> str:
        """Return a word of a command or the value of a variable with every path as it is there."""
        pairs = ((self.runs, self.runs_there), (self.work, self.work_there))
        known = {here: there for here, there in pairs if here != "/"}
        if not known:
            return text
        # The longest first: one of them may lie in the other
        names = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
        return re.sub(f"{_BEFORE}(?:{names}){_BEHIND}", lambda match: known[match[0]], text)


def places(access: SshAccess, *, runs: str, work: str, owner: str) -> Places:
    """Return where the directories of a job are at a site.

    Args:
        access: The site's login host.
        runs: Directory of all run directories, here.
        work: Where the job's ranks start, here.
        owner: Whose directory that is among all that keep files there, as this machine's name.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", PurePosixPath(work).name)[:40] or "root"
    copy = f"{access.directory}/{WORK}/{name}-{zlib.crc32(f'{owner}:{work}'.encode()):08x}"
    return Places(
        runs=runs,
        runs_there=f"{access.directory}/{RUNS}",
        work=work,
        work_there=access.workdir or copy,
        is_copied=not access.workdir,
    )


def moved_order(order: TaskOrder, to: Places) -> TaskOrder:
    """Return an order as it is to be carried out there."""
    batch = order.batch
    if batch is not None:
        options = tuple((name, to.there(value)) for name, value in batch.options)
        batch = replace(batch, options=options, submitted_in=to.there(batch.submitted_in))
    return replace(
        order,
        argv=tuple(map(to.there, order.argv)),
        workdir=to.there(order.workdir),
        env=_moved(order.env, to),
        ranks=tuple(_moved_rank(rank, to) for rank in order.ranks),
        batch=batch,
    )


def moved_recipe(recipe: GptRecipe, to: Places) -> GptRecipe:
    """Return what the training program there is told."""
    checkpoint = replace(recipe.checkpoint, directory=to.there(recipe.checkpoint.directory))
    data = replace(recipe.data, text=tuple(map(to.there, recipe.data.text)))
    return replace(recipe, checkpoint=checkpoint, data=data)


def _moved_rank(order: RankOrder, to: Places) -> RankOrder:
    rank = replace(
        order.rank,
        run_dir=to.there(order.rank.run_dir),
        report_file=to.there(order.rank.report_file),
        rendezvous_file=to.there(order.rank.rendezvous_file),
    )
    return replace(order, rank=rank, log_file=to.there(order.log_file))


def _moved(variables: Mapping[str, str], to: Places) -> dict[str, str]:
    return {name: to.there(value) for name, value in variables.items()}
