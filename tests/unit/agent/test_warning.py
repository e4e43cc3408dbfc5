"""A real supervisor of a batch script that catches a signal of its own."""

import signal
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace
from tests.contract.harness import eventually
from tests.unit.sites.slurm.orders import order

from gridloom.base.codec import encode
from gridloom.base.system import SystemClock
from gridloom.model.reason import Why
from gridloom.model.spec import Batch
from gridloom.wire.agent import GANG_FILE, ORDER_FILE, REPORTS_FILE, Gang, RankOrder
from gridloom.wire.reports import REPORTS, Ended

SCRIPT = """
trap 'echo saved; exit 0' USR1
sh -c 'trap "echo the child, too" USR1; while :; do sleep 0.05; done' &
echo started
while :; do sleep 0.05; done
"""


def test_the_batch_systems_warning_reaches_the_script_and_nobody_else(tmp_path: Path) -> None:
    asked = order(tmp_path, devices=1, batch=Batch(warning="USR1"), meets=None)
    (rank,) = asked.ranks
    log = tmp_path / "log"
    place = tmp_path / "task"
    place.mkdir()
    said = replace(
        asked,
        argv=("sh", "-c", SCRIPT),
        ranks=(RankOrder(rank=rank.rank, devices=(0,), log_file=str(log)),),
        lease_s=60.0,
        lease_until_s=SystemClock().now_s() + 60.0,
    )
    (place / ORDER_FILE).write_bytes(encode(said))
    (tmp_path / GANG_FILE).write_bytes(encode(Gang(directories=(str(place),))))
    guardian = subprocess.Popen(
        ["/usr/bin/env", "SLURM_PROCID=0", sys.executable, "-P", "-m", "gridloom.agent",
         "--gang", str(tmp_path)],
    )  # fmt: skip
    try:
        eventually(lambda: log.exists() and "started" in log.read_text())
        guardian.send_signal(signal.SIGUSR1)
        assert guardian.wait(20.0) == 0
    finally:
        guardian.kill()
        guardian.wait()
    assert log.read_text() == "started\nsaved\n"
    last = REPORTS.decode((place / REPORTS_FILE).read_bytes().splitlines()[-1])
    assert isinstance(last, Ended)
    assert last.outcome.code is Why.COMPLETED
