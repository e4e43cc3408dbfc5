"""The sentences that say what a job asks for, what the sites have, and what is missing."""

from collections.abc import Sequence

import msgspec

from gridloom.core.demand import Demand
from gridloom.model.reason import Reason, Refusal, Why
from gridloom.model.spec import JobSpec, Option

_NAMED_MAX = 4
"""Sites that one sentence names; more are counted."""

RULES = (
    Why.WRONG_ACCELERATOR,
    Why.TOO_LITTLE_MEMORY,
    Why.WRONG_LABELS,
    Why.NOT_CHOSEN,
    Why.NODE_AWAY,
    Why.TOO_LITTLE_HOST,
    Why.TOO_FEW_FREE,
    Why.HELD_FOR_EARLIER_JOB,
    Why.IN_USE,
)
"""Why nodes are refused; the later the rule, the nearer the node was to being taken."""

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one allowed site has for one shape of a job.

    Attributes:
        site: Its name.
        total: Devices of the right kind and size.
        free: Those that no attempt uses.
        found: Those that the job could take, in whole groups.
        users: The jobs that use the others.
        held_for: The earlier job for which nodes are kept; empty for none.
    """

    site: str
    total: int
    free: int
    found: int
    users: tuple[str, ...] = ()
    held_for: str = ""


def number_of_sites(count: int) -> str:
    """Return ``one site`` or ``3 sites``."""
    return "one site" if count == 1 else f"{count} sites"


def shapeless() -> Reason:
    """Return why a job without options can never run."""
    return Reason(
        code=Why.NEVER_FITS,
        sentence="has no shape that could be placed",
        remedy="ask for a number of accelerators that the model can be cut for",
    )


def no_inventory() -> Reason:
    """Return why every job waits before the first report of what there is."""
    return Reason(code=Why.TOO_FEW_FREE, sentence="waits until the grid has reported what it has")


def next_look() -> Reason:
    """Return why a job waits that could start by now: others were decided on after it."""
    sentence = "may start when the scheduler looks again: others were decided on after it"
    return Reason(code=Why.IN_USE, sentence=sentence)


def never_fits(spec: JobSpec, option: Option, looks: Sequence[Look]) -> str:
    """Return the arithmetic of a job that could not run even on the empty grid."""
    groups = option.plan.data
    if spec.min_sites > spec.max_sites:
        return f"asks for {spec.min_sites} sites at least and {spec.max_sites} at most"
    if spec.min_sites > groups:
        return (
            f"asks for {spec.min_sites} sites at least, but a site takes whole replica groups"
            f" and the job has {groups}"
        )
    count = spec.max_sites
    found = sorted((look.found for look in looks), reverse=True)[:count]
    found += [0] * (min(count, len(_WORDS) - 1) - len(found))
    size = option.plan.replica_ranks * option.rank_devices
    whole = f" in whole groups of {size}" if size > 1 else ""
    largest = "largest site" if count == 1 else f"largest {_word(count)} sites"
    others = "; none of its other shapes fits either" if len(spec.options) > 1 else ""
    have = f"{'has' if count == 1 else 'have'} {' + '.join(map(str, found))}{whole}"
    return f"asks for {_wish(spec, option)}; the {largest} that it may use {have}{others}"


def waiting(
    spec: JobSpec, option: Option, looks: Sequence[Look], refusals: tuple[Refusal, ...]
) -> Reason:
    """Return why a job waits that could run on the empty grid."""
    sites = {look.site for look in looks if look.total}
    codes = [refusal.code for refusal in refusals if refusal.domain in sites]
    named = [_site_sentence(look, option) for look in looks if look.total]
    if len(named) > _NAMED_MAX:
        named = [*named[:_NAMED_MAX], f"and {len(named) - _NAMED_MAX} more sites no more"]
    return Reason(
        code=max(codes, key=codes.count, default=Why.IN_USE),
        sentence=f"waits for {_wish(spec, option)}: {', '.join(named)}",
        refusals=refusals,
    )


def site_refusal(demand: Demand, look: Look, refused: Sequence[Refusal]) -> Refusal:
    """Return why one site is not enough: the rule that failed where it came nearest."""
    option = demand.option
    codes = [refusal.code for refusal in refused]
    if look.found:
        codes.append(Why.TOO_FEW_FREE)
    return Refusal(
        code=max(codes, key=RULES.index, default=Why.TOO_FEW_FREE),
        domain=look.site,
        sentence=_site_sentence(look, option),
        wanted=option.devices,
        found=look.found,
    )


def _wish(spec: JobSpec, option: Option) -> str:
    least, most = max(spec.min_sites, 1), spec.max_sites
    if least == most:
        where = number_of_sites(most)
    else:
        where = f"up to {most} sites" if least == 1 else f"{least} to {most} sites"
    return f"{option.devices} {option.accelerator} at {where}"


def _site_sentence(look: Look, option: Option) -> str:
    if not look.total:
        return f"{look.site} has no {option.accelerator} that would do"
    notes = []
    if look.held_for:
        notes.append(f"kept for {look.held_for}, which comes first")
    elif look.users:
        others = len(look.users) - 1
        more = f" and {_word(others)} more run" if others else " runs"
        notes.append(f"job {look.users[0]}{more} there")
    if 0 < look.found < look.free or (look.free and not look.found and not look.held_for):
        size = option.plan.replica_ranks * option.rank_devices
        usable = f"in whole groups of {size}" if size > 1 else "that it can use"
        notes.append(f"{look.found} {usable}")
    text = f"{look.site} has {look.free} of {look.total} free"
    return f"{text} ({'; '.join(notes)})" if notes else text


def _word(count: int) -> str:
    return _WORDS[count] if count < len(_WORDS) else str(count)
