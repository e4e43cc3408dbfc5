"""A control plane that a test can kill: submits one order, renews it, and hears of nothing else."""

import sys
from pathlib import Path

from gridloom.agent.processes import sweep
from gridloom.base.codec import decode
from gridloom.base.system import SystemClock
from gridloom.model.inventory import Site
from gridloom.sites.local.driver import LocalDriver
from gridloom.wire.agent import TaskOrder


def main() -> None:
    clock = SystemClock()
    order = decode(Path(sys.argv[2]).read_bytes(), TaskOrder)
    driver = LocalDriver(Path(sys.argv[1]), sys.executable, clock, sweep)
    site = Site(name=order.task.site, kind="local", nodes=())
    assert not driver.submit(site, [order])
    while True:
        driver.renew(order.task, clock.now_s() + order.lease_s)
        clock.sleep(0.5)


if __name__ == "__main__":
    main()
