"""From the text of ``run`` to the command line of one rank."""

import subprocess

import pytest

from gridloom.wire.command import Command, parse_command, script_path

PLAIN = {
    "python train.py --lr 3e-4": ("python", "train.py", "--lr", "3e-4"),
    "python3 -u train.py": ("python3", "-u", "train.py"),
    "train.py --lr 3": ("python", "train.py", "--lr", "3"),
    "src/train.py": ("python", "src/train.py"),
    "python t.py --name 'two words' \"a b\"": ("python", "t.py", "--name", "two words", "a b"),
    "python -m package.train": ("python", "-m", "package.train"),
    "./start.sh x=1": ("./start.sh", "x=1"),
    "python t.py '$HOME' 'a|b' \\$x a\\ b": ("python", "t.py", "$HOME", "a|b", "$x", "a b"),
    "  python \\\n    train.py \\\n    --lr 3\n": ("python", "train.py", "--lr", "3"),
    'python t.py "a (b)" "it\'s"': ("python", "t.py", "a (b)", "it's"),
}  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_command_line_is_split(text: str) -> None:
    assert parse_command(text) == Command(PLAIN[text])


SHELL = [
    "pip install -e .\npython train.py",
    "cd src && python train.py",
    "python train.py | tee log",
    "python train.py --lr $LR",
    'python train.py "--lr=${LR}"',
    "python train.py > log 2>&1",
    "python train.py data/*.txt",
    "OMP_NUM_THREADS=2 python train.py",
    "python train.py ~/data",
    "python train.py `date`",
    "python train.py; echo done",
    "exit 3",
    "cd src",
    "export A=1",
    "source run.sh",
    ". ./run.sh",
    "set -e",
    "ulimit -n 4096",
]


@pytest.mark.parametrize("text", SHELL)
def test_what_only_a_shell_understands_goes_to_one(text: str) -> None:
    assert parse_command(text) == Command(("bash", "-c", text))


def test_the_shell_leaves_signals_to_the_program() -> None:
    text = "X=1\necho $$\npython3 -c 'import os; print(os.getpid())'"
    argv = parse_command(text).argv
    first, second = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert first == second


TORCHRUN = {
    "torchrun train.py": ("python", "train.py"),
    "torchrun --nproc-per-node=8 --nnodes 2 train.py --lr 3": ("python", "train.py", "--lr", "3"),
    "torchrun --nproc_per_node 8 --rdzv_backend=c10d --rdzv_endpoint a:1 t.py": ("python", "t.py"),
    "torchrun --standalone --nproc-per-node gpu t.py --tee": ("python", "t.py", "--tee"),
    "/opt/bin/torchrun --master_addr=h --master-port 1 --node_rank 0 t.py": ("python", "t.py"),
    "torchrun -m pack.train --x 1": ("python", "-m", "pack.train", "--x", "1"),
    "torchrun --module pack.train": ("python", "-m", "pack.train"),
    "torchrun --no-python ./prog x": ("./prog", "x"),
    "torchrun --nproc=2 -r 3 -t3 --log-dir d t.py": ("python", "t.py"),
    "torchrun --nproc-per-node 2 -- t.py -x": ("python", "t.py", "-x"),
    "python -m torch.distributed.run --nproc-per-node=2 t.py a": ("python", "t.py", "a"),
    "python3 -W ignore -m torch.distributed.run t.py": ("python", "t.py"),
    "python -m torch.distributed.launch --use-env --nproc_per_node=2 t.py": ("python", "t.py"),
    "torchrun \\\n  --nproc-per-node 4 \\\n  t.py": ("python", "t.py"),
    "python t.py -m torch.distributed.run": ("python", "t.py", "-m", "torch.distributed.run"),
}  # fmt: skip


@pytest.mark.parametrize("text", TORCHRUN)
def test_torchrun_is_taken_off(text: str) -> None:
    assert parse_command(text) == Command(TORCHRUN[text])


def test_torchruns_restarts_are_handed_back() -> None:
    assert parse_command("torchrun --max-restarts=5 t.py").max_restarts == 5
    assert parse_command("torchrun --max_restarts 0 t.py").max_restarts == 0


def test_the_legacy_launcher_hands_over_the_local_rank() -> None:
    command = parse_command("python -m torch.distributed.launch --nproc_per_node=2 t.py 'a b'")
    text = "exec python t.py --local-rank=\"$LOCAL_RANK\" 'a b'"
    assert command == Command(("bash", "-c", text))
    assert script_path(command.argv) == "t.py"
    module = parse_command("python -m torch.distributed.launch -m pack.t a")
    assert module.argv[2] == 'exec python -m pack.t --local-rank="$LOCAL_RANK" a'


REFUSED = {
    " ": ("the command is empty", "write a command line"),
    "python 't.py": ("a quote in the command is not closed", "close it"),
    "torchrun": ("torchrun is given no script", "write `torchrun train.py`"),
    "python -m torch.distributed.run": ("torchrun is given no script", "write `torchrun train.py`"),
    "torchrun --nproc-per-node": (
        "torchrun's `--nproc-per-node` lacks its value",
        "write `--nproc-per-node VALUE`",
    ),
    "torchrun --nodes=2 t.py": (
        "torchrun has no option `--nodes`",
        "did you mean `--nnodes`?",
    ),
    "torchrun --n 2 t.py": ("torchrun has no option `--n`", "remove it"),
    "torchrun -x t.py": ("torchrun has no option `-x`", "remove it"),
    "torchrun --max-restarts=many t.py": (
        "`--max-restarts` is `many`",
        "write a whole number of at least 0",
    ),
    "pip install x\ntorchrun --nproc-per-node 2 t.py": (
        "torchrun stands inside shell text, so that every rank would start ranks of its own",
        "write `python` in place of torchrun and its options: gridloom starts the ranks",
    ),
    "X=1 python -m torch.distributed.run t.py": (
        "torchrun stands inside shell text, so that every rank would start ranks of its own",
        "write `python` in place of torchrun and its options: gridloom starts the ranks",
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_run_is_explained(text: str) -> None:
    command = parse_command(text)
    (problem,) = command.problems
    assert command.argv == ()
    assert (problem.message, problem.remedy) == REFUSED[text]


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        (("python", "train.py", "x"), "train.py"),
        (("/usr/bin/python3.11", "-u", "-X", "dev", "-W", "error", "a/b.py"), "a/b.py"),
        (("python", "-m", "pack.train"), None),
        (("python", "-c", "pass"), None),
        (("python", "-"), None),
        (("python",), None),
        (("bash", "run.sh"), "run.sh"),
        (("bash", "-e", "-o", "pipefail", "run.sh"), "run.sh"),
        (("bash", "-c", "python train.py | tee log"), None),
        (("bash", "-c"), None),
        (("./run", "x"), "./run"),
        (("/usr/bin/env", "x"), None),
        (("program", "x"), None),
        ((), None),
    ],
)
def test_the_script_that_must_exist(argv: tuple[str, ...], path: str | None) -> None:
    assert script_path(argv) == path
