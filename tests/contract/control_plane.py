"""A control plane that a test can kill: submits one order, renews it, and hears of nothing else."""

import sys
from pathlib import Path

from gridloom.agent.processes import sweep
from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.base.system import SystemClock
from gridloom.model.inventory import Site
from gridloom.ports.driver import Driver
from gridloom.sites.kube.client import KubeClient
from gridloom.sites.kube.driver import KubeDriver
from gridloom.sites.local.driver import LocalDriver
from gridloom.sites.threads import DaemonExecutor
from gridloom.wire.agent import TaskOrder


def driver_of(site: Site, runs: Path, clock: Clock) -> Driver:
    """Return a driver that remembers nothing, as after a restart of the control plane."""
    if site.kind == "kubernetes":
        return KubeDriver(runs, clock, lambda place: KubeClient(place, clock), DaemonExecutor())
    return LocalDriver(runs, sys.executable, clock, sweep)


def main() -> None:
    clock = SystemClock()
    order = decode(Path(sys.argv[2]).read_bytes(), TaskOrder)
    site = decode(Path(sys.argv[3]).read_bytes(), Site)
    driver = driver_of(site, Path(sys.argv[1]), clock)
    assert not driver.submit(site, [order])
    while True:
        driver.observe([order.task])
        driver.renew(order.task, clock.now_s() + order.lease_s)
        clock.sleep(0.1)


if __name__ == "__main__":
    main()
