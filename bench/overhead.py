"""What gridloom costs beside plain torchrun: speed of the same script, and time to its first step.

Four ranks on this machine, one thread each. The two take turns, after one warm-up of each, so that
a machine whose speed drifts is unfair to neither; medians and the range of the ratios are printed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
SCRIPT = Path(__file__).with_name("overhead_script.py")
JOB = f"""\
name: overhead
grid: grid.yaml
run: python {SCRIPT.name}
workdir: {SCRIPT.parent}
resources:
  accelerators: cpu:4
  min_sites: 2
env:
  BENCH_OUT: @
"""
GRID = """\
sites:
  north: {accelerators: cpu:2}
  south: {accelerators: cpu:2}
"""


def measure(command: list[str], out: Path, environment: dict[str, str]) -> dict[str, float]:
    """Run one command; return steps per second and seconds from its start to the first step."""
    out.unlink(missing_ok=True)
    start_s = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command} failed: {done.stdout}{done.stderr}")
    found = json.loads(out.read_text())
    return {
        "steps_per_s": found["steps_per_s"],
        "to_first_step_s": found["first_step_s"] - start_s,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        out = place / "out.json"
        (place / "job.yaml").write_text(JOB.replace("@", str(out)))
        (place / "grid.yaml").write_text(GRID)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GRIDLOOM_HOME": str(place / "home"),
            "BENCH_OUT": str(out),
        }
        gridloom = [sys.executable, "-m", "gridloom.cli.main", "run", "-y", "--json"]
        gridloom.append(str(place / "job.yaml"))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", "4", str(SCRIPT)]
        rounds = []
        for number in range(ROUNDS + 1):
            pair = [measure(command, out, environment) for command in (gridloom, torchrun)]
            if number:
                rounds.append(pair)
    for key, unit in (("steps_per_s", "1/s"), ("to_first_step_s", "s")):
        ours = [pair[0][key] for pair in rounds]
        theirs = [pair[1][key] for pair in rounds]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        print(
            f"{key}: gridloom {statistics.median(ours):.2f} {unit}, "
            f"torchrun {statistics.median(theirs):.2f} {unit}, "
            f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
