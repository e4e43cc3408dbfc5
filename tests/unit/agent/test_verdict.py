"""The verdict over a task: one table from exits to the outcome that is told."""

from typing import Any

import pytest

from gridloom.agent.verdict import RankExit, verdict
from gridloom.model.reason import Why
from gridloom.wire.launch import Failure


def ended(rank: int, exit_code: int, at_s: float = 0.0, **more: Any) -> RankExit:
    return RankExit(rank=rank, exit_code=exit_code, ended_s=at_s, **more)


def spoke(rank: int, exit_code: int, at_s: float = 0.0, message: str = "") -> RankExit:
    failure = Failure(message=message, remedy="do so") if message else None
    return ended(rank, exit_code, at_s, speaks=True, failure=failure)


TAKEN = "DistNetworkError: code: -98, message: Address already in use"
TABLE: dict[str, tuple[list[RankExit], Why, int, str]] = {
    "all well": ([ended(1, 0), spoke(0, 0)], Why.COMPLETED, 0, "all ranks ended well"),
    "one bad among the good": (
        [ended(0, 0), ended(1, 2, last_words="why")],
        Why.EXITED,
        1,
        "rank 1 exited with status 2: why",
    ),
    "silent": ([ended(0, 1)], Why.EXITED, 0, "rank 0 exited with status 1"),
    "killed": (
        [ended(0, -9)],
        Why.KILLED,
        0,
        "rank 0 was killed by SIGKILL (out of memory is a usual cause)",
    ),
    "a signal with a name": ([ended(0, -6)], Why.KILLED, 0, "rank 0 was killed by SIGABRT"),
    "a signal without": ([ended(0, -63)], Why.KILLED, 0, "rank 0 was killed by signal 63"),
    "codes of ours, said by who speaks": (
        [spoke(0, 78)],
        Why.CONFIG,
        0,
        "rank 0 exited with status 78",
    ),
    "disk": ([spoke(0, 74, message="full")], Why.IO, 0, "rank 0: full"),
    "stopped": ([spoke(0, 75)], Why.STOP_REQUESTED, 0, "rank 0 saved its state and stopped"),
    "its port was taken": (
        [ended(1, 1, last_words="Connection refused"), ended(0, 1, 2.0, last_words=TAKEN)],
        Why.REFUSED,
        0,
        f"rank 0 exited with status 1: {TAKEN}",
    ),
    "victim": ([spoke(0, 76)], Why.PEER_LOST, 0, "rank 0 lost contact with another rank"),
    "an unknown code of who speaks": ([spoke(0, 7)], Why.EXITED, 0, "rank 0 exited with status 7"),
    "codes of ours, said by who does not": (
        [ended(0, 76)],
        Why.EXITED,
        0,
        "rank 0 exited with status 76",
    ),
    "a signal is a signal, whoever speaks": ([spoke(0, -15)], Why.KILLED, 0, "SIGTERM"),
    "the culprit after its victims": (
        [spoke(0, 76, 1.0), spoke(2, 76, 1.0), ended(1, -9, 2.0)],
        Why.KILLED,
        1,
        "rank 1 was killed by SIGKILL (out of memory is a usual cause)",
    ),
    "what is permanent before what may pass": (
        [ended(0, -9, 1.0), spoke(1, 74, 2.0), spoke(2, 78, 3.0, message="no data")],
        Why.CONFIG,
        2,
        "rank 2: no data",
    ),
    "the first of equals": (
        [ended(0, 1, 2.0), ended(3, 2, 1.0), ended(2, 3, 1.0)],
        Why.EXITED,
        2,
        "rank 2 exited with status 3",
    ),
    "an error before the stops it caused": ([spoke(0, 75), ended(1, 1, 9.0)], Why.EXITED, 1, "1"),
    "a stop before what was done": ([spoke(0, 0), spoke(1, 75)], Why.STOP_REQUESTED, 1, "stopped"),
}


@pytest.mark.parametrize(("exits", "code", "rank", "sentence"), TABLE.values(), ids=TABLE.keys())
def test_the_most_telling_exit_decides(
    exits: list[RankExit], code: Why, rank: int, sentence: str
) -> None:
    outcome = verdict(exits)
    assert verdict(exits[::-1]) == outcome, "whatever the order"
    assert (outcome.code, outcome.rank) == (code, rank)
    assert outcome.sentence.endswith(sentence)
    decided = next(exit_ for exit_ in exits if exit_.rank == rank)
    assert (outcome.exit_code, outcome.ended_s) == (decided.exit_code, decided.ended_s)
    assert outcome.remedy == (decided.failure.remedy if decided.failure else "")


def test_a_program_that_talks_without_end_is_cut_short() -> None:
    talker = Failure(message="m" * 10_000_000, remedy="r" * 10_000_000)
    outcome = verdict([ended(0, 1, speaks=True, failure=talker)])
    assert len(outcome.sentence) < 2000
    assert len(outcome.remedy) < 2000
