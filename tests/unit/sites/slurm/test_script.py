"""Batch scripts: what is rendered is read again, and runs as it says."""

import os
import select
import shlex
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.errors import InputError
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.sbatch_file import parse
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import (
    Component,
    Container,
    Memory,
    Mount,
    Signal,
    Submission,
    Switches,
)

ARGUMENTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TEXTS = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=12)
HOSTS = st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}", fullmatch=True), max_size=4).map(tuple)
GRES = st.builds(
    Gres,
    name=st.sampled_from(["gpu", "nic"]),
    type=st.sampled_from(["", "h100"]),
    count=st.integers(1, 9),
)
COMPONENTS = st.builds(
    Component,
    nodes=st.integers(1, 4000),
    partition=TEXTS,
    constraint=TEXTS,
    nodelist=HOSTS,
    gres=st.lists(GRES, max_size=2).map(tuple),
    cpus_per_task=st.none() | st.integers(1, 256),
    memory=st.none()
    | st.builds(Memory, mib=st.integers(0, 10**7), per=st.sampled_from(["node", "cpu", "gpu"])),
    switches=st.none()
    | st.builds(Switches, count=st.integers(1, 9), wait_min=st.none() | st.integers(0, 10**4)),
    segment=st.none() | st.integers(1, 64),
    licences=st.lists(st.from_regex(r"[a-z]{1,4}(:[1-9])?", fullmatch=True), max_size=2).map(tuple),
    exclusive=st.sampled_from(["", "node", "user", "mcs", "topo"]),
)
SUBMISSIONS = st.builds(
    Submission,
    components=st.lists(COMPONENTS, min_size=1, max_size=3).map(tuple),
    name=TEXTS,
    comment=TEXTS,
    account=TEXTS,
    qos=TEXTS,
    reservation=TEXTS,
    exclude=HOSTS,
    time_limit_min=st.none() | st.integers(1, 10**6),
    dependency=TEXTS,
    signal=st.none()
    | st.builds(
        Signal,
        name=st.sampled_from(["USR1", "USR2", "TERM", "10"]),
        before_s=st.integers(0, 65535),
        to_batch=st.booleans(),
    ),
    requeue=st.none() | st.booleans(),
    no_kill=st.booleans(),
    directory=TEXTS,
    stdout=TEXTS,
    stderr=TEXTS,
    open_mode=st.sampled_from(["", "append", "truncate"]),
    export=st.sampled_from(["ALL", "NONE", "NIL"]),
    environment=st.dictionaries(
        st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), ARGUMENTS, max_size=2
    ),
)


@given(SUBMISSIONS)
def test_what_is_rendered_is_read_again(submission: Submission) -> None:
    found = parse(render(submission, ["true"]))
    assert found.submission == msgspec.structs.replace(submission, environment={})
    assert found.tasks == tuple(part.nodes for part in submission.components)
    assert set(found.tasks_per_node) == {1}
    assert {left.option for left in found.not_taken} == {"--mail-type"}
    assert found.ignored_lines == ()


@given(st.lists(ARGUMENTS, min_size=1, max_size=6))
def test_the_command_is_quoted_exactly(argv: list[str]) -> None:
    script = render(Submission(), argv)
    line = script.split("\ncommand=(", 1)[1].split(")\n\nstep=\n")[0]
    found = shlex.split(line)
    if ":" in argv:
        assert found[:2] == ["/bin/bash", "-c"]
        found = shlex.split(found[2].removeprefix("exec "))
    assert found == argv


def test_a_colon_alone_is_kept_from_srun() -> None:
    argv = ["a", ":", "it's"]
    script = render(Submission(), argv)
    assert shlex.split(script.split("\ncommand=(", 1)[1].split(")\n\nstep=\n")[0]) == [
        "/bin/bash",
        "-c",
        f"exec {shlex.join(argv)}",
    ]


FAKE_SRUN = """\
#!/bin/bash
printf '%s\\0' "$@" > "$SEEN"
for name in USR1 USR2 TERM; do
    trap "echo $name; kill \\$child 2>/dev/null; exit 9" $name
done
echo ready "$NOTE"
[ -n "$QUICK" ] && exit "$QUICK"
sleep 60 > /dev/null &
child=$!
wait "$child"
"""


def start(
    tmp_path: Path, submission: Submission, argv: list[str], quick: str = ""
) -> subprocess.Popen[str]:
    """Start a script in a real shell, where a program that plays srun stands in the path."""
    (tmp_path / "srun").write_text(FAKE_SRUN)
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "job.sh").write_text(render(submission, argv))
    paths = f"{tmp_path}:{os.environ['PATH']}"  # noqa: TID251 - a real process needs a real path
    return subprocess.Popen(
        ["bash", str(tmp_path / "job.sh")],
        env={"PATH": paths, "SEEN": str(tmp_path / "seen"), "QUICK": quick},
        stdout=subprocess.PIPE,
        text=True,
        # What is ignored from the start, as under nohup, no shell can catch
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    ("submission", "sent", "arrives"),
    [
        (Submission(), signal.SIGUSR1, "USR1"),
        (Submission(), signal.SIGTERM, "USR1"),
        (Submission(signal=Signal(name="USR2")), signal.SIGUSR2, "USR2"),
        (Submission(signal=Signal(name="USR2")), signal.SIGTERM, "USR2"),
        (Submission(signal=Signal(name="HUP")), signal.SIGHUP, "USR1"),
        (Submission(signal=Signal(name="12")), signal.SIGUSR2, "USR2"),
    ],
    ids=["USR1", "TERM", "USR2", "TERM as USR2", "HUP", "12"],
)
def test_a_signal_is_handed_on_and_the_status_is_that_of_srun(
    tmp_path: Path, submission: Submission, sent: signal.Signals, arrives: str
) -> None:
    with start(tmp_path, submission, ["true"]) as shell:
        assert shell.stdout
        assert shell.stdout.readline() == "ready \n"
        # In its first moments, before it knows srun's number, the shell can hand nothing on
        for _ in range(30):
            shell.send_signal(sent)
            if select.select([shell.stdout], [], [], 1)[0]:
                break
        assert shell.stdout.read() == f"{arrives}\n"
        assert shell.wait(30) == 9


@pytest.mark.parametrize("status", ["0", "3", "127", "138"])
def test_the_script_ends_as_srun_does(tmp_path: Path, status: str) -> None:
    with start(tmp_path, Submission(), ["true"], status) as shell:
        assert shell.wait(30) == int(status)


def test_a_real_shell_passes_every_word_and_variable_on(tmp_path: Path) -> None:
    argv = [
        "a b",
        "'q'",
        '"',
        "$HOME",
        "`id`",
        "\\",
        "",
        "*",
        "!x",
        "two\nlines",
        "\u00e9",
        "#SBATCH",
    ]
    note = "x=1; 'y' $HOME \\"
    with start(tmp_path, Submission(environment={"NOTE": note}), argv, "0") as shell:
        assert shell.stdout
        assert shell.stdout.read() == f"ready {note}\n"
    seen = (tmp_path / "seen").read_bytes().decode().split("\0")[:-1]
    assert seen[-len(argv) :] == argv
    assert seen[0] == "--kill-on-bad-exit=0"


@pytest.mark.parametrize(
    ("submission", "command", "said"),
    [
        (Submission(), [], "command: the command is empty"),
        (Submission(), ["a\0"], "command: a NUL cannot be passed"),
        (Submission(environment={"A": "\0"}), ["a"], "environment: a NUL cannot be passed"),
        (Submission(environment={"A B": ""}), ["a"], "environment: 'A B' is not a name"),
        (Submission(components=()), ["a"], "components: a job has at least one component"),
        (
            Submission(array="1-2", components=(Component(), Component())),
            ["a"],
            "array: Slurm has no arrays of heterogeneous jobs",
        ),
        (Submission(time_limit_min=0), ["a"], "time_limit_min: the shortest"),
        (Submission(signal=Signal(name="usr")), ["a"], "signal: 'usr' is no signal"),
        (Submission(signal=Signal(name="KILL")), ["a"], "signal: 'KILL' is no signal"),
        (
            Submission(name="a\nb"),
            ["a"],
            "job-name: 'a\\nb' cannot be asked for: it is empty or has",
        ),
        (Submission(components=(Component(nodes=0),)), ["a"], "nodes: 0 is less than one"),
        (Submission(components=(Component(segment=0),)), ["a"], "segment: 0 is less than one"),
        (
            Submission(components=(Component(memory=Memory(mib=-1)),)),
            ["a"],
            "memory: memory cannot be negative",
        ),
        (
            Submission(components=(Component(gres=(Gres(name="g p"),)),)),
            ["a"],
            "gres: 'g p:1' is no device; as gpu:h100:8",
        ),
        (
            Submission(
                container=Container(
                    engine="pyxis", image="a", mounts=(Mount(source="/a:b", target="/c"),)
                )
            ),
            ["a"],
            "mounts: '/a:b' cannot be mounted on '/c'; paths without spaces",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_asked_for_is_told(
    submission: Submission, command: list[str], said: str
) -> None:
    with pytest.raises(InputError) as error:
        render(submission, command)
    assert str(error.value).startswith(said)


def test_every_reason_is_told() -> None:
    with pytest.raises(InputError) as error:
        render(Submission(time_limit_min=0, components=(Component(nodes=0),)), [])
    assert len(error.value.problems) == 3
