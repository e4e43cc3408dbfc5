"""Every condition of stories, where it holds and where it does not, in one small world."""

import pytest

from gridloom.sim.story import prepare
from gridloom.sim.story_play import Played, play
from gridloom.wire.stories import read_story

WORLD = """
about: A world in which most things happen.
grid:
  switches: {s0: [n0, n1], s1: [n2, n3]}
  node: gpu:8
queues: {q: {}, r: {}}
defaults: {queue: q}
events:
  - {at: 0, submit: {name: wide, tasks: 4, gpus: 4, within: switch, duration: 100}}
  - {at: 0, submit: {name: low, gpus: 8, pin: n2, save: 5, priority: -1, queue: r}}
  - {at: 1, submit: {name: ring, array: 2, gpus: 4, pin: n3}}
  - {at: 2, submit: {name: never, tasks: 5, gpus: 8}}
  - {at: 10, submit: {name: high, gpus: 8, pin: n2, duration: 30, priority: 9}}
  - {at: 12, submit: {name: bad, gpus: 8, pin: n2, fails_after: 5, priority: 5}}
  - {at: 13, submit: {name: gone, gpus: 8, pin: n2, priority: 5}}
  - {at: 14, cancel: gone}
  - {at: 120, stop: "ring[1]"}
  - {at: 130, cordon: n0}
"""


LINE = WORLD.count("\n") + 3
"""Of the expectation, in the file that `played` makes."""


def played(expect: str, world: str = WORLD, **terms: object) -> Played:
    text = f"{world}\nexpect:\n  - {expect}\n"
    return play(prepare(read_story(text.encode(), "s.yaml"), "s"), **terms)  # type: ignore[arg-type]


RIGHT_AND_WRONG = [
    ("at: 5, running: [wide, low]", "at: 12, running: low"),
    ("at: 20, waiting: [low, bad]", "at: 5, waiting: low"),
    ("at: 12, stopping: low", "at: 5, stopping: low"),
    ("at: 150, ended: [wide, bad, gone, 'ring[1]']", "at: 150, ended: low"),
    ("at: 100, succeeded: wide", "at: 99, succeeded: wide"),
    ("at: 60, failed: [bad, never]", "at: 60, failed: wide"),
    ("at: 14, cancelled: gone", "at: 13, cancelled: gone"),
    ("at: 120, stopped: 'ring[1]'", "at: 119, stopped: 'ring[1]'"),
    ("at: 20, exactly_one_of: {running: [low, high]}",
     "at: 5, exactly_one_of: {running: [low, wide]}"),
    ("at: 20, exactly_one_of: {waiting: [high, low]}",
     "at: 9, exactly_one_of: {failed: [low, wide]}"),
    ("at: 5, holds: {wide: '2 nodes, 16 devices'}", "at: 5, holds: {wide: 4 nodes}"),
    ("at: 5, holds: {wide: 16}", "at: 5, holds: {wide: 15}"),
    ("at: 20, holds_nothing: low", "at: 5, holds_nothing: low"),
    ("at: 11, keeps: {high: 8}", "at: 11, keeps: {high: 0}"),
    ("at: 5, tasks: {wide: 4}", "at: 5, tasks: {wide: 5+}"),
    ("at: 5, nodes_of: {wide: [n0, n1]}", "at: 5, nodes_of: {wide: n0}"),
    ("at: 5, nodes_of: {wide: [[n2, n3], [n1, n0]]}", "at: 5, nodes_of: {wide: [[n0, n2], [n3]]}"),
    ("at: 5, nodes_used: {wide: 2}", "at: 5, nodes_used: {wide: 3-4}"),
    ("at: 5, sites_of: {wide: here}", "at: 120, sites_of: {wide: here}"),
    ("at: 5, kind_of: {wide: gpu}", "at: 5, kind_of: {wide: cpu}"),
    ("at: 5, within: {wide: switch}", "at: 5, within: {wide: node}"),
    ("at: 5, within: {wide: site, 'ring[0]': island}", "at: 5, within: {wide: island}"),
    ("at: 5, spread_over: {wide: {node: 2, switch: 1, island: 2}}",
     "at: 5, spread_over: {wide: {node: 1}}"),
    ("at: 5, groups_within: {wide: {node: 2, switch: all}}",
     "at: 5, groups_within: {wide: {node: 4}}"),
    ("at: 5, ranks_ordered_by: {wide: node}", "at: 150, ranks_ordered_by: {wide: node}"),
    ("at: 20, reason: {low: in_use}", "at: 20, reason: {low: quota}"),
    ("at: 5, reason: {never: {code: never_fits, contains: [40 gpu]}}",
     "at: 5, reason: {never: {contains: [6 gpu]}}"),
    ("at: 60, attempts: {low: 2, wide: 1}", "at: 5, attempts: {low: 2}"),
    ("at: 60, evicted: {low: 1, wide: 0}", "at: 60, evicted: {low: 0}"),
    ("at: 60, evicted_in_all: {'*': 1}", "at: 60, evicted_in_all: {'*': 2+}"),
    ("at: 60, retries_used: {low: 0}", "at: 60, retries_used: {low: 1}"),
    ("at: 60, saved: low", "at: 60, saved: wide"),
    ("at: 60, lost_at_most: {low: 0}", "at: 60, saved: bad"),
    ("at: 60, not_killed_before: {low: 20}", "at: 60, not_killed_before: {wide: 20}"),
    ("at: 60, order: [wide, high, bad]", "at: 60, order: [bad, high]"),
    ("at: 60, before: [[wide, high], [low, high]]", "at: 60, before: [[high, low]]"),
    ("at: 60, started_at: {high: 15}", "at: 60, started_at: {high: 10}"),
    ("at: 60, started_by: {high: 20}", "at: 60, started_by: {high: 14}"),
    ("at: 60, ended_at: {high: 45}", "at: 60, ended_at: {high: 50}"),
    ("at: 60, ended_by: {high: 50}", "at: 60, ended_by: {low: 50}"),
    ("at: 20, promised: {bad: 45}", "at: 20, promised: {bad: 40}"),
    ("at: 5, used: {q: 24, r: 8}", "at: 5, used: {r: 0}"),
    ("at: 5, free: 0", "at: 5, free: 1+"),
    ("at: 130, mark: {n0: cordon, n1: well}", "at: 129, mark: {n0: cordon}"),
    ("finally: {succeeded: wide}", "finally: {running: wide}"),
    ("sometime: {running: high}", "sometime: {failed: high}"),
    ("always: {holds_nothing: gone}, from: 13", "always: {running: wide}"),
    ("always: {running: wide}, from: 0, to: 99", "always: {running: low}, from: 5, to: 50"),
    ("never: {running: [low, high]}, from: 10", "never: {running: [wide, high]}, from: 10"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong"), RIGHT_AND_WRONG, ids=lambda text: text)
def test_a_condition_tells_right_from_wrong(right: str, wrong: str) -> None:
    good = played(f"{{{right}}}")
    assert good.holds, good.differences
    bad = played(f"{{{wrong}}}")
    assert [difference.line for difference in bad.differences] == [LINE]
    assert all(expected and found for expected, found in bad.differences[0].mismatches)


@pytest.mark.parametrize(
    "condition",
    [
        "running: late",
        "holds: {late: 0}",
        "holds_nothing: late",
        "tasks: {late: 0}",
        "nodes_of: {late: n0}",
        "sites_of: {late: here}",
        "kind_of: {late: gpu}",
        "within: {late: node}",
        "spread_over: {late: {node: 1}}",
        "groups_within: {late: {node: 1}}",
        "ranks_ordered_by: {late: node}",
        "reason: {late: in_use}",
        "saved: late",
        "not_killed_before: {late: 5}",
        "started_at: {late: 5}",
    ],
)
def test_a_job_that_was_not_handed_in_is_in_no_state(condition: str) -> None:
    world = WORLD + "  - {at: 200, submit: {name: late, gpus: 1}}\n"
    found = played(f"{{at: 5, {condition}}}", world)
    absent = condition.startswith("holds_nothing")
    assert found.holds is absent


def test_what_differs_is_told_with_every_job_then() -> None:
    (difference,) = played("{at: 20, running: low}").differences
    assert (difference.at_s, difference.when) == (20, "at")
    ((expected, found),) = difference.mismatches
    assert expected == "low is running"
    assert found.startswith("it is queued: in_use, waits for 8 gpu")
    jobs = dict(difference.jobs)
    assert jobs["wide"] == "it is starting: 16 devices on n0, n1" or "running" in jobs["wide"]
    assert [*jobs] == ["wide", "low", "ring[0]", "ring[1]", "never", "high", "bad", "gone"]
