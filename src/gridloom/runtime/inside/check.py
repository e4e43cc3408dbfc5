"""Whether a plan can be carried out on a site, with every problem and what would be right.

Of the plan's memory measures some say only what costs to reckon with, and nothing here asks for
them: ``loss``, ``fused``, the kinds of attention, ``gather_unit``, the overlaps and the widths of
gradients. Gradients are summed and sent in fp32, and sent behind the backward wherever they can be.
"""

from collections.abc import Iterator

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts

_PRECISIONS = ("fp32", "bf16", "fp16")
_OPTIMIZERS = ("adamw",)


def check_plan(plan: ParallelPlan, ranks: int, shape: GptShape | None = None) -> None:
    """Raise ``InputError`` unless a site of ``ranks`` can carry ``plan`` out.

    Args:
        plan: How the model is cut inside the site.
        ranks: Of the site.
        shape: Of gridloom's own model; ``None`` for a module of the user's, which is cut along
            its data axis alone.
    """
    problems = [*_degrees(plan, ranks), *_measures(plan)]
    if not problems:
        problems = [*_data_axis(plan), *_experts(plan, shape)]
        problems += _any_module(plan) if shape is None else [*_layers(plan, shape)]
    if not problems and shape is not None:
        problems = [*_widths(plan, shape)]
    if problems:
        raise InputError(problems)


def check_length(plan: ParallelPlan, tokens: int) -> None:
    """Raise ``InputError`` unless sequences of so many tokens can be cut as ``plan`` says.

    Each context rank takes two chunks, and tensor ranks share what they hold.
    """
    chunks = (2 * plan.context if plan.context > 1 else 1) * plan.tensor
    if tokens % chunks:
        text = f"{tokens} tokens cannot be cut into {chunks} equal chunks"
        raise InputError([Problem(text, f"choose a multiple of {chunks}", field="sequence_length")])


def _problem(field: str, message: str, remedy: str = "") -> Problem:
    return Problem(message, remedy, field=f"parallel.{field}")


def _degrees(plan: ParallelPlan, ranks: int) -> Iterator[Problem]:
    names = ("tensor", "pipeline", "context", "data", "expert", "virtual_stages")
    for name in names:
        if (value := getattr(plan, name)) < 1:
            yield _problem(name, f"is {value}, must be at least 1")
    for name in ("shard", "micro_batch", "expert_tensor", "recompute_layers"):
        if (value := getattr(plan, name)) < 0:
            yield _problem(name, f"is {value}, must not be negative")
    if plan.world_size != ranks:
        cut = " x ".join(f"{name} {getattr(plan, name)}" for name in names[:4])
        yield Problem(
            f"{cut} is {plan.world_size} ranks, and the site has {ranks}",
            "choose degrees whose product is the ranks of the site",
            field="parallel",
        )


def _measures(plan: ParallelPlan) -> Iterator[Problem]:
    if plan.precision not in _PRECISIONS:
        yield _problem("precision", f"{plan.precision} is not built", f"one of {_PRECISIONS}")
    if plan.optimizer not in _OPTIMIZERS:
        yield _problem("optimizer", f"{plan.optimizer} is not built", f"one of {_OPTIMIZERS}")
    if plan.dropout:
        yield _problem("dropout", "the model has none")
    if plan.recompute_layers and plan.recompute != "full":
        yield _problem("recompute_layers", "counts layers that `recompute: full` covers")
    moved = set(plan.offload) - {"activations"}
    if moved and ("parameters" not in moved or plan.zero == 0):
        yield _problem(
            "offload",
            "parameters, gradients and optimizer go to the host together, and only when sharded",
            "offload `parameters` with zero 1, 2 or 3",
        )


def _data_axis(plan: ParallelPlan) -> Iterator[Problem]:
    copies = plan.data * plan.context
    if plan.shard and copies % plan.shard:
        yield _problem("shard", f"is {plan.shard}, must divide data x context ({copies})")
    if plan.shard and plan.zero == 0:
        yield _problem("shard", "nothing is sharded with zero 0", "set zero to 1, 2 or 3")
    if plan.expert > 1:
        if copies % plan.expert:
            yield _problem("expert", f"is {plan.expert}, must divide data x context ({copies})")
        if "parameters" in plan.offload:
            yield _problem("offload", "does not go with experts that are spread over ranks")
        if plan.shard not in (0, copies):
            yield _problem("shard", "groups smaller than data x context do not go with experts")


def _experts(plan: ParallelPlan, shape: GptShape | None) -> Iterator[Problem]:
    experts = shape.experts if shape is not None else None
    if plan.expert > 1 and experts is None:
        yield _problem("expert", f"is {plan.expert}, and the model has no experts")
    elif experts is not None and experts.count % plan.expert:
        yield _problem("expert", f"is {plan.expert}, must divide the {experts.count} experts")
    usual = plan.tensor if plan.expert == 1 else 1
    if (plan.expert_tensor or usual) != plan.tensor:
        yield _problem(
            "expert_tensor",
            f"is {plan.expert_tensor or usual}, and an expert is cut like every other matrix",
            f"set it to the tensor degree, {plan.tensor}",
        )


def _any_module(plan: ParallelPlan) -> list[Problem]:
    return [
        _problem(name, f"is {value}; a module of your own is cut along the data axis alone")
        for name in ("tensor", "pipeline", "context", "expert")
        if (value := getattr(plan, name)) > 1
    ]


def _layers(plan: ParallelPlan, shape: GptShape) -> Iterator[Problem]:
    stages = plan.pipeline * plan.virtual_stages
    if plan.virtual_stages > 1 and (plan.schedule == "1f1b" or plan.pipeline == 1):
        remedy = "interleaved or zero_bubble, over at least two stages"
        yield _problem("virtual_stages", "need another schedule", remedy)
    if plan.schedule == "interleaved" and plan.pipeline > 1 and plan.virtual_stages == 1:
        yield _problem("virtual_stages", "is 1, and interleaved stages are at least two a rank")
    if stages > shape.layers:
        yield _problem("pipeline", f"{stages} stages are more than the {shape.layers} layers")
    if plan.stage_layers:
        if len(plan.stage_layers) != stages:
            text = f"names {len(plan.stage_layers)} stages, and there are {stages}"
            yield _problem("stage_layers", text)
        if sum(plan.stage_layers) != shape.layers or min(plan.stage_layers) < 1:
            text = f"{list(plan.stage_layers)} must be at least 1 each, {shape.layers} in all"
            yield _problem("stage_layers", text)


def _widths(plan: ParallelPlan, shape: GptShape) -> Iterator[Problem]:
    widths = {"heads": shape.heads, "kv_heads": shape.kv_heads}
    experts: Experts | None = shape.experts
    if experts is None or experts.dense_layers or experts.every > 1:
        widths["ffn"] = shape.ffn
    if experts is not None:
        widths["experts.ffn"] = experts.ffn
        widths["experts.shared_ffn"] = experts.shared_ffn
    for name, width in widths.items():
        if width % plan.tensor:
            yield _problem("tensor", f"is {plan.tensor}, must divide the model's {name} ({width})")
