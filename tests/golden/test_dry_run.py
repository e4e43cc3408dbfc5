"""What `submit --dry-run` prints is what it was."""

from pathlib import Path

from tests.golden.dry_run import DIRECTORY, texts


def test_each_site_is_handed_what_it_was() -> None:
    made = texts()
    assert {path.name for path in DIRECTORY.iterdir()} == set(made)
    for name, text in made.items():
        assert text == (DIRECTORY / name).read_text(encoding="utf-8")
    assert not Path("/state").exists()
