"""`whatif`: the same futures as `eta`, with one thing changed at a time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.base.system import SystemIds
from gridloom.base.units import format_duration
from gridloom.cli import settings
from gridloom.cli.dependencies import with_known_dependencies
from gridloom.cli.eta_show import check_runs, outlook_json
from gridloom.cli.home import usable
from gridloom.cli.live import LEVELS, REMEDY, Live, futures_bar, live, predicted_s
from gridloom.cli.lookup import open_plane
from gridloom.cli.marks import find_domain
from gridloom.cli.output import console, emit, say, table
from gridloom.cli.prepare import Prepared, prepare
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import Plane
from gridloom.control.rundir import GRID_FILE
from gridloom.core.state import State
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted, NodeMarked
from gridloom.model.inventory import Inventory, Node
from gridloom.model.life import Job
from gridloom.model.policy import POLICIES, Policy
from gridloom.model.spec import JobSpec
from gridloom.sim.forecast import Futures, Outlook, outlooks

_RUNS = 20
_NODES_MAX = 10_000
_QUEUES_MAX = 8
_AS_IS = "as it is"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is asked; fields as the flags."""

    grid: Path | None
    drain: Sequence[str]
    add: Sequence[str]
    runs: int


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The live state, and what is known of it.

    Attributes:
        live: What there is.
        state: What the scheduler knows.
        inventory: Its grid.
        runs: Futures for each change.
    """

    live: Live
    state: State
    inventory: Inventory
    runs: int

    def look(
        self, asked: Sequence[str], facts: Sequence[AnyEvent], durations: Mapping[str, float]
    ) -> dict[str, Outlook]:
        """Return what becomes of jobs after some facts, with what else is known of durations."""
        futures = Futures(
            runs=self.runs,
            durations={**self.live.durations, **durations},
            facts=(*self.live.pending, *facts),
        )
        return outlooks(self.state, asked, self.live.now_s, futures)


def show_whatif(path: Path | None, changes: Changes, *, as_json: bool) -> int:
    """Print what a change would lead to.

    Raises:
        InputError: The job file or a flag cannot be used, or nothing is asked.
    """
    check_runs(changes.runs)
    if path is None:
        return _show_jobs(changes, as_json=as_json)
    found = usable(settings.read())
    now = live(Plane(found) if found.journal.exists() else None)
    grid = changes.grid or _grid_of(now, found)
    prepared = with_known_dependencies(prepare(path, grid, found, SystemIds()), found)
    scene = _scene(now, changes, prepared)
    job = Job(job_id=prepared.job_id, spec=prepared.spec, submitted_s=scene.live.now_s)
    rows = _tried(scene, job, changes)
    unknown = scene.live.unknown(job)
    if as_json:
        listed = [{"change": name, **outlook_json(one)} for name, one in rows]
        emit({"name": prepared.spec.name, "changes": listed, "unknown": unknown})
        return 0
    base = rows[0][1]
    say(f"{prepared.spec.name}, if it were handed in now:")
    same = [name for name, one in rows[1:] if _same(one, base)]
    shown = [_row(name, one, base, scene.live.now_s) for name, one in rows if name not in same]
    heads = ("change", "starts in", "80 %", "ends in", "80 % of ends", "where")
    console().print(table(heads, shown, whole=heads[:2], spare=(heads[4], heads[2])))
    if same:
        say(f"no difference: {', '.join(same)}")
    if any(math.isinf(one.end_s(90)) for _, one in rows) and unknown:
        say(f"nobody knows how long {', '.join(unknown[:5])} would run: {REMEDY}")
    return 0


def _tried(scene: Scene, job: Job, changes: Changes) -> list[tuple[str, Outlook]]:
    """Return what becomes of the job as things are, then with each change."""
    duration_s = predicted_s(job)
    if duration_s:
        scene.live.durations[job.job_id] = duration_s
    variants = list(_variants(scene, job, changes))
    rows = []
    with futures_bar("changes") as told:
        for place, (name, facts) in enumerate(variants):
            told(place, len(variants))
            durations = {job.job_id: duration_s * _longer(job, facts)}
            rows.append((name, scene.look([job.job_id], facts, durations)[job.job_id]))
    return rows


def _longer(job: Job, facts: Sequence[AnyEvent]) -> float:
    """Return by how much longer the job takes as it is handed in there: by its ranks."""
    ranks = job.spec.options[0].plan.world_size
    specs = [fact.spec for fact in facts if isinstance(fact, JobSubmitted)]
    return ranks / specs[-1].options[0].plan.world_size if specs else 1.0


def _variants(
    scene: Scene, job: Job, changes: Changes
) -> Iterator[tuple[str, tuple[AnyEvent, ...]]]:
    """Yield each change with the facts that make it: the job is handed in last."""
    submitted = _submitted(job, job.spec)
    yield _AS_IS, (submitted,)
    for name, fact in _asked(scene, changes):
        yield name, (fact, submitted)
    priority = 1 + max((one.spec.priority for one in scene.live.under_way()), default=0)
    if priority > job.spec.priority:
        yield f"priority {priority}", (_submitted(job, replace(job.spec, priority=priority)),)
    names = [queue.name for queue in scene.inventory.queues if queue.name != job.spec.queue]
    for name in names[:_QUEUES_MAX]:
        yield f"queue {name}", (_submitted(job, replace(job.spec, queue=name)),)
    for devices, spec in _sizes(job.spec):
        yield f"{devices} devices", (_submitted(job, spec),)
    for policy in POLICIES.values():
        if _rules(policy) != _rules(scene.inventory.policy):
            changed = InventoryChanged(inventory=replace(scene.inventory, policy=policy))
            yield f"policy {policy.name}", (changed, submitted)


def _rules(policy: Policy) -> Policy:
    return replace(policy, name="")


def _sizes(spec: JobSpec) -> Iterator[tuple[int, JobSpec]]:
    """Yield the job with half and with twice as many copies of its model, as far as there are."""
    first = spec.options[0]
    counts = [first.plan.data // 2] if first.plan.data % 2 == 0 else []
    for data in (*counts, first.plan.data * 2):
        option = replace(first.with_copies(data), step_s=0.0, speeds=())
        duration_s = spec.forecast.duration_s * first.plan.data / data
        forecast = replace(spec.forecast, duration_s=duration_s)
        yield option.devices, replace(spec, options=(option,), forecast=forecast)


def _asked(scene: Scene, changes: Changes) -> Iterator[tuple[str, AnyEvent]]:
    """Yield what is drained and added.

    Raises:
        InputError: There is no such node or site, or the number cannot be.
    """
    for wanted in changes.drain:
        domain = find_domain(scene.inventory, wanted)
        yield f"without {domain}", NodeMarked(domain=domain, mark="drain")
    for text in changes.add:
        site, count = _addition(scene.inventory, text)
        inventory = _larger(scene.inventory, site, count)
        more = "1 node more" if count == 1 else f"{count} nodes more"
        yield f"{more} at {site}", InventoryChanged(inventory=inventory)


def _addition(inventory: Inventory, text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in {site.name for site in inventory.sites if site.nodes}:
        listed = ", ".join(site.name for site in inventory.sites)
        message = f"there is no site `{name}`"
        raise InputError([Problem(message, f"there are: {listed}", field="--add")])
    if not number.isdecimal() or not 1 <= int(number) <= _NODES_MAX:
        message = f"{number!r} nodes cannot be"
        raise InputError([Problem(message, f"write {name}=2", field="--add")])
    return name, int(number)


def _larger(inventory: Inventory, name: str, count: int) -> Inventory:
    """Return the grid with so many nodes more at a site, like its last."""
    site = inventory.site(name)
    like = site.nodes[-1]
    more = [replace(like, name=_fresh(site.nodes, number)) for number in range(count)]
    grown = replace(site, nodes=(*site.nodes, *more))
    sites = tuple(grown if one is site else one for one in inventory.sites)
    return replace(inventory, sites=sites)


def _fresh(nodes: Sequence[Node], number: int) -> str:
    taken = {node.name for node in nodes}
    names = (f"added{dash}{number + 1}" for dash in ("-", "--", "---"))
    return next(name for name in names if name not in taken)


def _grid_of(now: Live, found: Settings) -> Path | None:
    """Return the grid file of the jobs under way, which a job without a word on it is for."""
    paths = (found.runs / job.job_id / GRID_FILE for job in now.under_way())
    return next((path for path in paths if path.is_file()), None)


def _scene(now: Live, changes: Changes, prepared: Prepared | None) -> Scene:
    """Return the live state; on an idle grid that of the job's.

    Raises:
        InputError: Jobs are under way on another grid than the job's, or there is no grid.
    """
    state, inventory, busy = now.state, now.inventory, now.under_way()
    if prepared is not None and inventory != prepared.grid.inventory:
        if busy and changes.grid is not None:
            raise InputError(f"{busy[0].job_id} is under way on another grid; leave --grid out")
        if not busy:
            inventory = prepared.grid.inventory
            state = replace(state, inventory=inventory)
    if inventory is None:
        raise InputError("no grid is known yet: name a job file")
    specs = [job.spec for job in busy] + ([prepared.spec] if prepared else [])
    uncertain = any(spec.forecast.spread > 0 for spec in specs)
    return Scene(
        live=now,
        state=state,
        inventory=inventory,
        runs=changes.runs or (_RUNS if uncertain else 1),
    )


def _show_jobs(changes: Changes, *, as_json: bool) -> int:
    """Print what draining and adding nodes would change for the jobs that there are."""
    if not (changes.drain or changes.add):
        raise InputError("name a job file, or what to change: --drain NODE, --add SITE=N")
    scene = _scene(live(open_plane()), changes, None)
    asked = list(_asked(scene, changes))
    now_s, jobs = scene.live.now_s, scene.live.under_way()
    ids = [job.job_id for job in jobs]
    before, after = scene.look(ids, (), {}), scene.look(ids, [fact for _, fact in asked], {})
    if as_json:
        listed = [
            {"job": i, "before": outlook_json(before[i]), "after": outlook_json(after[i])}
            for i in ids
        ]
        emit({"changes": [name for name, _ in asked], "jobs": listed})
        return 0
    say(f"{' and '.join(name for name, _ in asked)}:")
    if not ids:
        say("no job is under way")
        return 0
    rows = [
        (
            job.job_id,
            job.state.value,
            _until(before[job.job_id].end_s(50), now_s),
            _until(after[job.job_id].end_s(50), now_s),
            _shift(after[job.job_id].end_s(50), before[job.job_id].end_s(50)),
        )
        for job in jobs
    ]
    heads = ("job", "state", "ends in", "then ends in", "later by")
    console().print(table(heads, rows, right=heads[2:], whole=heads[:2]))
    return 0


def _same(found: Outlook, base: Outlook) -> bool:
    """Return whether a change leaves the start and the end as they were."""
    pairs = [(found.start_s(p), base.start_s(p)) for p in LEVELS]
    pairs += [(found.end_s(p), base.end_s(p)) for p in LEVELS]
    return all(one == other or abs(one - other) < 1 for one, other in pairs)


def _submitted(job: Job, spec: JobSpec) -> JobSubmitted:
    return JobSubmitted(job_id=job.job_id, spec=spec, submitted_s=job.submitted_s)


def _row(name: str, found: Outlook, base: Outlook, now_s: float) -> tuple[str, ...]:
    start_s, end_s = found.start_s(50), found.end_s(50)
    if math.isinf(start_s) and math.isfinite(end_s):
        return name, "never", "", "", "", "cannot run so"
    placement, share = found.placement()
    where = ", ".join(f"{s}:{n}" for s, n in placement.site_ranks()) if placement else "-"
    often = f" ({share:.0%})" if placement and share < 1 else ""
    shift = "" if name == _AS_IS else _shift(start_s, base.start_s(50))
    return (
        name,
        _until(start_s, now_s) + (f" ({shift})" if shift else ""),
        _interval(found.start_s(10), found.start_s(90), now_s),
        _until(end_s, now_s),
        _interval(found.end_s(10), found.end_s(90), now_s),
        where + often,
    )


def _until(at_s: float, now_s: float) -> str:
    if math.isinf(at_s):
        return "unknown"
    return "now" if at_s - now_s < 1 else format_duration(at_s - now_s)


def _interval(low_s: float, high_s: float, now_s: float) -> str:
    if math.isinf(low_s) or high_s - low_s < 1:
        return "-"
    return f"{_until(low_s, now_s)} to {_until(high_s, now_s)}"


def _shift(then_s: float, base_s: float) -> str:
    """Return how much later, or earlier; empty when that is the same or not known."""
    if math.isinf(then_s) or math.isinf(base_s) or abs(then_s - base_s) < 1:
        return ""
    return f"{'+' if then_s > base_s else '-'}{format_duration(abs(then_s - base_s))}"
