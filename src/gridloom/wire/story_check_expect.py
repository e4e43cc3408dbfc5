"""What the expectations of a story must be: of one time each, and about what is in the story."""

from collections.abc import Iterator, Sequence

from gridloom.wire.documents_check import Finding
from gridloom.wire.source_tree import Path
from gridloom.wire.story_expect import (
    CONDITIONS,
    STATES,
    WHENS,
    ConditionDocument,
    ExpectDocument,
)
from gridloom.wire.story_names import Places, names_like, unknown_name

_ALIAS = {"finally_": "finally"}
_NAMED = (*STATES, "holds_nothing", "saved", "order")
_LEVELS = ("within", "ranks_ordered_by")
_GROUPS = ("spread_over", "groups_within")
_PER_JOB = (
    *("holds", "keeps", "tasks", "nodes_of", "nodes_used", "sites_of", "kind_of", "reason"),
    *("attempts", "evicted", "evicted_in_all", "retries_used", "lost_at_most", "promised"),
    *("not_killed_before", "started_at", "started_by", "ended_at", "ended_by"),
    *_LEVELS,
    *_GROUPS,
)


def expect_findings(
    here: Path, expect: ExpectDocument, jobs: Sequence[str], places: Places
) -> Iterator[Finding]:
    """Yield what is wrong with one expectation.

    Args:
        here: Where it stands.
        expect: It.
        jobs: Names of all jobs of the story.
        places: Its nodes, sites, levels and queues.
    """
    whens = [name for name in WHENS if getattr(expect, name) is not None]
    flat = [name for name in CONDITIONS if name in expect.model_fields_set]
    if len(whens) != 1:
        told = " and ".join(f"`{_ALIAS.get(name, name)}`" for name in whens)
        message = f"{told} are both given" if whens else "nothing says when"
        yield here, message, "write one of `at: 20`, `finally:`, `always:`, `never:`, `sometime:`"
    elif whens[0] == "at":
        yield from _condition(here, expect, jobs, places)
    elif flat:
        when = _ALIAS.get(whens[0], whens[0])
        yield (*here, flat[0]), f"stands beside `{when}`", f"move it below `{when}`"
    for name in whens:
        if name != "at":
            place = (*here, _ALIAS.get(name, name))
            yield from _condition(place, getattr(expect, name), jobs, places)
    window = {"from": expect.start, "to": expect.end}
    if set(whens) & {"at", "finally_"}:
        for field, value in window.items():
            if value is not None:
                yield (*here, field), "an instant has no span", "remove it, or write `always:`"
    elif expect.start is not None and expect.end is not None and expect.start > expect.end:
        yield (*here, "to"), "it ends before it begins", "write a later time"


def _condition(
    here: Path, said: ConditionDocument, jobs: Sequence[str], places: Places
) -> Iterator[Finding]:
    if not any(name in said.model_fields_set for name in CONDITIONS):
        yield here, "nothing is expected", f"write one of {', '.join(CONDITIONS)}"
    for name in CONDITIONS:
        if getattr(said, name) == {} and name in said.model_fields_set:
            yield (*here, name), "is empty, and holds of everything", "write a name in it"
    if said.exactly_one_of is not None and not said.exactly_one_of.model_fields_set:
        yield (*here, "exactly_one_of"), "is empty: none is one", "write as `{running: [a, b]}`"
    for place, name in _names(said):
        if not names_like(name, jobs):
            yield (*here, *place), *unknown_name("job", name, jobs)
    for place, level in _levels(said):
        if level not in places.levels:
            yield (*here, *place), *unknown_name("level", level, places.levels)
    yield from _domains(here, said, places)


def _domains(here: Path, said: ConditionDocument, places: Places) -> Iterator[Finding]:
    named = [
        (("nodes_of", name), node)
        for name, alternatives in said.nodes_of.items()
        for node in dict.fromkeys(node for nodes in alternatives for node in nodes)
    ]
    named += [(("mark", name), name) for name in said.mark]
    for place, name in named:
        if wrong := places.wrong(name):
            yield (*here, *place), *wrong
    for job, sites in said.sites_of.items():
        for site in sites:
            if site not in places.sites:
                yield (*here, "sites_of", job), *unknown_name("site", site, places.sites)
    for queue in said.used:
        if queue not in places.queues:
            yield (*here, "used", queue), *unknown_name("queue", queue, places.queues)


def _names(said: ConditionDocument) -> Iterator[tuple[Path, str]]:
    for field in _NAMED:
        for name in getattr(said, field):
            yield (field,), name
    for field in _PER_JOB:
        for name in getattr(said, field):
            yield (field, name), name
    for pair in said.before:
        for name in pair:
            yield ("before",), name
    if said.exactly_one_of is not None:
        for field in type(said.exactly_one_of).model_fields:
            for name in getattr(said.exactly_one_of, field):
                yield ("exactly_one_of", field), name


def _levels(said: ConditionDocument) -> Iterator[tuple[Path, str]]:
    for field in _LEVELS:
        for name, level in getattr(said, field).items():
            yield (field, name), level
    for field in _GROUPS:
        for name, groups in getattr(said, field).items():
            for level in groups:
                yield (field, name), level
