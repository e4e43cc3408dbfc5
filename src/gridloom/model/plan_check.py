"""Whether gridloom's own runtime can carry a plan out, with every problem and what would be right.

Asked when a job file is read, when shapes are offered for it, and by every rank that builds its
part; fields are called as in a job file.

Of the plan's memory measures some say only what costs to reckon with, and nothing here asks for
them: ``loss``, ``fused``, the kinds of attention, ``gather_unit``, the overlaps and the widths of
gradients. Gradients are summed and sent in fp32, and sent behind the backward wherever they can be.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gridloom.base.errors import Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape

PRECISIONS = ("fp32", "bf16", "fp16")
"""Number formats of matrix products that are built."""

_OPTIMIZERS = ("adamw",)
_DEGREES = ("tensor", "pipeline", "context", "data")


def shape_problems(shape: GptShape) -> list[Problem]:
    """Return what is wrong with the model by itself, or not built."""
    problems = [
        Problem(f"is {value}, must be at least 1", "write 1 or more", field=f"model.{field}")
        for field in ("layers", "hidden", "heads", "kv_heads", "ffn")
        if (value := getattr(shape, field)) < 1
    ]
    if not problems:
        if shape.hidden % (2 * shape.heads):
            text = f"is {shape.hidden}, must be a multiple of twice the heads ({2 * shape.heads})"
            problems.append(Problem(text, "choose other heads", field="model.hidden"))
        if shape.heads % shape.kv_heads:
            text = f"is {shape.kv_heads}, must divide the heads ({shape.heads})"
            problems.append(Problem(text, "choose other heads", field="model.kv_heads"))
    return [*problems, *_of_experts(shape)]


def cut_problems(plan: ParallelPlan, shape: GptShape | None) -> list[Problem]:
    """Return why ``plan`` cannot cut the model, however many copies of it a site holds.

    Args:
        plan: How the model is cut.
        shape: Of gridloom's own model; ``None`` for a module of the user's, which is cut along
            its data axis alone.
    """
    problems = [*_numbers(plan), *_measures(plan)]
    if not problems:
        problems = [*_experts(plan, shape)]
        problems += _any_module(plan) if shape is None else [*_layers(plan, shape)]
    if not problems and shape is not None:
        problems = [*_widths(plan, shape)]
    return problems


def site_problems(plan: ParallelPlan) -> list[Problem]:
    """Return why the copies that a site holds, ``plan.data``, cannot share what they should."""
    copies, problems = plan.data * plan.context, []
    ranks = f"data x context of a site ({copies})"
    if plan.shard and copies % plan.shard:
        text = f"is {plan.shard}, must divide {ranks}"
        problems.append(_problem("shard", text, "write 0 for all of them"))
    if plan.expert > 1:
        if copies % plan.expert:
            text = f"is {plan.expert}, must divide {ranks}"
            problems.append(_problem("expert", text, f"choose a divisor of {copies}"))
        if plan.shard not in (0, copies):
            text = "groups smaller than data x context do not go with experts"
            problems.append(_problem("shard", text, "write 0"))
    return problems


def length_problems(plan: ParallelPlan, tokens: int) -> list[Problem]:
    """Return why sequences of so many tokens cannot be cut.

    Each context rank takes two chunks, and tensor ranks share what they hold.
    """
    chunks = (2 * plan.context if plan.context > 1 else 1) * plan.tensor
    if not tokens % chunks:
        return []
    text = f"{tokens} tokens cannot be cut into {chunks} equal chunks"
    return [Problem(text, f"choose a multiple of {chunks}", field="sequence_length")]


def share_problems(plan: ParallelPlan, copies: int, global_batch: int) -> list[Problem]:
    """Return why so many copies of the model, over all sites, cannot share a global batch."""
    text, remedy = "", f"choose a multiple of {copies}"
    if global_batch < copies:
        text = f"fewer sequences than there are copies of the model ({copies})"
        remedy = f"write at least {copies}"
    elif global_batch % copies and (plan.zero or plan.pipeline > 1 or plan.expert > 1):
        text = f"and {copies} copies of the model must have equal shares of it"
    return [Problem(f"is {global_batch}, {text}", remedy, field="global_batch")] if text else []


def copies_problems(
    plan: ParallelPlan, sites: int, global_batch: int, micro_batch: int = 0
) -> list[Problem]:
    """Return why ``plan.data`` copies over all sites cannot be, or cannot share the work.

    Args:
        plan: How each is cut.
        sites: That hold as many copies each, where copies are cut.
        global_batch: Sequences of a training step.
        micro_batch: Sequences that a rank takes at once; 0 for the usual.
    """
    problems = site_problems(replace(plan, data=plan.data // sites))
    problems += share_problems(plan, plan.data, global_batch)
    if plan.pipeline > 1 and global_batch % plan.data == 0:
        share = global_batch // plan.data
        problems += micro_batch_problems(plan, share, micro_batch or plan.micro_batch or 1)
    return problems


def micro_batch_problems(plan: ParallelPlan, batch: int, micro_batch: int) -> list[Problem]:
    """Return why a pipeline cannot take a copy's ``batch`` in micro-batches of this size."""
    count, left = divmod(batch, micro_batch)
    rounds = max(1, count // plan.pipeline)
    text = ""
    if left:
        text = f"is not whole micro-batches of {micro_batch}"
    elif count < plan.pipeline:
        text = f"is {count} micro-batches of {micro_batch}, fewer than the stages"
    elif plan.schedule != "1f1b" and count % rounds:
        text = f"is {count} micro-batches, and {plan.schedule} wants whole rounds of {rounds}"
    if not text:
        return []
    remedy = f"choose a batch of {plan.pipeline} micro-batches or a multiple"
    return [Problem(f"a batch of {batch} sequences a rank {text}", remedy, field="micro_batch")]


def _problem(field: str, message: str, remedy: str) -> Problem:
    return Problem(message, remedy, field=f"parallel.{field}")


def _of_experts(shape: GptShape) -> list[Problem]:
    """Return what is wrong with a shape's experts, or not built."""
    experts = shape.experts
    if experts is None:
        return []
    least = {"count": 1, "per_token": 1, "ffn": 1, "every": 1, "shared_ffn": 0, "dense_layers": 0}
    problems = [
        (field, f"is {value}, must be at least {minimum}", f"write {minimum} or more")
        for field, minimum in least.items()
        if (value := getattr(experts, field)) < minimum
    ]
    if experts.per_token > experts.count:
        text = f"is {experts.per_token}, but a layer has {experts.count} experts"
        problems.append(("per_token", text, f"write at most {experts.count}"))
    if not problems and (shape.layers - experts.dense_layers) // experts.every < 1:
        text = f"is {experts.dense_layers}, and no layer of {shape.layers} is left for experts"
        problems.append(("dense_layers", text, "leave `every` layers for them at least"))
    if experts.shared_gate and not experts.shared_ffn:
        problems.append(("shared_gate", "weighs shared experts, and there are none",
                         "give `shared_ffn` a width"))  # fmt: skip
    if experts.capacity_factor:
        problems.append(("capacity_factor", "no token is dropped here", "leave it at 0"))
    if experts.router_bias:
        text = "is not built; the router's loss keeps the load even"
        problems.append(("router_bias", text, "leave it out"))
    return [Problem(text, right, field=f"model.experts.{name}") for name, text, right in problems]


def _numbers(plan: ParallelPlan) -> Iterator[Problem]:
    for name in (*_DEGREES, "expert", "virtual_stages"):
        if (value := getattr(plan, name)) < 1:
            yield _problem(name, f"is {value}, must be at least 1", "write 1 or more")
    for name in ("shard", "micro_batch", "expert_tensor", "recompute_layers"):
        if (value := getattr(plan, name)) < 0:
            yield _problem(name, f"is {value}, must not be negative", "write 0 or more")


def _measures(plan: ParallelPlan) -> Iterator[Problem]:
    for name, built in (("precision", PRECISIONS), ("optimizer", _OPTIMIZERS)):
        if (value := getattr(plan, name)) not in built:
            yield _problem(name, f"{value} is not built", f"one of {', '.join(built)}")
    if plan.dropout:
        yield _problem("dropout", "the model has none", "leave it out")
    if plan.recompute_layers and plan.recompute != "full":
        text = "counts layers that `recompute: full` covers"
        yield _problem("recompute_layers", text, "write `recompute: full`, or leave it out")
    if plan.shard and plan.zero == 0:
        remedy = "set zero to 1, 2 or 3"
        yield _problem("shard", "nothing is sharded with zero 0", remedy)
    moved = set(plan.offload) - {"activations"}
    if moved and ("parameters" not in moved or plan.zero == 0):
        yield _problem(
            "offload",
            "parameters, gradients and optimizer go to the host together, and only when sharded",
            "offload `parameters` with zero 1, 2 or 3",
        )


def _experts(plan: ParallelPlan, shape: GptShape | None) -> Iterator[Problem]:
    experts = shape.experts if shape is not None else None
    if plan.expert > 1 and experts is None:
        yield _problem("expert", f"is {plan.expert}, and the model has no experts", "write 1")
    elif experts is not None and experts.count % plan.expert:
        text = f"is {plan.expert}, must divide the {experts.count} experts"
        yield _problem("expert", text, f"choose a divisor of {experts.count}")
    if plan.expert > 1 and "parameters" in plan.offload:
        text = "does not go with experts that are spread over ranks"
        yield _problem("offload", text, "leave `parameters` out")
    usual = plan.tensor if plan.expert == 1 else 1
    if (plan.expert_tensor or usual) != plan.tensor:
        yield _problem(
            "expert_tensor",
            f"is {plan.expert_tensor or usual}, and an expert is cut like every other matrix",
            f"set it to the tensor degree, {plan.tensor}",
        )


def _any_module(plan: ParallelPlan) -> list[Problem]:
    text = "a module of your own is cut along the data axis alone"
    return [
        _problem(name, f"is {value}; {text}", "write 1")
        for name in ("tensor", "pipeline", "context", "expert")
        if (value := getattr(plan, name)) > 1
    ]


def _layers(plan: ParallelPlan, shape: GptShape) -> Iterator[Problem]:
    stages = plan.pipeline * plan.virtual_stages
    if plan.virtual_stages > 1 and (plan.schedule == "1f1b" or plan.pipeline == 1):
        remedy = "interleaved or zero_bubble, over at least two stages"
        yield _problem("virtual_stages", "need another schedule", remedy)
    if plan.schedule == "interleaved" and plan.pipeline > 1 and plan.virtual_stages == 1:
        text = "is 1, and interleaved stages are at least two a rank"
        yield _problem("virtual_stages", text, "write 2 or more")
    if stages > shape.layers:
        text = f"{stages} stages are more than the {shape.layers} layers"
        yield _problem("pipeline", text, f"at most {shape.layers} stages")
    if plan.stage_layers:
        right = f"name {stages} numbers of at least 1, {shape.layers} in all"
        if len(plan.stage_layers) != stages:
            text = f"names {len(plan.stage_layers)} stages, and there are {stages}"
            yield _problem("stage_layers", text, right)
        if sum(plan.stage_layers) != shape.layers or min(plan.stage_layers) < 1:
            text = f"{list(plan.stage_layers)} must be at least 1 each, {shape.layers} in all"
            yield _problem("stage_layers", text, right)


def _widths(plan: ParallelPlan, shape: GptShape) -> Iterator[Problem]:
    widths = {"heads": shape.heads, "kv_heads": shape.kv_heads}
    experts = shape.experts
    if experts is None or experts.dense_layers or experts.every > 1:
        widths["ffn"] = shape.ffn
    if experts is not None:
        widths["experts.ffn"] = experts.ffn
        widths["experts.shared_ffn"] = experts.shared_ffn
    for name, width in widths.items():
        if width % plan.tensor:
            text = f"is {plan.tensor}, must divide the model's {name} ({width})"
            yield _problem("tensor", text, f"choose a divisor of {width}")
