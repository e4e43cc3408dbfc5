"""Processes that live by a script, on a clock that only moves when told."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.clock import FakeClock


class ScriptedClock(FakeClock):
    """A clock on whose way things happen."""

    def __init__(self) -> None:
        super().__init__()
        self._script: list[tuple[float, Callable[[], object]]] = []

    def at(self, *times_s: float, do: Callable[[], object]) -> None:
        """Call ``do`` when the monotonic clock first reads each of ``times_s`` or later."""
        self._script.extend((at_s, do) for at_s in times_s)
        self._script.sort(key=lambda entry: entry[0])

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        while self._script and self._script[0][0] <= self.monotonic_s():
            self._script.pop(0)[1]()


@dataclass
class Program:
    """What one rank does.

    Attributes:
        ends_s: When it ends by itself, on the monotonic clock; ``None`` for never.
        exit_code: How it ends then.
        saves: Its exit code after SIGTERM; ``None`` when it is deaf to that.
        says: Lines of its report file, by when.
        cannot: Why it cannot be started.
    """

    ends_s: float | None = None
    exit_code: int = 0
    saves: int | None = None
    says: Mapping[float, str] = field(default_factory=dict)
    cannot: OSError | ValueError | None = None


class FakeProcesses:
    """Plays `gridloom.agent.supervise.Processes`: one program a rank."""

    def __init__(self, clock: FakeClock, *programs: Program, sweeps: Sequence[int] = ()) -> None:
        self._clock = clock
        self._programs = programs
        self._said: list[int] = []
        self._ends: dict[int, tuple[float, int]] = {}
        self._gone: set[int] = set()
        self._sweeps = list(sweeps)
        self.environments: list[dict[str, str]] = []
        self.signals: list[tuple[int, int]] = []
        self.warnings: list[tuple[int, int]] = []
        self.pulses = 0

    def spawn(
        self, argv: Sequence[str], workdir: str, env: Mapping[str, str], log_file: Path
    ) -> int:
        pid = len(self.environments)
        program = self._programs[pid]
        if program.cannot is not None:
            raise program.cannot
        self.environments.append(dict(env))
        self._said.append(0)
        if program.ends_s is not None:
            self._ends[pid] = (program.ends_s, program.exit_code)
        return pid

    def exits(self) -> dict[int, int]:
        now_s = self._clock.monotonic_s()
        for pid in range(len(self.environments)):
            self._speak(pid, now_s)
        over = {pid: code for pid, (at_s, code) in self._ends.items() if at_s <= now_s}
        news = {pid: code for pid, code in over.items() if pid not in self._gone}
        self._gone.update(news)
        return {**news, 99_999: 0}  # and some orphan that was adopted

    def warn(self, pid: int, number: int) -> None:
        """Reach the process alone; it ends by that as by any other request."""
        self.warnings.append((pid, number))
        saves = self._programs[pid].saves
        if saves is not None:
            self._ends[pid] = (self._clock.monotonic_s(), saves)

    def signal(self, pid: int, number: int) -> None:
        assert pid not in self._gone, "its id may be another's by now"
        self.signals.append((pid, number))
        now_s = self._clock.monotonic_s()
        saves = self._programs[pid].saves
        if number == signal.SIGKILL:
            self._ends[pid] = (now_s, -9)
        elif saves is not None:
            self._ends[pid] = (now_s, saves)

    def sweep(self) -> int:
        return self._sweeps.pop(0) if self._sweeps else 0

    def pulse(self) -> None:
        self.pulses += 1

    def _speak(self, pid: int, now_s: float) -> None:
        until_s = min(now_s, self._ends.get(pid, (now_s, 0))[0])
        due = [line for at_s, line in self._programs[pid].says.items() if at_s <= until_s]
        with Path(self.environments[pid]["GRIDLOOM_REPORT_FILE"]).open("a") as file:
            file.writelines(f"{line}\n" for line in due[self._said[pid] :])
        self._said[pid] = len(due)
