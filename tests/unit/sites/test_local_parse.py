"""Reports to facts, and orders to files: the pure halves of the local driver."""

import os
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from gridloom.base.codec import encode
from gridloom.model.event import CheckpointSaved, StepReported, TaskEnded, TaskReady, TaskRunning
from gridloom.model.inventory import CPU
from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.local import inventory
from gridloom.sites.local.inventory import discover, kind_of
from gridloom.sites.local.render import supervisor_argv
from gridloom.sites.reports import events
from gridloom.wire.agent import TaskRef, task_directory
from gridloom.wire.reports import Alive, CheckpointSeen, Ended, ReadySeen, StepSeen

TASK = TaskRef(job_id="j", attempt=2, epoch=5, site="a", node="n")
WHO: dict[str, Any] = {"job_id": "j", "attempt": 2, "epoch": 5, "domain": "a/n"}
OUTCOME = Outcome(code=Why.COMPLETED, sentence="well")


def alive(seq: int, epoch: int = 5) -> bytes:
    return encode(Alive(seq=seq, epoch=epoch, now_s=0.0))


def step(seq: int, step: int, epoch: int = 5) -> bytes:
    return encode(StepSeen(seq=seq, epoch=epoch, now_s=0.0, step=step))


CHECKPOINT = encode(CheckpointSeen(seq=8, epoch=5, now_s=0.0, step=3))
END = encode(Ended(seq=9, epoch=5, now_s=0.0, outcome=OUTCOME))


def test_the_last_report_of_a_kind_stands_for_all() -> None:
    ready = encode(ReadySeen(seq=2, epoch=5, now_s=0.0, resumed_step=4, notes=("why",)))
    lines = [alive(1), ready, step(2, 1), CHECKPOINT, alive(3), step(4, 2), step(5, 7), END]
    assert events(TASK, lines) == [
        TaskRunning(**WHO),
        TaskReady(**WHO, resumed_step=4, notes=("why",)),
        StepReported(**WHO, step=7),
        CheckpointSaved(**WHO, step=3),
        TaskEnded(**WHO, outcome=OUTCOME),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b""],
        [b"{"],
        [alive(1)[:-1]],
        [b"\xff\x00"],
        [b'{"kind": "unheard of", "seq": 1, "epoch": 5, "now_s": 0}'],
        [step(1, 9, epoch=4), alive(2, epoch=6)],
    ],
    ids=["none", "empty", "no json", "cut", "no text", "unknown kind", "other epochs"],
)
def test_what_is_no_report_of_this_attempt_says_nothing(lines: list[bytes]) -> None:
    assert events(TASK, lines) == []


def test_what_is_seen_is_of_the_life_that_was_looked_at() -> None:
    said = ReadySeen(seq=2, epoch=5, now_s=0.0, resumed_step=4, independent_sites=True)
    life = msgspec.structs.replace(TASK, life=2)
    assert events(life, [encode(said)]) == [
        TaskReady(**WHO, life=2, resumed_step=4, independent_sites=True)
    ]


def test_a_cut_line_hides_no_other() -> None:
    assert events(TASK, [alive(1), step(2, 1)[:9], END]) == [
        TaskRunning(**WHO),
        TaskEnded(**WHO, outcome=OUTCOME),
    ]


def test_tasks_of_one_attempt_have_directories_of_their_own() -> None:
    directory = task_directory(PurePosixPath("/runs"), TASK)
    assert directory == PurePosixPath("/runs/j/attempts/2/a.n")
    again = task_directory(PurePosixPath("/runs"), msgspec.structs.replace(TASK, life=3))
    assert again == PurePosixPath("/runs/j/attempts/2/life-3/a.n")
    assert supervisor_argv("py", directory) == ("py", "-P", "-m", "gridloom.agent", str(directory))


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA TITAN", "titan"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_product_has_a_short_name(product: str, kind: str) -> None:
    assert kind_of(product) == kind


def test_this_machine_is_one_site() -> None:
    (site,) = discover().sites
    assert (site.name, site.kind) == ("local", "local")
    assert all(node.count > 0 and node.memory_bytes > 0 for node in site.nodes)


class Nvml:
    """Plays NVIDIA's management library over these products and memory sizes."""

    class NVMLError(Exception):
        pass

    def __init__(self, *devices: tuple[str, int]) -> None:
        self._devices = devices
        self.is_open = False

    def nvmlInit(self) -> None:  # noqa: N802 - its names
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self._devices[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=self._devices[handle][1])


@pytest.mark.parametrize(
    ("devices", "nodes"),
    [
        ([("NVIDIA H200", 141)] * 8, [("h200", 8, 141)]),
        ([("NVIDIA H200", 141), ("NVIDIA L4", 24)], [("h200", 1, 141), ("l4", 1, 24)]),
    ],
)
def test_accelerators_are_nodes_by_their_kind(
    monkeypatch: pytest.MonkeyPatch,
    devices: list[tuple[str, int]],
    nodes: list[tuple[str, int, int]],
) -> None:
    nvml = Nvml(*devices)
    monkeypatch.setattr(inventory, "pynvml", nvml)
    (site,) = discover().sites
    assert [(node.accelerator, node.count, node.memory_bytes) for node in site.nodes] == nodes
    assert not nvml.is_open
    host = psutil.virtual_memory().total // 2**30
    for amount, most in (("cpus", len(os.sched_getaffinity(0))), ("memory_gib", host)):
        shares = [node.resources[amount] for node in site.nodes]
        assert most - len(shares) < sum(shares) <= most, "kinds of devices share one host"


def test_without_accelerators_there_are_slots_of_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "pynvml", Nvml())
    (node,) = discover().sites[0].nodes
    assert (node.name, node.accelerator) == ("local", CPU)
    assert node.resources["cpus"] == node.count
    assert node.resources["memory_gib"] == psutil.virtual_memory().total // 2**30
