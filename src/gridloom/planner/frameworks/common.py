"""What the frameworks share: the goal of a run, what was read, the rules that every plan obeys."""

from dataclasses import dataclass

from msgspec.structs import replace

from gridloom.model.parallel import Offload, ParallelPlan, SiteSync
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks.refusal import Rule

_OFFLOAD_ORDER: tuple[Offload, ...] = ("optimizer", "gradients", "parameters", "activations")


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is trained on.

    Attributes:
        sequence_length: Tokens a sequence; 0 when the settings do not say.
        global_batch: Sequences a training step; 0 when the settings do not say.
        tokens: To train on in all; 0 when unknown.
    """

    sequence_length: int
    global_batch: int
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a framework's settings say.

    Attributes:
        plan: How the model is cut.
        goal: What is trained on.
        model: The model; None when the settings leave it to the program.
        absent: Fields of the three that these settings do not carry and that stand at a default.
        unread: Names in the settings that say nothing of plan, goal or model, or are unknown.
    """

    plan: ParallelPlan
    goal: Goal
    model: Transformer | None = None
    absent: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def is_positive(model: Transformer, plan: ParallelPlan) -> Rule:
    """Return the rule that must hold before any other is looked at: no size is below 1."""
    sizes = {
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "tensor": plan.tensor,
        "pipeline": plan.pipeline,
        "context": plan.context,
        "data": plan.data,
        "expert": plan.expert,
        "virtual_stages": plan.virtual_stages,
    }
    if model.experts is not None:
        sizes |= {"experts.count": model.experts.count, "experts.every": model.experts.every}
    bad = [name for name, size in sizes.items() if size < 1]
    return Rule(bool(bad), bad[0] if bad else "", "is below 1", "write a whole number from 1 on")


def micro_batch(plan: ParallelPlan, goal: Goal) -> int:
    """Return the sequences that a rank takes at once: all of its share when the plan says 0."""
    return plan.micro_batch or max(1, goal.global_batch // plan.data)


def micro_batches(plan: ParallelPlan, goal: Goal) -> int:
    """Return the micro-batches of a training step on one copy of the model."""
    return goal.global_batch // (plan.data * micro_batch(plan, goal))


def stages(model: Transformer, plan: ParallelPlan) -> tuple[int, ...]:
    """Return the layers of each stage; what does not divide goes to the first stages, one each."""
    if plan.stage_layers:
        return plan.stage_layers
    each, more = divmod(model.layers, plan.pipeline)
    return (each + 1,) * more + (each,) * (plan.pipeline - more)


def expert_tensor(plan: ParallelPlan) -> int:
    """Return the ranks that share each expert."""
    return plan.expert_tensor or (plan.tensor if plan.expert == 1 else 1)


def shard_ranks(plan: ParallelPlan) -> int:
    """Return the ranks of one shard group."""
    return plan.shard or plan.data * plan.context


def gradient_bytes(plan: ParallelPlan) -> int:
    """Return the bytes of a summed gradient: as stated, else the usual (`ParallelPlan`)."""
    if plan.gradient_bytes:
        return plan.gradient_bytes
    summed = plan.precision in {"bf16", "fp8", "fp8_rowwise"} and plan.zero < 3
    return 4 if summed or plan.precision == "fp32" else 2


def settled(model: Transformer, plan: ParallelPlan, goal: Goal) -> ParallelPlan:
    """Return the same plan, every field that has no effect at its default and no size left open.

    Two plans that run alike are then equal, so that a plan can be compared with one that was read
    from a framework's settings. What is a matter of the device or of debugging, and not of
    settings, stands at its default too.
    """
    plan = _settled_pipeline(model, plan)
    wide = plan.tensor > 1
    everywhere = shard_ranks(plan) == plan.data * plan.context
    usual = plan.tensor if plan.expert == 1 else 1
    shared = expert_tensor(plan)
    whole = plan.recompute_layers >= max(stages(model, plan))
    return replace(
        plan,
        sequence_parallel=wide and plan.sequence_parallel,
        overlap_tensor=wide and plan.overlap_tensor,
        overlap_parameters=plan.zero == 0 or plan.overlap_parameters,
        shard=0 if plan.zero == 0 or everywhere else plan.shard,
        micro_batch=micro_batch(plan, goal),
        expert_tensor=0 if model.experts is None or shared == usual else shared,
        gather_unit=plan.gather_unit if plan.zero == 3 else "layer",
        native_attention=True,
        blocking_launches=False,
        gradient_bytes=0 if gradient_bytes(plan) == _usual_bytes(plan) else plan.gradient_bytes,
        recompute_layers=0 if plan.recompute != "full" or whole else plan.recompute_layers,
        offload=tuple(kind for kind in _OFFLOAD_ORDER if kind in plan.offload),
    )


def _usual_bytes(plan: ParallelPlan) -> int:
    return gradient_bytes(replace(plan, gradient_bytes=0))


def _settled_pipeline(model: Transformer, plan: ParallelPlan) -> ParallelPlan:
    schedule, chunks = plan.schedule, plan.virtual_stages
    if plan.pipeline == 1 or (schedule == "interleaved" and chunks == 1):
        schedule = "1f1b"
    if schedule != "interleaved":
        chunks = 1
    cut = stages(model, plan)
    if plan.pipeline == 1 or len(set(cut)) == 1:
        cut = ()
    return replace(plan, schedule=schedule, virtual_stages=chunks, stage_layers=cut)


def rules(model: Transformer, plan: ParallelPlan, goal: Goal) -> list[Rule]:
    """Return what any framework asks of a settled ``plan``; every size is at least 1."""
    share = plan.data * micro_batch(plan, goal)
    cut = stages(model, plan)
    ranks = plan.tensor * plan.context * plan.data
    return [
        Rule(
            goal.global_batch % share != 0 or goal.global_batch < 1,
            "micro_batch",
            f"{plan.data} copies x {micro_batch(plan, goal)} sequences do not divide a global batch"
            f" of {goal.global_batch}",
            "choose a micro-batch whose product with `data` divides the global batch",
        ),
        Rule(
            len(cut) != plan.pipeline or sum(cut) != model.layers or min(cut) < 1,
            "stage_layers",
            f"{len(cut)} stages of {sum(cut)} layers do not fit {plan.pipeline} stages of a model"
            f" with {model.layers}",
            "give each of the `pipeline` stages at least one layer, all layers together",
        ),
        Rule(
            plan.schedule == "interleaved"
            and not plan.stage_layers
            and model.layers % (plan.pipeline * plan.virtual_stages) != 0,
            "virtual_stages",
            f"{model.layers} layers do not divide into {plan.pipeline} x {plan.virtual_stages}"
            " chunks",
            "choose stages and chunks whose product divides the layers",
        ),
        Rule(
            model.heads % plan.tensor != 0,
            "tensor",
            f"{model.heads} heads cannot be shared by {plan.tensor} ranks",
            "choose a divisor of the number of heads",
        ),
        Rule(
            plan.zero > 0 and (plan.data * plan.context) % shard_ranks(plan) != 0,
            "shard",
            f"{plan.data * plan.context} data and context ranks are no whole number of groups of"
            f" {plan.shard}",
            "choose a divisor of data x context, or 0",
        ),
        Rule(
            plan.site_sync != SiteSync(),
            "site_sync",
            "the framework knows nothing of sites and averages gradients at every step",
            "leave `site_sync` out, or run with gridloom's own runtime",
        ),
        *_expert_rules(model, plan, ranks),
    ]


def _expert_rules(model: Transformer, plan: ParallelPlan, ranks: int) -> list[Rule]:
    count = model.experts.count if model.experts else 0
    together = plan.expert * expert_tensor(plan)
    return [
        Rule(
            plan.expert > 1 and count == 0,
            "expert",
            f"{model.name or 'the model'} has no experts to spread over {plan.expert} ranks",
            "set `expert` to 1",
        ),
        Rule(
            count > 0 and count % plan.expert != 0,
            "expert",
            f"{count} experts cannot be spread evenly over {plan.expert} ranks",
            "choose a divisor of the number of experts",
        ),
        Rule(
            count > 0 and ranks % together != 0,
            "expert",
            f"{ranks} ranks of a stage are no whole number of {plan.expert} x"
            f" {expert_tensor(plan)} expert ranks",
            "choose `expert` x `expert_tensor` that divides tensor x context x data",
        ),
    ]
