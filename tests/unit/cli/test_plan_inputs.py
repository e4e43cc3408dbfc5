"""What the plan commands are told: models, devices, numbers, tables; every fault with its place."""

import json
from pathlib import Path

import pytest

from gridloom.base.errors import InputError
from gridloom.cli.plan_flags import Aims, Asked, Terms
from gridloom.cli.plan_grounds import Grounds, device_counts, read_grounds
from gridloom.cli.plan_inputs import (
    Faults,
    read_limits,
    read_model,
    read_pins,
    read_resilience,
    read_subject,
)
from gridloom.cli.plan_runs_file import read_runs
from gridloom.planner.catalogue import accelerator
from gridloom.planner.goodput import DEVICE_MTBF_S
from gridloom.planner.hardware import Fabric
from gridloom.planner.models.presets import preset
from gridloom.planner.pools import Pool

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
ARGUMENTS = """\
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \\
  --num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096 \\
  --max-position-embeddings 4096 --vocab-size 50304 --tensor-model-parallel-size 4 \\
  --micro-batch-size 2 --global-batch-size 256 --bf16 --train-iters 1000
"""
GRID = """\
currency: EUR
sites:
  north:
    nodes:
      n1: {accelerators: h100:8}
      n2: {accelerators: h100:8}
    price_per_accelerator_hour: 2.5
    power_per_accelerator: 1100W
  south:
    nodes:
      s1: {accelerators: a100:4, memory: 160GB}
      s2: {accelerators: cpu:4}
links:
  - {between: [north, south], bandwidth: 8Gbit/s, latency: 10ms}
"""
HEAD = "id,model,layers,hidden,seq_len,gpu,n_gpus,global_batch,measured_step_time_s\n"


def refused(read: object, *args: object) -> str:
    with pytest.raises(InputError) as caught:
        read(*args)  # type: ignore[operator]
    return str(caught.value)


# --- models


def test_a_model_is_a_preset_a_configuration_or_a_file_of_arguments(tmp_path: Path) -> None:
    assert read_model("meta-llama/Meta-Llama-3-8B").model == preset("llama3-8b")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for name in (tmp_path, tmp_path / "config.json"):
        read = read_model(str(name)).model
        assert (read.layers, read.kv_heads, read.vocabulary) == (32, 8, 128256)
    (tmp_path / "mine.sh").write_text(ARGUMENTS)
    found = read_model(str(tmp_path / "mine.sh"))
    assert (found.model.name, found.model.hidden) == ("mine", 5120)
    assert (found.global_batch, found.sequence, found.tokens) == (256, 4096, 1000 * 256 * 4096)
    assert found.plan is not None
    assert (found.plan.tensor, found.plan.data) == (4, 4)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.json", b"", ("empty.json: is empty",)),
        ("cut.json", b'{"model_type": "llama",\n', ("cut.json:2: is not JSON",)),
        ("list.json", b"[1, 2]", ("list.json: is JSON, but no object with keys",)),
        ("deep.json", b'{"a":' * 100_000, ("deep.json: is not JSON: brackets",)),
        ("digits.json", b'{"hidden_size": ' + b"9" * 10_000 + b"}", ("a number is too long",)),
        (
            "layers.json",
            json.dumps({**CONFIG, "num_hidden_layers": 10**9}).encode(),
            ("layers.json: layers: 1,000,000,000 is too large",),
        ),
        (
            "wide.json",
            json.dumps({**CONFIG, "hidden_size": 10**30}).encode(),
            ("wide.json: hidden: ", "is too large; write at most 1,000,000,000"),
        ),
        ("other.json", b'{"model_type": "frobnicator"}', ("other.json: model_type", "llama")),
        ("bytes.json", b"\xff\xfe{}", ("bytes.json:1: is not UTF-8",)),
        ("nul.json", b"{}\x00", ("nul.json: is not text",)),
        ("args.sh", b"--num-layers 40 --hidden-size x", ("args.sh",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_model_file_is_named(
    tmp_path: Path, name: str, content: bytes, said: tuple[str, ...]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    text = refused(read_model, str(path))
    for words in said:
        assert words in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lama3-8b", "did you mean Llama-3-8B"),
        ("./nowhere/config.json", "there is no such file"),
        ("model.json", "there is no such file"),
        ("qqqqq", "no model preset is called 'qqqqq'"),
    ],
)
def test_an_unknown_model_is_told_with_a_remedy(name: str, said: str) -> None:
    assert said in refused(read_model, name)


# --- devices


def grounds(**flags: str) -> Grounds:
    return read_grounds(Asked(**flags), Terms(), "price")  # type: ignore[arg-type]


def test_devices_in_short_are_one_pool() -> None:
    found = grounds(grid="h100:64")
    (pool,) = found.pools
    assert (pool.accelerator.name, pool.count) == ("h100", 64)
    assert pool.watts == 700 * 1.5
    assert pool.choices[-1] == 64
    assert 8 in pool.choices
    assert grounds(devices="h100:64").pools[0].choices == (64,)
    assert grounds(grid="h100:16-32").pools[0].choices == (16, 24, 32)
    assert grounds(grid="h100:64", devices="16").pools[0].choices == (16,)
    assert grounds(devices="h100:16-32").pools[0].choices == (16, 24, 32)


def test_a_grid_file_is_a_pool_for_each_kind_at_each_site(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    found = grounds(grid=str(path))
    north, south = found.pools
    assert (north.name, north.count, north.fabric.node) == ("north", 16, 8)
    assert (north.price_per_device_hour, north.watts) == (2.5, 1100.0)
    assert (south.name, south.count, south.fabric.node) == ("south/a100", 4, 4)
    assert south.accelerator.memory_bytes == 40e9
    assert (found.currency, found.skipped) == ("EUR", ("cpu",))
    (link,) = found.links
    assert (link.bytes_per_s, link.latency_s) == (1e9, 0.01)
    only = read_grounds(Asked(grid=str(path), devices="a100:4"), Terms(price=9.0), "time")
    assert [(pool.name, pool.price_per_device_hour) for pool in only.pools] == [("south/a100", 9.0)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"grid": "h10:64"}, "did you mean `h100`?"),
        ({"grid": "h100:0"}, "--grid: 'h100:0' cannot be"),
        ({"grid": "h100:99999999999"}, "--grid: 'h100:99999999999' cannot be"),
        ({"grid": "h100:1e3"}, "--grid: 'h100:1e3' cannot be"),
        ({"grid": "h100:8.5"}, "--grid: 'h100:8.5' cannot be"),
        ({"grid": ":8"}, "--grid: ':8' cannot be"),
        ({"grid": "nowhere.yaml"}, "nowhere.yaml: the grid file cannot be read"),
        ({"devices": "x y"}, "--devices: 'x y' cannot be"),
        ({"devices": "h100:8+"}, "has no end"),
        ({"grid": "h100:8", "devices": "16"}, "the largest pool of the grid has 8"),
        ({"grid": "h100:8", "devices": "a100:8"}, "the grid has none"),
        ({}, "--grid: is needed"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_devices_that_cannot_be(
    flags: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRIDLOOM_GRID", raising=False)
    assert said in refused(lambda: grounds(**flags))


def test_numbers_of_devices_are_divisors_of_a_node_then_whole_nodes() -> None:
    pool = Pool(name="", site="", accelerator=accelerator("h100"), count=10**6)
    assert device_counts(pool, 1, 32) == (1, 2, 4, 8, 16, 24, 32)
    assert device_counts(pool, 20, 33) == (20, 24, 32, 33)
    many = device_counts(pool, 1, 16_384)
    assert {128, 256, 384, 8192, 12_288, 16_384} <= set(many)
    assert len(many) < 40
    small = Pool(name="", site="", accelerator=accelerator("h100"), count=12, fabric=Fabric(node=6))
    assert device_counts(small, 1, 12) == (1, 2, 3, 6, 12)


# --- numbers


def test_limits_and_what_interrupts_a_job() -> None:
    faults = Faults()
    limits = read_limits(Aims(tokens="1.5T", deadline="30d", budget="1.5M"), faults)
    assert limits.tokens == 1_500_000_000_000
    assert (limits.deadline_s, limits.budget) == (30 * 86_400, 1_500_000)
    met = read_resilience(Terms(device_mtbf="1000h", checkpoint_rate="2GB/s"), faults)
    assert (met.device_mtbf_s, met.storage_bytes_per_s, met.restart_s) == (3.6e6, 2e9, 600.0)
    assert read_resilience(Terms(), faults).device_mtbf_s == DEVICE_MTBF_S
    faults.end()


def test_every_fault_of_the_flags_is_told_at_once() -> None:
    faults = Faults()
    read_limits(Aims(tokens="-3", deadline="soon", budget="0", top=0), faults)
    read_resilience(Terms(price=-1, pue=0.5, carbon=float("nan"), restart="x"), faults)
    read_pins("--fix", "tp,pp=2,pp=4", faults)
    fields = [problem.field for problem in faults.problems]
    assert fields == [
        *("--tokens", "--deadline", "--budget", "--top", "--restart", "--price", "--carbon"),
        *("--pue", "--fix", "--fix"),
    ]
    with pytest.raises(InputError):
        faults.end()


def test_numbers_beyond_all_trainings_are_refused() -> None:
    faults = Faults()
    read_limits(Aims(tokens="1e300", budget="1e30"), faults)
    read_resilience(Terms(price=1e300, pue=1e9, carbon=float("inf")), faults)
    read_subject(Asked(model="llama3-8b", seq=10**20, global_batch=10**20), faults)
    assert [problem.field for problem in faults.problems] == [
        *("--tokens", "--budget", "--price", "--carbon", "--pue", "--global-batch", "--seq"),
    ]


def test_a_value_by_its_short_and_its_full_name_stands_there_twice() -> None:
    faults = Faults()
    assert read_pins("--fix", "tp=2,tensor=4", faults) == {"tp": "2"}
    assert [problem.message for problem in faults.problems] == ["tensor stands there twice"]


def test_a_limit_needs_the_tokens_and_its_objective_a_deadline() -> None:
    faults = Faults()
    read_limits(Aims(budget="10", objective="deadline"), faults)
    assert [problem.field for problem in faults.problems] == ["--tokens", "--deadline"]


# --- tables of runs


def test_a_table_of_runs_is_read_with_what_cannot_be_expressed(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    rows = "a,GPT,24,2048,2048,A100-SXM-80,8,64,1.5\nb,GPT,,,2048,A100-SXM-80,8,64,1.5\n"
    path.write_text("\ufeff" + HEAD + rows, encoding="utf-8")
    found = read_runs(path)
    assert [run.id for run in found.runs] == ["a"]
    assert found.runs[0].step_s == 1.5
    assert [(one.id, one.reason) for one in found.unexpressed] == [
        ("b", "not stated: layers, hidden")
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "runs.csv: is empty"),
        (b"   \n\n", "runs.csv: is empty"),
        (b"hello world\n", "runs.csv:1: is no table"),
        (b"\x89PNG\r\n\x1a\n\x00", "runs.csv:1: is not UTF-8"),
        (HEAD.encode(), "has no line below its columns"),
        (b"id,gpu\n1,a100\n", "runs.csv:1: seq_len: the column is missing"),
        (
            HEAD.replace("seq_len", "seqlen").encode(),
            "seq_len: the column is missing; did you mean",
        ),
        (HEAD.replace("hidden", "layers").encode(), "layers: stands there twice"),
        (b"model,seq_len,gpu,n_gpus\nx,1,a100,8\n", "none of the columns measured_step_time_s"),
        ((HEAD + "a,GPT,x,2048,2048,A100,8,64,1\n").encode(), "runs.csv:2: layers: 'x' cannot be"),
        ((HEAD + "a,GPT,1,2048,2048,A100,-8,64,1\n").encode(), "runs.csv:2: n_gpus: '-8'"),
        ((HEAD + "a,GPT,1,2048,2048,A100,8,64,nan\n").encode(), "measured_step_time_s: 'nan'"),
        ((HEAD + "a,GPT,1,2048,2048,A100,8,64,1,2\n").encode(), "runs.csv:2: has more cells"),
        ((HEAD + '"a,GPT\n').encode(), "is not CSV"),
        ((HEAD + "a,GPT,99999999,2048,2048,A100,8,64,1\n").encode(), "layers: '99999999' is too"),
        ((HEAD + "a,GPT,24,2048,2048,A100,8,64,1e300\n").encode(), "'1e300' is too large"),
    ],
)
def test_a_broken_table_is_told_by_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert said in refused(read_runs, path)


def test_many_broken_lines_are_counted_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + "a,GPT,x,2048,2048,A100,8,64,1\n" * 50)
    text = refused(read_runs, path)
    assert "and 30 more lines like these" in text
    assert text.count("\n") == 20
