"""The page of a simulation in a real browser: whole without the network, light and dark."""

import re
from pathlib import Path

import pytest
from tests.beds.test_browser import browse

from gridloom.cli.main import main

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]
GRID = """\
sites:
  north:
    topology: {leaf: 2, node: 4}
    node: {accelerators: h100:8}
    price_per_accelerator_hour: 2.0
"""
FAULTS = "at,kind,domain,for\n2h,down,north/l1-n1,6h\n"


def test_page_of_a_simulation(tmp_path: Path) -> None:
    grid, faults, page = (tmp_path / name for name in ("grid.yaml", "faults.csv", "page.html"))
    grid.write_text(GRID)
    faults.write_text(FAULTS)
    made = "generate:seren,jobs=400,load=1.2"
    words = ("simulate", "-w", made, "-g", str(grid), "-p", "fifo,las", "--gang", "packed")
    assert main((*words, "--faults", str(faults), "--report", str(page))) == 0
    assert not re.search(r"(?:src|href)=", page.read_text())

    dom = browse(page, tmp_path, "--dump-dom")
    for title in ("Policies side by side", "Waiting jobs", "Who was where", "Longest waits"):
        assert title in dom
    assert dom.count("<svg") == 5
    assert "NaN" not in dom

    size = "--window-size=1000,2400"
    pictures = []
    for scheme in ("1", "0"):  # as Blink numbers them: light, dark
        picture = tmp_path / f"{scheme}.png"
        flag = f"--blink-settings=preferredColorScheme={scheme}"
        browse(page, tmp_path, f"--screenshot={picture}", size, flag)
        assert picture.stat().st_size > 40_000
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]
