"""A rank as a replica group of its own under torchft: its store, its manager, one lighthouse."""

import contextlib
import logging
from collections.abc import Iterator
from datetime import timedelta

from bench.wan_peers import common
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer


@contextlib.contextmanager
def managed(run: common.Run) -> Iterator[Manager]:
    """Yield a manager that every rank takes part with; rank 0 serves the lighthouse.

    The quorum is asked for synchronously, as DiLoCo wants it. All weights start equal from one
    seed, so the first step copies none (``init_sync``).
    """
    logging.getLogger("torchft").setLevel(logging.WARNING)
    lighthouse = None
    if run.rank == 0:
        lighthouse = LighthouseServer(
            bind=f"{run.address}:0", min_replicas=run.world, join_timeout_ms=10_000
        )
        port = lighthouse.address().rpartition(":")[2]
        run.store.set("lighthouse", f"http://{run.address}:{port}")
    own = TCPStore(run.address, 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=common.TIMEOUT_S)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=run.world,
        use_async_quorum=False,
        init_sync=False,
        timeout=timeout,
        quorum_timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=run.address,
        store_port=own.port,
        hostname=run.address,
        lighthouse_addr=run.store.get("lighthouse").decode(),
        replica_id=f"site_{run.rank}",
    )
    try:
        yield manager
    finally:
        manager.shutdown(wait=False)
        if lighthouse is not None:
            lighthouse.shutdown()
