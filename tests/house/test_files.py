"""What must not stand in a file of the repository."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Paths of one machine, and the folder of reference material that a stranger's clone has not
FORBIDDEN = re.compile(r"/(?:root|home/\w+)/|\.\./shared\b|--index-url")
MAKERS = Path(__file__).name


def tracked() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:  # not a checkout: an unpacked archive
        names = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")]
    else:
        names = done.stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_nothing_of_one_machine_is_named() -> None:
    found = []
    for path in tracked():
        if path.name == MAKERS or path.suffix in (".png", ".gz", ".sqlite"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in FORBIDDEN.finditer(text)]
    assert not found


def test_no_file_is_large() -> None:
    large = [path for path in tracked() if path.stat().st_size > 1_000_000]
    assert not large
