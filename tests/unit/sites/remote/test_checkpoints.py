"""The newest checkpoint that is whole is found at both ends, and moved in one piece."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fakes.remote_files import FakeFiles

from gridloom.base.codec import pretty
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.sites.remote.checkpoints import (
    Saved,
    directory_of,
    fetch,
    newest_here,
    newest_there,
    push,
    roots_here,
    roots_there,
)
from gridloom.sites.remote.errors import LinkDownError

FILES = FakeFiles()


def save(shelf: Path, step: int, **files: str) -> Path:
    """Write a checkpoint as the training program does."""
    place = shelf / f"step-{step:08d}"
    place.mkdir(parents=True)
    contents = files or {"__0_0.distcp": f"shard of {step}", ".metadata": "m"}
    for name, text in contents.items():
        (place / name).write_text(text)
    told = [{"name": name, "bytes": len(text), "sha256": ""} for name, text in contents.items()]
    manifest = {"step": step, "job": "j", "files": told, "version": 2, "site": "a"}
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def both(root: Path, *sites: str) -> list[Saved | None]:
    """Return what is found of some sites by either way."""
    others = {path.name for path in root.iterdir()} - {*sites} if root.exists() else set()
    here, there = newest_here([str(root)], but=others), newest_there(FILES, [str(root)], sites)
    return [here, there]


def test_the_newest_of_all_sites_is_found(tmp_path: Path) -> None:
    save(tmp_path / "a", 20)
    save(tmp_path / "b", 100)
    save(tmp_path / "a", 40)
    for found in both(tmp_path, "a", "b"):
        assert found is not None
        assert (found.step, found.site, found.root) == (100, "b", tmp_path.name)
        assert found.directory == f"{tmp_path}/b/step-00000100"
        assert [*found.files] == ["__0_0.distcp", ".metadata", "manifest.json"]
        assert found.bytes == sum(path.stat().st_size for path in Path(found.directory).iterdir())
    for found in both(tmp_path, "a"):
        assert found is not None
        assert found.step == 40


def test_what_is_not_whole_does_not_count(tmp_path: Path) -> None:
    save(tmp_path / "a", 10)
    (save(tmp_path / "a", 20) / "__0_0.distcp").write_text("cut")
    (save(tmp_path / "a", 30) / ".metadata").unlink()
    (save(tmp_path / "a", 40) / "manifest.json").write_text("{")
    (save(tmp_path / "a", 50) / "manifest.json").unlink()
    save(tmp_path / "a", 60).rename(tmp_path / "a" / "step-00000070")
    save(tmp_path / "a", 80).rename(tmp_path / "a" / "step-00000080.tmp-1")
    save(tmp_path / "a", 90).rename(tmp_path / "a" / "step-00000090.old")
    bad = save(tmp_path / "a", 95)
    told = json.loads((bad / "manifest.json").read_text())
    told["files"].append({"name": "../../../etc/passwd", "bytes": 1})
    (bad / "manifest.json").write_text(json.dumps(told))
    for found in both(tmp_path, "a"):
        assert found is not None
        assert found.step == 10


def test_where_there_is_nothing_nothing_is_found(tmp_path: Path) -> None:
    assert both(tmp_path, "a") == [None, None]
    assert both(tmp_path / "nowhere", "a") == [None, None]
    assert newest_there(FILES, [], ["a"]) is None
    (tmp_path / "file").touch()
    assert newest_here([str(tmp_path / "file")]) is None


def test_a_loop_of_ones_own_keeps_them_in_its_run_directory(tmp_path: Path) -> None:
    for name in ("ckpt", "logs", "attempts", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.jsonl").touch()
    wanted = [f"{tmp_path}/ckpt", f"{tmp_path}/other"]
    assert roots_here(tmp_path, "") == roots_there(FILES, str(tmp_path), "") == wanted
    assert roots_here(tmp_path / "no", "") == roots_there(FILES, f"{tmp_path}/no", "") == []
    assert roots_here(tmp_path, "/c") == roots_there(FILES, str(tmp_path), "/c") == ["/c"]


def test_a_recipe_says_where_they_are(tmp_path: Path) -> None:
    assert directory_of(tmp_path) == ""
    recipe = GptRecipe(
        shape=GptShape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8),
        data=TextData(),
        training=Training(steps=1, global_batch=1, sequence_length=8),
        checkpoint=CheckpointPolicy(directory="/kept"),
    )
    (tmp_path / "recipe.json").write_text(pretty(recipe))
    assert directory_of(tmp_path) == "/kept"


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_checkpoint_is_fetched_in_one_piece(tmp_path: Path) -> None:
    save(tmp_path / "there" / "a", 20, one="1" * 10, two="2" * 20)
    saved = newest_there(FILES, [str(tmp_path / "there")], ["a"])
    assert saved is not None
    files, shelf, steps = FakeFiles(), tmp_path / "here" / "b", list[int]()

    def cut(verb: str) -> None:
        if verb == "download" and files.calls.count("download") == 2:
            raise LinkDownError("cut")

    files.before = cut
    with pytest.raises(LinkDownError):
        fetch(files, saved, shelf, steps.append)
    assert names(shelf) == [".step-00000020.part"]
    files.before = lambda verb: None
    files.calls.clear()
    steps.clear()
    fetch(files, saved, shelf, steps.append)
    assert files.calls == ["download"] * 2, "what had come was not fetched again"
    assert sum(steps) == saved.bytes
    assert names(shelf) == ["step-00000020"]
    found = newest_here([str(shelf.parent)])
    assert found == replace(saved, root="here", site="b", directory=f"{shelf}/step-00000020")


def test_a_checkpoint_is_brought_there_in_one_piece(tmp_path: Path) -> None:
    save(tmp_path / "here" / "a", 20, one="1" * 10, two="2" * 20)
    saved = newest_here([str(tmp_path / "here")])
    assert saved is not None
    files, shelf, steps = FakeFiles(), tmp_path / "there" / "b", list[int]()

    def cut(verb: str) -> None:
        if verb == "rename":
            raise LinkDownError("cut")

    files.before = cut
    with pytest.raises(LinkDownError):
        push(files, saved, str(shelf), steps.append)
    assert newest_there(FILES, [str(shelf.parent)], ["b"]) is None
    files.before = lambda verb: None
    steps.clear()
    push(files, saved, str(shelf), steps.append)
    assert sum(steps) == saved.bytes
    found = newest_there(FILES, [str(shelf.parent)], ["b"])
    assert found == replace(saved, root="there", site="b", directory=f"{shelf}/step-00000020")


def test_one_that_is_damaged_gives_way(tmp_path: Path) -> None:
    save(tmp_path / "a", 20)
    saved = newest_here([str(tmp_path)])
    assert saved is not None
    for shelf in ("fetched", "pushed"):
        (save(tmp_path / "x" / shelf, 20) / ".metadata").unlink()
    fetch(FILES, saved, tmp_path / "x" / "fetched", lambda _: None)
    push(FILES, saved, f"{tmp_path}/x/pushed", lambda _: None)
    for shelf in ("fetched", "pushed"):
        found = newest_there(FILES, [f"{tmp_path}/x"], [shelf])
        assert found is not None
