"""What a search asks of the cost model, and the planner's own answer to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants
from gridloom.planner.memory import memory_by_stage, peak_bytes
from gridloom.planner.step_time import step_time


@dataclass(frozen=True)
class CostModel:
    """What plans need and take.

    Attributes:
        memory_bytes: Peak of the fullest rank, for many plans at once.
        step_s: Seconds of a training step, for many plans at once.
        memory_lines: For one plan, the fullest stage, and what one of its ranks holds, by kind, in
            bytes.
        step_lines: For one plan, the seconds of its training step by kind.
        memory_ignores: Columns of a plan that ``memory_bytes`` does not read: memory is computed
            once for plans that differ in these only.
    """

    memory_bytes: Callable[[Cases], Column]
    step_s: Callable[[Cases], Column]
    memory_lines: Callable[[Cases], tuple[int, Mapping[str, float]]]
    step_lines: Callable[[Cases], Mapping[str, float]]
    memory_ignores: frozenset[str] = frozenset()


MEMORY_IGNORES = frozenset({"overlap_gradients", "overlap_parameters", "overlap_tensor"})
"""Columns that `memory.peak_bytes` does not read."""


def cost_model(constants: Constants) -> CostModel:
    """Return the planner's own cost model with ``constants``."""

    def step_s(cases: Cases) -> Column:
        return step_time(cases, constants).total_s

    def step_lines(cases: Cases) -> Mapping[str, float]:
        lines = vars(step_time(cases, constants))
        return {name.removesuffix("_s"): float(line) for name, line in lines.items()}

    return CostModel(peak_bytes, step_s, fullest_stage, step_lines, MEMORY_IGNORES)


def fullest_stage(cases: Cases) -> tuple[int, Mapping[str, float]]:
    """Return the index of the stage that needs most memory, the first of equals, and its lines."""
    fullest = max(memory_by_stage(cases), key=lambda stage: (stage.peak_bytes, -stage.stage))
    return fullest.stage, fullest.lines
