"""One rank of `overhead_site`'s `init`: joins the others, with gridloom or not; prints seconds."""

import os
import sys
import time
from pathlib import Path

import torch.distributed as dist

import gridloom.runtime as gl

PATIENCE_S = 120.0
"""For the other ranks to start."""


def main(kind: str, place: Path) -> None:
    """Join once all ranks are there, so that nobody waits for another's start."""
    (place / os.environ["RANK"]).touch()
    limit_s = time.perf_counter() + PATIENCE_S
    while len(list(place.iterdir())) < int(os.environ["WORLD_SIZE"]):
        if time.perf_counter() > limit_s:
            sys.exit("the other ranks did not start")
        time.sleep(0.001)
    start_s = time.perf_counter()
    if kind == "gridloom":
        gl.init()
    else:
        dist.init_process_group("gloo")
    print(time.perf_counter() - start_s)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
