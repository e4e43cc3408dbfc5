"""Every plan of a small space by loops and scalars, as an oracle for the search by columns."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from msgspec import structs

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.search_space import NODE_SHARD, SearchSpace

Plans = dict[ParallelPlan, tuple[int, int]]
"""Each plan with its devices and its global batch."""


def every_plan(space: SearchSpace) -> Plans:
    """Return the plans of ``space``."""
    found: Plans = {}
    for devices in space.devices:
        for cut in cuts(space, devices):
            batch = cut.pop("global_batch")
            for knobs in free_knobs(space):
                plan = whole_plan(space, cut, knobs)
                if plan is not None:
                    found[plan] = (devices, batch)
    return found


def cuts(space: SearchSpace, devices: int) -> Iterator[dict[str, Any]]:
    model, whole = space.model, range(1, devices + 1)
    experts = model.experts.count if model.experts else 1
    for tensor, pipeline, context in product(
        space.tensor or whole, space.pipeline or whole, space.context or whole
    ):
        if devices % (tensor * pipeline * context) or not shares(space, tensor, pipeline, context):
            continue
        data = devices // (tensor * pipeline * context)
        batch = whole_batch(space, data)
        if not batch:
            continue
        for micro, (schedule, chunks), expert, expert_tensor, (zero, shard) in product(
            [m for m in space.micro_batch or range(1, batch + 1) if (batch // data) % m == 0],
            schedules(space, pipeline),
            [e for e in space.expert or range(1, experts + 1) if experts % e == 0],
            space.expert_tensor if model.experts else (0,),
            product(space.zero, space.shard),
        ):
            if space.micro_batch_max and not space.micro_batch and micro > space.micro_batch_max:
                continue
            if schedule == "interleaved" and batch // data // micro % pipeline:
                continue
            follows = tensor if expert == 1 else 1
            ranks = expert_tensor or follows
            width = model.experts.ffn if model.experts else 0
            if width % ranks or (tensor * context * data) % (expert * ranks):
                continue
            alone = data * context == 1 and (
                not model.experts or tensor * context * data == expert * ranks
            )
            group = shard_group(
                space, tensor, data * context, zero, -2 if alone and shard else shard
            )
            if group < 0:
                continue
            yield {
                "tensor": tensor,
                "pipeline": pipeline,
                "context": context,
                "data": data,
                "expert": expert,
                "expert_tensor": 0 if ranks == follows else ranks,
                "schedule": schedule,
                "virtual_stages": chunks,
                "stage_layers": stage_layers(model.layers, pipeline, chunks),
                "zero": 0 if alone else zero,
                "shard": group,
                "micro_batch": micro,
                "global_batch": batch,
                "overlap_gradients": True if alone else None,
            }


def whole_batch(space: SearchSpace, data: int) -> int:
    """Return the global batch with ``data`` copies of the model; 0 when there is none."""
    if space.data and data not in space.data:
        return 0
    if space.global_batch % data and not space.batch_at_most:
        return 0
    return space.global_batch // data * data


def shares(space: SearchSpace, tensor: int, pipeline: int, context: int) -> bool:
    model = space.model
    shared = model.experts.shared_ffn if model.experts else 0
    return (
        not (space.tensor_in_node and space.node % tensor)
        and model.heads % tensor == 0
        and (model.kv_heads % tensor == 0 or tensor % model.kv_heads == 0)
        and model.ffn % tensor == 0
        and shared % tensor == 0
        and pipeline <= model.layers
        and (space.uneven_stages or model.layers % pipeline == 0)
        and (context == 1 or space.sequence % (2 * context) == 0)
    )


def schedules(space: SearchSpace, pipeline: int) -> list[tuple[str, int]]:
    if pipeline == 1:
        return [("1f1b", 1)]
    layers = space.model.layers
    found: list[tuple[str, int]] = []
    for schedule in space.schedule:
        if schedule != "interleaved":
            found.append((schedule, 1))
            continue
        for chunks in space.virtual_stages or range(2, layers + 3):
            missing = -layers % (pipeline * chunks)
            spare = 2 if space.uneven_stages else 0
            if pipeline * chunks <= layers + spare and missing <= spare:
                found.append((schedule, chunks))
    return found


def stage_layers(layers: int, pipeline: int, chunks: int) -> tuple[int, ...]:
    missing = -layers % (pipeline * chunks)
    if not missing:
        return ()
    stages = [(layers + missing) // pipeline] * pipeline
    for stage in (-1, *range(missing - 1)):
        stages[stage] -= 1
    return tuple(stages)


def shard_group(space: SearchSpace, tensor: int, shared: int, zero: int, shard: int) -> int:
    """Return the plan's ``shard``; -1 when there is no such group."""
    if zero == 0 or shard == 0:
        return 0
    group = space.node // tensor if shard == NODE_SHARD else shard
    if group < 2 or shared % group:
        return -1
    return 0 if group == shared else group


def free_knobs(space: SearchSpace) -> Iterator[dict[str, Any]]:
    names = (
        "sequence_parallel", "flash_attention", "precision", "optimizer", "offload",
        "overlap_gradients", "overlap_parameters", "overlap_tensor",
    )  # fmt: skip
    for recompute in space.recompute:
        for layers in space.recompute_layers if recompute == "full" else (0,):
            for entries in product(*(getattr(space, name) for name in names)):
                knobs = dict(zip(names, entries, strict=True))
                yield {**knobs, "recompute": recompute, "recompute_layers": layers}


def whole_plan(
    space: SearchSpace, cut: dict[str, Any], knobs: dict[str, Any]
) -> ParallelPlan | None:
    fields = {**knobs, **{name: value for name, value in cut.items() if value is not None}}
    if fields["tensor"] == 1 and fields["expert_tensor"] in (0, 1):
        fields["sequence_parallel"] = False
        fields["overlap_tensor"] = False
    if fields["zero"] == 0:
        fields["overlap_parameters"] = True
    if fields["sequence_parallel"] and space.sequence // cut["context"] % cut["tensor"]:
        return None
    longest = max(cut["stage_layers"], default=space.model.layers // cut["pipeline"])
    if fields["recompute_layers"] >= longest and 0 in space.recompute_layers:
        fields["recompute_layers"] = 0
    fields["offload"] = tuple(sorted(set(fields["offload"])))
    return structs.replace(space.base, **fields)
