"""Command lines: exactly these words."""

import pytest

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import command
from gridloom.sites.slurm.parse_queue import SACCT_FORMAT, SINFO_FORMAT, SQUEUE_FORMAT
from gridloom.sites.slurm.usage import USAGE_FORMAT


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (command.sbatch(), ["sbatch", "--parsable"]),
        (command.sbatch(is_tried=True), ["sbatch", "--parsable", "--test-only"]),
        (command.sbatch(is_held=True), ["sbatch", "--parsable", "--hold"]),
        (
            command.squeue([3, 5]),
            ["squeue", "--noheader", "--states=all", "--jobs=3,5", f"--format={SQUEUE_FORMAT}"],
        ),
        (
            command.squeue(user="me"),
            ["squeue", "--noheader", "--states=all", "--user=me", f"--format={SQUEUE_FORMAT}"],
        ),
        (
            command.preemptions([3]),
            [
                *("squeue", "--noheader", "--states=all", "--jobs=3,3"),
                "--Format=jobid:20,preempttime:30",
            ],
        ),
        (
            command.expected_starts([3]),
            ["squeue", "--start", "--noheader", "--jobs=3", f"--format={SQUEUE_FORMAT}"],
        ),
        (
            command.sacct([3, 5]),
            [
                *("sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"),
                *("--delimiter=\x1f", "--jobs=3,5", f"--format={SACCT_FORMAT}"),
            ],
        ),
        (
            command.usage([3, 5]),
            ["sacct", "--noheader", "--parsable2", "--jobs=3,5", f"--format={USAGE_FORMAT}"],
        ),
        (command.sinfo(), ["sinfo", "--noheader", "--Node", f"--format={SINFO_FORMAT}"]),
        (command.show("node"), ["scontrol", "--details", "--oneliner", "show", "node"]),
        (command.show("job", "7"), ["scontrol", "--details", "--oneliner", "show", "job", "7"]),
        (command.scancel(7), ["scancel", "7"]),
        (command.scancel(7, signal="TERM"), ["scancel", "--signal=TERM", "7"]),
        (
            command.scancel(7, signal="USR1", to="batch"),
            ["scancel", "--signal=USR1", "--batch", "7"],
        ),
        (command.scancel(7, signal="KILL", to="both"), ["scancel", "--signal=KILL", "--full", "7"]),
    ],
    ids=str,
)
def test_words(argv: tuple[str, ...], words: list[str]) -> None:
    assert list(argv) == words


def test_what_is_printed_depends_on_no_place() -> None:
    assert command.ENVIRONMENT["TZ"] == "UTC0"


@pytest.mark.parametrize("printed", ["17\n", "17;sitea\n", "sbatch: warning: x\n17\n"])
def test_the_job_that_was_handed_in(printed: str) -> None:
    assert command.submitted(printed) == 17


@pytest.mark.parametrize("printed", ["", "Submitted batch job 17", "\u00b2"])
def test_what_is_no_job(printed: str) -> None:
    with pytest.raises(SiteError, match="sbatch printed no job id"):
        command.submitted(printed)


def test_who_may_charge_what() -> None:
    words = ("sacctmgr", "--noheader", "--parsable2", "show")
    assert command.sacctmgr("qos") == (*words, "qos", "format=name")
    assert command.sacctmgr("associations", "ann") == (
        *(*words, "associations", "user=ann"),
        "format=account,partition,qos",
    )
