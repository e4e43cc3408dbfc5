"""Every room on disk is named where the contracts of imports list rooms."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "gridloom").iterdir() if path.is_dir())
ROOMS = [room for room in ROOMS if not room.startswith("__")]
PURE = {"model", "core", "planner", "diagnose", "discover", "sim"}


def contracts() -> dict[str, dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {c["name"]: c for c in settings["tool"]["importlinter"]["contracts"]}


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "runtime"])
def test_only_the_runtime_may_import_torch(room: str) -> None:
    named = contracts()["Only the training runtime may import torch"]["source_modules"]
    assert f"gridloom.{room}" in named


@pytest.mark.parametrize("room", [room for room in ROOMS if room in PURE])
def test_pure_rooms_are_held_pure(room: str) -> None:
    named = contracts()["The pure packages do no I/O"]["source_modules"]
    assert f"gridloom.{room}" in named


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_a_page(room: str) -> None:
    page = ROOT / "docs" / "how" / f"{room}.md"
    assert page.is_file(), f"say in {page.relative_to(ROOT)} what the room is for"
