"""The sync method of a job that is handed in, and of a plan over several sites: chosen and told."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType
from tests.unit.cli.conftest import Answer

from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.prepare import Prepared, prepare
from gridloom.cli.stages_words import (
    program_words,
    stages_line,
    weighed_words,
    winner_lines,
)
from gridloom.cli.sync import sync_rows
from gridloom.cli.sync_tables import choice_lines, choice_table, links_table
from gridloom.cli.sync_words import choice_words, method_words
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.planner.site_stages import SiteStages, StageHop, weigh, weighed_by_link
from gridloom.planner.site_sync import choose
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
STAGES = SiteStages(
    sites=("north", "south"),
    layers=(14, 10),
    fill_s=(0.06, 0.05),
    slot_s=(0.06, 0.05),
    micro_batches=8,
    numbers=24_576.0,
    hops=(StageHop(link=SITUATION.links[0]),),
    least_depths=(2, 1),
    depths=(3.0, 8.0),
    step_tokens=512,
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
    weighed = weigh(SITUATION, STAGES)
    alone = weigh(None, replace(STAGES, is_runnable=False))
    assert weighed.stages is not None
    assert alone.stages is not None
    text = written(
        choice_words(choice),
        choice_table([*choice_lines(choice, choice.best), stages_line(weighed.stages)]),
        weighed_words(weighed),
        program_words(weighed.stages),
        links_table(winner_lines(weighed_by_link(SITUATION, STAGES, links))),
        choice_words(slow),
        choice_table([stages_line(alone.stages, is_taken=True)]),
        weighed_words(alone),
        program_words(alone.stages),
        weighed_words(weigh(SITUATION, None)),
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


PLAN = ("plan", "-m", "gpt2", "--global-batch", "64", "--seq", "512", "--tokens", "10B")


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
        taken = sync["taken"]
        assert plan["more_tokens"] == pytest.approx(
            taken["tokens_ratio"] / taken["ratio_at_equal_loss"]
        )
        assert sync["stages"]["in_the_recipe"] is False
        assert sum(sync["stages"]["layers"]) == 12
    assert all(plan["sync"] is None for plan in told["plans"] if plan["way"] == "one_pool")
    times = [plan["training"]["time_s"] * plan["more_tokens"] for plan in told["plans"]]
    assert times == sorted(times)
    answer = call(*words, "--explain", "--sync", "auto")
    assert answer.code == 0
    assert "between sites" in answer.out
    assert "which way for which link" in answer.out
    assert "stages: " in answer.out


def large(path: Path, sites: dict[str, str], links: str) -> tuple[str, ...]:
    """Return a question about a model that one site's device cannot hold."""
    named = "".join(f"  {name}: {{accelerators: '{kind}'}}\n" for name, kind in sites.items())
    path.write_text(f"sites:\n{named}links: [{links}]\n")
    model = ("-m", "llama3-8b", "--global-batch", "32", "--seq", "2048", "--tokens", "20B")
    return ("plan", *model, "-g", str(path), "--optimizer", "adamw_8bit")


def link(one: str, other: str, rate: str) -> str:
    return f"{{between: [{one}, {other}], bandwidth: {rate}, latency: 5ms}}"


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.unmeasured)])
def test_a_model_that_fits_no_site_is_cut_over_them(call: Call, tmp_path: Path, count: int) -> None:
    names = ("north", "south", "west")[:count]
    links = ", ".join(link(*pair, "10Gbit/s") for pair in combinations(names, 2))
    words = large(tmp_path / "grid.yaml", dict.fromkeys(names, "a100:1"), links)
    told = call(*words, "--json", "--top", "50").json()
    assert {plan["way"] for plan in told["plans"]} == {"stages"}
    for plan in told["plans"]:
        sync = plan["sync"]
        assert (sync["soonest"], sync["taken"]) == ("stages", sync["stages"])
        assert "best" not in sync
        assert sync["stages"]["in_the_runtime"]
        assert [part["site"] for part in plan["parts"]] == sync["stages"]["sites"]
        assert [part["layers"] for part in plan["parts"]] == sync["stages"]["layers"]
        assert sync["stages"]["step_s"] == pytest.approx(plan["step_s"])
    assert max(len(plan["parts"]) for plan in told["plans"]) == count
    answer = call(*words, "--explain")
    assert "fits at none of them alone: stages of one pipeline" in answer.out
    assert "copies of the model do not fit at each of these sites" in answer.out
    assert "gl.pipeline(layers, loss, gl.StageOptions(micro_batches=" in answer.out


def _site_sync(part: dict[str, Any]) -> SiteSync:
    return msgspec.convert(part["plan"]["site_sync"], SiteSync)
