"""Small grids and jobs for simulations."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.fakes.scheduler import FakeScheduler

from gridloom.model.action import AnyAction
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import Forecast, JobSpec, Option, Program
from gridloom.ports.journal import Record
from gridloom.sim.record import JobRow
from gridloom.sim.simulation import Simulation
from gridloom.sim.workload_nouns import Arrival


def grid(*counts: int, sites: Sequence[str] = ("s",), **site: Any) -> Inventory:
    """Return sites that each have nodes ``n0``, ``n1`` ... of so many devices."""
    return Inventory(
        sites=tuple(
            Site(
                name=name,
                kind="local",
                nodes=tuple(
                    Node(name=f"n{i}", address=f"n{i}", accelerator="gpu", count=count)
                    for i, count in enumerate(counts)
                ),
                **site,
            )
            for name in sites
        )
    )


def arrival(
    job_id: str = "j",
    submit_s: float = 0.0,
    *,
    devices: int = 1,
    work_s: float = 100.0,
    fail_after_s: float = 0.0,
    state: Any = "",
    **spec: Any,
) -> Arrival:
    """Return a job; further arguments go to its spec, ``forecast`` as a mapping."""
    forecast = Forecast(**spec.pop("forecast", {}))
    options = spec.pop("options", None) or (option(devices),)
    return Arrival(
        job_id=job_id,
        submit_s=submit_s,
        work_s=work_s,
        fail_after_s=fail_after_s,
        state=state,
        spec=JobSpec(
            name=job_id,
            program=Program(argv=("train",), workdir="/"),
            options=options,
            forecast=forecast,
            **spec,
        ),
    )


def option(devices: int = 1, step_s: float = 0.0, **more: Any) -> Option:
    """Return a shape of so many data-parallel ranks."""
    return Option(
        accelerator="gpu",
        plan=ParallelPlan(data=devices, **more.pop("plan", {})),
        step_s=step_s,
        **more,
    )


class Played:
    """A simulation with its journal, run to the end or to a time."""

    def __init__(
        self,
        inventory: Inventory,
        arrivals: Iterable[Arrival],
        *wishes: tuple[float, Any],
        until_s: float | None = None,
        **more: Any,
    ) -> None:
        self.journal: list[Record] = []
        more.setdefault("machine", FakeScheduler())
        self.sim = Simulation(
            inventory, arrivals, seed=more.pop("seed", 0), journal=self.journal.append, **more
        )
        for at_s, event in wishes:
            self.sim.inject(event, at_s)
        self.sim.run(until_s)

    def job(self, job_id: str = "j") -> JobRow:
        """Return a job's row."""
        return self.sim.record.job(job_id)

    def facts(self, kind: type | tuple[type, ...]) -> list[tuple[float, Any]]:
        """Return facts of a kind, with their times."""
        return [(r.now_s, e) for r in self.journal for e in r.events if isinstance(e, kind)]

    def actions(self, kind: type) -> list[tuple[float, AnyAction]]:
        """Return actions of a kind, with their times."""
        return [(r.now_s, a) for r in self.journal for a in r.actions if isinstance(a, kind)]


class Placing(FakeScheduler):
    """A scheduler that hands out placements prepared by a test, by job."""

    def __init__(self, placements: dict[str, Sequence[Placement]]) -> None:
        super().__init__()
        self._prepared = {job_id: list(some) for job_id, some in placements.items()}

    def place(self, job_id: str) -> Placement | None:
        """Return the next placement of the job."""
        return self._prepared[job_id].pop(0)
