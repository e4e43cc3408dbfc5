"""Who is left out of the line, or of the search for victims, would have changed nothing."""

import random

import pytest
from tests.examples import seeds
from tests.property.core_world import HAPPENS, World, grid_by_chance

from gridloom.core.bucket import Bucket
from gridloom.core.claims import Claims
from gridloom.core.demand import Demand
from gridloom.core.machine import Machine
from gridloom.core.queueing import Line
from gridloom.model.life import Job

WORLDS, HAPPENINGS = len(seeds(60, 600)), 60


def test_a_cycle_that_looks_at_everybody_decides_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = 0
    hopeless = Line._is_hopeless

    def counted(line: Line, bucket: Bucket, job: Job) -> bool:
        nonlocal left_out
        found = hopeless(line, bucket, job)
        left_out += found
        return found

    monkeypatch.setattr(Line, "_is_hopeless", counted)
    worlds = []
    for seed in range(WORLDS):
        rng = random.Random(seed)
        world = World(grid_by_chance(rng), mode="off")
        for _ in range(HAPPENINGS):
            getattr(world, rng.choice(HAPPENS))(rng)
        worlds.append(world)
    assert left_out > 300
    monkeypatch.setattr(Line, "_is_hopeless", lambda *_: False)
    may_help = Claims.may_help

    def anew(claims: Claims, job: Job, demand: Demand) -> bool:
        claims._too_many.clear()
        claims._rooms.clear()
        return may_help(claims, job, demand)

    monkeypatch.setattr(Claims, "may_help", anew)
    for seed, world in enumerate(worlds):
        machine = Machine(terms=world.terms)
        for number, (events, now, chance) in enumerate(world.history):
            actions = machine.step(events, now, random.Random(chance))
            assert actions == world.actions[number], f"world {seed}, step {number}"
