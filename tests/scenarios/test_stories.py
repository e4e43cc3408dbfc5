"""Every story of the examples holds, whatever the seed."""

from pathlib import Path

import pytest

from gridloom.sim.story import prepare
from gridloom.sim.story_play import play
from gridloom.wire.stories import read_story

STORIES = sorted((Path(__file__).parents[2] / "examples" / "stories").glob("*.yaml"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", [0, 1])
def test_story_holds(path: Path, seed: int) -> None:
    found = play(prepare(read_story(path.read_bytes(), path.name), path.stem), seed=seed)
    assert found.holds, found.differences


def test_there_are_stories() -> None:
    assert len(STORIES) > 100
