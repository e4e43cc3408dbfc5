"""Nodes that take no new work: which one a person means, and what is said of it."""

from collections.abc import Mapping
from typing import Any

from gridloom.base.errors import InputError
from gridloom.base.units import format_duration
from gridloom.core.state import Mark, State, live_tasks, stands_on
from gridloom.model.inventory import Inventory
from gridloom.wire.documents_values import did_you_mean

WORDS = {"cordon": "cordoned", "drain": "drained", "taint": "tainted", "lost": "lost"}


def find_domain(inventory: Inventory, wanted: str) -> str:
    """Return the site, or the node as ``site/node``, that a person means.

    Raises:
        InputError: There is none of that name, or several nodes have it.
    """
    nodes = [f"{site.name}/{node.name}" for site in inventory.sites for node in site.nodes]
    known = [*(site.name for site in inventory.sites), *nodes]
    if wanted in known:
        return wanted
    named = [node for node in nodes if node.partition("/")[2] == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(f"several sites have a node {wanted!r}: {', '.join(named)}; name its site")
    listed = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    hint = did_you_mean(wanted, known) or f"there are: {listed}"
    raise InputError(f"there is no node or site {wanted!r}; {hint}")


def mark_of(marks: Mapping[str, Mark], domain: str) -> Mark | None:
    """Return why a node takes no new work: its own mark, or that of its whole site."""
    return marks.get(domain) or marks.get(domain.partition("/")[0])


def mark_text(domain: str, mark: Mark, now_s: float) -> str:
    """Return a mark as a sentence."""
    by = " by the scheduler" if mark.by_core else " by its site" if mark.by_site else ""
    why = f": {mark.sentence}" if mark.sentence else ""
    ago = format_duration(max(0.0, now_s - mark.since_s))
    return f"{domain} was {WORDS[mark.mark]}{by} {ago} ago{why}"


def marks_json(marks: Mapping[str, Mark]) -> list[dict[str, Any]]:
    """Return all marks, by site and node."""
    return [
        {
            "domain": domain,
            "mark": mark.mark,
            "reason": mark.sentence,
            "since_s": mark.since_s,
            "by_scheduler": mark.by_core,
            "by_site": mark.by_site,
        }
        for domain, mark in sorted(marks.items())
    ]


def jobs_on(state: State, domain: str) -> list[str]:
    """Return the ids of the jobs that run on a node, or anywhere at a site."""
    return [
        job.job_id
        for job in sorted(state.jobs.values(), key=lambda job: job.job_id)
        if job.attempt is not None
        and any(
            domain in (stands_on(task), task.placement.site) for task in live_tasks(job.attempt)
        )
    ]
