"""Names that a cluster takes: of one attempt's objects, and of its pods (pure)."""

import re

from gridloom.base.codec import digest

NAME_MAX = 50
"""Characters of an object's name: what a JobSet appends for a pod must fit into 63 with it."""

_DIGEST = 12
_SCOPE_DIGEST = 6


def object_name(job_id: str, attempt: int, *, life: int = 1, scope: str = "") -> str:
    """Return the name of the objects of one life of one attempt, always the same one.

    Two jobs do not share a name: where the id itself is no DNS label, or too long, a digest of it
    is part of the name, after two hyphens, which no other name has.

    Args:
        job_id: The job.
        attempt: The attempt's number.
        life: Which life of the site in it.
        scope: What tells it from others of the same namespace that have the same numbers.
    """
    suffix = f"-a{attempt}" + (f"-l{life}" if life > 1 else "")
    if scope:
        suffix += f"-{digest(scope)[:_SCOPE_DIGEST]}"
    room = NAME_MAX - len(suffix)
    slug = re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")
    if slug == job_id and slug[0].isalpha() and len(slug) <= room:
        return slug + suffix
    head = re.sub(r"^[^a-z]*", "", slug) or "job"
    head = head[: room - _DIGEST - 2].rstrip("-")
    return f"{head}--{digest(job_id)[:_DIGEST]}{suffix}"
