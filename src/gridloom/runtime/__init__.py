"""The training runtime: what runs in each rank, and what a training loop of one's own calls."""

from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.runtime.library import (
    checkpoint,
    data,
    init,
    parallelize,
    report,
    should_stop,
    sync,
)
from gridloom.wire.launch import EXIT_STOPPED

__all__ = [
    "EXIT_STOPPED",
    "ParallelPlan",
    "SiteSync",
    "checkpoint",
    "data",
    "init",
    "parallelize",
    "report",
    "should_stop",
    "sync",
]
