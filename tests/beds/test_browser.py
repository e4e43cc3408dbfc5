"""The report in a real browser: it opens without the network, and shows its curves."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.scenarios.conftest import JOB, Stage

pytestmark = [pytest.mark.bed, pytest.mark.timeout(180)]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=2000",
]  # fmt: skip


def browse(page: Path, tmp_path: Path, *flags: str) -> str:
    chromium = shutil.which("chromium")
    assert chromium, "install chromium: apt-get install chromium"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [chromium, *FLAGS, profile, *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_report_shows_its_curves(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    facts = stage.run(JOB | {"steps": 20})
    page = stage.run_dir(facts["job"]) / "report.html"
    assert not re.search(r"(?:src|href)=", page.read_text())

    dom = browse(page, tmp_path, "--dump-dom")
    titles = ("Where the time goes at each site", "Loss", "Speed")
    for title in (*titles, "Where a training step spends its time"):
        assert title in dom
    assert dom.count("<svg") == 4
    assert "NaN" not in dom

    picture = tmp_path / "report.png"
    browse(page, tmp_path, f"--screenshot={picture}", "--window-size=900,1600")
    assert picture.stat().st_size > 20_000
