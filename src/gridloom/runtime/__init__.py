"""The training runtime: what runs in each rank, and what a training loop of one's own calls.

A name of this package is loaded when it is first asked for: a rank of gridloom's own program does
not wait for what it does not use, nor does a loop for sharding that it does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridloom.model.parallel import ParallelPlan, SitePrivacy, SiteSync
    from gridloom.runtime.library.cutting import parallelize
    from gridloom.runtime.library.keeping import checkpoint
    from gridloom.runtime.library.loading import data
    from gridloom.runtime.library.staging import pipeline
    from gridloom.runtime.library.start import init, report, should_stop
    from gridloom.runtime.library.syncing import sync
    from gridloom.runtime.shards import Shards
    from gridloom.runtime.updates import SyncOptions
    from gridloom.runtime.wan.stages import StageOptions
    from gridloom.wire.launch import EXIT_STOPPED

__all__ = [
    "EXIT_STOPPED",
    "ParallelPlan",
    "Shards",
    "SitePrivacy",
    "SiteSync",
    "StageOptions",
    "SyncOptions",
    "checkpoint",
    "data",
    "init",
    "parallelize",
    "pipeline",
    "report",
    "should_stop",
    "sync",
]

_HOMES = {
    "EXIT_STOPPED": "gridloom.wire.launch",
    "ParallelPlan": "gridloom.model.parallel",
    "Shards": "gridloom.runtime.shards",
    "SitePrivacy": "gridloom.model.parallel",
    "SiteSync": "gridloom.model.parallel",
    "StageOptions": "gridloom.runtime.wan.stages",
    "SyncOptions": "gridloom.runtime.updates",
    "checkpoint": "gridloom.runtime.library.keeping",
    "data": "gridloom.runtime.library.loading",
    "init": "gridloom.runtime.library.start",
    "parallelize": "gridloom.runtime.library.cutting",
    "pipeline": "gridloom.runtime.library.staging",
    "report": "gridloom.runtime.library.start",
    "should_stop": "gridloom.runtime.library.start",
    "sync": "gridloom.runtime.library.syncing",
}


def __getattr__(name: str) -> object:
    """Load a name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
