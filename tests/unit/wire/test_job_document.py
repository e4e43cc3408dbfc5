"""Job files: what is accepted, and what is said of everything that is not."""

from pathlib import Path

import pytest

from gridloom.base.errors import InputError, Problem
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import (
    read_grid,
    read_job,
)
from gridloom.wire.documents_devices import Devices
from gridloom.wire.job_document import JobDocument
from gridloom.wire.job_document_check import RESERVED_ENV
from gridloom.wire.launch import Rank

EXAMPLES = Path(__file__).parents[3] / "examples"

GRID = b"""
sites:
  north: {accelerators: cpu:2}
  south: {nodes: {s1: {accelerators: h100:8}}}
"""

HEAD = "name: j\nrun: python t.py\nresources: {accelerators: cpu:4}\n"  # lines 1 to 3
RECIPE = """name: j
recipe: gpt
model: {layers: 2, hidden: 64, heads: 4}
steps: 300
global_batch: 32
sequence_length: 128
resources: {accelerators: cpu:4}
"""  # lines 1 to 7


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read_job(text.encode(), "job.yaml")
    return caught.value.problems


def good(text: str) -> JobDocument:
    return read_job(text.encode(), "job.yaml").document


# Each: document, and (line, field, found, remedy) of all its problems.
BROKEN: dict[str, tuple[str, list[tuple[int, str, str, str]]]] = {
    "nothing but a name": (
        "name: x\n",
        [
            (0, "resources", "is missing", "add `resources:`"),
            (0, "", "neither `run` nor `recipe`", "`run: python train.py`"),
        ],
    ),
    "run and recipe": (RECIPE + "run: x\n", [(2, "recipe", "both `run` and `recipe`", "keep one")]),
    "recipe without anything": (
        "name: x\nrecipe: gpt\nresources: {accelerators: cpu}\n",
        [
            (0, "model", "is missing, and `recipe` needs it", "model: {layers"),
            (0, "global_batch", "is missing", "global_batch: 32"),
            (0, "sequence_length", "is missing", "sequence_length: 128"),
            (0, "steps", "neither `steps` nor `tokens`", "`tokens: 2M`"),
        ],
    ),
    "steps and tokens": (RECIPE + "tokens: 2M\n", [(8, "tokens", "both `steps` and", "keep one")]),
    "recipe fields with run": (
        HEAD + "steps: 3\noptimizer: {beta1: 0.9}\ncheckpoint: {keep: 1}\n",
        [
            (4, "steps", "is read with `recipe: gpt` only", "command line"),
            (5, "optimizer", "is read with `recipe: gpt` only", "remove it"),
            (6, "checkpoint", "is read with `recipe: gpt` only", "remove it"),
        ],
    ),
    "unknown recipe": (
        RECIPE.replace("gpt", "gtp"),
        [(2, "recipe", "found `gtp`", "did you mean `gpt`?")],
    ),
    "far from any recipe": (
        RECIPE.replace("gpt", "resnet"), [(2, "recipe", "found `resnet`", "write `gpt`")]
    ),
    "misspelt fields": (
        HEAD + "prioriti: 1\ngraec: 3\nenvs: {A: 1}\n",
        [
            (4, "prioriti", "unknown field", "did you mean `priority`?"),
            (5, "graec", "unknown field", "did you mean `grace`?"),
            (6, "envs", "unknown field", "did you mean `env`?"),
        ],
    ),
    "words of other tools": (
        HEAD + "gpus: 4\ncommand: x\ntimeout: 3h\n",
        [
            (4, "gpus", "unknown field", "did you mean `resources.accelerators`?"),
            (5, "command", "unknown field", "did you mean `run`?"),
            (6, "timeout", "unknown field", "did you mean `budget.max_time`?"),
        ],
    ),
    "fields of another section": (
        RECIPE + "learning_rate: 1\noptimizer: {lr: 1, heads: 2}\n",
        [
            (8, "learning_rate", "unknown field", "did you mean `optimizer.learning_rate`?"),
            (9, "optimizer.lr", "unknown field", "did you mean `optimizer.learning_rate`?"),
            (9, "optimizer.heads", "unknown field", "did you mean `model.heads`?"),
        ],
    ),
    "nothing near": (
        RECIPE.replace("layers: 2", "layers: 2, dropout: 0.1"),
        [(3, "model.dropout", "unknown field", "known here: layers, hidden, heads")],
    ),
    "name in capitals": (
        HEAD.replace("name: j", "name: My Job!"),
        [(1, "name", "found `My Job!`", "for example `my-job`")],
    ),
    "name without letters": (
        HEAD.replace("name: j", "name: '!!'"), [(1, "name", "found `!!`", "at most 40 of a-z")]
    ),
    "name too long": (
        HEAD.replace("name: j", "name: " + "a" * 41),
        [(1, "name", "found `aaaa", "`" + "a" * 40 + "`")],
    ),
    "name as number": (
        HEAD.replace("name: j", "name: 12"), [(1, "name", "`12`, which is not text", '"12"')]
    ),
    "name empty": (HEAD.replace("name: j", "name:"), [(1, "name", "no value is given", "a-z")]),
    "run as list": (
        HEAD.replace("python t.py", "[python, t.py]"), [(2, "run", "found a list", "command line")]
    ),
    "run empty": (HEAD.replace("python t.py", "''"), [(2, "run", "found ''", "a command line")]),
    "run with an open quote": (
        HEAD.replace("python t.py", "python 't.py"), [(2, "run", "a quote", "close it")]
    ),
    "unknown torchrun option": (
        HEAD.replace("python t.py", "torchrun --nprocs-per-node=2 t.py"),
        [(2, "run", "no option `--nprocs-per-node`", "did you mean `--nproc-per-node`?")],
    ),
    "counts": (
        RECIPE + "micro_batch: 1.5\nseed: -1\nprecision: fp8\n",
        [
            (8, "micro_batch", "found `1.5`", "a whole number from 1 to 1000000000, or `auto`"),
            (9, "seed", "found `-1`", "from 0"),
            (10, "precision", "found `fp8`", "one of `fp32`, `bf16`, `fp16`"),
        ],
    ),
    "negative counts": (
        RECIPE.replace("steps: 300", "steps: -3").replace("32", "0").replace("128", "many"),
        [
            (4, "steps", "found `-3`", "a whole number of at least 1"),
            (5, "global_batch", "found `0`", "from 1"),
            (6, "sequence_length", "found `many`", "a whole number"),
        ],
    ),
    "not finite": (
        RECIPE + "optimizer: {learning_rate: .nan, weight_decay: .inf, clip_norm: -1, beta1: 1}\n"
        "grace: 1e999\ntokens: .inf\n",
        [
            (8, "optimizer.learning_rate", "found `nan`", "a number above 0"),
            (8, "optimizer.weight_decay", "found `inf`", "a number of at least 0"),
            (8, "optimizer.beta1", "found `1`", "at most 0.999999"),
            (8, "optimizer.clip_norm", "found `-1`", "a number of at least 0"),
            (9, "grace", "found `inf`", "a duration"),
            (10, "tokens", "found `inf`", "a whole number"),
            (10, "tokens", "both `steps` and `tokens`", "keep one"),
        ],
    ),
    "booleans": (
        RECIPE.replace("heads: 4", "heads: true, tied_embeddings: yes") + "grace: true\n",
        [
            (3, "model.heads", "found `true`", "a whole number"),
            (3, "model.tied_embeddings", "found `yes`", "`true` or `false`"),
            (8, "grace", "found `true`", "a duration"),
        ],
    ),
    "head sizes": (
        RECIPE.replace("heads: 4", "heads: 5, kv_heads: 3"),
        [
            (3, "model.kv_heads", "3 key and value heads do not divide 5", "a divisor of 5"),
            (3, "model.heads", "5 heads do not divide the width 64", "a divisor of 64"),
        ],
    ),
    "odd head size": (
        RECIPE.replace("heads: 4", "heads: 64"), [(3, "model.heads", "64 / 64 = 1 is odd", "even")]
    ),
    "warm-up too long": (
        RECIPE + "optimizer: {warmup_steps: 300, min_learning_rate: 1}\n",
        [
            (8, "optimizer.warmup_steps", "300 steps of warm-up leave none of", "less than 300"),
            (8, "optimizer.min_learning_rate", "1 is above the peak learning rate 0.003", "0.003"),
        ],
    ),
    "warm-up too long for tokens": (
        RECIPE.replace("steps: 300", "tokens: 40k") + "optimizer: {warmup_steps: 10}\n",
        [(8, "optimizer.warmup_steps", "10 steps of warm-up leave none of 10", "less than 10")],
    ),
    "batches": (
        RECIPE.replace("global_batch: 32", "global_batch: 2") + "micro_batch: 8\n",
        [
            (5, "global_batch", "is 2, fewer sequences than there are copies", "at least 4"),
            (8, "micro_batch", "a micro-batch of 8 is larger than the global batch of 2", "`auto`"),
        ],
    ),
    "data": (
        RECIPE + "data: {text: [], held_out: 0.6}\n",
        [
            (8, "data.text", "found a list", "a list of paths"),
            (8, "data.held_out", "found `0.6`", "at most 0.5"),
        ],
    ),
    "accelerators as number": (
        HEAD.replace("cpu:4", "4"),
        [(3, "resources.accelerators", "found `4`", "the kind before the count, as `cpu:4`")],
    ),
    "accelerators as mapping": (
        HEAD.replace("cpu:4", "{h100: 8}"),
        [(3, "resources.accelerators", "found a mapping", "as `h100:8`")],
    ),
    "accelerators as mapping of lists": (
        HEAD.replace("cpu:4", "{h100: [8]}"),
        [(3, "resources.accelerators", "found a mapping", "a kind and a count")],
    ),
    "a field of the top in a section": (
        HEAD.replace("cpu:4", "cpu:4, priority: 3"),
        [(3, "resources.priority", "unknown field", "it belongs at the top of the file")],
    ),
    "accelerators of no form": (
        HEAD.replace("cpu:4", "cpu:4x"),
        [(3, "resources.accelerators", "found `cpu:4x`", "`h100:8`, `h100:8+` or `h100:4-16`")],
    ),
    "no accelerators": (
        HEAD.replace("cpu:4", f"cpu:{'9' * 22}"),
        [(3, "resources.accelerators", f"`cpu:{'9' * 22}`: the count is too large", "at most 9")],
    ),
    "NUL in run": (
        HEAD.replace("python t.py", '"a\\0b"'),
        [(2, "run", "holds a NUL", "remove")],
    ),
    "no device": (
        HEAD.replace("cpu:4", "cpu:0"),
        [(3, "resources.accelerators", "found `cpu:0`: no device", "at least 1")],
    ),
    "empty range": (
        HEAD.replace("cpu:4", "cpu:4-2"),
        [(3, "resources.accelerators", "the range is empty", "smaller number first")],
    ),
    "accelerators missing": (
        HEAD.replace("accelerators: cpu:4", "min_sites: 1"),
        [(3, "resources.accelerators", "is missing", "a kind and a count")],
    ),
    "sites": (
        HEAD.replace("cpu:4", "cpu:2, sites: [a, b, a], min_sites: 4, max_sites: 3"),
        [
            (3, "resources.sites[2]", "`a` is listed twice", "keep one"),
            (3, "resources.min_sites", "4 is more than `max_sites`, 3", "at most 3"),
            (3, "resources.min_sites", "only 3 are listed", "list more sites"),
            (3, "resources.min_sites", "the job has 2", "more accelerators or fewer sites"),
        ],
    ),
    "site names": (
        HEAD.replace("cpu:4", "cpu:4, sites: [a b], min_sites: x"),
        [
            (3, "resources.sites", "found `a b`", "a site's name"),
            (3, "resources.min_sites", "found `x`", "from 1 to 1000"),
        ],
    ),
    "parallel recipe": (
        RECIPE.replace("cpu:4", "cpu:6").replace("length: 128", "length: 192")
        + "parallel: {tensor: 3, pipeline: 2}\n",
        [
            (8, "parallel.tensor", "is 3, must divide the model's heads (4)", "a divisor of 4"),
            (8, "parallel.tensor", "must divide the model's kv_heads (4)", "a divisor of 4"),
        ],
    ),
    "degrees that do not divide": (
        HEAD + "parallel:\n  tensor: 3\n",
        [(4, "parallel", "a copy of the model takes 3 devices", "a multiple of 3")],
    ),
    "degrees beyond the devices": (
        HEAD + "parallel: {data: 8}\n",
        [(4, "parallel.data", "the degrees make 8 devices", "ask for `cpu:8`")],
    ),
    "parallel of no kind": (
        HEAD + "parallel: wide\nsync: sometimes\n",
        [
            (4, "parallel", "found `wide`", "`field: value` lines"),
            (5, "sync", "found `sometimes`", "write one of `every_step`, `accumulated`, `outer`"),
        ],
    ),
    "environment": (
        HEAD + "env:\n  RANK: 1\n  1A: x\n  GRIDLOOM_X: y\n  E:\n  F: [a]\n  OK: 1\n",
        [
            (5, "env.RANK", "gridloom itself sets `RANK`", "remove it"),
            (6, "env.1A", "`1A` cannot be the name of a variable", "letters, digits and `_`"),
            (7, "env.GRIDLOOM_X", "gridloom itself sets `GRIDLOOM_X`", "remove it"),
            (8, "env.E", "no value is given", "write a value"),
            (9, "env.F", "found a list", "write a value"),
        ],
    ),
    "retry": (
        HEAD + "retry: {max_restarts: -1, on: always, backoff: 2m, backoff_max: 1m}\n",
        [
            (4, "retry.max_restarts", "found `-1`", "from 0"),
            (4, "retry.on", "found `always`", "write `lost` or `any`"),
            (4, "retry.backoff", "120 s is longer than the longest, 60 s", "at most `backoff_max`"),
        ],
    ),
    "retry of small maximum": (
        HEAD + "retry: {backoff_max: 0.5s}\n",
        [(4, "retry.backoff_max", "the first wait of 1 s is longer", "at most `backoff_max`")],
    ),
    "budget": (
        HEAD + "budget: {max_cost: 0, max_time: soon}\ngrace: -3\n",
        [
            (4, "budget.max_cost", "found `0`", "a number above 0"),
            (4, "budget.max_time", "found `soon`", "a duration (`90s`, `20ms`, `1.5h`) above 0"),
            (5, "grace", "found `-3`", "a duration"),
        ],
    ),
    "sections of the wrong kind": (
        HEAD + "budget:\nretry: 3\nenv: [A]\npriority: {}\nworkdir: ''\n",
        [
            (4, "budget", "no value is given", "`field: value` lines"),
            (5, "retry", "found `3`", "`field: value` lines"),
            (6, "env", "found a list", "`field: value` lines"),
            (7, "priority", "found a mapping", "a whole number"),
            (8, "workdir", "found ''", "a path"),
        ],
    ),
    "form and content": (
        HEAD + "grace: 1\ngrace: 2\nseeds: 1\n",
        [
            (5, "grace", "`grace` is written twice, first in line 4", "keep one"),
            (6, "seeds", "unknown field", "did you mean `seed`?"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    got = problems(text)
    assert [(p.line, p.field) for p in got] == [(line, field) for line, field, _, _ in expected]
    for problem, (_, _, message, remedy) in zip(got, expected, strict=True):
        assert problem.file == "job.yaml"
        assert message in problem.message
        assert remedy in problem.remedy


EXACT = {
    "steps: lots\n": "job.yaml:8: steps: found `lots`; write a whole number of at least 1",
    "grace: soon\n": "job.yaml:8: grace: found `soon`; write a duration (`90s`, `20ms`, `1.5h`) of"
    " at least 0",
    "gpus: 8\n": "job.yaml:8: gpus: unknown field; did you mean `resources.accelerators`?",
    "precision: bf61\n": "job.yaml:8: precision: found `bf61`; did you mean `bf16`?",
    "precision: half\n": "job.yaml:8: precision: found `half`; write one of `fp32`, `bf16`, `fp16`",
    "tokens: 2M\n": "job.yaml:8: tokens: both `steps` and `tokens` are given; keep one of them",
    "micro_batch: 64\n": "job.yaml:8: micro_batch: a micro-batch of 64 is larger than the global"
    " batch of 32; write at most 32, or `auto`",
    "parallel: {pipeline: 4}\n": "job.yaml:8: parallel.pipeline: 4 stages are more than the 2"
    " layers; at most 2 stages",
    "env: {WORLD_SIZE: 2}\n": "job.yaml:8: env.WORLD_SIZE: gridloom itself sets `WORLD_SIZE` for"
    " every rank; remove it",
    "data: {text: 5}\n": "job.yaml:8: data.text: found `5`, which is not text; put it in quotes:"
    ' "5"',
    "budget:\n": "job.yaml:8: budget: no value is given; write `field: value` lines below it",
    "workdir: [a]\n": "job.yaml:8: workdir: found a list; write a path",
    "priority: 2000000\n": "job.yaml:8: priority: found `2000000`; write a whole number from"
    " -1000000 to 1000000",
    "retry: {on: loss}\n": "job.yaml:8: retry.on: found `loss`; did you mean `lost`?",
}


@pytest.mark.parametrize("line", EXACT)
def test_exact_sentences(line: str) -> None:
    text = RECIPE.replace("steps: 300", "#") if line.startswith("steps") else RECIPE
    assert [problem.sentence() for problem in problems(text + line)] == [EXACT[line]]


def test_a_job_as_people_write_it() -> None:
    job = good(
        RECIPE.replace("steps: 300", "tokens: 2_000_000").replace("cpu:4", "H100:4-16")
        + "grace: 90\nmicro_batch: auto\nparallel: auto\noptimizer: {learning_rate: '3e-4'}\n"
        "budget: {max_time: 1h30m, max_cost: 10}\nretry: {on: any}\nseed: 7.0\n"
        "data: {text: corpus/*.txt}\ngrid: g.yaml\n"
    )
    assert job.tokens == 2_000_000
    assert job.resources.accelerators == Devices("h100", 4, 16)
    assert (job.grace, job.micro_batch, job.seed) == (90.0, 0, 7)
    assert job.optimizer.learning_rate == 3e-4
    assert (job.budget.max_time, job.budget.max_cost) == (5400.0, 10.0)
    assert job.retry is not None
    assert job.retry.on == "any"
    assert job.data.text == ("corpus/*.txt",)
    assert job.parallel.data == 0
    assert job.grid == "g.yaml"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("h100", Devices("h100", 1, 1)),
        ("cpu:4", Devices("cpu", 4, 4)),
        ("h100:8+", Devices("h100", 8, 0)),
        ("a100-80gb:4-4", Devices("a100-80gb", 4, 4)),
    ],
)
def test_forms_of_accelerators(text: str, devices: Devices) -> None:
    assert good(HEAD.replace("cpu:4", text)).resources.accelerators == devices


def test_variables_are_text_as_written() -> None:
    job = good(HEAD + "env: {A: 1.10, B: on, C: true, D: 0o17, E: '', F: 1e3, G: \"x y\"}\n")
    assert dict(job.env) == {
        "A": "1.10", "B": "on", "C": "true", "D": "0o17", "E": "", "F": "1e3", "G": "x y",
    }  # fmt: skip


def test_an_open_range_needs_no_multiple_yet() -> None:
    assert good(HEAD.replace("cpu:4", "cpu:4+") + "parallel: {tensor: 3}\n").parallel.tensor == 3


def test_long_values_are_shortened() -> None:
    (problem,) = problems(RECIPE + f"grace: {'x' * 500}\n")
    assert problem.message == f"found `{'x' * 60}…`"


def test_lines_are_kept_for_those_who_look_at_the_disk() -> None:
    file = read_job(HEAD.encode(), "job.yaml")
    assert file.lines[("run",)] == 2
    assert file.problem(("run",), "there is no script t.py").sentence() == (
        "job.yaml:2: run: there is no script t.py"
    )


AGAINST_GRID = {
    "unknown site": (
        "sites: [nort, moon]",
        [
            "job.yaml:4: resources.sites[0]: the grid has no site `nort`; did you mean `north`?",
            "job.yaml:4: resources.sites[1]: the grid has no site `moon`; the grid has: north,"
            " south",
        ],
    ),
    "unknown site by itself": (
        "sites: nort",
        ["job.yaml:4: resources.sites: the grid has no site `nort`; did you mean `north`?"],
    ),
    "too many sites": (
        "min_sites: 3",
        [
            "job.yaml:4: resources.min_sites: the job wants 3 sites at once, the grid has 2;"
            " write at most 2"
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AGAINST_GRID)
def test_a_job_is_checked_against_the_grid(name: str) -> None:
    line, sentences = AGAINST_GRID[name]
    text = f"name: j\nrun: a\nresources:\n  {line}\n  accelerators: cpu:4\n"
    inventory = to_inventory(read_grid(GRID, "grid.yaml").document)
    with pytest.raises(InputError) as caught:
        read_job(text.encode(), "job.yaml", inventory)
    assert [problem.sentence() for problem in caught.value.problems] == sentences


def test_unknown_accelerators_are_told_beside_the_jobs_own_problems() -> None:
    text = HEAD.replace("cpu:4", "h200:4, sites: [north, sooth]") + "grace: soon\n"
    inventory = to_inventory(read_grid(GRID, "grid.yaml").document)
    with pytest.raises(InputError) as caught:
        read_job(text.encode(), "job.yaml", inventory)
    assert [problem.sentence() for problem in caught.value.problems] == [
        "job.yaml:3: resources.sites[1]: the grid has no site `sooth`; did you mean `south`?",
        "job.yaml:3: resources.accelerators: the grid has no accelerator of kind `h200`; did you"
        " mean `h100`?",
        "job.yaml:4: grace: found `soon`; write a duration (`90s`, `20ms`, `1.5h`) of at least 0",
    ]


def test_two_good_files() -> None:
    grid = read_grid(GRID, "grid.yaml")
    job = read_job(HEAD.encode(), "job.yaml", to_inventory(grid.document))
    assert job.document.name == "j"
    assert grid.lines[("sites", "north")] == 3


def test_the_reserved_variables_are_those_of_the_launch_contract() -> None:
    rank = Rank(
        job_id="j", attempt=1, epoch=1, rank=0, world_size=1, local_rank=0, local_world_size=1,
        node_rank=0, node_count=1, site="a", site_ranks=(("a", 1),), node_addresses=("x",),
        master_address="x", master_port=1, restart_count=0, run_dir="/r", report_file="/f",
        grace_s=1.0,
    )  # fmt: skip
    names = {name for name in rank.environment() if not name.startswith("GRIDLOOM_")}
    assert names <= RESERVED_ENV


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_good(path: Path) -> None:
    data = path.read_bytes()
    if b"\nsites:" in data:
        assert to_inventory(read_grid(data, path.name).document).sites
    else:
        grid = read_grid((EXAMPLES / "two-sites.yaml").read_bytes(), "two-sites.yaml")
        read_job(data, path.name, to_inventory(grid.document))
