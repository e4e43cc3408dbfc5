"""The arithmetic behind a plan: formulas with their numbers, by the planner's own lines."""

from collections.abc import Iterator, Mapping

import numpy as np

from gridloom.base.units import format_bytes, format_duration
from gridloom.cli.plan_explain_model import parameter_lines, work_lines
from gridloom.cli.plan_figures import Candidate, cases_in
from gridloom.cli.plan_search import Question
from gridloom.cli.plan_trust import costs_of
from gridloom.cli.plan_words import (
    gigabytes,
    money,
    short_seconds,
)
from gridloom.planner import activations, exchange
from gridloom.planner.cases import Cases
from gridloom.planner.constants import Constants
from gridloom.planner.data_parallel import held
from gridloom.planner.kernels import layer_seconds
from gridloom.planner.memory import usual_gradient_bytes
from gridloom.planner.step_time import stage_layers

Line = tuple[str, str]
Section = tuple[str, list[Line]]


def explanation(question: Question, candidate: Candidate) -> list[Section]:
    """Return the arithmetic of a plan as titled lines of a name and a formula with its result."""
    model, sequence = question.subject.model, question.subject.sequence
    sections: list[Section] = [
        ("parameters of the model", parameter_lines(model)),
        ("work", work_lines(model, sequence, candidate)),
    ]
    if candidate.way == "one_pool":
        part = candidate.parts[0]
        cases = cases_in(question.space(part.pool), part.pool, part.plan, candidate.global_batch)
        constants = question.trust.constants(part.pool.accelerator.family)
        costs = costs_of([part.pool], question.trust)
        steps = dict(costs.step_lines(cases))
        stage, memory = costs.memory_lines(cases)
        sections += [
            ("how the batch passes through", list(_cut_lines(cases))),
            ("a training step", list(_step_lines(cases, constants, steps))),
            (f"memory of a rank of stage {stage + 1}", list(_memory_lines(cases, memory))),
        ]
    sections.append(("the whole training", list(_training_lines(question, candidate))))
    return sections


def _cut_lines(cases: Cases) -> Iterator[Line]:
    plan = cases.plan
    batch, data, micro = int(cases.global_batch), int(plan.data), int(plan.micro_batch)
    copy = plan.tensor * plan.pipeline * plan.context
    yield (
        "devices",
        f"tensor {plan.tensor} x pipeline {plan.pipeline} x context {plan.context} x data {data}"
        f" = {copy * data:,}",
    )
    yield (
        "micro-batches",
        f"{batch:,} sequences / ({data} copies x {micro} at once) = {batch // (data * micro):,}",
    )
    yield (
        "tokens",
        f"{micro} x {int(cases.sequence):,} / context {plan.context} ="
        f" {int(activations.tokens(cases)):,} a rank and micro-batch",
    )
    layers = int(stage_layers(cases))
    yield (
        "layers",
        f"{int(cases.model.layers)} / pipeline {plan.pipeline}: {layers} on the longest stage",
    )


def _step_lines(cases: Cases, constants: Constants, steps: dict[str, float]) -> Iterator[Line]:
    plan, machine = cases.plan, cases.machine
    layers = int(stage_layers(cases))
    turns = max(1, int(cases.global_batch) // (int(plan.data) * int(plan.micro_batch)))
    one = layer_seconds(cases, constants, expert=bool(cases.model.expert_layers))
    forward, backward = float(one.forward), float(one.backward)
    work = f"{turns:,} micro-batches x {layers} layers"
    kind = "a layer of experts" if cases.model.expert_layers else "a layer"
    yield (
        "compute",
        f"{work} x ({short_seconds(forward)} forward + {short_seconds(backward)} backward of"
        f" {kind}; products reach {constants.matrix_share:.0%} of"
        f" {machine.flops_16 / 1e12:,.0f} Tflop/s at best), and summing gradients"
        f" = {short_seconds(steps['compute'])}",
    )
    if steps["recompute"]:
        by_operator = "every operator but attention and every second product"
        some = by_operator if plan.recompute_operators else "attention's core"
        what = "whole layers" if plan.recompute_full else some
        yield "recompute", f"{work}, {what} again = {short_seconds(steps['recompute'])}"
    yield (
        "logits and loss",
        f"{turns:,} micro-batches x {int(activations.tokens(cases)):,} tokens x"
        f" {int(cases.model.vocabulary):,} rows / tensor {plan.tensor}, as far as the last stage is"
        f" the longest = {short_seconds(steps['logits'])}",
    )
    yield from _exchange_lines(cases, constants, steps, (turns, layers))
    if plan.pipeline > 1:
        chunks = int(plan.virtual_stages)
        yield (
            "pipeline bubble",
            f"(pipeline {plan.pipeline} - 1) / {chunks} chunks x a stage's time for one micro-batch"
            f" = {short_seconds(steps['bubble'])}",
        )
    yield from _data_lines(cases, constants, steps)
    yield (
        "waiting",
        f"{constants.jitter:.2%} for each doubling of"
        f" {max(1.0, _devices(cases) / machine.node):,.0f} nodes ="
        f" {short_seconds(steps['jitter'])}",
    )
    yield "a training step", f"all of it = {short_seconds(sum(steps.values()))}"


def _exchange_lines(
    cases: Cases, constants: Constants, steps: dict[str, float], counts: tuple[int, int]
) -> Iterator[Line]:
    plan = cases.plan
    turns, layers = counts
    work = f"{turns:,} micro-batches x {layers} layers"
    stream = float(exchange.stream_bytes(cases))
    if plan.tensor > 1:
        once = float(exchange.tensor_s(cases, constants)) / 4
        times = 12 if plan.recompute_full else 8
        yield (
            "tensor parallel",
            f"{work} x {times} collectives of {format_bytes(stream)} ({short_seconds(once)} each)"
            f" = {short_seconds(steps['tensor'])}",
        )
    if plan.context > 1:
        yield (
            "context parallel",
            f"{work}: keys and values around {plan.context} ranks, behind attention ="
            f" {short_seconds(steps['context'])} exposed",
        )
    if plan.expert > 1:
        once = float(exchange.expert_s(cases, constants))
        yield (
            "expert parallel",
            f"{work} x 2 directions x dispatch and combine of {cases.model.per_token} copies of"
            f" each token over {plan.expert} ranks ({short_seconds(once)}) ="
            f" {short_seconds(steps['expert'])}",
        )
    if plan.pipeline > 1:
        hops = 2 * int(plan.virtual_stages)
        yield (
            "pipeline sends",
            f"{turns:,} micro-batches x {hops} hops of {format_bytes(stream / plan.tensor)},"
            f" {constants.pipeline_exposed:.0%} exposed = {short_seconds(steps['pipeline'])}",
        )


def _data_lines(cases: Cases, constants: Constants, steps: dict[str, float]) -> Iterator[Line]:
    plan = cases.plan
    weights = held(cases)
    mine = float(weights.dense + weights.routed)
    ranks = int(plan.data * plan.context)
    how = {
        0: "all-reduce of gradients, once",
        1: "reduce-scatter of gradients and gather of parameters, once",
        2: "reduce-scatter of gradients and gather of parameters, once",
        3: "2 gathers of parameters and a reduce-scatter, each micro-batch",
    }[int(plan.zero)]
    if ranks > 1:
        yield (
            "data parallel",
            f"{how}: {mine:,.0f} parameters over {ranks:,} ranks, behind the compute where"
            f" {constants.data_hidden:.0%} of it leaves room = {short_seconds(steps['data'])}"
            " exposed",
        )
    state = float(plan.moment_bytes + plan.master_bytes + 4)
    yield (
        "update",
        f"{mine:,.0f} parameters{f' / {int(plan.shard)} ranks' if plan.zero else ''} x"
        f" {state:g} bytes of state, read and written at {constants.hbm_share:.0%} of"
        f" {cases.machine.hbm_bytes_per_s / 1e12:.3g} TB/s = {short_seconds(steps['update'])}",
    )


def _memory_lines(cases: Cases, lines: Mapping[str, float]) -> Iterator[Line]:
    plan = cases.plan
    shard = int(plan.shard)
    widths = {
        "parameters": (float(plan.weight_bits / 8), 3),
        "gradients": (float(np.asarray(usual_gradient_bytes(plan))), 2),
        "optimizer": (float(plan.moment_bytes), 1),
        "master weights": (float(plan.master_bytes), 1),
    }
    for kind, size in lines.items():
        width, stage = widths.get(kind, (0.0, 0))
        text = gigabytes(size)
        if width and size:
            over = f", a share of {shard}" if plan.zero >= stage and shard > 1 else ""
            text = f"{size / width:,.0f} parameters{over} x {width:g} bytes = {text}"
        if size:
            yield kind, text
    total = sum(lines.values())
    yield "all", f"{gigabytes(total)} of {gigabytes(float(cases.machine.memory_bytes))}"


def _training_lines(question: Question, candidate: Candidate) -> Iterator[Line]:
    found, written = candidate.goodput, candidate.checkpoint
    resilience = question.training.resilience
    devices, bill = candidate.devices, candidate.bill
    yield (
        "interruptions",
        f"{resilience.device_mtbf_s / 3600:,.0f} device-hours / {devices:,} devices = one each"
        f" {format_duration(found.mtbf_s)}",
    )
    write_s = written.behind_s or written.blocking_s
    yield (
        "checkpoint",
        f"{format_bytes(written.state_bytes)} / ({devices:,} x"
        f" {format_bytes(float(resilience.storage_bytes_per_s))}/s) = {short_seconds(write_s)}",
    )
    yield (
        "interval",
        "sqrt(2 d M) (1 + sqrt(d/2M)/3 + d/18M) - d with checkpoint d and interruptions M (Daly,"
        f" 2006) = {format_duration(found.interval_s)}",
    )
    yield (
        "goodput",
        f"t / (M exp(R/M) (exp((t + d)/M) - 1)) with interval t and restart R ="
        f" {format_duration(float(resilience.restart_s))} = {found.useful:.2%}",
    )
    tokens = question.training.tokens
    a_step = candidate.global_batch * question.subject.sequence
    yield (
        "time",
        f"{tokens:,} tokens / {a_step:,} a training step x {short_seconds(candidate.step_s)} /"
        f" {found.useful:.2%} = {format_duration(bill.time_s)}",
    )
    prices = {part.pool.price_per_device_hour for part in candidate.parts}
    if len(prices) == 1 and bill.price:
        yield (
            "price",
            f"{bill.device_hours:,.0f} device-hours x {prices.pop():g} ="
            f" {money(bill.price)} {question.grounds.currency}",
        )
    watts = {part.pool.watts for part in candidate.parts}
    if len(watts) == 1:
        yield (
            "energy",
            f"{bill.device_hours:,.0f} device-hours x {watts.pop():,.0f} W x PUE"
            f" {question.training.pue:g} = {bill.energy_kwh:,.0f} kWh",
        )


def _devices(cases: Cases) -> float:
    plan = cases.plan
    return float(plan.tensor * plan.pipeline * plan.context * plan.data)
