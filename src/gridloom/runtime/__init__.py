"""The training runtime: what runs in each rank, and what a training loop of one's own calls."""

from gridloom.runtime.library import init, report, should_stop, sync

__all__ = ["init", "report", "should_stop", "sync"]
