"""``gridloom plan``: asks, and shows the best plans, where their time and memory go, and why."""

from rich.console import Console

from gridloom.cli.output import console, emit, pairs, say
from gridloom.cli.plan_explain import explanation
from gridloom.cli.plan_figures import Candidate, as_json, cases_in
from gridloom.cli.plan_flags import Aims, Asked, Terms
from gridloom.cli.plan_inputs import Faults, read_pins
from gridloom.cli.plan_search import Answer, Question, answer, read_question
from gridloom.cli.plan_sync import show_sync, sync_as_json, sync_fact
from gridloom.cli.plan_table import (
    memory_rows,
    plans_table,
    shares_table,
    step_rows,
)
from gridloom.cli.plan_trust import costs_of
from gridloom.cli.plan_verdict import verdict_as_json, verdict_of, verdict_text
from gridloom.cli.plan_words import (
    gigabytes,
    goodput_sentences,
    plan_words,
    same_for_all,
    shared_sentence,
    short_seconds,
    training_sentence,
    trust_sentence,
)
from gridloom.planner.models.parameters import count_parameters


def show_best(
    asked: Asked,
    aims: Aims,
    terms: Terms,
    *,
    explain: bool,
    why_not: str,
    pareto: bool,
    as_json: bool,
) -> int:
    """Answer ``gridloom plan``."""
    question = read_question(asked, aims, terms)
    faults = Faults()
    pins = read_pins("--why-not", why_not, faults)
    faults.need(
        "--why-not",
        pins or not why_not or faults.problems,
        "names nothing",
        "write values, as tp=8,pp=1",
    )
    faults.end()
    found = answer(question, front=pareto or as_json)
    verdict = verdict_of(question, found, pins) if pins else None
    if as_json:
        told = answer_as_json(question, found)
        if verdict is not None:
            told["why_not"] = verdict_as_json(verdict)
        if explain:
            told["explanation"] = [
                {"about": title, "lines": [list(line) for line in lines]}
                for title, lines in explanation(question, found.best[0])
            ]
        emit(told)
        return 0
    out = console()
    if verdict is not None:
        verdict_text(out, verdict, plain=plain(out))
        return 0
    show_answer(out, question, found, pareto=pareto)
    if explain:
        show_explanation(out, question, found.best[0])
    return 0


def plain(out: Console) -> bool:
    """Return whether the output knows no block characters."""
    return not (out.encoding or "").lower().startswith("utf")


def show_answer(out: Console, question: Question, found: Answer, *, pareto: bool) -> None:
    """Print the table of the best plans and what is to be told of the first."""
    model, grounds = question.subject.model, question.grounds
    weights = count_parameters(model)
    active = f", {weights.active / 1e9:.1f}B active" if model.experts else ""
    say(
        f"{model.name}: {weights.main / 1e9:.1f}B parameters{active}; sequences of"
        f" {question.subject.sequence:,} tokens; {grounds.source}"
    )
    if grounds.skipped:
        say(f"left out, as the planner does not know them: {', '.join(grounds.skipped)}")
    shown = found.front if pareto else found.best
    title = "no other plan beats these in time and price" if pareto else _title(question)
    alone = " on one pool" if len(grounds.pools) > 1 else ""
    counts = found.counts
    say(f"{title} ({counts.evaluated:,} plans{alone}, {counts.fitting:,} fit)")
    if not counts.fitting:  # what is shown is over several pools
        say("the model fits at none of them alone: stages of one pipeline over several are left")
    out.print()
    stated = question.training.stated
    out.print(plans_table(shown, currency=grounds.currency, stated=stated, plain=plain(out)))
    out.print()
    common = same_for_all(shown)
    if common:
        say(f"in all of them: {common}")
    if not pareto:
        _show_first(out, question, found.best[0])


def _title(question: Question) -> str:
    return {
        "time": "fastest plans",
        "price": "cheapest plans",
        "energy": "plans with least energy",
        "deadline": "cheapest plans within the deadline",
    }[question.goal.objective]


def _show_first(out: Console, question: Question, first: Candidate) -> None:
    space = question.space(first.parts[0].pool)
    costs = costs_of([part.pool for part in first.parts], question.trust)
    part = first.fullest
    words = "; ".join(plan_words(one) for one in first.parts)
    out.print(f"\nplan 1: {words}", soft_wrap=not out.is_terminal)
    if first.way == "one_pool":
        cases = cases_in(space, part.pool, part.plan, first.global_batch)
        rows = step_rows(costs.step_lines(cases))
        head = f"a training step: {short_seconds(first.step_s)}"
        out.print(shares_table(rows, heads=(head, "time"), plain=plain(out)))
        stage, lines = costs.memory_lines(cases)
        head = f"memory on stage {stage + 1} of {part.plan.pipeline}, the fullest"
        out.print()
        out.print(shares_table(memory_rows(lines), heads=(head, "size"), plain=plain(out)))
        out.print()
    out.print(pairs(_facts(question, first)))


def _facts(question: Question, first: Candidate) -> list[tuple[str, str]]:
    part = first.fullest
    kind = part.pool.accelerator
    free = kind.memory_bytes - part.memory_bytes
    training = question.training
    whole = training_sentence(
        first, question.grounds.currency, training.tokens, stated=training.stated
    )
    together = [] if first.way == "one_pool" else [("together", shared_sentence(first))]
    families = dict.fromkeys(one.pool.accelerator.family for one in first.parts)
    rows = [
        *together,
        (
            "memory",
            f"{gigabytes(part.memory_bytes)} of {gigabytes(kind.memory_bytes)}, {gigabytes(free)}"
            " free",
        ),
        *sync_fact(question, first),
        *goodput_sentences(first),
        ("training", whole),
    ]
    for family in families:
        error = question.trust.error(family)
        rows.append(("step time", trust_sentence(error, family, question.trust.source)))
    return rows


def answer_as_json(question: Question, found: Answer) -> dict[str, object]:
    """Return what machines are told."""
    model, training = question.subject.model, question.training
    weights = count_parameters(model)
    return {
        "model": {
            "name": model.name,
            "parameters": int(weights.main),
            "active_parameters": int(weights.active),
        },
        "sequence_length": question.subject.sequence,
        "tokens": training.tokens if training.stated else None,
        "figures_for_tokens": training.tokens,
        "grid": question.grounds.source,
        "currency": question.grounds.currency,
        "objective": question.goal.objective,
        "head_room": question.head_room,
        "plans": [_with_lines(question, candidate) for candidate in found.best],
        "front": [as_json(candidate) for candidate in found.front],
        "counts": {
            "asked": found.counts.asked,
            "pruned": {rule.value: count for rule, count in sorted(found.counts.pruned.items())},
            "evaluated": found.counts.evaluated,
            "fitting": found.counts.fitting,
            "accepted": found.counts.accepted,
        },
        "step_time_error": {
            family: {"share": error.share or None, "runs": error.runs, "groups": error.groups}
            for pool in question.grounds.pools
            for family in (pool.accelerator.family,)
            for error in (question.trust.error(family),)
        },
        "constants": question.trust.source,
    }


def _with_lines(question: Question, candidate: Candidate) -> dict[str, object]:
    told = as_json(candidate)
    told["sync"] = sync_as_json(question, candidate)
    if candidate.way == "one_pool":
        part = candidate.parts[0]
        space = question.space(part.pool)
        costs = costs_of([part.pool], question.trust)
        cases = cases_in(space, part.pool, part.plan, candidate.global_batch)
        stage, lines = costs.memory_lines(cases)
        told["step_lines_s"] = dict(costs.step_lines(cases))
        told["memory_lines_bytes"] = {"stage": stage, **lines}
    return told


def show_explanation(out: Console, question: Question, first: Candidate) -> None:
    """Print the arithmetic behind the first plan."""
    for title, lines in explanation(question, first):
        out.print(f"\n{title}", style="bold")
        out.print(pairs([(name, f"{formula}") for name, formula in lines]))
    show_sync(out, question, first)
