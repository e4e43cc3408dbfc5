"""What the command line makes of words: usage, errors, exit codes, start-up."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer, plain, run_in_terminal

from gridloom.cli.main import main

Call = Callable[..., Answer]
VERBS = [
    "run",
    "submit",
    "ps",
    "status",
    "logs",
    "why",
    "stop",
    "resume",
    "cancel",
    "node",
    "grid",
    "plan",
    "schema",
    "doctor",
    "control",
    "version",
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frob"], 'Unknown command "frob"'),
        (["statsu", "x"], "status"),
        (["run"], "JOB requires an argument"),
        (["status"], "JOB requires an argument"),
        (["ps", "--bogus"], "Unknown option: --bogus"),
        (["status", "a", "b"], "too many arguments: b"),
        (["logs", "a", "--rank", "x"], "--rank"),
        (["schema", "neither"], '"job", "grid"'),
        (["grid", "shwo"], 'Did you mean "show"?'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_one_line_and_code_2(call: Call, words: list[str], said: str) -> None:
    answer = call(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert "--help` tells more" in answer.err


def test_wrong_words_are_json_where_json_is_asked_for(call: Call) -> None:
    answer = call("ps", "--bogus", "--json")
    assert (answer.code, answer.err) == (2, "")
    found = answer.json()
    assert found["event"] == "error"
    assert "--bogus" in found["message"]
    assert found["problems"][0].keys() == {"file", "line", "field", "message", "remedy"}


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]], ids=["none", "--help", "-h"])
def test_help_lists_the_verbs_in_the_order_of_use(call: Call, words: list[str]) -> None:
    answer = call(*words)
    assert answer.code == 0
    places = [answer.out.index(f"│ {verb} ") for verb in VERBS]
    assert places == sorted(places)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(call: Call, verb: str) -> None:
    answer = call(verb, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: gridloom {verb}")
    assert "default" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_the_help_of_run_is_its_long_one(call: Call) -> None:
    out = " ".join(call("run", "--help").out.split())
    assert "Ctrl-C stops it with its state saved" in out
    assert "* JOB Job file, in YAML, or" in out


def test_the_version_is_told_in_three_ways(call: Call) -> None:
    assert call("version").out == call("--version").out
    assert call("version", "--json").json() == {"version": call("version").out.strip()}


@pytest.mark.parametrize(
    "words", ["--help", "version", "--version", "ps --help", "plan --help", "frob"]
)
def test_a_quick_word_loads_nothing_heavy(words: str) -> None:
    program = f"""
import sys
from gridloom.cli.main import main
main({words.split()!r})
heavy = ["pydantic", "sqlalchemy", "numpy", "torch", "psutil", "yaml"]
sys.exit(", ".join(name for name in heavy if name in sys.modules) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_for_a_shell(call: Call, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    answer = call("--install-completion", "--shell", shell, "--output", str(script))
    assert answer.code == 0
    assert str(script) in answer.out
    assert "gridloom" in script.read_text()


def test_completion_that_cannot_be_installed_is_a_sentence(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    words = ["--install-completion", "--shell", "bash", "--output", str(tmp_path / "file" / "x")]
    answer = call(*words)
    assert answer.code == 2
    assert str(tmp_path / "file") in answer.err


def test_a_shell_is_offered_the_verbs(tmp_path: Path, call: Call) -> None:
    script = tmp_path / "script"
    call("--install-completion", "--shell", "bash", "--output", str(script))
    program = f"""
gridloom() {{ {sys.executable} -m gridloom.cli.main "$@"; }}
source {script}
COMP_WORDS=(gridloom st) COMP_CWORD=1 COMP_LINE="gridloom st" COMP_POINT=11
$(complete -p gridloom | grep -o -e '-F [^ ]*' | cut -c4-) gridloom st gridloom
printf '%s\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert {"status", "stop"} <= {word.strip() for word in done.stdout.split()}, done.stderr


@pytest.mark.parametrize(
    "words",
    ["schema job", "plan --model llama-2-7b --grid h100:8 --global-batch 64 --seq 4096"],
)
def test_the_reader_may_go_away_at_any_time(words: str, home: Path) -> None:
    command = f"{sys.executable} -m gridloom.cli.main {words} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_of_60_columns_is_respected_by_errors(home: Path) -> None:
    code, shown = run_in_terminal(60, ["status", "x" * 30])
    assert code == 2
    assert max(map(len, plain(shown).splitlines())) <= 60


def test_ctrl_c_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gridloom.cli.settings.read", interrupt)
    assert main(["ps"]) == 130
