"""Two sites of two ranks each, as processes of one machine."""

import os
from itertools import count

from gridloom.base.sockets import can_listen
from gridloom.wire.launch import Rank

_PORTS = range(10_000, 20_000)
"""Below those that Linux gives to outgoing connections: one of these may come at any time."""
_PORTS_OF_WORKER = 1_000
_taken = count(os.getpid())


def free_ports(number: int) -> list[int]:
    """Return ports in a row that nobody listens on, nor will: others are returned each time."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")  # noqa: TID251 - who runs beside this one
    first = _PORTS[int(worker.removeprefix("gw")) * _PORTS_OF_WORKER % len(_PORTS)]
    for _ in range(_PORTS_OF_WORKER):
        row = [first + next(_taken) % _PORTS_OF_WORKER for _ in range(number)]
        is_row = row[-1] - row[0] == number - 1
        if is_row and all(can_listen("127.0.0.1", port) for port in row):
            return row
    raise AssertionError("no ports are free in a row")


def variables_of(number: int, port: int) -> dict[str, str]:
    """Return the variables of the rank with this number, from 0; the first one listens there."""
    rank = Rank(
        job_id="job", attempt=1, epoch=1, rank=number, world_size=4, local_rank=number,
        local_world_size=4, node_rank=0, node_count=1, site="ab"[number // 2],
        site_ranks=(("a", 2), ("b", 2)), node_addresses=("127.0.0.1",),
        master_address="127.0.0.1", master_port=port, restart_count=0, run_dir="",
        report_file="", grace_s=5.0, node_ranks=(4,),
    )  # fmt: skip
    return rank.environment() | {"OMP_NUM_THREADS": "1"}
