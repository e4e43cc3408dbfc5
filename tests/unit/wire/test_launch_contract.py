"""The contract of a training process: its environment there and back, and its report lines."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.codec import decode, encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.wire import launch
from gridloom.wire.agent import TaskRef
from gridloom.wire.launch import LINES, CheckpointDone, Failure, Rank, Ready, StepDone

RANK = Rank(
    job_id="gpt-abc234",
    attempt=2,
    epoch=9,
    rank=5,
    world_size=8,
    local_rank=1,
    local_world_size=2,
    node_rank=2,
    node_count=4,
    site="b",
    site_ranks=(("a", 4), ("b", 4)),
    node_addresses=("10.0.0.1", "10.0.0.2", "10.1.0.1", "::1"),
    node_ranks=(2, 2, 3, 1),
    master_address="10.0.0.1",
    master_port=29400,
    restart_count=1,
    run_dir="/runs/gpt abc",
    report_file="/runs/gpt abc/rank-5.jsonl",
    grace_s=30.0,
    rendezvous_file="/runs/gpt abc/b.n3/rendezvous.json",
    sync=SiteSync(kind="outer", every=8, bits=4, codec="blocks"),
    plan=ParallelPlan(tensor=2, data=4),
)


def test_a_rank_is_told_in_these_variables() -> None:
    assert RANK.environment() == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "4",
        "ROLE_NAME": "default",
        "ROLE_RANK": "5",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29400",
        "TORCHELASTIC_RUN_ID": "gpt-abc234",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "GRIDLOOM_JOB_ID": "gpt-abc234",
        "GRIDLOOM_ATTEMPT": "2",
        "GRIDLOOM_EPOCH": "9",
        "GRIDLOOM_RESTART_COUNT": "1",
        "GRIDLOOM_SITE": "b",
        "GRIDLOOM_SITES": "a:4,b:4",
        "GRIDLOOM_NODE_RANK": "2",
        "GRIDLOOM_NODE_ADDRESSES": "10.0.0.1,10.0.0.2,10.1.0.1,::1",
        "GRIDLOOM_NODE_RANKS": "2,2,3,1",
        "GRIDLOOM_SYNC": '{"kind":"outer","every":8,"bits":4,"codec":"blocks"}',
        "GRIDLOOM_PLAN": '{"tensor":2,"data":4}',
        "GRIDLOOM_RUN_DIR": "/runs/gpt abc",
        "GRIDLOOM_REPORT_FILE": "/runs/gpt abc/rank-5.jsonl",
        "GRIDLOOM_RENDEZVOUS_FILE": "/runs/gpt abc/b.n3/rendezvous.json",
        "GRIDLOOM_GRACE_S": "30",
    }


counts = st.integers(0, 10**6)
names = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)
ranks = st.builds(
    Rank,
    job_id=names,
    attempt=counts,
    epoch=counts,
    rank=counts,
    world_size=counts,
    local_rank=counts,
    local_world_size=counts,
    node_rank=counts,
    node_count=counts,
    site=names,
    site_ranks=st.lists(st.tuples(names, counts), min_size=1, max_size=4).map(tuple),
    node_addresses=st.lists(names | st.just("fe80::1"), min_size=1, max_size=4).map(tuple),
    node_ranks=st.lists(counts, max_size=4).map(tuple),
    master_address=names,
    master_port=counts,
    restart_count=counts,
    run_dir=st.text(min_size=1),
    report_file=st.text(min_size=1),
    rendezvous_file=st.text(),
    grace_s=st.floats(0, allow_infinity=False),
)


@given(ranks)
def test_a_rank_reads_back_who_it_is(rank: Rank) -> None:
    assert Rank.from_environment({"PATH": "/bin", **rank.environment()}) == rank
    assert decode(encode(rank), Rank) == rank


TOLD_FOR_OTHERS = {
    "GRIDLOOM_NODE_RANK",  # GROUP_RANK by a better name
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
}
READ = sorted(RANK.environment().keys() - TOLD_FOR_OTHERS)


@pytest.mark.parametrize("name", READ)
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    environment = RANK.environment()
    del environment[name]
    with pytest.raises(InputError, match=f"the variable {name} is not set"):
        Rank.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "one"),
        ("WORLD_SIZE", ""),
        ("MASTER_PORT", "29400.5"),
        ("GRIDLOOM_GRACE_S", "long"),
        ("GRIDLOOM_SITES", "a"),
        ("GRIDLOOM_SITES", "a:4,b"),
        ("GRIDLOOM_SYNC", "outer"),
        ("GRIDLOOM_SYNC", '{"kind": "sometimes"}'),
        ("GRIDLOOM_PLAN", '{"tensor": "wide"}'),
    ],
)
def test_a_variable_that_is_malformed_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match="malformed"):
        Rank.from_environment({**RANK.environment(), name: value})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"kind": "ready"}', Ready()),
        (
            b'{"kind": "ready", "resumed_step": 5, "notes": ["torn"]}',
            Ready(resumed_step=5, notes=("torn",)),
        ),
        (b'{"kind": "step", "step": 3}', StepDone(step=3)),
        (
            b'{"kind": "step", "step": 3, "loss": 2.5, "tokens_per_s": 1e4}',
            StepDone(step=3, loss=2.5, tokens_per_s=1e4),
        ),
        (
            b'{"kind": "checkpoint", "step": 3, "path": "/c", "more": 1}',
            CheckpointDone(step=3, path="/c"),
        ),
        (b'{"kind": "failure", "message": "m"}', Failure(message="m")),
    ],
)
def test_a_report_line_is_read(line: bytes, said: launch.AnyLine) -> None:
    assert LINES.decode(line) == said
    assert LINES.decode(encode(said)) == said


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"loss 3.2",
        b"{}",
        b'{"kind": "sleep"}',
        b'{"kind": "step"}',
        b'{"kind": "step", "step": "3"}',
        b'{"kind": "step", "step": 1e400}',
        b'{"kind": "step", "step": 3, "loss": NaN}',
        b'{"kind": "step", "step": 3, "more": ' + b"[" * 100_000,
        b'{"kind": "failure", "message": "\xff"}',
    ],
)
def test_what_is_no_report_line_is_told_as_such(line: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        LINES.decode(line)


def test_exit_codes_are_apart_from_each_other_and_from_those_of_shells() -> None:
    codes = [launch.EXIT_IO, launch.EXIT_STOPPED, launch.EXIT_PEER_LOST, launch.EXIT_CONFIG]
    assert len({*codes, launch.EXIT_DONE}) == 5
    assert all(2 < code < 126 for code in codes)


def test_no_two_tasks_share_a_token() -> None:
    tasks = [
        TaskRef(job_id=job, attempt=attempt, epoch=epoch, site=site, node=node)
        for job in ("a", "b")
        for attempt in (1, 11)
        for epoch in (1, 11)
        for site in ("s", "t")
        for node in ("m", "n")
    ]
    assert len({task.token for task in tasks}) == len(tasks)
    assert tasks[0].domain == "s/m"
    assert math.prod([2] * 5) == len(tasks)
