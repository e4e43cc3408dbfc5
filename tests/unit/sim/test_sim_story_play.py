"""Stories played: what happens when, what ends them, and what every story expects besides."""

from collections.abc import Sequence

import pytest

from gridloom.base.errors import BrokenError
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.model.action import StartAttempt, StopTask
from gridloom.model.event import AnyEvent, BookingMade, NodeMarked, SignalChanged
from gridloom.ports.journal import Record
from gridloom.sim.story import ORIGIN_S, prepare
from gridloom.sim.story_play import Played, play
from gridloom.sim.story_trace import told
from gridloom.wire.stories import read_story

TWO_SITES = "{sites: {a: 2x gpu:8, b: 2x gpu:8}}"


def played(
    events: Sequence[str],
    expect: Sequence[str],
    *,
    grid: str = "{nodes: 2x gpu:8}",
    more: str = "",
    records: list[Record] | None = None,
    seed: int = 0,
) -> Played:
    lines = ["about: test", f"grid: {grid}", *filter(None, [more]), "events:"]
    lines += [f"  - {event}" for event in events] + ["expect:"] + [f"  - {one}" for one in expect]
    story = prepare(read_story("\n".join(lines).encode(), "s.yaml"), "s")
    return play(story, seed=seed, journal=records.append if records is not None else None)


def job(name: str = "a", more: str = "") -> str:
    return f"{{at: 0, submit: {{name: {name}, gpus: 8{more}}}}}"


def holds(events: Sequence[str], expect: Sequence[str], **more: str) -> None:
    found = played(events, expect, **more)  # type: ignore[arg-type]
    assert found.holds, found.differences


def test_programs_end_when_the_story_says_so() -> None:
    holds(
        [job(), job("b"), job("c"), "{at: 10, finish: a}", "{at: 20, fail: {job: b, exit: 3}}"],
        [
            "{at: 9, running: [a, b], waiting: c}",
            "{at: 10, succeeded: a, running: c}",
            "{at: 20, failed: b, reason: {b: {code: exited, contains: [status 3]}}}",
        ],
    )


def test_what_ends_comes_before_what_is_handed_in() -> None:
    events = [job(more=", tasks: 2"), "{at: 10, submit: {name: b, tasks: 2, gpus: 8}}"]
    holds([*events, "{at: 10, finish: a}"], ["{at: 10, succeeded: a, running: b}"])


def test_a_program_may_end_at_the_instant_in_which_it_starts() -> None:
    holds([job(), "{at: 0, finish: a}"], ["{at: 0, succeeded: a}"])


def test_a_program_that_does_not_run_cannot_end() -> None:
    events = [job(more=", tasks: 2"), job("b"), "{at: 5, finish: b}"]
    found = played(events, ["{at: 9, waiting: b}"])
    ((expected, so),) = found.differences[0].mismatches
    assert expected == "the program of b ends at 5"
    assert so.startswith("it is queued: in_use")


def test_users_and_operators() -> None:
    holds(
        [
            job(more=", save: 5"),
            job("b"),
            "{at: 10, stop: a}",
            "{at: 20, cancel: b}",
            "{at: 30, resume: a}",
            "{at: 40, preempt: a}",
        ],
        [
            "{at: 12, stopping: a}",
            "{at: 15, stopped: a}",
            "{at: 20, cancelled: b}",
            "{at: 30, running: a}",
            "{at: 50, evicted: {a: 1}, running: a, attempts: {a: 3}}",
        ],
    )


def test_marks_come_and_go() -> None:
    holds(
        [
            job(),
            "{at: 10, drain: n0}",
            "{at: 10, cordon: n1}",
            "{at: 20, undrain: n0}",
            "{at: 30, taint: n0}",
            "{at: 40, restore: [n0, n1]}",
            "{at: 50, lose: n0}",
        ],
        [
            "{at: 10, mark: {n0: drain, n1: cordon}, waiting: a}",
            "{at: 20, mark: {n0: well}, running: a}",
            "{at: 30, mark: {n0: taint}, waiting: a}",
            "{at: 40, running: a}",
            "{at: 50, mark: {n0: lost}, retries_used: {a: 1}}",
        ],
    )


def test_a_node_that_dies_in_silence_is_known_to_later() -> None:
    events = [job(more=", pin: n0, backoff: 0"), "{at: 10, silence: n0}", "{at: 60, restore: n0}"]
    expect = ["{at: 14, running: a}", "{at: 16, waiting: a}", "{at: 60, running: a}"]
    holds(events, expect, more="terms: {detect: 5}")


def test_a_site_that_is_cut_off_runs_on() -> None:
    events = [job(more=", sites: a"), "{at: 10, silence: a}", "{at: 15, restore: a}"]
    holds(events, ["finally: {running: a, attempts: {a: 1}}"], grid=TWO_SITES)


def test_a_partition_slows_who_uses_the_link_until_it_is_over() -> None:
    gang = job(more=", tasks: 4, min_sites: 2, duration: 100")
    events = [gang, "{at: 50, partition: [a, b]}", "{at: 80, restore: b}"]
    holds(events, ["finally: {succeeded: a, ended_at: {a: 130}}"], grid=TWO_SITES)


def test_a_slow_node_slows_the_gang() -> None:
    gang = job(more=", tasks: 2, duration: 100")
    events = [gang, "{at: 50, slow: {where: n1, factor: 2}}", "{at: 70, restore: n1}"]
    holds(events, ["finally: {ended_at: {a: 110}}"])


def test_processes_die_and_nodes_refuse() -> None:
    events = [
        job(more=", backoff: 0"),
        "{at: 10, kill: n0}",
        "{at: 20, refuse: n1}",
        "{at: 21, submit: {name: b, gpus: 8, backoff: 100}}",
        "{at: 30, restore: n1}",
    ]
    holds(events, ["{at: 12, attempts: {a: 2}}", "{at: 22, waiting: b}", "finally: {running: b}"])


def test_bookings_and_signals_reach_the_scheduler() -> None:
    records: list[Record] = []
    played(
        [
            job(),
            "{at: 1, book: {name: x, from: 10, to: 20, nodes: n1}}",
            "{at: 2, price: {here: 3}, }",
            "{at: 3, carbon: {here: 70}}",
            "{at: 4, unbook: x}",
        ],
        ["{at: 5, running: a}"],
        records=records,
    )
    facts: list[AnyEvent] = [event for record in records for event in record.events]
    (made,) = [event.booking for event in facts if isinstance(event, BookingMade)]
    assert (made.start_s, made.end_s, made.nodes) == (ORIGIN_S + 10, ORIGIN_S + 20, ("here/n1",))
    signals = [event for event in facts if isinstance(event, SignalChanged)]
    assert [(s.price_per_accelerator_hour, s.carbon_g_per_kwh) for s in signals] == [
        (3, None),
        (None, 70),
    ]


def test_the_grid_grows() -> None:
    events = [job(more=", array: 4"), "{at: 10, grid: {nodes: 4x gpu:8}}"]
    holds(events, ["{at: 9, waiting: 'a[3]'}", "{at: 10, running: a, free: 0}"])


def test_a_story_ends_when_it_says_so() -> None:
    found = played([job(more=", duration: 100")], ["finally: {running: a}"], more="until: 50")
    assert found.holds
    assert played([job(more=", duration: 100")], ["finally: {succeeded: a}"]).end_s == 100


def test_signs_of_life_do_not_keep_a_story_going() -> None:
    found = played([job()], ["finally: {running: a}"], more="terms: {leases: true}")
    assert found.holds
    assert 3000 < found.end_s <= 3600


def test_the_same_seed_plays_the_same() -> None:
    events = [job(more=", array: 3, retry_on: any, fails_after: 5, retries: 2")]
    runs: list[list[Record]] = [[], [], []]
    for seed, records in zip((1, 1, 2), runs, strict=True):
        assert played(events, ["finally: {failed: a}"], records=records, seed=seed).holds
    assert runs[0] == runs[1] != runs[2]


def test_a_law_that_is_broken_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: State) -> None:
        raise BrokenError("law broken: for a test")

    monkeypatch.setattr(laws, "check", broken)
    found = played([job()], ["finally: {running: a}"])
    assert ("the scheduler keeps its own laws", "law broken: for a test") in (
        found.differences[0].mismatches
    )


def test_a_job_that_waits_without_a_reason_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "reason", lambda _self, _job_id: None)
    found = played([job(more=", tasks: 2"), job("b")], ["{at: 5, waiting: b}"])
    assert [d.mismatches for d in found.differences] == [
        (("whoever waits has a reason", "b could start and does not"),),
        (("whoever waits has a reason", "b could start and does not"),),
    ]


def test_the_course_of_a_story_in_words() -> None:
    records: list[Record] = []
    played(
        [
            job(more=", save: 5, checkpoint_every: 100, duration: 1000"),
            "{at: 1, book: {name: x, from: 3000, to: 4000, nodes: n1}}",
            "{at: 2, unbook: x}",
            "{at: 3, price: {here: 3}}",
            "{at: 4, carbon: {here: 70}}",
            "{at: 10, drain: n0}",
            "{at: 20, restore: n0}",
            "{at: 30, stop: a}",
            "{at: 50, resume: a}",
            "{at: 60, preempt: a}",
            "{at: 70, refuse: n1}",
            "{at: 71, submit: {name: b, gpus: 8, retries: 0}}",
            "{at: 1200, grid: {nodes: 3x gpu:8}}",
            "{at: 1300, cancel: b}",
        ],
        ["finally: {succeeded: a}"],
        records=records,
    )
    lines = [f"{at_s:g} {sign} {text}" for record in records for at_s, sign, text in told(record)]
    for line in (
        "0 < the grid has 16 devices",
        "0 < a is handed in: 1 x 8 gpu, priority 0",
        "0 > start attempt 1 of a on here/n0 (8)",
        "1 < booking x of here/n1 from 3000 to 4000",
        "2 < booking x is off",
        "3 < here has price 3",
        "4 < here has carbon 70 g/kWh",
        "10 < here/n0 is marked drain",
        "10 > stop a on here/n0 with 30 s of grace: here/n0 is drained",
        "20 < here/n0 is marked well",
        "30 < a: its user stops it",
        "35 > a is over: stopped",
        "50 < a: its user resumes it",
        "60 < a: an operator evicts it",
        "71 < b on here/n1 is refused: here/n1 starts nothing",
        "1200 < the grid has 24 devices",
        "1300 < b: its user cancels it",
    ):
        assert line in lines, lines
    assert any("a has a checkpoint of training step" in line for line in lines)
    assert any("ended: all ranks ended well" in line for line in lines)


def test_marks_and_stops_are_what_the_trace_is_made_of() -> None:
    records: list[Record] = []
    played([job(), "{at: 5, lose: n0}"], ["{at: 9, attempts: {a: 1+}}"], records=records)
    facts = [event for record in records for event in record.events]
    assert any(isinstance(event, NodeMarked) and event.mark == "lost" for event in facts)
    actions = [action for record in records for action in record.actions]
    assert any(isinstance(action, StartAttempt) for action in actions)
    assert not any(isinstance(action, StopTask) for action in actions)
