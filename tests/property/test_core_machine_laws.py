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
from tests.examples import LONG
from tests.property.core_world import HAPPENS, World, grid_by_chance

from gridloom.base.codec import encode
from gridloom.core.machine import Machine
from gridloom.model.action import StartAttempt
from gridloom.model.event import AnyEvent

SHARES = 2
"""Parts of the long run, one for each processor."""

EXAMPLES, STEPS, STEPS_MIN = (500, 60, 60_000) if LONG else (8, 30, 400)

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

    @rule(what=st.lists(st.sampled_from(HAPPENS), min_size=1, max_size=5), seed=SEEDS)
    def happen(self, what: list[str], seed: int) -> None:
        rng = random.Random(seed)
        for one in what:
            getattr(self.world, one)(rng)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    def teardown(self) -> None:
        self.taken.update(counted(self.world))


def counted(world: World) -> Counter[str]:
    """Return what a life was made of, once it is known that its history repeats."""
    assert replayed(world.history, Machine(terms=world.terms)) == encode(world.state)
    return Counter(
        steps=world.steps,
        starts=sum(isinstance(one, StartAttempt) for actions in world.actions for one in actions),
        evictions=sum(job.evictions for job in world.state.jobs.values()),
    )


def replayed(history: list[tuple[list[AnyEvent], float, int]], machine: Machine) -> bytes:
    for events, now, seed in history:
        machine.step(events, now, random.Random(seed))
    return encode(machine.state)


@pytest.mark.parametrize("share", range(SHARES))
def test_every_step_keeps_the_laws(
    share: int, record_property: Callable[[str, object], None]
) -> None:
    taken: Counter[str] = Counter()
    life = type(f"Life{share}", (Life,), {"taken": taken})
    run_state_machine_as_test(
        life,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, derandomize=not LONG),
    )
    rng = random.Random(share)
    while taken["steps"] < STEPS_MIN:  # hypothesis makes no promise of how many it takes
        world = World(grid_by_chance(rng))
        for _ in range(3 * STEPS):
            getattr(world, rng.choice(HAPPENS))(rng)
        taken.update(counted(world))
    told = ", ".join(f"{number} {what}" for what, number in taken.items())
    record_property("counted", f"laws of the core, part {share + 1} of {SHARES}: {told}")
    assert taken["starts"] > taken["steps"] // 10, told
    assert taken["evictions"] > taken["steps"] // 200, told


# --- the same in every process

REPLAY = """
import hashlib, random, sys
from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.model.action import StartAttempt
from gridloom.model.event import AnyEvent
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import StartAttempt
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
