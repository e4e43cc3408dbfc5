"""``gridloom scenario``: one line a story, what differs, and the exit code."""

from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.conftest import Answer

Call = Callable[..., Answer]

GOOD = """
about: One job waits for the other.
grid: {nodes: 1x gpu:8}
events:
  - {at: 0, submit: {name: a, gpus: 8, duration: 10}}
  - {at: 1, submit: {name: b, gpus: 8, duration: 10}}
expect:
  - {at: 5, running: a, waiting: b}
"""
WRONG = GOOD + "  - {at: 15, running: a}\n"


def written(directory: Path, **stories: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in stories.items():
        (directory / f"{name}.yaml").write_text(text)
    return directory


def test_a_story_that_holds_is_one_line(call: Call, tmp_path: Path) -> None:
    answer = call("scenario", str(written(tmp_path, good=GOOD) / "good.yaml"))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "ok      good  6 steps, 20s\n"


def test_a_story_that_differs_says_what_and_how_all_was(call: Call, tmp_path: Path) -> None:
    path = written(tmp_path, wrong=WRONG) / "wrong.yaml"
    answer = call("scenario", str(path))
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert lines[0].startswith("differs wrong  ")
    assert lines[1] == f"  {path}:9: at 15 s"
    assert lines[2:] == [
        "    - expected: a is running",
        "    + so:       it is succeeded: completed, all ranks ended well",
        "    jobs then:",
        "      a  succeeded: completed, all ranks ended well",
        "      b  running: 8 devices on n0",
    ]


def test_a_directory_stands_for_its_stories(call: Call, tmp_path: Path) -> None:
    written(tmp_path, good=GOOD)
    written(tmp_path / "below", wrong=WRONG, other=GOOD)
    answer = call("scenario", str(tmp_path))
    assert answer.code == 1
    assert answer.out.splitlines()[-1] == "2 stories hold, 1 differ"


def test_every_problem_of_every_file_is_told_and_nothing_played(call: Call, tmp_path: Path) -> None:
    bad = GOOD.replace("running: a", "runing: a")
    written(tmp_path, good=GOOD, bad=bad, worse="about: x\n")
    answer = call("scenario", str(tmp_path))
    assert (answer.code, answer.out) == (2, "")
    assert f"{tmp_path / 'bad.yaml'}:8: expect[0].runing: unknown field" in answer.err
    assert f"{tmp_path / 'worse.yaml'}: grid: is missing" in answer.err


def test_what_is_not_there_is_told(call: Call, tmp_path: Path) -> None:
    for words, said in (
        ([], "no story is given"),
        ([str(tmp_path)], "holds no `*.yaml`"),
        ([str(tmp_path / "x.yaml")], "cannot be read"),
    ):
        answer = call("scenario", *words)
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err


def test_a_trace_shows_what_happens(call: Call, tmp_path: Path) -> None:
    path = written(tmp_path, good=GOOD) / "good.yaml"
    answer = call("scenario", str(path), "--trace", "--laws", "off")
    assert answer.code == 0
    assert "         0 > start attempt 1 of a on here/n0 (8)\n" in answer.out
    assert "        10 > a is over: succeeded\n" in answer.out
    assert "        10 > start attempt 1 of b on here/n0 (8)\n" in answer.out


def test_json_is_one_object_a_story(call: Call, tmp_path: Path) -> None:
    written(tmp_path, good=GOOD, wrong=WRONG)
    answer = call("scenario", str(tmp_path), "--json", "--trace", "--seed", "7")
    assert answer.code == 1
    good, wrong = answer.lines()
    assert (good["name"], good["holds"], good["differences"]) == ("good", True, [])
    assert good["trace"][0] == {"at_s": 0, "sign": "<", "sentence": "the grid has 8 devices"}
    (difference,) = wrong["differences"]
    assert (difference["line"], difference["when"], difference["at_s"]) == (9, "at", 15)
    assert difference["mismatches"][0]["expected"] == "a is running"
    assert [*difference["jobs"]] == ["a", "b"]


def test_many_jobs_are_not_all_shown(call: Call, tmp_path: Path) -> None:
    text = GOOD.replace("name: b,", "name: b, array: 100,").replace(
        "running: a, waiting", "running"
    )
    answer = call("scenario", str(written(tmp_path, many=text) / "many.yaml"))
    assert answer.code == 1
    assert answer.out.splitlines()[-1] == "      and 61 more"


def test_at_the_end_and_over_time_are_said_in_words(call: Call, tmp_path: Path) -> None:
    more = "  - finally: {running: a}\n  - never: {running: a}\n"
    answer = call("scenario", str(written(tmp_path, wrong=GOOD + more) / "wrong.yaml"))
    assert ":9: at the end\n" in answer.out
    assert ":10: never, but at 0 s\n" in answer.out
