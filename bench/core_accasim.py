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
from accasim.base.event_class import JobFactory  # noqa: E402
from accasim.base.scheduler_class import FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402
from accasim.utils.reader_class import DefaultReader  # noqa: E402
from accasim.utils.misc import DEFAULT_SWF_MAPPER  # noqa: E402

MEMORY = 1
"""Of each job; AccaSim turns down rows that ask for no memory."""


class Made:
    """Stands where the reader makes jobs of rows, and returns those made before."""

    def factory(self, *, job: Any, queued_time: int) -> Any:
        return job


class ReadBefore(DefaultReader):  # type: ignore[misc]
    """A reader that has read everything, with the package's own parser, before it is asked."""

    def read_all(self) -> None:
        rows = []
        while (row := super()._read(0)) is not None or not self.EOF:
            if row:
                job = self.job_factory.factory(**row)
                rows.append({"job": job, "queued_time": row["queued_time"]})
        self.rows = iter(rows)
        self.submission_enabled = True
        self.job_factory = Made()
        self.ready = True

    def _read(self, current_time: int = 0) -> dict[str, Any] | None:
        row: dict[str, Any] | None = next(self.rows, None)
        if row is None:
            self.stop_submission()
        return row


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
    print(type(simulator.reader), file=sys.stderr)
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
