"""Broken job and grid files: exit code 2, place and remedy, no traceback."""

from itertools import pairwise
from pathlib import Path

import pytest

from gridloom.cli.main import main

JOB = """\
name: tidy
run: python train.py
resources:
  accelerators: cpu:2
"""
RECIPE = """\
name: tidy
recipe: gpt
model: {layers: 2, hidden: 32, heads: 4}
steps: 10
global_batch: 8
sequence_length: 16
resources:
  accelerators: cpu:2
"""
GRID = """\
sites:
  north: {accelerators: cpu:2}
  south: {accelerators: cpu:2}
"""

BROKEN: list[tuple[str, str | bytes, str | bytes | None, tuple[str, ...]]] = [
    ("empty job file", "", GRID, ("job.yaml", "empty")),
    ("only comments", "# nothing\n", GRID, ("job.yaml", "comments")),
    ("a list", "- a\n- b\n", GRID, ("job.yaml",)),
    ("not YAML", "name: [a\nrun: b\n", GRID, ("job.yaml:", "bracket")),
    ("tabs", "name: a\nresources:\n\taccelerators: cpu:1\n", GRID, ("job.yaml:3", "tab")),
    ("not UTF-8", b"name: caf\xe9\nrun: x\n", GRID, ("job.yaml:1", "UTF-8")),
    ("NUL bytes", b"name: a\x00b\n", GRID, ("job.yaml",)),
    ("a binary", bytes(range(256)) * 8, GRID, ("job.yaml",)),
    ("unknown field", JOB + "nmae: x\n", GRID, ("job.yaml:5: nmae: unknown field", "name")),
    ("field of another tool", JOB + "gpus: 4\n", GRID, ("job.yaml:5", "resources.accelerators")),
    ("duplicate field", JOB + "name: again\n", GRID, ("job.yaml:5", "name")),
    ("wrong unit", JOB + "grace: 30 parsecs\n", GRID, ("job.yaml:5: grace", "parsecs")),
    ("negative count", JOB.replace("cpu:2", "cpu:-2"), GRID, ("job.yaml:4: resources.accel",)),
    ("zero count", JOB.replace("cpu:2", "cpu:0"), GRID, ("job.yaml:4: resources.accel",)),
    ("no count", JOB.replace("cpu:2", '"cpu:"'), GRID, ("job.yaml:4: resources.accel",)),
    ("negative steps", RECIPE.replace("steps: 10", "steps: -1"), GRID, ("job.yaml:4: steps",)),
    ("steps as text", RECIPE.replace("steps: 10", "steps: ten"), GRID, ("job.yaml:4: steps",)),
    ("not a number", RECIPE + "optimizer: {learning_rate: .nan}\n", GRID, ("learning_rate",)),
    ("neither run nor recipe", JOB.replace("run: python train.py\n", ""), GRID, ("run", "recipe")),
    ("both run and recipe", RECIPE + "run: python x.py\n", GRID, ("job.yaml:2: recipe", "both")),
    ("both steps and tokens", RECIPE + "tokens: 2M\n", GRID, ("tokens", "steps")),
    ("heads do not divide", RECIPE.replace("heads: 4", "heads: 5"), GRID, ("job.yaml:3: model",)),
    ("a cut too fine", RECIPE + "parallel: {tensor: 3}\n", GRID, ("job.yaml:9: parallel", "3")),
    ("unknown kind", JOB.replace("cpu:2", "h100:2"), GRID, ("job.yaml:4: resources.acc", "cpu")),
    ("unknown site", JOB + "  sites: [nroth]\n", GRID, ("job.yaml:5: resources.sites", "north")),
    ("more than there is", JOB.replace("cpu:2", "cpu:9"), GRID, ("job.yaml:4", "9", "2")),
    ("more sites than there are", JOB + "  min_sites: 3\n", GRID, ("job.yaml", "3")),
    ("a variable of ours", JOB + "env: {RANK: 1}\n", GRID, ("job.yaml:5: env.RANK",)),
    ("missing script", JOB, GRID, ("job.yaml:2: run", "no script train.py")),
    ("missing workdir", JOB + "workdir: nowhere\n", GRID, ("job.yaml:5: workdir", "nowhere")),
    ("missing text", RECIPE + "data: {text: no}\n", GRID, ("job.yaml:9: data.text", "`no`")),
    (
        "unwritable checkpoint directory",
        RECIPE + "checkpoint: {directory: job.yaml/below}\n",
        GRID,
        ("job.yaml:9: checkpoint.directory", "Not a directory"),
    ),
    ("missing grid file", JOB + "grid: gird.yaml\n", None, ("job.yaml:5: grid", "gird.yaml")),
    ("empty grid file", JOB, "", ("grid.yaml", "empty")),
    ("grid without sites", JOB, "sites: {}\n", ("grid.yaml:1: sites",)),
    ("unknown kind of site", JOB, GRID + "  east: {kind: slrum}\n", ("grid.yaml:4: sites.east",)),
    ("duplicate site", JOB, GRID + "  north: {accelerators: cpu:1}\n", ("grid.yaml:4", "north")),
    ("site without devices", JOB, GRID + "  east: {}\n", ("grid.yaml:4: sites.east",)),
    (
        "link to nowhere",
        JOB,
        GRID + "links: [{between: [north, west]}]\n",
        ("grid.yaml:4: links[0]", "west"),
    ),
    (
        "bandwidth in bytes",
        JOB,
        GRID + "links: [{between: [north, south], bandwidth: 1GB}]\n",
        ("grid.yaml:4: links[0].bandwidth",),
    ),
    ("price as text", JOB, GRID + "  e: {accelerators: cpu:1, price_per_accelerator_hour: x}\n",
     ("grid.yaml:4: sites.e.price",)),
    ("ports backwards", JOB, GRID + "  e: {accelerators: cpu:1, ports: 9-8}\n", ("sites.e.ports",)),
    ("unknown queue", JOB + "queue: vison\n", GRID + "queues: {vision: {}}\n",
     ("job.yaml:5: queue", "did you mean `vision`?")),
    ("no queue of several", JOB, GRID + "queues: {vision: {}, text: {}}\n",
     ("job.yaml: queue: is missing", "vision, text")),
    ("wrong user", JOB + "user: a b\n", GRID, ("job.yaml:5: user",)),
    ("wrong forecast", JOB + "forecast: {duration: soon}\n", GRID,
     ("job.yaml:5: forecast.duration",)),
    ("deadline without a zone", JOB + "deadline: 2030-03-01T08:00\n", GRID,
     ("job.yaml:5: deadline", "without a zone")),
    ("wrong dependency", JOB + "after: [{job: a-1, when: afterall}]\n", GRID,
     ("job.yaml:5: after[0].when",)),
    ("wrong array", JOB + "array: 9-0\n", GRID, ("job.yaml:5: array", "`0-9`")),
    ("run of an array", JOB + "array: 3\n", GRID, ("job.yaml:5: array", "gridloom submit")),
    ("unknown dependency", JOB + "after: [train-x4k2pq]\n", GRID,
     ("job.yaml:5: after[0]: there is no job `train-x4k2pq`", "no jobs yet")),
    ("more than the queue may ever have", JOB, GRID + "queues: {vision: {nominal: {cpu: 1}}}\n",
     ("job.yaml:4: resources.acc", "queue `vision` owns 1 cpu", "raise `nominal`")),
    ("elastic in one size", JOB + "elastic: true\n", GRID, ("job.yaml:5: elastic", "cpu:1-2")),
    ("not preemptible", JOB + "preemptible: no\n", GRID, ("job.yaml:5: preemptible", "`true`")),
    ("wrong on_loss", JOB + "on_loss: panic\n", GRID, ("job.yaml:5: on_loss", "shrink")),
    ("unknown level", JOB + "placement: {gang: leaf}\n", GRID,
     ("job.yaml:5: placement.gang", "island")),
    ("data nowhere", JOB + "data: {sites: [moon], required: true}\n", GRID,
     ("job.yaml:5: data.sites", "moon")),
    ("unknown node", JOB + "  nodes: north/n7\n", GRID,
     ("job.yaml:5: resources.nodes", "north/n7")),
    ("unknown label", JOB + "  labels: {zone: a}\n", GRID, ("job.yaml:5: resources.labels.zone",)),
    ("ranks a node", JOB + "  ranks_per_node_max: 0\n", GRID, ("job.yaml:5: resources.ranks",)),
    ("cpus unknown", JOB + "  cpus_per_rank: 2\n", GRID, ("job.yaml:5: resources.cpus_per_rank",)),
    ("memory without unit", JOB + "  memory_per_rank: 2\n", GRID,
     ("job.yaml:5: resources.memory_per_rank",)),
    ("resource of no name", JOB + "  per_rank: {ram: 2}\n", GRID,
     ("job.yaml:5: resources.per_rank.ram", "memory_per_rank")),
    ("negative spares", JOB + "  spares: -1\n", GRID, ("job.yaml:5: resources.spares",)),
    ("range of nodes", JOB, GRID + "  e:\n    nodes:\n      n[3-1]: {accelerators: cpu:1}\n",
     ("grid.yaml:6: sites.e.nodes.n[3-1]", "smaller number first")),
    ("too many nodes", JOB, GRID + "  e:\n    nodes:\n      n[1-999999999]: {accelerators: cpu}\n",
     ("grid.yaml:6", "999,999,999", "200,000")),
    ("node twice", JOB, GRID + "  e:\n    nodes:\n      n[1-4]: {accelerators: cpu}\n"
     "      n2: {accelerators: cpu}\n", ("grid.yaml:7", "n[1-4]")),
    ("bracket in a list", JOB, GRID + "bookings: [{nodes: [north/n[1-2]]}]\n",
     ("grid.yaml:4", "in quotes")),
    ("path without levels", JOB, GRID + "  e: {nodes: {n: {accelerators: cpu, path: r1}}}\n",
     ("grid.yaml:4: sites.e.nodes.n.path", "levels")),
    ("topology of no node", JOB, GRID + "  e: {topology: {rack: 4}, node: {accelerators: x}}\n",
     ("grid.yaml:4: sites.e.topology", "node: 16")),
    ("topology of nothing", JOB, GRID + "  e: {topology: {rack: 4, node: 2}}\n",
     ("grid.yaml:4: sites.e.topology", "h100:8")),
    ("islands", JOB, GRID + "  e: {nodes: {n: {accelerators: cpu:8, island: 3}}}\n",
     ("grid.yaml:4: sites.e.nodes.n.island", "divisor of 8")),
    ("host resource", JOB, GRID + "  e: {nodes: {n: {accelerators: x, resources: {cpu: 8}}}}\n",
     ("grid.yaml:4: sites.e.nodes.n.resources.cpu", "cpus")),
    ("label of no text", JOB, GRID + "  e: {nodes: {n: {accelerators: cpu, labels: {a: 1}}}}\n",
     ("grid.yaml:4: sites.e.nodes.n.labels.a", "quotes")),
    ("carbon", JOB, GRID + "  e: {accelerators: cpu, carbon: dirty}\n",
     ("grid.yaml:4: sites.e.carbon", "g/kWh")),
    ("site for no queue", JOB, GRID + "  e: {accelerators: cpu, queues: q}\n",
     ("grid.yaml:4: sites.e.queues", "`q`")),
    ("quota of no kind", JOB, GRID + "queues: {q: {nominal: {h100: 8}}}\n",
     ("grid.yaml:4: queues.q.nominal", "h100", "cpu")),
    ("unknown cohort", JOB, GRID + "queues: {q: {cohort: c, nominal: {}}}\n",
     ("grid.yaml:4: queues.q.cohort", "`c`")),
    ("circle of cohorts", JOB, GRID + "cohorts:\n  a: {parent: b}\n  b: {parent: a}\n",
     ("grid.yaml:5: cohorts.a.parent", "circle")),
    ("unknown policy", JOB, GRID + "policy: fiar\n", ("grid.yaml:4: policy", "`fair`", "srtf")),
    ("unknown rule", JOB, GRID + "policy: {base: las, blocked: easi}\n",
     ("grid.yaml:4: policy.blocked", "`easy`")),
    ("booking backwards", JOB, GRID + "bookings:\n  - {name: x, from: 9, to: 3, sites: north}\n",
     ("grid.yaml:5: bookings[0].to",)),
    ("booking of nothing", JOB, GRID + "bookings:\n  - {name: x, from: 1, to: 3}\n",
     ("grid.yaml:5: bookings[0]", "nothing is booked")),
    (
        "alias bomb",
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")),
        GRID,
        ("job.yaml", "alias"),
    ),
    ("nested too deeply", "a: " + "[" * 5000, GRID, ("job.yaml",)),
    ("python object", "name: !!python/object/apply:os.system [id]\n", GRID, ("job.yaml:1", "tag")),
]  # fmt: skip


@pytest.mark.parametrize(("case", "job", "grid", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_broken_file_is_explained(
    case: str,
    job: str | bytes,
    grid: str | bytes | None,
    said: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if case != "missing script":
        (tmp_path / "train.py").write_text("")
    (tmp_path / "job.yaml").write_bytes(job.encode() if isinstance(job, str) else job)
    words = ["run", "-y", "job.yaml"]
    if grid is not None:
        (tmp_path / "grid.yaml").write_bytes(grid.encode() if isinstance(grid, str) else grid)
        words += ["--grid", "grid.yaml"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRIDLOOM_HOME", str(tmp_path / "home"))

    assert main(words) == 2

    err = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in err
    for fragment in said:
        assert fragment.lower() in err.lower(), err
    assert not (tmp_path / "home" / "runs").exists()


def test_every_problem_comes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = (
        "name: Not OK\nrun: python t.py\ngrace: soon\nresources: {accelerators: cpu:0, sites: 3}\n"
    )
    (tmp_path / "job.yaml").write_text(job)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-y", "job.yaml"]) == 2
    err = capsys.readouterr().err
    assert "4 problems" in err
    for line in (1, 3, 4):
        assert f"job.yaml:{line}: " in err


def test_problems_of_both_files_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB + "grid: grid.yaml\ngrace: soon\n")
    (tmp_path / "grid.yaml").write_text("sites: 5\n")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-y", "job.yaml"]) == 2
    err = capsys.readouterr().err
    assert "job.yaml:6: grace" in err
    assert "grid.yaml:1: sites" in err
