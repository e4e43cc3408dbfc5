"""``gridloom plan memory``, ``export``, ``evaluate`` and ``calibrate`` in this process."""

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.conftest import Answer

from gridloom.planner.calibration import Calibration, predicted_s
from gridloom.planner.frameworks import deepspeed, megatron, torchtitan
from gridloom.planner.priors import PRIORS
from gridloom.planner.published import Run, read_run

Call = Callable[..., Answer]
LLAMA = ("-m", "llama3-8b", "--global-batch", "128", "--seq", "4096")


def told(call: Call, *words: str) -> dict[str, Any]:
    answer = call("plan", *words, "--json")
    assert (answer.code, answer.err) == (0, ""), answer.out
    result: dict[str, Any] = answer.json()
    return result


# --- memory


def test_the_worked_example_of_100_billion_parameters(call: Call) -> None:
    words = ("memory", "--params", "100B", "--devices", "64", "--zero", "3")
    short, standard = told(call, *words)["accounts"]
    assert short["bytes"] == {"parameters": 200e9, "gradients": 200e9, "optimizer": 600e9}
    assert short["bytes_per_device"]["zero_3"] == 15.625e9
    assert standard["bytes"]["optimizer"] == 1200e9
    assert standard["bytes_per_device"]["zero_3"] == 25e9
    # ZeRO-1 shards 600 or 1200 GB, ZeRO-2 the gradients too.
    assert short["bytes_per_device"]["zero_1"] == 400e9 + 600e9 / 64
    assert standard["bytes_per_device"]["zero_2"] == 200e9 + 1400e9 / 64
    text = call("plan", *words).out
    for words_ in ("200.0 GB", "600.0 GB", "1,200 GB", "15.6 GB", "25.0 GB"):
        assert words_ in text


@pytest.mark.parametrize(
    ("text", "per_parameter"), [("12", (2, 2, 12)), ("2+2+6", (2, 2, 6)), ("4,4,8", (4, 4, 8))]
)
def test_bytes_by_another_convention(
    call: Call, text: str, per_parameter: tuple[int, int, int]
) -> None:
    words = ("memory", "--params", "1B", "--devices", "8", "--bytes-per-parameter", text)
    accounts = told(call, *words)["accounts"]
    kinds = ("parameters", "gradients", "optimizer")
    assert tuple(accounts[0]["bytes_per_parameter"][kind] for kind in kinds) == per_parameter
    assert tuple(accounts[-1]["bytes_per_parameter"][kind] for kind in kinds) == (2, 2, 12)


def test_memory_by_stage_names_the_first_rank_to_overflow(call: Call) -> None:
    model = ("-m", "llama3.1-70b", "--devices", "h100:64", "--seq", "8192")
    words = ("memory", *model, "--tp", "4", "--pp", "4")
    found = told(call, *words)
    assert not found["fits"]
    assert len(found["stages"]) == 4
    for stage in found["stages"]:
        assert sum(stage["lines"].values()) == pytest.approx(stage["peak_bytes"])
    first = found["first_to_overflow"]
    assert first["stage"] == next(s["stage"] for s in found["stages"] if not s["fits"])
    assert first["rank"] == first["stage"] * 16
    assert "runs out first" in call("plan", *words).out
    small = told(call, *words, "--recompute", "full", "--zero", "1")
    assert small["peak_bytes"] < found["peak_bytes"]


def test_memory_of_what_a_file_of_arguments_says(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "mine.sh"
    path.write_text(
        "--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096"
        " --max-position-embeddings 4096 --vocab-size 50304 --tensor-model-parallel-size 4"
        " --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 64 --bf16"
        " --world-size 16\n"
    )
    found = told(call, "memory", "-m", str(path), "--devices", "a100")
    assert (found["plan"]["tensor"], found["plan"]["pipeline"], found["devices"]) == (4, 2, 16)


# --- export


@pytest.mark.parametrize("to", ["megatron", "deepspeed", "torchtitan", "accelerate"])
def test_the_best_plan_in_the_words_of_a_framework_reads_back(call: Call, to: str) -> None:
    found = told(call, "export", "--to", to, *LLAMA, "-g", "h100:16")
    plan, text = found["plan"], found["text"]
    ranks = plan["tensor"] * plan["pipeline"] * plan["context"] * plan["data"]
    assert ranks == 16
    if to == "megatron":
        read = megatron.from_arguments(text, world_size=16)
        assert read.model is not None
        assert read.model.hidden == 4096
    elif to == "deepspeed":
        read = deepspeed.from_config(json.loads(text), 16, pipeline=plan["pipeline"])
    elif to == "torchtitan":
        read = torchtitan.from_toml(text, world_size=16, layers=32)
    else:
        config = yaml.safe_load(text)
        assert (config["num_processes"], config["num_machines"]) == (16, 2)
        return
    for axis in ("tensor", "pipeline", "context", "data", "zero", "micro_batch"):
        assert getattr(read.plan, axis) == plan[axis], axis
    assert read.goal.global_batch == 128


def test_a_stated_plan_goes_to_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "args.sh"
    stated = "tp=4,pp=2,dp=8,zero=1,micro_batch=2,recompute=selective"
    words = ("export", "--to", "megatron", *LLAMA, "--plan", stated, "--out", str(path))
    answer = call("plan", *words)
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    read = megatron.from_arguments(path.read_text(), world_size=64).plan
    assert (read.tensor, read.pipeline, read.data, read.zero) == (4, 2, 8, 1)
    assert (read.micro_batch, read.recompute, read.sequence_parallel) == (2, "selective", True)


def test_a_file_that_cannot_be_written_is_named_and_what_was_there_stays(
    call: Call, tmp_path: Path
) -> None:
    words = ("plan", "export", "--to", "deepspeed", *LLAMA, "--plan", "dp=8,zero=1")
    for path in (tmp_path / "nowhere" / "ds.json", tmp_path):
        answer = call(*words, "--out", str(path))
        assert answer.code == 2
        assert f"{path}: cannot be written" in answer.err
    old = tmp_path / "ds.json"
    old.write_text("old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        answer = call(*words, "--out", str(old))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert answer.code == 2
    assert (old.read_text(), sorted(tmp_path.iterdir())) == ("old", [old])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--zero", "7"), "--zero: 7"),
        (("--tp", "0"), "--tp: 0"),
        (("--micro-batch", "0"), "--micro-batch: 0"),
        (("--recompute", "half"), "--recompute: 'half'"),
        (("--fix", "foo=1"), "--fix foo: no such knob"),
        (("--optimizer", "adamw,sgd"), "--optimizer: 'adamw,sgd' cannot be"),
    ],
)
def test_a_value_of_memory_that_cannot_be_is_told_by_its_flag(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    answer = call("plan", "memory", "-m", "llama3-8b", "--seq", "4096", "-g", "h100:8", *words)
    assert answer.code == 2
    assert said in answer.err


def test_what_nobody_stated_gives_way_to_the_framework(call: Call) -> None:
    words = ("export", "--to", "deepspeed", *LLAMA, "--plan", "tp=2,dp=8,zero=1")
    assert told(call, *words)["plan"]["sequence_parallel"] is False
    answer = call("plan", *words[:-1], "tp=2,dp=8,zero=1,sp=on")
    assert answer.code == 2
    assert "tensor ranks of DeepSpeed hold all tokens" in answer.err


def test_a_plan_that_is_not_the_best_says_so(call: Call) -> None:
    words = ("-m", "llama3.1-405b", "--global-batch", "512", "--seq", "8192", "-g", "h100:512")
    answer = call("plan", "export", "--to", "accelerate", *words)
    assert answer.code == 0
    assert "accelerate cannot run the best plan (" in answer.err
    assert "% slower" in answer.err


def test_a_best_plan_that_gives_way_says_in_what(call: Call) -> None:
    words = ("-m", "llama3.1-405b", "--global-batch", "512", "--seq", "8192", "-g", "h100:512")
    answer = call("plan", "export", "--to", "deepspeed", *words)
    assert answer.code == 0
    assert "deepspeed runs the best plan but for " in answer.err
    assert "overlap_parameters" in answer.err
    json.loads(answer.out)


# --- measured runs

COLUMNS = (
    *("id", "group", "model", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len"),
    *("gpu", "n_gpus", "nodes", "tp", "pp", "dp", "zero", "micro_batch", "global_batch"),
    *("precision", "act_ckpt", "flash_attention", "measured_step_time_s", "completeness"),
)


def table(path: Path, factors: dict[str, float]) -> Path:
    """Write runs of two sources, each slower than predicted by the source's factor."""
    literature = Calibration(shared={name: p.value for name, p in PRIORS.items()}, families={})
    lines = [",".join(COLUMNS)]
    for group, factor in factors.items():
        for number, (layers, hidden, heads, tensor) in enumerate(
            [(24, 2048, 16, 1), (24, 4096, 32, 2), (32, 4096, 32, 4), (40, 5120, 40, 8)]
        ):
            cells = {
                "id": f"{group}-{number}",
                "group": group,
                "model": f"GPT {hidden}",
                "layers": layers,
                "hidden": hidden,
                "ffn": 4 * hidden,
                "heads": heads,
                "kv_heads": heads,
                "vocab": 51200,
                "seq_len": 2048,
                "gpu": "A100-SXM-80",
                "n_gpus": 16,
                "nodes": 2,
                "tp": tensor,
                "pp": 1,
                "dp": 16 // tensor,
                "zero": 1,
                "micro_batch": 1,
                "global_batch": 128,
                "precision": "bf16",
                "act_ckpt": "none",
                "flash_attention": "y",
                "measured_step_time_s": 1.0,
                "completeness": "A",
            }
            run = read_run({name: str(value) for name, value in cells.items()})
            assert isinstance(run, Run)
            cells["measured_step_time_s"] = float(predicted_s(literature, [run])[0]) * factor
            lines.append(",".join(str(cells[name]) for name in COLUMNS))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.unmeasured
@pytest.mark.slow
def test_accelerators_of_one_group_are_judged_apart_when_it_is_left_out(
    call: Call, tmp_path: Path
) -> None:
    runs = table(tmp_path / "runs.csv", {"one": 1.0, "two": 1.1, "three": 1.0})
    text = runs.read_text()
    head, *lines = text.splitlines()
    lines = [
        line.replace("A100-SXM-80", "MI300X") if line.startswith("three") else line
        for line in lines
    ]
    runs.write_text("\n".join([head, *lines]) + "\n")
    found = told(call, "evaluate", str(runs), "--leave-out", "group")
    assert found["families_without_constants"] == ["mi300"]
    assert found["step_time_own_constants"]["rows"] == 8
    assert found["step_time_shared_constants"]["rows"] == 4
    shown = call("plan", "evaluate", str(runs), "--leave-out", "three").out
    assert "mi300: judged by what all families share" in " ".join(shown.split())


@pytest.mark.unmeasured
@pytest.mark.slow
def test_calibration_learns_what_evaluation_then_confirms(call: Call, tmp_path: Path) -> None:
    runs = table(tmp_path / "runs.csv", {"one": 1.3, "two": 1.3})
    constants = tmp_path / "constants.json"
    answer = call("plan", "calibrate", str(runs), "--out", str(constants))
    assert (answer.code, answer.err) == (0, "")
    assert "a100" in answer.out
    found = told(call, "evaluate", str(runs), "--constants", str(constants))
    assert (found["rows"], found["expressed"]) == (8, 8)
    assert found["step_time"]["mean_abs_error"] < 0.05
    assert found["by_source"]["one"]["rows"] == 4
    first = found["rows_detail"][0]
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)
    out = told(call, "evaluate", str(runs), "--leave-out", "group")
    assert out["step_time"]["mean_abs_error"] < 0.1
    one = told(call, "evaluate", str(runs), "--leave-out", "two")
    assert (one["rows"], set(one["by_source"])) == (4, {"two"})
    plan = told(call, *LLAMA, "-g", "a100:16", "--constants", str(constants))
    assert plan["step_time_error"]["a100"]["runs"] == 8
    refined = told(call, *LLAMA, "-g", "a100:16", "--measured", str(runs))
    fitted = plan["plans"][0]["step_s"]
    assert refined["plans"][0]["step_s"] == pytest.approx(fitted, rel=0.2)


def test_evaluation_for_a_person(call: Call, tmp_path: Path) -> None:
    runs = table(tmp_path / "runs.csv", {"one": 1.0, "two": 2.0})
    out = call("plan", "evaluate", str(runs)).out
    assert "8 rows, 8 of them can be expressed" in out
    assert "furthest off" in out
    assert "two-0" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "--leave-out", "onne"), "no group is called 'onne'; did you mean `one`?"),
        (("evaluate", "--constants", "runs.txt"), "runs.txt: cannot be read"),
        (("calibrate", "--out", "nowhere/c.json"), "nowhere/c.json: cannot be written"),
    ],
)
def test_what_cannot_be_evaluated(
    call: Call, tmp_path: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "runs.csv", {"one": 1.0, "two": 1.0})
    answer = call("plan", words[0], "runs.csv", *words[1:])
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
