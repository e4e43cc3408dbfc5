"""What a story says of a job, and what the scheduler and the world are told."""

import math

import pytest

from gridloom.model.spec import GroupNeed, Speed
from gridloom.sim.story import ORIGIN_S, Story, prepare
from gridloom.sim.workload_nouns import Arrival
from gridloom.wire.stories import read_story

STORY = """
about: test
grid:
  sites:
    north: {{topology: {{leaf: 2, node: 4}}, node: gpu:8}}
    south: 4x gpu:8
queues: {{q: {{}}}}
events:
  - {{at: 5, submit: {{name: first, array: 2, gpus: 1}}}}
  - {{at: 10, submit: {{name: a, {job}}}}}
expect: [{{finally: {{ended: first}}}}]
"""


def story(job: str) -> Story:
    return prepare(read_story(STORY.format(job=job).encode(), "s.yaml"), "s")


def arrival(job: str) -> Arrival:
    return story(job).arrivals[2]


def test_a_plain_job() -> None:
    made = arrival("gpus: 8")
    (option,) = made.spec.options
    assert (made.job_id, made.submit_s, made.work_s) == ("a", ORIGIN_S + 10, math.inf)
    assert (option.accelerator, option.plan.world_size, option.rank_devices) == ("gpu", 1, 8)
    assert (made.spec.forecast.duration_s, made.spec.queue, made.spec.max_sites) == (0, "", 1)
    assert not made.spec.elastic


@pytest.mark.parametrize(
    ("job", "kind", "devices", "host"),
    [
        ("gpus: 2", "gpu", 2, ()),
        ("cpus: 3", "cpu", 3, ()),
        ("gpus: 2, cpus: 3", "gpu", 2, (("cpus", 3),)),
        ("devices: H100:8, cpus: 3", "h100", 8, (("cpus", 3),)),
        ("cpus: 3, resources: {memory_gib: 4, disk: 1}", "cpu", 3,
         (("disk", 1), ("memory_gib", 4))),
        ("options: [{cpus: 2, resources: {disk: 2}}], resources: {disk: 1, x: 1}", "cpu", 2,
         (("disk", 2), ("x", 1))),
    ],
)  # fmt: skip
def test_devices_and_what_a_task_needs_of_its_host(
    job: str, kind: str, devices: int, host: tuple[tuple[str, int], ...]
) -> None:
    (option,) = arrival(job).spec.options
    assert (option.accelerator, option.rank_devices, option.rank_resources) == (kind, devices, host)


def test_groups_smallest_first_required_before_wished() -> None:
    spec = arrival(
        "tasks: 64, gpus: 1, together: {node: 8}, prefer: {leaf: 16, node: all}, within: site"
    ).spec
    assert spec.options[0].groups == (
        GroupNeed(ranks=8, level="node"),
        GroupNeed(ranks=16, level="leaf", required=False),
        GroupNeed(ranks=64, level="site"),
        GroupNeed(ranks=64, level="node", required=False),
    )


def test_sizes_of_an_elastic_job_best_first() -> None:
    spec = arrival("tasks: [2, 8, 4], gpus: 1, together: {node: 4}").spec
    assert [option.plan.world_size for option in spec.options] == [8, 4, 2]
    assert [len(option.groups) for option in spec.options] == [1, 1, 0]
    assert spec.elastic


def test_options_with_speeds() -> None:
    spec = arrival(
        "options: [{tasks: 2, devices: h100:8, steps: {site: 2, node: 1}},"
        " {tasks: 4, gpus: 8, step: 3, memory: 40GB}]"
    ).spec
    first, second = spec.options
    assert first.speeds == (Speed(level="node", step_s=1.0), Speed(level="site", step_s=2.0))
    assert (second.step_s, second.memory_bytes, second.plan.world_size) == (3.0, 40 * 10**9, 4)


def test_times() -> None:
    made = arrival(
        "gpus: 1, duration: 1m, forecast: 2m, spread: 0.5, save: 3, restart: 4,"
        " checkpoint_every: 10, fails_after: 30, grace: 7, deadline: 100, max_time: 50"
    )
    forecast = made.spec.forecast
    assert (made.work_s, made.fail_after_s, made.spec.grace_s) == (60, 30, 7)
    assert (forecast.duration_s, forecast.spread) == (120, 0.5)
    assert (forecast.checkpoint_s, forecast.restart_s, forecast.checkpoint_every_s) == (3, 4, 10)
    assert (made.spec.deadline_s, made.spec.budget.run_s_max) == (ORIGIN_S + 100, 50)
    assert arrival("gpus: 1, duration: 60").spec.forecast.duration_s == 60
    assert arrival("gpus: 1, duration: 60, forecast: unknown").spec.forecast.duration_s == 0


def test_where_it_may_run() -> None:
    spec = arrival(
        "gpus: 1, tasks: 4, pin: [l1-n2, south/n1], sites: [south, north], min_sites: 2,"
        " labels: {x: y}, data: north, data_required: true, one_per_node: true, queue: q"
    ).spec
    assert spec.nodes == ("north/l1-n2", "south/n1")
    assert (spec.sites, spec.min_sites, spec.max_sites) == (("south", "north"), 2, 2)
    assert (spec.labels, spec.data_sites, spec.data_required) == ({"x": "y"}, ("north",), True)
    assert (spec.ranks_per_node_max, spec.queue) == (1, "q")
    assert arrival("gpus: 1, per_node_max: 3").spec.ranks_per_node_max == 3


def test_whom_it_waits_for() -> None:
    spec = arrival("gpus: 1, after: [first, {'first[1]': after}]").spec
    assert [(need.job_id, need.kind) for need in spec.after] == [
        ("first[0]", "afterok"),
        ("first[1]", "afterok"),
        ("first[1]", "after"),
    ]


def test_the_rest() -> None:
    spec = arrival(
        "gpus: 1, priority: 7, preemptible: false, retries: 5, retry_on: any, backoff: 9,"
        " spares: 2, on_loss: wait, max_cost: 3"
    ).spec
    assert (spec.priority, spec.preemptible, spec.spares, spec.on_loss) == (7, False, 2, "wait")
    assert (spec.retry.max_restarts, spec.retry.on, spec.retry.backoff_s) == (5, "any", 9)
    assert spec.budget.cost_max == 3


def test_tasks_that_are_no_gang_are_jobs() -> None:
    made = story("gpus: 2, tasks: 3, gang: false").arrivals[2:]
    assert [one.job_id for one in made] == ["a[0]", "a[1]", "a[2]"]
    assert {one.spec.options[0].devices for one in made} == {2}
