"""AccaSim (Galleguillos et al., 2018) on a list of jobs, for ``bench/core.py``; run by its Python.

Reads ``{"devices", "jobs": [[submit_s, run_s, devices], ...]}`` from standard input and prints one
line of JSON: CPU seconds of the simulation alone, and what came of it. The policy is greedy
backfilling in order of submission: first in, first out, first fit, and those that do not fit are
passed over. Jobs are parsed and made before the clock starts; the files that AccaSim writes by
default are switched off, as the caller writes none either.
"""

import collections
import collections.abc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# AccaSim 1.1.3 is from before Python 3.10, in which this name went where it is now
collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402
from accasim.utils.reader_class import Reader  # noqa: E402

MEMORY = 1
"""Of each job; AccaSim turns down rows that ask for no memory."""


class ReadBefore(Reader):  # type: ignore[misc]
    """A reader of jobs that were read and made before it is asked."""

    def __init__(self, jobs: list[Any]) -> None:
        super().__init__(None)
        self._jobs = iter(jobs)
        self._ahead = next(self._jobs, None)

    def next(
        self, current_time: int, time_points: int = 2, stime_name: str = "queued_time"
    ) -> tuple[list[int], dict[int, list[Any]]]:
        """Return the jobs of the next times of submission, with these times in order."""
        found: dict[int, list[Any]] = {}
        while self._ahead is not None:
            if self._ahead.queued_time not in found and len(found) == time_points:
                break
            found.setdefault(self._ahead.queued_time, []).append(self._ahead)
            self._ahead = next(self._jobs, None)
        return list(found), found

    def _read(self, current_time: int) -> None:
        """Read nothing: everything was."""


def made(reader: Any) -> list[Any]:
    """Return all jobs that the package's own reader finds."""
    jobs: list[Any] = []
    while reader.submission_enabled or reader.loaded_jobs:
        times, found = reader.next(0)
        jobs += [job for at in times for job in found[at]]
    return jobs


def swf(jobs: list[tuple[int, int, int]]) -> str:
    """Return the jobs in the Standard Workload Format."""
    rows = []
    for number, (submit_s, run_s, devices) in enumerate(jobs, start=1):
        fields = [-1] * 18
        fields[0:5] = [number, submit_s, -1, run_s, devices]
        fields[7:12] = [devices, run_s, MEMORY, 1, 1]
        rows.append(" ".join(map(str, fields)) + "\n")
    return "".join(rows)


def main() -> None:
    told = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "jobs.swf").write_text(swf(told["jobs"]))
        system = {
            "groups": {"g0": {"core": told["devices"], "mem": 10**9}},
            "resources": {"g0": 1},
        }
        (folder / "system.json").write_text(json.dumps(system))
        print(json.dumps(simulate(folder)))


def simulate(folder: Path) -> dict[str, float]:
    simulator = Simulator(
        str(folder / "jobs.swf"),
        str(folder / "system.json"),
        FirstInFirstOut(FirstFit(), skip_jobs_on_allocation=True),
        scheduling_output=False,
        statistics_output=False,
        show_statistics=False,
        RESULTS_FOLDER_PATH=str(folder),
        LOG_LEVEL="ERROR",
    )
    simulator.reader = ReadBefore(made(simulator.reader))
    begin_s = time.process_time()
    simulator.start_simulation()
    cpu_s = time.process_time() - begin_s
    waits = simulator.mapper.wtimes
    return {
        "cpu_s": cpu_s,
        "jobs": simulator.dispatched_jobs,
        "wait_s": sum(waits) / len(waits),
    }


if __name__ == "__main__":
    main()
