"""Faults between sites: what a site that is healthy feels of them, on an emulated WAN.

    python -m bench.wan_faults --quick          # shorter faults: about ten minutes, quiet machine
    python -m bench.wan_faults [--case cut ...] [--json]

Two sites (and once three) train one model by outer steps, each on a core of its own as far as there
are any (needs root). First undisturbed, for so long; then each case anew, with one fault, until all
sites together have trained on as many tokens. In every second window of a few seconds all sites
train as if they were alone: what ``gl.sync`` costs before, during and after the fault is the ratio
of the two kinds of windows, side by side (1: nothing).

A healthy site must not wait (``pause``: the longest time from one step to the next), nor start
anew. Its loss must not ``jump``: the mean of 20 steps over that of the 20 before, at the beginning
of the fault, at its end and when all sites are one model again; of the difference to the
undisturbed run, step by step, on the same samples; beside it, how much that changes by itself. Text
that was held out must be predicted as well as by the undisturbed run after as many tokens. And all
sites must end with one model, soon after the fault (``again``: seconds until every fragment has
been averaged over all sites; half of them pass without ``gl.sync``).
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from bench.wan_bed import Bed
from bench.wan_faults_party import Party, Site, Step

LINK = "* delay=20ms rate=100mbit"
NOISY = "* delay=20ms jitter=40ms rate=100mbit loss=1%"
"""One way from 20 to 60 ms."""

FRAGMENTS = 4
PAUSE_S_MAX = 5.0
RATIO_MIN = 0.90
_SPAN = 20  # steps that are taken together to compare losses
_JUMP_NATS = 0.05
_STEPS_APART = 0.02
_PATIENCE_S = 180.0  # for a process to begin and to end: others may use the machine too


@dataclass(frozen=True)
class Times:
    """How long the parts of a run last, in seconds.

    Attributes:
        warm_s: Until what is measured.
        before_s: Then, before the fault.
        fault_s: The fault.
        after_s: Then, in the undisturbed run, which gives the others their tokens.
        gone_s: From the death of a process to the start of the next.
        window_s: Of each window with ``gl.sync``, and each without.
    """

    warm_s: float
    before_s: float
    fault_s: float
    after_s: float
    gone_s: float
    window_s: float


FULL = Times(warm_s=20, before_s=40, fault_s=60, after_s=60, gone_s=30, window_s=4)
QUICK = Times(warm_s=10, before_s=15, fault_s=10, after_s=25, gone_s=5, window_s=1.5)

Fault = Callable[[Bed, Party, Times], "contextlib.AbstractContextManager[None]"]


@contextlib.contextmanager
def _nothing(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    """No fault."""
    yield


@contextlib.contextmanager
def _cut(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    """The last site's links carry nothing, without a sign."""
    last = bed.sites[-1]
    bed.shape(LINK, *(f"{name} {last} down" for name in bed.sites[:-1]))
    yield
    bed.shape(LINK)


@contextlib.contextmanager
def _killed_last(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    with _killed(bed.sites[-1], party, times):
        yield


@contextlib.contextmanager
def _killed_first(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    """Of two sites, the one without which there is no quorum."""
    with _killed(bed.sites[0], party, times):
        yield


@contextlib.contextmanager
def _killed(name: str, party: Party, times: Times) -> Iterator[None]:
    party.kill(name)
    time.sleep(times.gone_s)
    party.restart(name)
    yield


@contextlib.contextmanager
def _slowed(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    with party.slowed(bed.sites[-1], 3.0):
        yield


@contextlib.contextmanager
def _noisy(bed: Bed, party: Party, times: Times) -> Iterator[None]:
    bed.shape(NOISY)
    yield
    bed.shape(LINK)


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        sites: Names.
        fault: What is done.
        healthy: Sites that must feel nothing.
    """

    sites: tuple[str, ...]
    fault: Fault
    healthy: tuple[str, ...]


CASES = {
    "cut": Case(("a", "b"), _cut, ("a", "b")),
    "killed": Case(("a", "b"), _killed_last, ("a",)),
    "killed-first": Case(("a", "b"), _killed_first, ("b",)),
    "slow": Case(("a", "b"), _slowed, ("a",)),
    "noisy": Case(("a", "b"), _noisy, ("a", "b")),
    "killed-of-three": Case(("a", "b", "c"), _killed_last, ("a", "b")),
}
"""By name; with a fault that lasts or, where a process is killed, until the next one trains."""


@dataclass
class Trial:
    """A run: what its sites printed, and when the fault began and ended."""

    sites: dict[str, Site]
    began_s: float
    ended_s: float
    stopped_s: float
    hub_share: float

    @property
    def steps(self) -> int:
        """Of all sites, those of processes that were killed too."""
        return sum(len(site.steps) for site in self.sites.values())


@dataclass
class Figures:
    """What a healthy site felt of a fault.

    Attributes:
        ratio_fault: Steps a second with ``gl.sync`` over those without it, during the fault.
        ratio_after: After it.
        ratio_before: Before it.
        pause_s: Longest time from one step to the next.
        jump_nats: Of the loss, the largest.
        noise_nats: Standard deviation of what ``jump_nats`` is in undisturbed times.
        one_again_s: From the end of the fault until all fragments were averaged over all sites;
            ``None`` if they were not before the end of the run.
        held_out_ratio: Nats on text that was held out, over those of the undisturbed run; ``None``
            where that had other than as many tokens, by more than 2 %.
        faults: Laws that were broken, a sentence each.
    """

    ratio_fault: float | None
    ratio_after: float | None
    ratio_before: float | None
    pause_s: float
    jump_nats: float | None
    noise_nats: float | None
    one_again_s: float | None
    held_out_ratio: float | None
    faults: list[str] = field(default_factory=list)


def run(case: Case, times: Times, steps: int | None, options: Sequence[str]) -> Trial:
    """Run a case until all sites have made so many steps, or for the time that ``times`` gives."""
    options = [*options, f"--fragments={FRAGMENTS}", f"--window={times.window_s}"]
    with Bed(case.sites, [LINK]) as bed:
        party = Party(bed, options, patience_s=_PATIENCE_S)
        party.until(lambda: all(s.steps for s in party.sites.values()), "all sites train")
        time.sleep(times.warm_s + times.before_s)
        began_s = time.monotonic()
        with case.fault(bed, party, times):
            ended_s = time.monotonic()  # of a fault that is over by itself
            if case.fault not in (_killed_first, _killed_last):
                time.sleep(times.fault_s)
        if case.fault not in (_killed_first, _killed_last):
            ended_s = time.monotonic()
        if steps is None:
            time.sleep(times.after_s)
        else:
            time.sleep(times.after_s / 2)  # at least, should the machine be faster by now
            party.until(lambda: party.steps >= steps, "as many tokens", 20 * times.after_s)
        stopped_s, hub_s = time.monotonic(), bed.hub_cpu_s()
        party.stop()
    share = hub_s / (stopped_s - began_s + times.warm_s + times.before_s)
    return Trial(party.sites, began_s, ended_s, stopped_s, share)


def figures(trial: Trial, name: str, without: Trial) -> Figures:
    """Return what site ``name`` felt, beside the undisturbed run."""
    steps = [step for step in trial.sites[name].steps if step.at_s <= trial.stopped_s]
    one_again_s = one_model_after(steps, trial.ended_s, len(trial.sites))
    events = [trial.began_s, trial.ended_s]
    if one_again_s is not None:
        events.append(trial.ended_s + one_again_s)
    jump, noise = jumps(steps, without.sites[name].steps, events)
    end, its = trial.sites[name].end, without.sites[name].end
    is_equal = abs(trial.steps / without.steps - 1) <= _STEPS_APART and "nats" in end
    found = Figures(
        ratio_fault=ratio(steps, trial.began_s, trial.ended_s),
        ratio_after=ratio(steps, trial.ended_s, trial.stopped_s),
        ratio_before=ratio(steps, 0.0, trial.began_s),
        pause_s=max(step.seconds for step in steps[1:]),
        jump_nats=jump,
        noise_nats=noise,
        one_again_s=one_again_s,
        held_out_ratio=end["nats"] / its["nats"] if is_equal else None,
    )
    found.faults = broken_laws(found, trial, steps)
    return found


def broken_laws(found: Figures, trial: Trial, steps: Sequence[Step]) -> list[str]:
    """Return what must not be, whatever the machine: a sentence each."""
    told = []
    if found.pause_s > PAUSE_S_MAX:
        told.append(f"a step took {found.pause_s:.1f} s")
    if len({step.pid for step in steps}) != 1:
        told.append("the healthy site was started anew")
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        told.append("the healthy site's steps have a gap")
    if len({site.end.get("weights") for site in trial.sites.values()}) != 1:
        told.append("the sites did not end with one model")
    if found.jump_nats is not None and found.noise_nats is not None:
        allowed = max(_JUMP_NATS, 4 * found.noise_nats)
        if found.jump_nats > allowed:
            told.append(f"the loss jumped by {found.jump_nats:.3f} nats, {allowed:.3f} are usual")
    return told


def ratio(steps: Sequence[Step], from_s: float, to_s: float) -> float | None:
    """Return steps a second with ``gl.sync`` over those without; nothing if there are not both.

    Whole windows only, and each of those without counts beside its two neighbours, so that what
    else the machine does falls on both kinds.
    """
    windows = [list(group) for _, group in groupby(steps, lambda step: step.alone)]
    inside = [w for w in windows[1:-1] if w[0].at_s >= from_s and w[-1].at_s <= to_s]
    while inside and inside[0][0].alone:
        inside.pop(0)
    while inside and inside[-1][0].alone:
        inside.pop()
    if len(inside) < 3:
        return None
    rates: dict[bool, float] = {}
    for alone in (False, True):
        chosen = [step.seconds for w in inside for step in w if step.alone is alone]
        rates[alone] = len(chosen) / sum(chosen)
    return rates[False] / rates[True]


def one_model_after(steps: Sequence[Step], since_s: float, sites: int) -> float | None:
    """Return seconds until every fragment was averaged over all sites; nothing if one was not."""
    missing = set(range(FRAGMENTS))
    for step in steps:
        if step.at_s >= since_s:
            missing -= {number % FRAGMENTS for number, count in step.rounds if count == sites}
        if not missing:
            return step.at_s - since_s
    return None


def jumps(
    steps: Sequence[Step], others: Sequence[Step], events: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return the largest rise of the loss at an event, and its standard deviation before them all.

    Args:
        steps: Of a site.
        others: The same steps, on the same samples, of the undisturbed run.
        events: When something happened, the first first.
    """
    apart = [one.loss - other.loss for one, other in zip(steps, others, strict=False)]
    rises = {
        middle: statistics.mean(apart[middle : middle + _SPAN])
        - statistics.mean(apart[middle - _SPAN : middle])
        for middle in range(_SPAN, len(apart) - _SPAN + 1)
    }
    at = [sum(step.at_s < event for step in steps) for event in events]
    usual = [rise for middle, rise in rises.items() if _SPAN * 2 <= middle <= at[0] - _SPAN]
    found = [rises[middle] for middle in at if middle in rises]
    if not found or len(usual) < 2:
        return None, None
    return max(found), statistics.pstdev(usual)


def _show(name: str, site: str, found: Figures) -> None:
    def number(value: float | None, form: str) -> str:
        return f"{'-':>7}" if value is None else f"{value:{form}}"

    low = [r for r in (found.ratio_fault, found.ratio_after) if r is not None and r < RATIO_MIN]
    told = found.faults + [f"ratio below {RATIO_MIN}"] * bool(low)
    told += ["one model again only at the end"] * (found.one_again_s is None)
    print(
        f"{name:16} {site:4} {number(found.ratio_before, '7.3f')} "
        f"{number(found.ratio_fault, '7.3f')} {number(found.ratio_after, '7.3f')} "
        f"{found.pause_s:7.2f} {number(found.jump_nats, '7.3f')} "
        f"{number(found.noise_nats, '7.3f')} {number(found.one_again_s, '7.1f')} "
        f"{number(found.held_out_ratio, '8.4f')}  {'; '.join(told) or 'sound'}",
        flush=True,
    )


def main() -> int:
    """Print a line a case and healthy site; 1 when a law was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter faults")
    parser.add_argument("--json", action="store_true", help="figures as JSON in the last line")
    parser.add_argument("--case", choices=tuple(CASES), action="append")
    parser.add_argument("--shape", default="small", choices=("small", "tiny"))
    args = parser.parse_args()
    times = QUICK if args.quick else FULL
    options = [f"--shape={args.shape}", "--evaluate-every=10"]
    print(f"{os.cpu_count()} cores; times {times}")
    print(f"{'case':16} site  before   fault   after   pause    jump  (noise)   again held-out")
    undisturbed: dict[tuple[str, ...], Trial] = {}
    told: dict[str, Any] = {}
    for name in args.case or list(CASES):
        case = CASES[name]
        if case.sites not in undisturbed:
            usual = Case(case.sites, _nothing, case.healthy)
            undisturbed[case.sites] = without = run(usual, times, None, options)
            for site in case.sites[:1]:
                _show("undisturbed", site, figures(without, site, without))
        without = undisturbed[case.sites]
        try:
            trial = run(case, times, without.steps, options)
        except (TimeoutError, RuntimeError) as error:
            print(f"{name:16} {error}", flush=True)
            told[name] = {"faults": [str(error)]}
            continue
        for site in case.healthy:
            found = figures(trial, site, without)
            _show(name, site, found)
            told[f"{name}/{site}"] = {**vars(found), "hub_share": trial.hub_share}
    if args.json:
        print(json.dumps(told))
    return int(any(one["faults"] for one in told.values()))


if __name__ == "__main__":
    sys.exit(main())
