"""A story played: event by event through the scheduler's own door, looked at after every step."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gridloom.base.errors import BrokenError
from gridloom.core.state import live_tasks
from gridloom.model.action import StopTask
from gridloom.model.event import TaskEnded
from gridloom.model.life import HOLDING, OVER, Outcome
from gridloom.model.reason import Why
from gridloom.ports.journal import Record
from gridloom.sim.law_watch import law_watch
from gridloom.sim.simulation import Simulation
from gridloom.sim.story import ORIGIN_S, End, Story, window
from gridloom.sim.story_conditions import Mismatch, mismatches, state_of
from gridloom.sim.story_scene import Memory, Scene
from gridloom.wire.story_expect import ConditionDocument, ExpectDocument


@dataclass(frozen=True)
class Difference:
    """An expectation that was not met.

    Attributes:
        line: Of the expectation; 0 for what every story expects.
        at_s: When it was not met, in the story's time.
        when: How the story says when.
        mismatches: What was expected, and what was so.
        jobs: Every job that had been handed in, and how it was.
    """

    line: int
    at_s: float
    when: str
    mismatches: tuple[Mismatch, ...]
    jobs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Played:
    """What came of a story.

    Attributes:
        name: Of the story.
        differences: What was not as expected, in order of time; none when it holds.
        steps: Calls of the scheduler's door.
        end_s: When the last thing happened, in its own time.
    """

    name: str
    differences: tuple[Difference, ...]
    steps: int
    end_s: float

    @property
    def holds(self) -> bool:
        """Whether all was as expected."""
        return not self.differences


def play(
    story: Story,
    *,
    seed: int = 0,
    check_laws: bool = True,
    journal: Callable[[Record], None] | None = None,
) -> Played:
    """Return what comes of a story.

    Args:
        story: It.
        seed: Of the world's and the scheduler's chance.
        check_laws: The scheduler's laws are checked after every step.
        journal: Given the record of each step.
    """
    return _Stage(story, seed, check_laws=check_laws, journal=journal).play()


class _Stage:
    """The simulation of one story, and what was seen of it."""

    def __init__(
        self,
        story: Story,
        seed: int,
        *,
        check_laws: bool,
        journal: Callable[[Record], None] | None,
    ) -> None:
        self._story, self._journal = story, journal
        self._memory = Memory()
        self._differences: list[Difference] = []
        self._met: set[int] = set()
        self._failed: set[int] = set()
        self._last_s = 0.0
        self._simulation = Simulation(
            story.inventory,
            story.arrivals,
            seed=seed,
            faults=story.faults,
            terms=story.terms,
            watch=self._look,
            journal=self._note,
        )
        how = "full" if check_laws else "off"
        self._laws = law_watch(self._simulation.machine, how)
        for at_s, event in story.wishes:
            self._simulation.inject(event, at_s)

    def play(self) -> Played:
        """Play it to its end."""
        try:
            self._scenes()
        except BrokenError as error:
            self._differ(0, "always", (("the scheduler keeps its own laws", str(error)),))
        self._differences.sort(key=lambda difference: (difference.at_s, difference.line))
        return Played(
            name=self._story.name,
            differences=tuple(self._differences),
            steps=self._simulation.record.steps,
            end_s=self._last_s,
        )

    def _scenes(self) -> None:
        """Go from instant to instant at which something is to be done or to be looked at."""
        story = self._story
        instants = [(end.at_s, 0, i) for i, end in enumerate(story.ends)]
        instants += [
            (expect.at, 1, i)
            for i, (_, expect) in enumerate(story.expects)
            if expect.at is not None
        ]
        for at_s, kind, number in sorted(instants):
            if kind == 0:
                self._end(story.ends[number])
            else:
                self._run(at_s)
                line, expect = story.expects[number]
                self._expect(line, "at", expect)
                self._stalls(line)
        self._run(story.limit_s if story.until_s is None else story.until_s)
        for i, (line, expect) in enumerate(story.expects):
            if expect.finally_ is not None:
                self._expect(line, "finally", expect.finally_)
            if expect.sometime is not None and i not in self._met:
                found = mismatches(self._scene(), expect.sometime)
                text = found or [("it is so at some time", "it never was until the end")]
                self._differ(line, "sometime", tuple(text))
        self._stalls(0)

    def _run(self, until_s: float) -> None:
        self._simulation.run(ORIGIN_S + until_s)

    def _end(self, end: End) -> None:
        """Let programs end: those that run before that instant, else those that run in it."""
        self._run(math.nextafter(ORIGIN_S + end.at_s, 0.0) - ORIGIN_S)
        jobs = self._simulation.machine.state.jobs
        absent = [name for name in end.job_ids if name not in jobs or not self._tell(end, name)]
        if not absent:
            return
        self._run(end.at_s)
        for name in absent:
            if name not in jobs or not self._tell(end, name):
                verb = "fails" if end.exit_code else "ends"
                found = state_of(self._scene(), jobs[name]) if name in jobs else "it is not there"
                self._differ(0, "at", ((f"the program of {name} {verb} at {end.at_s:g}", found),))

    def _tell(self, end: End, name: str) -> bool:
        """Hand in that a program has ended; return whether it ran at all."""
        job = self._simulation.machine.state.jobs[name]
        if job.state not in HOLDING:
            return False
        attempt, at_s = job.attempts[-1], ORIGIN_S + end.at_s
        outcome = Outcome(code=Why.COMPLETED, sentence="all ranks ended well", ended_s=at_s)
        if end.exit_code:
            outcome = Outcome(
                code=Why.EXITED,
                sentence=f"rank 0 exited with status {end.exit_code}",
                rank=0,
                exit_code=end.exit_code,
                ended_s=at_s,
            )
        for task in live_tasks(attempt):
            ended = TaskEnded(
                job_id=name,
                attempt=attempt.number,
                epoch=attempt.epoch,
                domain=task.placement.domain,
                outcome=outcome,
            )
            self._simulation.inject(ended, at_s)
        return True

    # what is seen

    def _note(self, record: Record) -> None:
        at_s = self._last_s = record.now_s - ORIGIN_S
        self._memory.stops += [(at_s, one) for one in record.actions if isinstance(one, StopTask)]
        if self._journal is not None:
            self._journal(record)
        if self._laws is not None:
            self._laws(record)

    def _look(self, simulation: Simulation) -> None:
        """Look at the world after a step."""
        ended_s = self._memory.ended_s
        for job in simulation.machine.state.jobs.values():
            if job.state not in OVER:
                ended_s.pop(job.job_id, None)
            elif job.job_id not in ended_s:
                ended_s[job.job_id] = self._now_s
        scene = self._scene()
        for i, (line, expect) in enumerate(self._story.expects):
            from_s, to_s = window(expect)
            if from_s <= self._now_s <= to_s and i not in self._failed:
                self._over_time(i, line, expect, scene)

    def _over_time(self, i: int, line: int, expect: ExpectDocument, scene: Scene) -> None:
        if expect.always is not None and (found := mismatches(scene, expect.always)):
            self._failed.add(i)
            self._differ(line, "always", tuple(found))
        if expect.never is not None and not mismatches(scene, expect.never):
            self._failed.add(i)
            said = ", ".join(_said(expect.never))
            self._differ(line, "never", ((f"never {said}", "it is so"),))
        wanted = expect.sometime if i not in self._met else None
        if wanted is not None and not mismatches(scene, wanted):
            self._met.add(i)

    def _expect(self, line: int, when: str, said: ConditionDocument) -> None:
        if found := mismatches(self._scene(), said):
            self._differ(line, when, tuple(found))

    def _stalls(self, line: int) -> None:
        """Note jobs that wait although nothing stands in their way."""
        scene = self._scene()
        stalled = [job.job_id for job in scene.waiting() if scene.reason(job) is None]
        if stalled:
            found = f"{', '.join(stalled)} could start and does not"
            self._differ(line, "always", (("whoever waits has a reason", found),))

    def _differ(self, line: int, when: str, found: tuple[Mismatch, ...]) -> None:
        scene = self._scene()
        jobs = tuple((name, state_of(scene, job)) for name, job in scene.jobs.items())
        self._differences.append(Difference(line, self._now_s, when, found, jobs))

    def _scene(self) -> Scene:
        simulation = self._simulation
        return Scene(
            self._now_s,
            simulation.machine,
            self._story.places,
            self._memory,
            simulation.record,
        )

    @property
    def _now_s(self) -> float:
        return self._simulation.now_s - ORIGIN_S


def _said(condition: ConditionDocument) -> list[str]:
    said = []
    for field in type(condition).model_fields:
        if field in condition.model_fields_set:
            value = getattr(condition, field)
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            said.append(f"{field}: {shown}")
    return said
