"""How Slurm says that nodes are wired, as in ``topology.conf``, and where each node sits (pure)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gridloom.base.errors import InputError, Problem
from gridloom.sites.slurm.hostlist import expand
from gridloom.sites.slurm.records import Block, Switch, Topology


def topology(text: str, file: str = "") -> Topology:
    """Return the topology of a ``topology.conf``, or of ``scontrol show topology``.

    Args:
        text: What it says.
        file: What it is called, for the errors.

    Raises:
        InputError: It is not one; every line that is wrong is named.
    """
    switches: list[Switch] = []
    blocks: list[Block] = []
    sizes: tuple[int, ...] = ()
    problems: list[Problem] = []
    for number, line in _lines(text):
        try:
            told = _fields(line)
            if "switchname" in told:
                switches.append(_switch(told))
            elif "blockname" in told:
                blocks.append(_block(told))
            sizes = sizes or _sizes(told.get("blocksizes", told.get("blocksize", "")))
        except ValueError as error:
            problems.append(Problem(str(error), file=file, line=number))
    if not problems:
        problems = [Problem(said, file=file) for said in _contradictions(switches, blocks)]
    if problems:
        raise InputError(problems)
    return Topology(switches=tuple(switches), blocks=tuple(blocks), block_sizes=sizes)


def node_paths(wired: Topology) -> dict[str, tuple[str, ...]]:
    """Return the switches above each node, outermost first; its block stands last.

    Trees that do not meet stand beside each other. Of several leaves the first one counts.

    Args:
        wired: As ``topology`` returns it.
    """
    above = {child: switch.name for switch in wired.switches for child in switch.switches}
    paths: dict[str, tuple[str, ...]] = {}
    for switch in wired.switches:
        if switch.switches:  # scontrol lists all nodes below, which sit at the leaves
            continue
        path = [switch.name]
        while path[0] in above:
            path.insert(0, above[path[0]])
        paths = dict.fromkeys(switch.nodes, tuple(path)) | paths
    for block in wired.blocks:
        for node in block.nodes:
            paths[node] = (*paths.get(node, ()), block.name)
    return paths


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, joined where a backslash ends one, with their numbers."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        said = re.sub(r"(?<!\\)#.*", "", line).strip()
        first = first if whole else number
        whole += said.removesuffix("\\")
        if said.endswith("\\"):
            whole += " "
            continue
        if whole.strip():
            yield first, whole.strip()
        whole = ""
    if whole.strip():
        yield first, whole.strip()


def _fields(line: str) -> dict[str, str]:
    """Return the fields of a line; their names may be written in any case."""
    told = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not Name=value")
        told[key.lower()] = value
    # Aggregated blocks are what scontrol derives from the others
    if not {"switchname", "blockname", "blocksizes", "aggregatedblock"} & told.keys():
        raise ValueError(f"neither a switch nor a block: {line[:60]!r}")
    return told


def _switch(told: Mapping[str, str]) -> Switch:
    found = Switch(
        name=told["switchname"],
        switches=expand(told.get("switches", "")),
        nodes=expand(told.get("nodes", "")),
    )
    if not found.switches and not found.nodes:
        raise ValueError(f"switch {found.name} has neither Nodes nor Switches")
    return found


def _block(told: Mapping[str, str]) -> Block:
    return Block(name=told["blockname"], nodes=expand(told.get("nodes", "")))


def _sizes(said: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", said):
        raise ValueError(f"block sizes are numbers with commas between, not {said!r}")
    return tuple(int(size) for size in said.split(",") if size)


def _contradictions(switches: Sequence[Switch], blocks: Sequence[Block]) -> Iterator[str]:
    """Yield what makes a tree none: a switch twice, missing, below two, or in a ring."""
    names = [switch.name for switch in switches]
    yield from (f"switch {name} is there twice" for name in _twice(names))
    yield from (f"block {name} is there twice" for name in _twice(block.name for block in blocks))
    children = [child for switch in switches for child in switch.switches]
    yield from (f"switch {name} is below two others" for name in _twice(children))
    yield from (f"switch {name} is not told" for name in children if name not in set(names))
    above = {child: switch.name for switch in switches for child in switch.switches}
    for name in names:
        seen, at = {name}, above.get(name)
        while at is not None and at not in seen:
            seen.add(at)
            at = above.get(at)
        if at == name:
            yield f"switch {name} is above itself"


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]
