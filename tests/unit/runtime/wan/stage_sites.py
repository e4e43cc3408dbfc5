"""Sites in threads of this process, each a stage of one pipeline, over connections of their own."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from tests.unit.runtime.wan.two_sites import free_ports
from torch import Tensor

from gridloom.base.system import SystemClock
from gridloom.model.recipe import GptShape
from gridloom.runtime.place import Place
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.wan.settings import Address, TransportSettings
from gridloom.runtime.wan.stages import Passed, StageOptions, Stages
from gridloom.runtime.wan.stages_layers import gpt_layers, token_loss

T = TypeVar("T")
NAMES = ("north", "south", "west")
SHAPE = GptShape(layers=4, hidden=32, heads=4, kv_heads=2, ffn=48, tied_embeddings=False)
QUICK = TransportSettings(heartbeat_s=0.05, silence_s=0.5, backoff_s_max=0.1)
Speakers = Mapping[str, Address]


def speakers_of(count: int) -> dict[str, Address]:
    """Return a free address for each of some sites."""
    return {name: ("127.0.0.1", port) for name, port in zip(NAMES, free_ports(count), strict=False)}


def run_of(site: str, speakers: Speakers) -> Run:
    """Return the part of one site in a training."""
    place = Place(
        job_id="job", site=site, sites=tuple(speakers), rank=0, size=1, local_rank=0,
        address="127.0.0.1", store=("127.0.0.1", 0), speakers=speakers,
    )  # fmt: skip
    return Run(place, SystemClock(), StopWish())


def at_all(speakers: Speakers, work: Callable[[Run], T]) -> list[T]:
    """Let all sites do their work, each in a thread; return what they return."""
    with ThreadPoolExecutor(len(speakers)) as pool:
        futures = [pool.submit(work, run_of(site, speakers)) for site in speakers]
        return [future.result(timeout=50) for future in futures]


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, ``[8, 16]``: runs of numbers with one distance."""
    generator = torch.Generator().manual_seed(step)
    begin = torch.randint(0, 64, (8, 1), generator=generator)
    run = (begin + 3 * torch.arange(17)) % 64
    return run[:, :-1], run[:, 1:]


def options(**more: object) -> StageOptions:
    """Return the options of all sites."""
    usual = {"micro_batches": 4, "clip_norm": 1.0, "transport": QUICK}
    return StageOptions(**(usual | more))  # type: ignore[arg-type]


def stages_of(run: Run, how: StageOptions, loss: Callable[..., Tensor] = token_loss) -> Stages:
    """Return a site's stage of the model of all tests."""
    return Stages(run, gpt_layers(SHAPE, seed=1), loss, how)


def trained(stages: Stages, steps: int, optimizer: torch.optim.Optimizer) -> list[Passed]:
    """Train up to so many steps in all."""
    passed = []
    while stages.steps < steps:
        passed.append(stages.forward_backward(*batch(stages.steps)))
        optimizer.step()
    return passed


def adamw(stages: Stages) -> torch.optim.Optimizer:
    """Return the optimizer of all sites."""
    return torch.optim.AdamW(stages.module.parameters(), lr=1e-3)
