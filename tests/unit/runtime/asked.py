"""Two ranks of a site, the second of which is asked to stop; what ``test_run`` starts."""

import json
import os
import signal
import sys

from gridloom.base.system import SystemClock
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish


def main() -> None:
    """Say whether to stop, before and after the request."""
    stop = StopWish()
    stop.listen()
    run = Run(place_in(os.environ), SystemClock(), stop)  # noqa: TID251
    seen = [run.should_stop()]
    if run.place.rank == 1:
        signal.raise_signal(signal.SIGTERM)
    seen.append(run.should_stop())
    run.close()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
