"""Which files are wanted of a task, and that its last word is known."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.codec import encode
from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.remote.watched import watched, without_end
from gridloom.wire.agent import TaskOrder
from gridloom.wire.reports import Alive, Ended, StepSeen

RUNS = Path("/scratch/runs")
END = Ended(
    seq=9, epoch=5, now_s=1.0, outcome=Outcome(code=Why.COMPLETED, sentence="done", ended_s=1.0)
)


def at_sites(*sites: str) -> TaskOrder:
    one = order(RUNS)
    ranks = tuple(
        replace(each, rank=replace(each.rank, site_ranks=tuple((site, 1) for site in sites)))
        for each in one.ranks
    )
    return replace(one, ranks=ranks)


def test_the_first_site_writes_for_all() -> None:
    names = watched(at_sites("hpc", "lab"), str(RUNS), ["train-abc/attempts/2/gang.hpc/slurm.log"])
    assert names.reports == "train-abc/attempts/2/hpc.n1/reports.jsonl"
    assert names.growing == (
        "train-abc/logs/rank-0.log",
        "train-abc/logs/rank-1.log",
        "train-abc/metrics.jsonl",
        "train-abc/attempts/2/gang.hpc/slurm.log",
    )
    assert names.replaced == ("train-abc/result.json",)


def test_other_sites_have_rows_of_their_own() -> None:
    names = watched(at_sites("lab", "hpc"), str(RUNS))
    assert names.growing[2:] == ("train-abc/metrics-hpc.jsonl",)
    assert names.replaced == ()


def test_a_later_life_has_a_directory_of_its_own() -> None:
    names = watched(replace(at_sites("hpc"), task=ref(life=2)), str(RUNS))
    assert names.reports == "train-abc/attempts/2/life-2/hpc.n1/reports.jsonl"


LINES = st.lists(
    st.sampled_from(
        [
            encode(Alive(seq=1, epoch=5, now_s=1.0)) + b"\n",
            encode(StepSeen(seq=2, epoch=5, now_s=1.0, step=3)) + b"\n",
            b"not a report\n",
            b'{"kind":"ended","rubbish":1}\n',
            b"\n",
        ]
    ),
    max_size=5,
)


@given(LINES, LINES)
def test_what_comes_before_the_end_is_told_apart_from_it(
    before: list[bytes], after: list[bytes]
) -> None:
    told, rest = b"".join(before), encode(END) + b"\n" + b"".join(after)
    assert without_end(told) == (told, b"")
    assert without_end(told + rest) == (told, rest)
