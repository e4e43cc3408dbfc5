"""Whatever happens on whatever grid: each step keeps the laws, and history repeats.

``make test-long`` takes at least 100,000 random steps, and says how many.
"""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from tests.property.core_world import HAPPENS, World, grid_by_chance

from gridloom.base.codec import encode
from gridloom.core.machine import Machine

SHARES = 2
"""Parts of the long run, one for each processor."""

LONG = settings.get_current_profile_name() == "long"
EXAMPLES, STEPS = (900, 60) if LONG else (6, 30)

SEEDS = st.integers(0, 2**32 - 1)


class Life(RuleBasedStateMachine):
    """Facts and wishes by chance; all laws are asked after each step."""

    taken: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(None)

    @initialize(seed=SEEDS)
    def start(self, seed: int) -> None:
        self.world = World(grid_by_chance(random.Random(seed)))

    @rule(what=st.sampled_from(HAPPENS), seed=SEEDS)
    def happen(self, what: str, seed: int) -> None:
        getattr(self.world, what)(random.Random(seed))

    @rule()
    def restart(self) -> None:
        self.world.restart()

    def teardown(self) -> None:
        world = self.world
        self.taken["steps"] += world.steps
        jobs = world.state.jobs.values()
        self.taken["starts"] += sum(len(job.attempts) for job in jobs)
        self.taken["evictions"] += sum(job.evictions for job in jobs)
        assert replayed(world.history, Machine(terms=world.terms)) == encode(world.state)


@pytest.mark.parametrize("share", range(SHARES))
def test_every_step_keeps_the_laws(
    share: int, record_property: Callable[[str, object], None]
) -> None:
    taken: Counter[str] = Counter()
    life = type(f"Life{share}", (Life,), {"taken": taken})
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, derandomize=not LONG
        ),
    )
    least = EXAMPLES * STEPS * 19 // 20
    told = ", ".join(f"{number} {what}" for what, number in taken.items())
    record_property("counted", f"laws of the core, part {share + 1} of {SHARES}: {told}")
    assert taken["steps"] >= least, told
    assert taken["starts"] > least // 10, told
    assert taken["evictions"] > least // 1000, told


def replayed(history: list[tuple[list[object], float, int]], machine: Machine) -> bytes:
    for events, now, seed in history:
        machine.step(events, now, random.Random(seed))  # type: ignore[arg-type]
    return encode(machine.state)


# --- the same in every process

REPLAY = """
import hashlib, random, sys
from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.core.turn import LeaseTerms
from gridloom.model.event import AnyEvent
actions = []
machine = Machine(terms=LeaseTerms(lease_s=30.0, kill_margin_s=4.0))
for events, now, seed in decode(sys.stdin.buffer.read(), list[tuple[list[AnyEvent], float, int]]):
    actions.append(machine.step(events, now, random.Random(seed)))
print(hashlib.sha256(encode(actions) + encode(machine.state)).hexdigest())
"""


@pytest.mark.parametrize("seed", range(3))
def test_every_process_decides_alike(seed: int) -> None:
    rng = random.Random(seed)
    world = World(grid_by_chance(rng), mode="incremental")
    for _ in range(150):
        getattr(world, rng.choice(HAPPENS))(rng)
    want = hashlib.sha256(encode(world.actions) + encode(world.state)).hexdigest()
    for hash_seed in ("0", "1"):
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", REPLAY]
        history = encode(world.history)
        run = subprocess.run(command, input=history, env=env, capture_output=True, check=True)
        assert run.stdout.decode().strip() == want
