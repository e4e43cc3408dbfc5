"""What the planner cannot be asked: exit code 2, what is wrong, what would be right."""

import subprocess
import sys
from pathlib import Path

import pytest

from gridloom.cli.main import main

GRID = """\
sites:
  north: {accelerators: h100:8}
"""
CPUS = """\
sites:
  here: {accelerators: cpu:4}
"""
RUNS = "id,model,layers,hidden,seq_len,gpu,n_gpus,global_batch,measured_step_time_s\n"
FILES = {
    "grid.yaml": GRID,
    "cpus.yaml": CPUS,
    "broken.yaml": "sites: {north: {accelerators: h100:-8}}\n",
    "empty.json": "",
    "cut.json": '{"model_type": "llama",',
    "wrong.json": '{"model_type": "llama", "num_hidden_layers": "many", "hidden_size": 64}',
    "empty.csv": "",
    "prose.csv": "This is a letter.\nIt has no columns.\n",
    "other.csv": "date,amount\n2024-01-01,3\n",
    "numbers.csv": RUNS + "a,GPT,24,2048,2048,A100,8,64,1.5\nb,GPT,24,-1,2048,A100,8,64,fast\n",
    "few.csv": RUNS + "a,GPT,24,2048,2048,A100,8,64,1.5\n",
    "constants.json": '{"shared": 3}',
}

LLAMA = "-m llama3-8b --global-batch 64 --seq 4096"
ON_H100 = f"{LLAMA} -g h100:8"

BROKEN: list[tuple[str, str, tuple[str, ...]]] = [
    ("nothing at all", "", ("--model: is needed", "--grid: is needed")),
    ("no batch", "-m llama3-8b --seq 4096 -g h100:8", ("--global-batch: is needed",)),
    ("no sequence", "-m llama3-8b --global-batch 64 -g h100:8", ("--seq: is needed",)),
    ("unknown preset", f"{ON_H100.replace('llama3-8b', 'lama3-8b')}", ("did you mean Llama-3-8B",)),
    ("no such file", f"{ON_H100.replace('llama3-8b', './m.json')}", ("m.json: there is no such",)),
    ("empty model file", f"{ON_H100.replace('llama3-8b', 'empty.json')}", ("json: is empty",)),
    ("cut model file", f"{ON_H100.replace('llama3-8b', 'cut.json')}", ("cut.json:1: is not JSON",)),
    (
        "wrong model file",
        f"{ON_H100.replace('llama3-8b', 'wrong.json')}",
        ("wrong.json: num_hidden_layers", "whole number"),
    ),
    ("unknown accelerator", f"{LLAMA} -g h10:8", ("--grid: no accelerator", "did you mean `h100`")),
    ("no devices", f"{LLAMA} -g h100:0", ("--grid: 'h100:0' cannot be",)),
    ("too many devices", f"{LLAMA} -g h100:99999999999", ("--grid:", "cannot be")),
    ("missing grid file", f"{LLAMA} -g gird.yaml", ("gird.yaml: the grid file cannot be read",)),
    ("broken grid file", f"{LLAMA} -g broken.yaml", ("broken.yaml:1: sites.north.accelerators",)),
    ("grid of processors", f"{LLAMA} -g cpus.yaml", ("cpus.yaml", "accelerators (cpu)")),
    ("more than there is", f"{LLAMA} -g grid.yaml --devices 16", ("16 devices", "has 8")),
    ("another kind", f"{LLAMA} -g grid.yaml --devices a100:8", ("a100:8", "has none")),
    ("heads do not divide", f"{ON_H100} --fix tp=3,pp=1", ("no plan exists", "tensor group")),
    ("too many stages", f"{LLAMA} -g h100:64 --fix pp=64", ("every stage must hold a layer", "32")),
    ("copies do not divide", f"{ON_H100} --fix dp=3", ("no plan exists",)),
    ("unknown knob", f"{ON_H100} --fix tensr=2", ("--fix tensr: no such knob", "tensor")),
    ("knob without value", f"{ON_H100} --fix tp=", ("--fix: 'tp='",)),
    ("unknown stage of sharding", f"{ON_H100} --fix zero=4", ("--fix zero", "from 0 to 3")),
    ("why not what", f"{ON_H100} --why-not tp=x", ("--why-not tensor", "'x'")),
    ("unknown precision", f"{ON_H100} --precision fp7", ("--precision: 'fp7' is unknown", "bf16")),
    ("fp8 without fp8", f"{LLAMA} -g a100:8 --precision fp8", ("no 8-bit", "write bf16")),
    ("bf16 without bf16", f"{LLAMA} -g v100:8 --precision bf16", ("no bf16", "write fp16")),
    ("two optimizers", f"{ON_H100} --optimizer adamw,sgd", ("--optimizer: 'adamw,sgd' cannot",)),
    ("no optimizer", f"{ON_H100} --optimizer ,", ("--optimizer: ',' cannot be",)),
    (
        "two precisions",
        f"{ON_H100} --precision bf16 --fix precision=fp8",
        ("--fix precision: 'fp8' is not what --precision says",),
    ),
    ("fixed to fp8 without fp8", f"{LLAMA} -g a100:8 --fix precision=fp8", ("no 8-bit",)),
    ("fixed twice", f"{ON_H100} --fix tp=2,tensor=4", ("--fix: tensor stands there twice",)),
    ("a training without end", f"{ON_H100} --device-mtbf 1s", ("no training would ever end",)),
    ("a restart without end", f"{ON_H100} --restart 1000000d", ("lower --restart",)),
    ("more tokens than ever", f"{ON_H100} --tokens 1e300", ("--tokens: '1e300' cannot be",)),
    (
        "a batch beyond all",
        f"-m llama3-8b --seq 4096 -g h100:8 --global-batch {10**30}",
        ("--global-batch: is too large",),
    ),
    ("unknown optimizer", f"{ON_H100} --optimizer adm", ("--optimizer: 'adm'", "adamw")),
    ("negative batch", f"{ON_H100.replace('-batch 64', '-batch=-4')}", ("batch: is below 0",)),
    ("fractional sequence", f"{ON_H100.replace('4096', '2.5')}", ("--seq", "2.5")),
    ("all memory free", f"{ON_H100} --head-room 1", ("--head-room: 1 cannot be",)),
    ("tokens as text", f"{ON_H100} --tokens many", ("--tokens: 'many' cannot be", "300B")),
    ("deadline as text", f"{ON_H100} --tokens 1T --deadline soon", ("--deadline: 'soon'", "30d")),
    ("deadline without tokens", f"{ON_H100} --deadline 3d", ("--tokens: is needed",)),
    ("objective without deadline", f"{ON_H100} --tokens 1T --objective deadline", ("--deadline",)),
    ("price without prices", f"{ON_H100} --objective price", ("--price: is needed",)),
    ("negative price", f"{ON_H100} --price=-3", ("--price: -3 cannot be",)),
    ("unknown objective", f"{ON_H100} --objective fun", ("--objective", '"time"')),
    ("too fast", f"{ON_H100} --tokens 1T --deadline 1h", ("the fastest takes", "raise the limit")),
    (
        "too cheap",
        f"{ON_H100} --tokens 1T --price 2 --budget 10",
        ("costs at most 10 USD", "the cheapest costs"),
    ),
    (
        "fits nowhere",
        "-m llama3.1-405b --global-batch 64 --seq 4096 -g h100:8",
        ("fits nowhere", "it needs at least h100:"),
    ),
    ("constants of nothing", f"{ON_H100} --constants constants.json", ("constants.json", "shared")),
    ("no constants", f"{ON_H100} --constants nowhere.json", ("nowhere.json: cannot be read",)),
    ("memory of nothing", "memory", ("--model: is needed",)),
    (
        "memory of heads",
        "memory -m llama3-8b --devices h100:8 --seq 4096 --tp 3",
        ("--tp", "32 heads"),
    ),
    (
        "memory of stages",
        "memory -m llama3-8b --devices h100:64 --seq 4096 --pp 64",
        ("--pp", "32 layers"),
    ),
    (
        "ranks that are no whole copy",
        "memory -m llama3-8b --devices h100:8 --seq 4096 --tp 4 --pp 4",
        ("--devices", "8 devices"),
    ),
    ("a negative model", "memory --params=-3B --devices 8", ("--params: '-3B' cannot be",)),
    ("a share of a device", "memory --params 3B --devices 8 --tp 3", ("--devices", "multiple")),
    (
        "bytes as text",
        "memory --params 3B --devices 8 --bytes-per-parameter few",
        ("--bytes-per-parameter", "2+2+12"),
    ),
    ("export to nobody", f"export --to nobody {ON_H100}", ("--to", "megatron")),
    (
        "export of what does not divide",
        f"export --to megatron {LLAMA} --plan dp=5",
        ("--global-batch", "64"),
    ),
    ("export of nonsense", f"export --to megatron {LLAMA} --plan tp=two", ("--plan: 'two'",)),
    (
        "export of more than there is",
        f"export --to megatron {ON_H100} --plan dp=16",
        ("16 ranks", "8"),
    ),
    ("runs nowhere", "evaluate nowhere.csv", ("nowhere.csv: cannot be read",)),
    ("no runs", "evaluate empty.csv", ("empty.csv: is empty",)),
    ("prose for runs", "evaluate prose.csv", ("prose.csv:1: is no table", "commas")),
    ("another table", "evaluate other.csv", ("other.csv:1: seq_len: the column is missing",)),
    (
        "nonsense numbers",
        "evaluate numbers.csv",
        ("numbers.csv:3: hidden: '-1'", "numbers.csv:3: measured_step_time_s: 'fast'"),
    ),
    ("too few to fit", "calibrate few.csv", ("few.csv: only 1 row", "at least 3")),
    ("a directory for runs", "evaluate .", ("cannot be read",)),
]  # fmt: skip


@pytest.mark.parametrize(("case", "words", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_what_cannot_be_asked_is_explained(
    case: str,
    words: str,
    said: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRIDLOOM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GRIDLOOM_GRID", raising=False)

    assert main(["plan", *words.split()]) == 2, case

    out, err = capsys.readouterr()
    assert out == ""
    err = " ".join(err.split())
    assert "Traceback" not in err
    for fragment in said:
        assert fragment.lower() in err.lower(), err
    assert not (tmp_path / "home").exists()


def test_a_process_of_its_own_says_it_in_json_too(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gridloom.cli.main", "plan", *ON_H100.split(), "--json"]
    done = subprocess.run(
        [*words, "--fix", "tp=3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert '"event":"error"' in done.stdout
    assert "no plan exists with" in done.stdout
