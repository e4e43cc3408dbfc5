"""Two sites of two ranks each, as processes of one machine."""

import socket
from contextlib import ExitStack

from gridloom.wire.launch import Rank


def free_ports(count: int) -> list[int]:
    """Return ports in a row that nobody listens on."""
    for _ in range(50):
        with ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = int(first.getsockname()[1])
            try:
                for other in range(port + 1, port + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", other)))
            except OSError:
                continue
            return list(range(port, port + count))
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
