"""A plan whose values somebody states, held against the rules that every plan obeys."""

from dataclasses import replace

from gridloom.base.errors import InputError, Problem
from gridloom.cli.plan_flags import Degrees
from gridloom.model.parallel import ParallelPlan
from gridloom.planner.costs import CostModel
from gridloom.planner.pins import Pins, full_names, pinned
from gridloom.planner.search import search
from gridloom.planner.search_space import Rule, SearchSpace

_FLAGS = {
    Rule.HEADS: "tp",
    Rule.WIDTHS: "tp",
    Rule.NODE: "tp",
    Rule.LAYERS: "pp",
    Rule.SEQUENCE: "cp",
    Rule.DEVICES: "devices",
    Rule.DATA: "dp",
    Rule.BATCH: "global_batch",
    Rule.MICRO_BATCH: "micro_batch",
    Rule.CHUNKS: "vpp",
    Rule.INTERLEAVING: "vpp",
    Rule.EXPERTS: "ep",
    Rule.EXPERT_RANKS: "ep",
    Rule.SHARD: "shard",
    Rule.TOKENS: "sequence_parallel",
}
"""The value to change where a rule is broken."""

_FREE = CostModel(
    memory_bytes=lambda _: 0.0,
    step_s=lambda _: 1.0,
    memory_lines=lambda _: (0, {}),
    step_lines=lambda _: {},
)
"""Costs by which everything that is a plan fits."""


def stated_pins(degrees: Degrees) -> Pins:
    """Return the values of the flags."""
    parallel = degrees.sequence_parallel
    if parallel is None:
        parallel = degrees.tp > 1
    return {
        "tp": degrees.tp,
        "pp": degrees.pp,
        "cp": degrees.cp,
        "ep": degrees.ep,
        "vpp": degrees.vpp,
        "zero": degrees.zero,
        "micro_batch": degrees.micro_batch,
        "recompute": degrees.recompute,
        "sequence_parallel": "on" if parallel else "off",
    }


def stated_plan(space: SearchSpace, pins: Pins) -> tuple[ParallelPlan, int]:
    """Return the one plan with the values ``pins``, others as usual, and its global batch.

    Raises:
        InputError: A value cannot be, or the values break a rule together; says which and why.
    """
    names = full_names(pins)
    usual = replace(
        space,
        tensor=(1,),
        tensor_in_node=False,
        pipeline=(1,),
        context=(1,),
        expert=(1,),
        zero=(0,),
        micro_batch=(1,),
        recompute=("none",),
        sequence_parallel=(str(names.get("tensor", 1)) != "1",),
        schedule=("1f1b",),
    )
    narrowed = pinned(usual, pins)
    found = search(narrowed, _FREE)
    if found.plans:
        return found.plans[0].plan, found.plans[0].global_batch
    pruned = found.counts.pruned
    rules = [found.emptied_by, *sorted(pruned, key=lambda rule: -pruned[rule])]
    rule = next((rule for rule in rules if rule is not None), Rule.DEVICES)
    field = _FLAGS.get(rule, "")
    raise InputError([Problem(why_no_plan(rule, narrowed), field=f"--{field}".replace("_", "-"))])


def why_no_plan(rule: Rule, space: SearchSpace) -> str:
    """Return why values break ``rule``, with the numbers that they had to agree with."""
    model, experts = space.model, space.model.experts
    count = max(space.devices, default=0)
    numbers = {
        Rule.NODE: f"nodes of {space.node} devices",
        Rule.HEADS: f"{model.heads} heads and {model.kv_heads} key and value heads",
        Rule.WIDTHS: f"a feed-forward width of {model.ffn:,}",
        Rule.LAYERS: f"{model.layers} layers",
        Rule.CHUNKS: f"{model.layers} layers",
        Rule.SEQUENCE: f"sequences of {space.sequence:,} tokens",
        Rule.TOKENS: f"sequences of {space.sequence:,} tokens",
        Rule.DEVICES: f"{count:,} devices",
        Rule.DATA: f"{count:,} devices",
        Rule.BATCH: f"a global batch of {space.global_batch:,}",
        Rule.MICRO_BATCH: f"a global batch of {space.global_batch:,}",
        Rule.INTERLEAVING: f"a global batch of {space.global_batch:,}",
        Rule.EXPERTS: f"{experts.count} experts" if experts else "a model without experts",
        Rule.EXPERT_RANKS: f"{count:,} devices",
        Rule.SHARD: f"{count:,} devices",
    }
    given = numbers.get(rule)
    return f"{rule.sentence} (here: {given})" if given else rule.sentence
