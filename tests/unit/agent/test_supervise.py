"""The supervisor on a clock of its own: leases, stops, reports; no process is started here."""

import errno
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.processes import FakeProcesses, Program, ScriptedClock

from gridloom.agent.rank import rank_argv, rank_environment
from gridloom.agent.supervise import Supervisor, last_words
from gridloom.base.codec import encode
from gridloom.base.errors import SiteError
from gridloom.model.inventory import CPU
from gridloom.model.life import Arrival, Outcome
from gridloom.model.reason import Why
from gridloom.model.spec import Batch
from gridloom.wire.agent import (
    LEASE_FILE,
    RENDEZVOUS_FILE,
    REPORTS_FILE,
    STOP_FILE,
    LeaseRenewal,
    RankOrder,
    Rendezvous,
    StopOrder,
    TaskOrder,
    TaskRef,
)
from gridloom.wire.launch import ARRAY_INDEX_VARIABLE, RECIPE_ARGV, Rank
from gridloom.wire.reports import (
    REPORTS,
    Alive,
    AnyReport,
    Arrived,
    CheckpointSeen,
    Ended,
    ReadySeen,
    StepSeen,
)

LEASE_S = 6.0
HOUR_S = 3600.0
STEP = '{"kind": "step", "step": %d}'
CHECKPOINT = '{"kind": "checkpoint", "step": %d, "path": "/c"}'


class Stage:
    """One supervisor, what is written for it, and what it reports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "task"
        self.directory.mkdir()
        self.clock = ScriptedClock()
        self.supervisor: Supervisor | None = None

    def running(self) -> Supervisor:
        assert self.supervisor is not None
        return self.supervisor

    def order(self, count: int = 1, **more: Any) -> TaskOrder:
        ranks = tuple(
            RankOrder(
                rank=a_rank(number, count, str(self.directory / f"rank-{number}.jsonl")),
                devices=(number,),
                log_file=str(self.directory / f"rank-{number}.log"),
            )
            for number in range(count)
        )
        order: dict[str, Any] = {
            "task": TaskRef(job_id="j", attempt=1, epoch=3, site="s", node="n"),
            "argv": ("train",),
            "workdir": "/work",
            "env": {},
            "accelerator": CPU,
            "ranks": ranks,
            "lease_s": LEASE_S,
            "lease_until_s": self.clock.now_s() + LEASE_S,
            "lapse_grace_s": 2.0,
            "grace_s": 5.0,
        }
        return TaskOrder(**(order | more))

    def run(
        self,
        *programs: Program,
        sweeps: tuple[int, ...] = (),
        arrival: Arrival | None = None,
        **more: Any,
    ) -> Outcome:
        self.processes = FakeProcesses(self.clock, *programs, sweeps=sweeps)
        order = self.order(len(programs), **more)
        self.supervisor = Supervisor(order, self.directory, {}, self.clock, self.processes, arrival)
        outcome = self.supervisor.run()
        last = self.reports()[-1]
        assert isinstance(last, Ended)
        assert (last.seq, last.epoch, last.outcome) == (len(self.reports()), 3, outcome)
        return outcome

    def reports(self) -> list[AnyReport]:
        lines = (self.directory / REPORTS_FILE).read_bytes().splitlines()
        return [REPORTS.decode(line) for line in lines]

    def said(self, kind: type[AnyReport]) -> list[AnyReport]:
        return [report for report in self.reports() if isinstance(report, kind)]

    def renew(self, for_s: float = LEASE_S) -> None:
        self.write(LEASE_FILE, LeaseRenewal(until_s=self.clock.now_s() + for_s))

    def stop(self, grace_s: float, sentence: str = "stop") -> None:
        self.write(STOP_FILE, StopOrder(grace_s=grace_s, sentence=sentence))

    def write(self, name: str, value: object) -> None:
        (self.directory / name).write_bytes(encode(value))


def a_rank(number: int, count: int, report_file: str) -> Rank:
    return Rank(
        job_id="j",
        attempt=1,
        epoch=3,
        rank=number,
        world_size=count,
        local_rank=number,
        local_world_size=count,
        node_rank=0,
        node_count=1,
        site="s",
        site_ranks=(("s", count),),
        node_addresses=("127.0.0.1",),
        master_address="127.0.0.1",
        master_port=29400,
        restart_count=0,
        run_dir="/run",
        report_file=report_file,
        grace_s=5.0,
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def every(step_s: float, until_s: float) -> list[float]:
    return [step_s * number for number in range(1, round(until_s / step_s))]


# ----- the lease


def test_a_task_without_a_word_ends_when_its_lease_and_the_grace_are_over(stage: Stage) -> None:
    outcome = stage.run(Program(), Program())
    assert outcome.code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(LEASE_S + 2.0, abs=0.2)


def test_what_saves_in_the_grace_after_a_lapse_is_said_to_have_lapsed(stage: Stage) -> None:
    outcome = stage.run(Program(saves=75, says={0: STEP % 1}))
    assert (outcome.code, outcome.exit_code) == (Why.LEASE_LAPSED, 75)
    assert stage.clock.monotonic_s() == pytest.approx(LEASE_S, abs=0.2)


@pytest.mark.parametrize("jump_s", [0.0, -HOUR_S, -1.0, 1.0])
def test_renewals_keep_a_task_alive_wherever_the_wall_clock_is_set(
    stage: Stage, jump_s: float
) -> None:
    stage.clock.at(*every(2.0, 30.0), do=stage.renew)
    stage.clock.at(9.0, do=lambda: stage.clock.jump(jump_s))
    assert stage.run(Program(ends_s=30.0)).code is Why.COMPLETED


@pytest.mark.parametrize("jump_s", [-HOUR_S, -1.0])
def test_a_wall_clock_set_back_prolongs_no_lease(stage: Stage, jump_s: float) -> None:
    stage.clock.at(2.0, 4.0, do=stage.renew)
    stage.clock.at(5.0, do=lambda: stage.clock.jump(jump_s))
    assert stage.run(Program()).code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(4.0 + LEASE_S + 2.0, abs=0.2)


def test_a_wall_clock_set_forward_ends_the_lease_as_the_control_plane_reckons(
    stage: Stage,
) -> None:
    stage.clock.at(*every(2.0, 30.0), do=stage.renew)
    stage.clock.at(9.0, do=lambda: stage.clock.jump(HOUR_S))
    assert stage.run(Program(ends_s=30.0, saves=0)).code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(9.0, abs=0.2)


def test_a_renewal_that_is_over_already_neither_ends_nor_prolongs_a_lease(stage: Stage) -> None:
    stage.clock.at(3.0, do=stage.renew)
    stage.clock.at(5.0, 6.0, 7.0, do=lambda: stage.renew(-1.0))
    stage.clock.at(8.0, do=stage.renew)
    assert stage.run(Program(ends_s=13.0)).code is Why.COMPLETED


def test_a_lapsed_lease_is_not_revived(stage: Stage) -> None:
    stage.clock.at(LEASE_S + 0.5, LEASE_S + 1.0, do=stage.renew)
    assert stage.run(Program()).code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(LEASE_S + 2.0, abs=0.2)


@pytest.mark.parametrize("name", [LEASE_FILE, STOP_FILE])
@pytest.mark.parametrize("content", [b"", b"{", b'{"until_s": "x"}', b"\xff"])
def test_an_order_that_cannot_be_read_says_nothing(stage: Stage, name: str, content: bytes) -> None:
    (stage.directory / name).write_bytes(content)
    assert stage.run(Program(ends_s=1.0)).code is Why.COMPLETED


def test_an_order_that_is_no_file_says_nothing(stage: Stage) -> None:
    (stage.directory / LEASE_FILE).mkdir()
    assert stage.run(Program(ends_s=1.0)).code is Why.COMPLETED


# ----- the rendezvous

HERE = Arrival(node="n7", address="10.0.0.7", free_ports=((4000, 4009),))


def test_ranks_wait_until_they_are_told_where_the_others_are(stage: Stage) -> None:
    told = Rendezvous(addresses=("10.0.0.7", "10.0.0.9"), port=4004)
    stage.clock.at(*every(2.0, 30.0), do=stage.renew)
    stage.clock.at(12.0, do=lambda: stage.write(RENDEZVOUS_FILE, told))
    outcome = stage.run(Program(ends_s=20.0), Program(ends_s=21.0), arrival=HERE)
    assert outcome.code is Why.COMPLETED
    arrived = stage.said(Arrived)
    assert {one.arrival for one in arrived if isinstance(one, Arrived)} == {HERE}
    assert len(arrived) == 12, "it says so every second"
    assert stage.reports()[: len(arrived)] == arrived
    assert [type(one) for one in stage.reports()[len(arrived) :]] == [Alive] * 9 + [Ended]
    for environment in stage.processes.environments:
        assert environment["MASTER_ADDR"] == "10.0.0.7"
        assert environment["MASTER_PORT"] == "4004"
        assert environment["GRIDLOOM_NODE_ADDRESSES"] == "10.0.0.7,10.0.0.9"
        assert environment["GRIDLOOM_RENDEZVOUS_FILE"] == str(stage.directory / RENDEZVOUS_FILE)


def test_a_site_that_took_its_time_starts_with_the_lease_as_it_is_now(stage: Stage) -> None:
    stage.write(RENDEZVOUS_FILE, Rendezvous(addresses=("10.0.0.7",), port=4004))
    stage.clock.advance(HOUR_S)
    stage.renew()
    lapsed_s = stage.clock.now_s() - HOUR_S
    begins_s = stage.clock.monotonic_s()
    outcome = stage.run(Program(ends_s=begins_s + 3.0), arrival=HERE, lease_until_s=lapsed_s)
    assert outcome.code is Why.COMPLETED


def test_who_waits_for_the_others_can_be_stopped(stage: Stage) -> None:
    stage.clock.at(3.0, do=lambda: stage.stop(5.0, "cancelled"))
    outcome = stage.run(Program(), arrival=HERE)
    assert (outcome.code, outcome.sentence) == (
        Why.STOP_REQUESTED,
        "cancelled: no rank was started yet",
    )
    assert stage.processes.environments == []
    assert stage.clock.monotonic_s() == pytest.approx(3.0, abs=0.2)


def test_who_waits_for_the_others_without_a_word_ends_with_its_lease(stage: Stage) -> None:
    outcome = stage.run(Program(), arrival=HERE)
    assert outcome.code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(LEASE_S, abs=0.2)


@pytest.mark.parametrize("content", [b"", b"{", b'{"port": "x"}', b"\xff"])
def test_a_rendezvous_that_cannot_be_read_is_waited_for(stage: Stage, content: bytes) -> None:
    (stage.directory / RENDEZVOUS_FILE).write_bytes(content)
    told = Rendezvous(addresses=("10.0.0.7",), port=4004)
    stage.clock.at(2.0, do=lambda: stage.write(RENDEZVOUS_FILE, told))
    assert stage.run(Program(ends_s=4.0), arrival=HERE).code is Why.COMPLETED
    assert len(stage.said(Arrived)) == 3


# ----- stops


def test_a_stop_asks_first_and_kills_when_the_grace_is_over(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(3.0))
    outcome = stage.run(Program(), Program(saves=75, says={0: STEP % 1}))
    assert (outcome.code, outcome.sentence) == (
        Why.STOP_REQUESTED,
        "stop: not ended within its grace, so killed",
    )
    assert [number for _, number in stage.processes.signals] == [15, 15, 9]
    assert stage.clock.monotonic_s() == pytest.approx(4.0, abs=0.2)


def test_who_was_killed_by_us_is_not_said_to_have_run_out_of_memory(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(0.0))
    outcome = stage.run(Program(), Program())
    assert (outcome.code, outcome.sentence) == (Why.STOP_REQUESTED, "stop: killed at once")


def test_sigterm_to_the_supervisor_is_a_stop_with_the_grace_of_the_job(stage: Stage) -> None:
    def terminate() -> None:
        assert stage.supervisor is not None
        stage.supervisor.ask_to_stop()

    stage.clock.at(*every(2.0, 20.0), do=stage.renew)
    stage.clock.at(1.0, 2.0, do=terminate)
    outcome = stage.run(Program())
    assert outcome.sentence.startswith("the supervisor was asked to stop: ")
    assert stage.clock.monotonic_s() == pytest.approx(1.0 + 5.0, abs=0.2)


def test_a_lapse_during_a_long_stop_shortens_it(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(HOUR_S))
    assert stage.run(Program()).code is Why.LEASE_LAPSED
    assert stage.clock.monotonic_s() == pytest.approx(LEASE_S + 2.0, abs=0.2)


def test_a_bad_exit_during_a_stop_leaves_the_others_their_grace(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(3.0))
    outcome = stage.run(Program(saves=1), Program(ends_s=3.5))
    assert (outcome.code, outcome.exit_code) == (Why.STOP_REQUESTED, 1)
    assert stage.clock.monotonic_s() == pytest.approx(3.5, abs=0.2)


@pytest.mark.parametrize(
    ("exit_code", "code"),
    [(0, Why.COMPLETED), (74, Why.IO), (78, Why.CONFIG), (75, Why.STOP_REQUESTED)],
)
def test_how_a_rank_that_speaks_ends_after_a_stop_is_believed(
    stage: Stage, exit_code: int, code: Why
) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(3.0))
    assert stage.run(Program(saves=exit_code, says={0: STEP % 1})).code is code


# ----- ends


def test_further_exits_are_waited_for_so_that_the_culprit_is_told(stage: Stage) -> None:
    victim = Program(ends_s=1.0, exit_code=76, says={0.5: STEP % 1})
    outcome = stage.run(victim, Program(ends_s=1.3, exit_code=-11), Program())
    assert (outcome.code, outcome.rank) == (Why.KILLED, 1)
    assert outcome.ended_s == pytest.approx(1_000_000 + 1.3, abs=0.1)
    assert stage.processes.signals == [(2, 9)]


def test_a_good_exit_waits_for_the_others(stage: Stage) -> None:
    assert stage.run(Program(ends_s=1.0), Program(ends_s=4.0)).code is Why.COMPLETED
    assert stage.clock.monotonic_s() == pytest.approx(4.0, abs=0.2)


CANNOT: dict[str, tuple[OSError | ValueError, Why, str]] = {
    "no program": (
        FileNotFoundError(errno.ENOENT, "No such file or directory", "train"),
        Why.CONFIG,
        "No such file or directory: train",
    ),
    "a nameless reason": (OSError(errno.E2BIG, "Too long"), Why.CONFIG, "Too long: train"),
    "an impossible argument": (ValueError("null byte"), Why.CONFIG, "null byte"),
    "too many processes": (
        BlockingIOError(errno.EAGAIN, "Try again"),
        Why.REFUSED,
        "Try again: train",
    ),
    "too many files": (OSError(errno.EMFILE, "Too many", "/dev/null"), Why.REFUSED, "/dev/null"),
}


@pytest.mark.parametrize(("error", "code", "sentence"), CANNOT.values(), ids=CANNOT.keys())
def test_what_cannot_be_started_is_told_and_swept(
    stage: Stage, error: OSError | ValueError, code: Why, sentence: str
) -> None:
    outcome = stage.run(Program(), Program(cannot=error), sweeps=(1,))
    assert (outcome.code, outcome.rank) == (code, 1)
    assert outcome.sentence.startswith("rank 1 cannot be started: ")
    assert outcome.sentence.endswith(sentence)
    assert outcome.remedy


def test_a_log_that_cannot_be_written_is_the_disks_fault(stage: Stage) -> None:
    log_file = stage.order().ranks[0].log_file
    error = OSError(errno.ENOSPC, "No space left on device", log_file)
    assert stage.run(Program(cannot=error)).code is Why.IO


def test_it_sweeps_until_nothing_is_left(stage: Stage) -> None:
    stage.run(Program(ends_s=0.0), sweeps=(2, 1, 0, 99))
    assert stage.processes.sweep() == 99, "none was found, so none more was looked for"


def test_it_gives_up_on_what_cannot_be_killed(stage: Stage) -> None:
    assert stage.run(Program(ends_s=0.0), sweeps=(1,) * 1000).code is Why.COMPLETED


# ----- reports


def test_it_says_at_once_and_every_second_that_it_lives(stage: Stage) -> None:
    stage.run(Program(ends_s=3.5))
    assert [type(report) for report in stage.reports()] == [Alive] * 4 + [Ended]
    assert [report.seq for report in stage.reports()] == [1, 2, 3, 4, 5]
    assert stage.processes.pulses == 4


def test_it_passes_on_what_is_news_and_never_less_than_before(stage: Stage) -> None:
    first = {0.1: STEP % 1, 0.22: STEP % 2, 0.23: STEP % 3, 1.0: CHECKPOINT % 3, 2.0: STEP % 5}
    second = {0.9: STEP % 2, 1.5: STEP % 4, 1.8: CHECKPOINT % 3, 2.9: STEP % 5}
    stage.run(Program(ends_s=3.0, says=first), Program(ends_s=3.0, says=second))
    steps = [report.step for report in stage.said(StepSeen) if isinstance(report, StepSeen)]
    assert steps == [1, 3, 4, 5]
    assert len(stage.said(CheckpointSeen)) == 1


def test_it_passes_on_once_where_the_ranks_start_and_makes_it_harmless(stage: Stage) -> None:
    ready = (
        '{"kind": "ready", "resumed_step": 7, "notes": ["\\u001b[2Jpassed\\nover"],'
        ' "independent_sites": true}'
    )
    stage.run(Program(ends_s=1.0, says={0.1: ready}), Program(ends_s=1.0, says={0.2: ready}))
    (report,) = stage.said(ReadySeen)
    assert isinstance(report, ReadySeen)
    assert (report.resumed_step, report.notes) == (7, ("passed over",))
    assert report.independent_sites


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[1]",
        STEP % 10**24,
        STEP % -1,
        "loss 3.2",
        '{"kind": "step", "step": 1, "more": ' + "[" * 9_000,
    ],
)
def test_what_is_no_report_line_says_nothing(stage: Stage, line: str) -> None:
    outcome = stage.run(Program(ends_s=1.0, exit_code=76, says={0.1: line}))
    assert outcome.code is Why.EXITED, "it does not speak, so its codes are its own"
    assert not stage.said(StepSeen)


def test_the_last_words_before_an_exit_are_heard(stage: Stage) -> None:
    says = {0.5: '{"kind": "failure", "message": "no data", "remedy": "fetch it"}'}
    outcome = stage.run(Program(ends_s=0.5, exit_code=78, says=says))
    assert (outcome.code, outcome.sentence, outcome.remedy) == (
        Why.CONFIG,
        "rank 0: no data",
        "fetch it",
    )


def test_an_end_that_can_never_be_written_is_a_failure_of_the_site(stage: Stage) -> None:
    def spoil() -> None:
        reports = stage.directory / REPORTS_FILE
        reports.unlink()
        reports.mkdir()

    stage.clock.at(0.2, do=spoil)
    with pytest.raises(SiteError, match="cannot be reported: all ranks ended well"):
        stage.run(Program(ends_s=1.0))
    assert stage.clock.monotonic_s() == pytest.approx(6.0, abs=0.2)


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room(stage: Stage) -> None:
    reports = stage.directory / REPORTS_FILE

    def spoil() -> None:
        reports.rename(reports.with_suffix(".kept"))
        reports.mkdir()

    def mend() -> None:
        shutil.rmtree(reports)
        reports.with_suffix(".kept").rename(reports)

    stage.clock.at(0.2, do=spoil)
    stage.clock.at(4.0, do=mend)
    assert stage.run(Program(ends_s=1.5, says={0.5: STEP % 1})).code is Why.COMPLETED
    assert [type(report) for report in stage.reports()] == [Alive, StepSeen, Alive, Ended]


# ----- batch scripts that catch a signal of their own


def test_a_script_is_stopped_by_the_signal_it_catches(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(5.0))
    outcome = stage.run(Program(saves=0), batch=Batch(warning="USR2"))
    assert (stage.processes.warnings, stage.processes.signals) == ([(0, signal.SIGUSR2)], [])
    assert outcome.code is Why.STOP_REQUESTED


def test_a_script_that_is_deaf_to_it_is_killed(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(2.0))
    outcome = stage.run(Program(), batch=Batch(warning="10"))
    assert stage.processes.warnings == [(0, signal.SIGUSR1)]
    assert stage.processes.signals == [(0, signal.SIGKILL)]
    assert outcome.code is Why.STOP_REQUESTED


def test_the_sites_warning_is_handed_on_and_is_no_stop(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.running().pass_warning_on())
    outcome = stage.run(Program(ends_s=3.0), batch=Batch(warning="USR1"))
    assert (stage.processes.warnings, stage.processes.signals) == ([(0, signal.SIGUSR1)], [])
    assert outcome.code is Why.COMPLETED


def test_without_a_signal_of_its_own_a_script_is_stopped_as_all_are(stage: Stage) -> None:
    stage.clock.at(1.0, do=lambda: stage.stop(5.0))
    stage.run(Program(saves=0), batch=Batch())
    assert (stage.processes.warnings, stage.processes.signals) == ([], [(0, signal.SIGTERM)])


# ----- what a rank is given


def test_the_contract_wins_over_the_job_and_the_job_over_the_node(stage: Stage) -> None:
    order = stage.order(env={"RANK": "9", "A": "job", "GRIDLOOM_TASK": "mine"})
    env = rank_environment(order, order.ranks[0], {"A": "node", "B": "node", "LOCAL_RANK": "5"})
    assert (env["RANK"], env["LOCAL_RANK"], env["A"], env["B"]) == ("0", "0", "job", "node")
    assert env["GRIDLOOM_TASK"] == "j/1/3.1/s/n"


def test_a_batch_script_is_not_told_which_rank_it_is(stage: Stage) -> None:
    """It would hand that to all that it starts, and they would believe it."""
    order = stage.order(batch=Batch(), accelerator="h100", env={"A": "job"})
    env = rank_environment(order, order.ranks[0], {"A": "node", "RANK": "7"})
    assert (env["A"], env["RANK"], env["CUDA_VISIBLE_DEVICES"]) == ("job", "7", "0")
    assert not {"WORLD_SIZE", "OMP_NUM_THREADS", "PATH", "GRIDLOOM_JOB_ID"} & env.keys()
    assert env["GRIDLOOM_REPORT_FILE"] == order.ranks[0].rank.report_file
    assert env["GRIDLOOM_TASK"] == "j/1/3.1/s/n"


def test_the_index_of_an_array_is_of_its_own_jobs_only(stage: Stage) -> None:
    base = {ARRAY_INDEX_VARIABLE: "7"}  # handed in from inside a job of an array
    order = stage.order()
    assert ARRAY_INDEX_VARIABLE not in rank_environment(order, order.ranks[0], base)
    order = stage.order(env={ARRAY_INDEX_VARIABLE: "3"})
    assert rank_environment(order, order.ranks[0], base)[ARRAY_INDEX_VARIABLE] == "3"


@pytest.mark.parametrize("batch", [None, Batch()], ids=["ranks", "batch"])
@pytest.mark.parametrize(
    ("accelerator", "devices", "visible"),
    [(CPU, (2, 5), "7"), ("h100", (2, 5), "2,5"), ("h100", (), "7")],
    ids=["cpu", "gpu", "given by the site"],
)
def test_a_rank_sees_the_devices_of_its_task(
    stage: Stage, accelerator: str, devices: tuple[int, ...], visible: str, batch: Batch | None
) -> None:
    order = stage.order(accelerator=accelerator, batch=batch)
    rank = RankOrder(rank=order.ranks[0].rank, devices=devices, log_file="")
    base = {"CUDA_VISIBLE_DEVICES": "7"}
    assert rank_environment(order, rank, base)["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize(
    ("base", "first"),
    [
        ({"PATH": "/bin"}, None),
        ({}, None),
        ({"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv"}, "/venv/bin"),
        ({"PATH": "/conda/bin", "CONDA_PREFIX": "/conda"}, "/conda/bin"),
    ],
)
def test_python_means_the_active_environment_or_ours(
    stage: Stage, base: dict[str, str], first: str | None
) -> None:
    order = stage.order()
    path = rank_environment(order, order.ranks[0], base)["PATH"].split(":")
    assert path[0] == (first or str(Path(rank_argv(RECIPE_ARGV)[0]).parent))


@pytest.mark.parametrize("threads", [None, "8"])
def test_threads_are_limited_unless_somebody_said_how(stage: Stage, threads: str | None) -> None:
    order = stage.order()
    base = {"OMP_NUM_THREADS": threads} if threads else {}
    assert rank_environment(order, order.ranks[0], base)["OMP_NUM_THREADS"] == (threads or "1")


def test_our_own_program_runs_under_our_interpreter() -> None:
    assert rank_argv(RECIPE_ARGV)[1:] == ("-P", "-m", "gridloom.runtime.entry")
    assert rank_argv(["python", "train.py"]) == ("python", "train.py")


WORDS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", ""),
    "blank": (b"\n \n\t\n", ""),
    "the last line": (b"a\nb\n\n", "b"),
    "a cut line": (b"a\nb", "b"),
    "a progress bar": (b"1%\r50%\r99%\r", "99%"),
    "colours": (b"\x1b[1;31mError:\x1b[0m x\x1b]0;title\x07\n", "Error: x"),
    "no text": (b"\xfe\x00ok\x07\n", "\N{REPLACEMENT CHARACTER}ok"),
    "a long line": (b"x" * 100_000, "x" * 200),
}


@pytest.mark.parametrize(("log", "words"), WORDS.values(), ids=WORDS.keys())
def test_last_words_are_the_last_line_that_says_something(
    tmp_path: Path, log: bytes, words: str
) -> None:
    (tmp_path / "log").write_bytes(log)
    assert last_words(tmp_path / "log") == words


def test_words_of_an_earlier_life_are_not_the_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"address already in use\n")
    assert last_words(log, log.stat().st_size) == ""


def test_without_a_log_there_are_no_last_words(tmp_path: Path) -> None:
    assert last_words(tmp_path / "log") == ""
