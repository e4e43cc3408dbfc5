"""Start-up time of quick words against a bare interpreter, each the median of several runs.

    python bench/startup.py [RUNS]

The limit is 15 times a bare `python -c pass` of the same interpreter, measured in turn with it.
"""

import statistics
import subprocess
import sys
import time

LIMIT = 15.0
MAIN = (sys.executable, "-m", "gridloom.cli.main")
WORDS = {
    "gridloom --help": (*MAIN, "--help"),
    "gridloom version": (*MAIN, "version"),
    "gridloom ps --help": (*MAIN, "ps", "--help"),
}
BARE = (sys.executable, "-c", "pass")


def seconds(argv: tuple[str, ...]) -> float:
    """Return how long one run takes."""
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    """Print a ratio for each word; 1 when one is beyond the limit."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    seconds(BARE)
    worst = 0.0
    for name, argv in WORDS.items():
        seconds(argv)
        pairs = [(seconds(argv), seconds(BARE)) for _ in range(runs)]
        ours = statistics.median(pair[0] for pair in pairs)
        bare = statistics.median(pair[1] for pair in pairs)
        worst = max(worst, ours / bare)
        print(
            f"{name:20} {ours * 1000:5.0f} ms, {ours / bare:4.1f} times a bare interpreter's "
            f"{bare * 1000:.0f} ms (limit {LIMIT:g})"
        )
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
