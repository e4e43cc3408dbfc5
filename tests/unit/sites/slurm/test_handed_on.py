"""What becomes of each option of a user's batch script."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sites.slurm.handed_on import HandedOn, handed_on
from gridloom.sites.slurm.sbatch_file import parse


def handed(*options: str, tail: str = "true\n") -> HandedOn:
    lines = "".join(f"#SBATCH {option}\n" for option in options)
    return handed_on(parse(f"#!/bin/bash\n{lines}{tail}", "jobs/a.sh"), "jobs/a.sh")


def test_slurm_gets_what_the_script_says_under_its_long_names_the_last_one_of_each() -> None:
    found = handed("-p gpu --mail-type=END", "-p gpu2 -N 2", "--spank-thing=x --contiguous")
    assert found.options == (
        ("mail-type", "END"),
        ("partition", "gpu2"),
        ("nodes", "2"),
        ("spank-thing", "x"),
        ("contiguous", ""),
        ("job-name", "a.sh"),
    )
    assert [(one.line, one.written) for one in found.told][:2] == [
        (2, "-p gpu"),
        (2, "--mail-type=END"),
    ]
    assert not any(one.is_lost for one in found.told)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--array=1-3", "each index is a job of gridloom"),
        ("--chdir=/data", "the script starts there"),
        ("--clusters=a,b", "they are the sites"),
        ("--comment=x", "by a comment of its own"),
        ("-W", "about the command sbatch"),
    ],
)
def test_what_gridloom_sees_to_itself_slurm_is_not_told(option: str, said: str) -> None:
    found = handed(option, "-J x")
    assert found.options == (("job-name", "x"),)
    assert said in found.told[0].sentence
    assert found.told[0].is_lost == (option in ("--comment=x", "-W"))


def test_of_a_range_of_nodes_both_take_the_least() -> None:
    found = handed("--nodes=2-4", "-J x")
    assert found.options[0] == ("nodes", "2")
    assert found.told[0].sentence == "gridloom and Slurm take 2, the least of it"


def test_lines_that_sbatch_does_not_read_are_lost() -> None:
    found = handed(tail="#PBS -l x\ntrue\n#SBATCH -N 9\n")
    assert [(one.line, one.written, one.is_lost) for one in found.told] == [
        (4, "#SBATCH", True),
        (2, "#PBS", True),
    ]


@pytest.mark.parametrize(
    ("value", "after", "theirs", "is_bound"),
    [
        ("afterok:17", (), "afterok:17", True),
        ("afterok:17:18_*,afterany:3+5", (), "afterok:17:18_*,afterany:3+5", True),
        ("afterok:a-x2?afterok:17", None, "", False),
        ("afterok:17?afterok:18", (), "afterok:17?afterok:18", True),
        ("singleton", (), "singleton", False),
        ("afterok:a-x2", (("a-x2", "afterok"),), "", False),
        (
            "after:a-x2:b-x2,singleton",
            (("a-x2", "after"), ("b-x2", "after")),
            "singleton",
            False,
        ),
        ("aftercorr:a-x2", None, "", False),
    ],
)
def test_whom_it_waits_for(
    value: str, after: tuple[tuple[str, str], ...] | None, theirs: str, is_bound: bool
) -> None:
    if after is None:
        with pytest.raises(InputError) as error:
            handed("-N 1", f"--dependency={value}")
        (problem,) = error.value.problems
        assert (problem.line, problem.field) == (3, "--dependency")
        return
    found = handed(f"--dependency={value}")
    assert found.after == after
    assert dict(found.options).get("dependency", "") == theirs
    assert bool(found.needs_one_site) == is_bound


@pytest.mark.parametrize(
    ("signal", "warning"),
    [
        ("B:USR1@300", "USR1"),
        ("B:SIGTERM", "TERM"),
        ("B:10@60", "10"),
        ("USR1@300", ""),
        ("B:KILL@9", ""),
        ("B:NOSUCH@9", ""),
        ("", ""),
    ],
)
def test_the_signal_that_the_script_itself_catches(signal: str, warning: str) -> None:
    found = handed(*([f"--signal={signal}"] if signal else []))
    assert found.warning == warning
    assert dict(found.options).get("signal", "") == signal, "Slurm is asked for it anyhow"


def test_what_cannot_be_done_is_refused_by_line() -> None:
    with pytest.raises(InputError) as error:
        handed("--input=x", "-N 2", "--container=y", "--test-only")
    assert [(one.line, one.field) for one in error.value.problems] == [
        (2, "--input"),
        (4, "--container"),
        (5, "--test-only"),
    ]
    assert all(one.remedy for one in error.value.problems)
    with pytest.raises(InputError, match="heterogeneous"):
        handed("-N 2", "hetjob", "-N 1")
