"""What sites say of their own nodes, as news (pure)."""

from collections.abc import Mapping, Sequence

from gridloom.core.state import Mark
from gridloom.model.event import NodeMarked


def news(
    marks: Mapping[str, Mark], site: str, told: Sequence[NodeMarked] | None
) -> list[NodeMarked]:
    """Return what of it is to be handed to the core: what it does not know yet.

    Args:
        marks: What the core knows.
        site: Whose nodes.
        told: All nodes that the site keeps from work now; nothing if that is not known.
    """
    if told is None:
        return []
    now = {one.domain: one for one in told}
    fresh = [one for one in told if _is_fresh(marks.get(one.domain), one)]
    over = [
        NodeMarked(domain=domain, mark="", by_site=True)
        for domain, mark in marks.items()
        if mark.by_site and domain.startswith(f"{site}/") and domain not in now
    ]
    return fresh + over


def _is_fresh(known: Mark | None, said: NodeMarked) -> bool:
    if known is None:
        return True
    if not known.by_site:  # a person's word stands; the core's own is only a guess
        return known.by_core
    return (known.mark, known.sentence) != (said.mark, said.sentence)
