"""The arithmetic of a model: its parameters and its work, as formulas with their numbers."""

from collections.abc import Iterator

from gridloom.cli.plan_figures import Candidate
from gridloom.cli.plan_words import short_seconds
from gridloom.model.transformer import Transformer
from gridloom.planner.flops import attention_flops_per_token, flops_per_token, product_weights
from gridloom.planner.models.parameters import count_parameters

Line = tuple[str, str]


def parameter_lines(model: Transformer) -> list[Line]:
    """Return the parameters by part."""
    counted = count_parameters(model)
    lines = [
        ("embedding", f"{model.vocabulary:,} rows x {model.hidden:,} = {counted.embedding:,}"),
        ("attention", f"{_attention(model)} = {counted.attention:,}"),
    ]
    if counted.positions:
        formula = f"{model.positions:,} rows x {model.hidden:,} = {counted.positions:,}"
        lines.insert(1, ("positions", formula))
    lines += _feed_forward(model)
    lines.append(("norms", f"{counted.norms:,}"))
    if model.tied:
        lines.append(("output", f"the embedding's, and {counted.output:,} more"))
    else:
        formula = f"{model.hidden:,} x {model.vocabulary:,} = {counted.output:,}"
        lines.append(("output", formula))
    lines.append(("all", f"{counted.main:,}"))
    if counted.prediction:
        lines.append(("prediction modules", f"{counted.prediction:,} more while training"))
    if model.experts:
        lines.append(("active", f"{counted.active:,} for one token"))
    return lines


def work_lines(model: Transformer, sequence: int, candidate: Candidate) -> list[Line]:
    """Return the model flops of a token and of a training step, and the time they take at best."""
    weights = product_weights(model)
    a_token = flops_per_token(model, sequence)
    tokens = candidate.global_batch * sequence
    peak = sum(part.devices * part.pool.accelerator.flops_16 for part in candidate.parts)
    best_s = tokens * a_token / peak
    return [
        (
            "a token",
            f"6 x {weights:,} weights in products + attention"
            f" {attention_flops_per_token(model, sequence):,} = {a_token:,} flop",
        ),
        (
            "a training step",
            f"{candidate.global_batch:,} x {sequence:,} tokens x {a_token / 1e9:,.1f} Gflop"
            f" = {tokens * a_token / 1e15:,.1f} Pflop",
        ),
        ("at best", f"/ {peak / 1e15:,.2f} Pflop/s of 16-bit peak = {short_seconds(best_s)}"),
        (
            "MFU",
            f"{short_seconds(best_s)} / {short_seconds(candidate.step_s)} = {candidate.mfu:.1%}",
        ),
    ]


def _attention(model: Transformer) -> str:
    hidden, size = model.hidden, model.width_per_head
    if model.latent is not None:
        latent = model.latent
        return (
            f"{model.layers} layers x projections to latents of {latent.query_rank:,} and"
            f" {latent.kv_rank:,} and to {model.heads} heads"
        )
    return (
        f"{model.layers} layers x 2 x {hidden:,} x ({model.heads} heads + {model.kv_heads} key"
        f" heads) x {size}{' + biases and norms' if model.qkv_bias or model.qk_norm else ''}"
    )


def _feed_forward(model: Transformer) -> Iterator[Line]:
    counted = count_parameters(model)
    matrices = 3 if model.gated else 2
    dense = model.layers - model.expert_layers
    biases = " + biases" if model.ffn_bias else ""
    if dense:
        yield (
            "feed-forward",
            f"{dense} layers x {matrices} x {model.hidden:,} x {model.ffn:,}{biases}"
            f" = {counted.ffn:,}",
        )
    experts = model.experts
    if experts is None:
        return
    yield (
        "experts",
        f"{model.expert_layers} layers x {experts.count} x {matrices} x {model.hidden:,} x"
        f" {experts.ffn:,} = {counted.routed_experts:,}",
    )
    if counted.shared_experts:
        yield (
            "shared experts",
            f"{model.expert_layers} layers x {matrices} x {model.hidden:,} x"
            f" {experts.shared_ffn:,} = {counted.shared_experts:,}",
        )
    yield "routers", f"{counted.routers:,}"
