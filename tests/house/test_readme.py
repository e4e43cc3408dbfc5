"""The two READMEs say the same: equal headings in number and level, equal commands, live links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
PAGES = [ENGLISH, CHINESE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def levels(page: Path) -> list[int]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def commands(page: Path) -> list[str]:
    """Fenced blocks, without their comments, which are in the page's language."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    lines = [line for _, block in blocks for line in block.splitlines()]
    return [line.split(" #")[0].rstrip() for line in lines if not line.lstrip().startswith("#")]


def test_headings_are_equal() -> None:
    assert levels(ENGLISH) == levels(CHINESE)


def test_commands_are_equal() -> None:
    assert commands(ENGLISH) == commands(CHINESE)
    assert any("make demo" in line for line in commands(ENGLISH))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=lambda page: page.name)
def test_commands_name_verbs_and_targets_that_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = {path.stem for path in (ROOT / "src" / "gridloom" / "cli").glob("*.py")}
    for line in commands(page):
        words = line.split()
        if words[:1] == ["make"]:
            assert re.search(rf"^{re.escape(words[1])}:", makefile, re.MULTILINE), line
        if words[:1] == ["gridloom"]:
            assert words[1] in verbs, line
