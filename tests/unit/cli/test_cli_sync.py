"""The sync method of a job that is handed in, and of a plan over several sites: chosen and told."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType
from tests.unit.cli.conftest import Answer

from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.prepare import Prepared, prepare
from gridloom.cli.sync import sync_rows
from gridloom.cli.sync_words import choice_table, choice_words, links_table, method_words
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.planner.site_sync import by_link, choose
from gridloom.planner.sync_forecast import SyncLink, SyncSituation

Call = Callable[..., Answer]
GOLDEN = Path(__file__).parents[2] / "golden"
SITUATION = SyncSituation(
    parameters=12_000_000,
    width=384,
    tokens=20e6,
    step_s=0.5,
    step_tokens=512,
    links=(SyncLink(bytes_per_s=12.5e6, rtt_s=0.04),),
)
JOB = """\
name: j
recipe: gpt
model: {{layers: 4, hidden: 192, heads: 3}}
steps: 200
global_batch: 8
sequence_length: 64
resources: {{accelerators: '{devices}', min_sites: 2}}
sync: {sync}
"""
GRID = """\
sites:
  north: {{accelerators: '{kind}:2'}}
  south: {{accelerators: '{kind}:2'}}
{links}
"""
LINKS = "links: [{between: [north, south], bandwidth: 100Mbit/s, latency: 20ms, loss: 0.0001}]"


def prepared(
    tmp_path: Path, sync: str, kind: str = "cpu", links: str = LINKS, more: str = ""
) -> Prepared:
    job, grid = tmp_path / "job.yaml", tmp_path / "grid.yaml"
    job.write_text(JOB.format(sync=sync, devices=f"{kind}:2-4") + more)
    grid.write_text(GRID.format(kind=kind, links=links))
    return prepare(job, grid, settings.read(), SystemIds())


def methods(spec: JobSpec) -> set[SiteSync]:
    assert spec.recipe is not None
    return {spec.recipe.sync, *(option.plan.site_sync for option in spec.options)}


@pytest.mark.parametrize("kind", ["cpu", "h100"])
def test_auto_is_settled_before_the_job_is_handed_in(home: Path, tmp_path: Path, kind: str) -> None:
    found = prepared(tmp_path, "auto", kind)
    (how,) = methods(found.spec)
    assert how.kind == "outer"
    assert len(found.spec.options) > 1
    ((label, words),) = sync_rows(found.spec, found.grid.inventory)
    assert label == "between sites"
    assert words.startswith(f"{method_words(how)}: ")


def test_a_method_that_is_slow_is_told_with_the_better_one(home: Path, tmp_path: Path) -> None:
    found = prepared(tmp_path, "every_step")
    assert methods(found.spec) == {SiteSync()}
    rows = dict(sync_rows(found.spec, found.grid.inventory))
    assert rows["between sites"].startswith("every step: ")
    assert "`sync: auto`" in rows
    assert rows["`sync: auto`"].startswith("outer")


def test_a_link_that_nobody_describes_is_told(home: Path, tmp_path: Path) -> None:
    found = prepared(tmp_path, "auto", links="")
    rows = dict(sync_rows(found.spec, found.grid.inventory))
    assert rows["links"].startswith("north and south: the grid does not describe")
    found = prepared(tmp_path, "every_step", links="")
    assert sync_rows(found.spec, found.grid.inventory) == []


def test_at_one_site_nothing_is_chosen_and_nothing_told(home: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(sync="auto", devices="cpu:1").replace(", min_sites: 2", ""))
    found = prepare(job, None, settings.read(), SystemIds())
    assert methods(found.spec) == {SiteSync()}
    assert sync_rows(found.spec, found.grid.inventory) == []


def test_the_predicted_step_is_by_the_method(home: Path, tmp_path: Path) -> None:
    times = {
        sync: prepared(tmp_path, sync, "h100", more="precision: bf16\n").spec.options[0].step_s
        for sync in ("every_step", "auto", "{bits: 8}")
    }
    assert 0 < times["auto"] < times["{bits: 8}"] < times["every_step"]


def written(*things: RenderableType) -> str:
    out = Console(file=StringIO(), width=100, highlight=False)
    for thing in things:
        out.print(thing)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_methods_side_by_side_and_which_is_for_which_link() -> None:
    choice = choose(SITUATION)
    links = [SyncLink(bytes_per_s=rate, rtt_s=0.04) for rate in (1.25e6, 12.5e6, 1.25e9)]
    links.append(SyncLink(bytes_per_s=125e6, rtt_s=0.15, loss=0.001))
    slow = choose(replace(SITUATION, links=tuple(links[:1])))
    text = written(
        choice_words(choice),
        choice_table(choice, choice.best),
        links_table(by_link(SITUATION, links)),
        choice_words(slow),
    )
    assert text == (GOLDEN / "sync_tables.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (SiteSync(), "every step"),
        (SiteSync(bits=16), "every step, 16 bits"),
        (SiteSync(codec="top_k"), "every step, the largest 0.01 of the numbers"),
        (SiteSync(codec="low_rank"), "every step, rank 4"),
        (SiteSync(kind="accumulated", every=8), "gradients of 8 steps"),
        (
            SiteSync(kind="outer", every=48, fragments=8, codec="blocks", bits=4),
            "outer, every 48 steps, in 8 fragments, 4 bits",
        ),
        (SiteSync(kind="outer", every=0), "outer, as often as the link allows"),
    ],
)
def test_a_method_in_words(how: SiteSync, words: str) -> None:
    assert method_words(how) == words


PLAN = ("plan", "-m", "gpt2", "--global-batch", "4", "--seq", "512", "--tokens", "10B")


def test_a_plan_over_sites_says_how_they_stay_one_model(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.format(kind="h100", links=LINKS).replace(":2", ":1"))
    words = (*PLAN, "-g", str(path))
    told = call(*words, "--json", "--top", "50").json()
    joint = [plan for plan in told["plans"] if plan["way"] == "replicas"]
    assert joint
    for plan in joint:
        sync: dict[str, Any] = plan["sync"]
        how = msgspec.convert(sync["taken"]["method"], SiteSync)
        assert {_site_sync(part) for part in plan["parts"]} == {how}
        assert how.kind == "outer"
        assert sync["taken"] == sync["best"]
        ratio = 1 - plan["between_pools_s"] / plan["step_s"]
        assert sync["taken"]["tokens_ratio"] == pytest.approx(ratio)
        assert {one["method"]["kind"] for one in sync["methods"]} == {
            "every_step",
            "accumulated",
            "outer",
        }
    assert all(plan["sync"] is None for plan in told["plans"] if plan["way"] != "replicas")
    answer = call(*words, "--explain", "--sync", "auto")
    assert answer.code == 0
    assert "between sites" in answer.out
    assert "which method for which link" in answer.out


def _site_sync(part: dict[str, Any]) -> SiteSync:
    return msgspec.convert(part["plan"]["site_sync"], SiteSync)
