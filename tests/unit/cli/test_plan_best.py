"""``gridloom plan`` in this process: what it finds, for a person and for a machine."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Answer, plain, run_in_terminal

from gridloom.planner.catalogue import accelerator
from gridloom.planner.flops import flops_per_token
from gridloom.planner.models.presets import preset

Call = Callable[..., Answer]
LLAMA = ("-m", "llama3-8b", "--global-batch", "128", "--seq", "4096")
GRID = """\
sites:
  north:
    nodes:
      n1: {accelerators: h100:8}
      n2: {accelerators: h100:8}
    price_per_accelerator_hour: 2.5
  south:
    nodes:
      s1: {accelerators: a100:8}
    price_per_accelerator_hour: 1.5
links:
  - {between: [north, south], bandwidth: 400Gbit/s, latency: 1ms}
"""


def found(call: Call, *words: str) -> dict[str, Any]:
    answer = call("plan", *LLAMA, *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    result: dict[str, Any] = answer.json()
    return result


def test_figures_of_the_best_plan_agree_with_each_other(call: Call) -> None:
    told = found(call, "-g", "h100:16", "--tokens", "100B", "--price", "2.5")
    assert told["model"]["parameters"] == 8_030_261_248
    first = told["plans"][0]
    tokens = 128 * 4096
    assert first["tokens_per_s"] == pytest.approx(tokens / first["step_s"])
    work = flops_per_token(preset("llama3-8b"), 4096)
    peak = 16 * accelerator("h100").flops_16
    assert first["mfu"] == pytest.approx(first["tokens_per_s"] * work / peak)
    assert sum(first["step_lines_s"].values()) == pytest.approx(first["step_s"])
    stage = first["memory_lines_bytes"].pop("stage")
    assert stage == 0
    assert sum(first["memory_lines_bytes"].values()) == pytest.approx(first["memory_bytes"])
    whole = first["training"]
    time_s = first["step_s"] * 100e9 / tokens / first["goodput"]["useful"]
    assert whole["time_s"] == pytest.approx(time_s)
    assert whole["device_hours"] == pytest.approx(16 * time_s / 3600)
    assert whole["price"] == pytest.approx(2.5 * whole["device_hours"])
    assert whole["energy_kwh"] == pytest.approx(whole["device_hours"] * 1.05 * 1.1)


def test_plans_are_ranked_fit_and_obey_what_is_fixed(call: Call) -> None:
    told = found(call, "-g", "h100:16", "--fix", "tp=2,recompute=selective", "--head-room", "0.2")
    times = [plan["training"]["time_s"] for plan in told["plans"]]
    assert times == sorted(times)
    assert len(times) == 10
    for plan in told["plans"]:
        (part,) = plan["parts"]
        assert part["plan"]["tensor"] == 2
        assert part["plan"]["recompute"] == "selective"
        assert plan["memory_bytes"] <= 0.8 * 80e9
        ranks = [part["plan"][axis] for axis in ("tensor", "pipeline", "context", "data")]
        assert ranks[0] * ranks[1] * ranks[2] * ranks[3] == plan["devices"] == 16


def test_the_objective_decides(call: Call) -> None:
    words = ("-g", "h100:32", "--tokens", "100B", "--price", "2")
    time = found(call, *words)["plans"][0]
    price = found(call, *words, "--objective", "price")["plans"][0]
    assert time["training"]["time_s"] < price["training"]["time_s"]
    assert price["training"]["price"] < time["training"]["price"]
    days = price["training"]["days"]
    in_time = found(call, *words, "--objective", "deadline", "--deadline", f"{days / 2:.3f}d")
    assert time["training"]["days"] <= in_time["plans"][0]["training"]["days"] <= days / 2
    assert in_time["plans"][0]["training"]["price"] >= price["training"]["price"]


def test_the_front_falls_in_price_as_time_grows(call: Call) -> None:
    words = ("-g", "h100:32", "--tokens", "100B", "--price", "2", "--objective", "price")
    front = found(call, *words)["front"]
    prices = [plan["training"]["price"] for plan in front]
    times = [plan["training"]["time_s"] for plan in front]
    assert len(front) > 1
    assert times == sorted(times)
    assert prices == sorted(prices, reverse=True)


@pytest.mark.slow
@pytest.mark.unmeasured
def test_pools_of_two_sites_are_joined_where_that_is_faster(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    told = found(call, "-g", str(path), "--tokens", "100B")
    first = told["plans"][0]
    assert {part["pool"]: part["accelerator"] for part in first["parts"]} == {
        "north": "h100",
        "south": "a100",
    }
    ways = {plan["way"] for plan in told["plans"]}
    assert ways & {"replicas", "stages"}
    for plan in told["plans"]:
        layers = [part["layers"] for part in plan["parts"]]
        sequences = [part["sequences"] for part in plan["parts"]]
        if plan["way"] == "stages":
            assert (sum(layers), set(sequences)) == (32, {128})
        else:
            assert (set(layers), sum(sequences)) == ({32}, 128)
        assert plan["global_batch"] == 128
    answer = call("plan", *LLAMA, "-g", str(path), "--tokens", "100B", "--top", "1")
    shared = "stages of one pipeline" if first["way"] == "stages" else "copies of the model at each"
    assert shared in " ".join(answer.out.split())
    alone = found(call, "-g", "h100:16", "--tokens", "100B")["plans"][0]
    assert first["step_s"] < alone["step_s"]


def test_a_plan_that_needs_no_less_than_a_better_one_like_it_is_left_out(call: Call) -> None:
    plans = found(call, "-g", "h100:16", "--top", "200")["plans"]
    assert len(plans) == 200
    least: dict[str, float] = {}
    for plan in plans:
        knobs = {**plan["parts"][0]["plan"], "zero": 0, "shard": 0}
        key = str({**knobs, "recompute": "", "recompute_layers": 0, "devices": plan["devices"]})
        assert plan["memory_bytes"] < least.get(key, float("inf"))
        least[key] = plan["memory_bytes"]
    assert len(least) < 200  # sharding and recomputation that save memory are shown
    fixed = found(call, "-g", "h100:16", "--fix", "recompute=selective", "--top", "1")["plans"]
    assert fixed[0]["parts"][0]["plan"]["recompute"] == "selective"


def test_why_not_of_what_was_not_asked_for_says_that_it_is_better(call: Call) -> None:
    verdict = found(call, "-g", "h100:16", "--why-not", "precision=fp8")["why_not"]
    assert verdict["outcome"] == "better"
    assert verdict["ratio"] < 1
    assert "that were compared: it was none of them" in verdict["sentence"]
    answer = call("plan", *LLAMA, "-g", "h100:16", "--why-not", "precision=fp8")
    assert "difference" in answer.out


def test_why_not_shows_what_the_plan_loses(call: Call) -> None:
    answer = call("plan", *LLAMA, "-g", "h100:16", "--why-not", "tp=8,pp=1")
    assert answer.code == 0
    assert "tensor=8, pipeline=1 takes" in answer.out
    assert "tensor parallel" in answer.out
    told = found(call, "-g", "h100:16", "--why-not", "tp=1,pp=1,zero=0")["why_not"]
    assert told["outcome"] == "does_not_fit"
    assert told["over_bytes"] > 0
    assert {remedy["knob"] for remedy in told["remedies"]} & {"zero", "pipeline", "tensor"}
    assert told["stage"] == 0


def test_the_explanation_has_the_numbers_of_the_plan(call: Call) -> None:
    answer = call("plan", *LLAMA, "-g", "h100:16", "--explain", "--tokens", "100B")
    for words in (
        "128,256 rows x 4,096 = 525,336,576",
        "6 x 7,504,658,432 weights in products",
        "8,030,261,248",
        "100,000,000,000 tokens / 524,288 a training step",
    ):
        assert words in " ".join(answer.out.split())
    told = found(call, "-g", "h100:16", "--explain")["explanation"]
    assert [part["about"] for part in told][:2] == ["parameters of the model", "work"]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gpt3-175b", "gemma2-9b"])
def test_every_kind_of_model_is_explained(call: Call, name: str) -> None:
    words = ("-m", name, "-g", "h200:512", "--global-batch", "512", "--seq", "2048")
    answer = call("plan", *words, "--explain", "--top", "1", "--fix", "cp=1,recompute=full")
    assert (answer.code, answer.err) == (0, "")
    assert "parameters of the model" in answer.out


def test_a_terminal_of_100_columns_holds_the_table() -> None:
    words = ("-m", "mixtral-8x7b", "-g", "h100:64", "--global-batch", "256", "--seq", "4096")
    code, text = run_in_terminal(100, ["plan", *words, "--tokens", "1T", "--price", "2"])
    assert code == 0
    lines = plain(text).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.lstrip().startswith("10 ") for line in lines)


def test_without_block_characters_bars_are_plain() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gridloom.cli.main", "plan", *LLAMA, "-g", "h100:16"],
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin", "HOME": "/tmp"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    out = done.stdout.decode("ascii")
    assert "\\u2588" not in out
    assert "###" in out
