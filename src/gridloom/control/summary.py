"""What a job came to: one object for `summary.json`, the end of `run`, and `--json` (pure)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gridloom.control.metrics import number
from gridloom.control.time_spent import time_by_site
from gridloom.model.inventory import Inventory
from gridloom.model.life import Attempt, Job, SiteUse
from gridloom.model.parallel import SiteSync
from gridloom.model.reason import Reason
from gridloom.planner.collective import bucket_bytes, bytes_per_step
from gridloom.planner.shape import parameter_count

Metric = Mapping[str, Any]


def summary(
    job: Job,
    metrics: Sequence[Metric],
    result: Mapping[str, Any],
    inventory: Inventory | None,
    *,
    others: Mapping[str, Sequence[Metric]] | None = None,
    used: Sequence[SiteUse] = (),
) -> dict[str, Any]:
    """Return the summary of a job; `docs/how/files.md` documents its shape.

    Args:
        job: As the core knows it.
        metrics: Lines of ``metrics.jsonl``, oldest first.
        result: What the training program wrote at its end; may be empty.
        inventory: The grid, for the currency and the power of its sites.
        others: Lines of ``metrics-<site>.jsonl``, by site.
        used: What the sites' own accounts say.
    """
    kept = newest_by_step(metrics)
    steps = max([*kept, *(attempt.last_step for attempt in job.attempts)], default=0)
    speeds, uses = (
        [metric[name] for metric in kept.values() if metric.get(name)]
        for name in ("tokens_per_s", "mfu")
    )
    return {
        "job": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "reason": _reason(job.reason),
        "attempts": [_attempt(attempt, metrics, used) for attempt in job.attempts],
        "evictions": job.evictions,
        "steps": steps,
        "steps_repeated": len(metrics) - len(kept),
        "checkpoint_step": job.checkpoint_step,
        "loss": _loss(kept),
        "bits_per_byte": result.get("bits_per_byte"),
        "bigram_bits_per_byte": result.get("bigram_bits_per_byte"),
        "tokens_per_s": _median(speeds),
        "mfu": _median(uses),
        "step_s": _step_s(job, kept),
        "time": time_by_site(metrics, others or {}),
        "sites": _sites(job),
        "bytes": _bytes(job, metrics, result),
        "memory_bytes_per_rank": _memory(job, result),
        "run_s": round(job.run_s, 3),
        "cost": _cost(job, inventory),
        "energy_wh": _energy_wh(job, inventory),
    }


def newest_by_step(metrics: Sequence[Metric]) -> dict[int, Metric]:
    """Return the last line of every training step: an attempt repeats steps after a failure."""
    kept: dict[int, Metric] = {}
    for metric in metrics:
        kept[metric["step"]] = metric
    return dict(sorted(kept.items()))


def _attempt(
    attempt: Attempt, metrics: Sequence[Metric], used: Sequence[SiteUse]
) -> dict[str, Any]:
    outcome = attempt.outcome
    # Reports are thinned on their way to the core; the metrics have every training step
    steps = [metric["step"] for metric in metrics if metric["attempt"] == attempt.number]
    return {
        "number": attempt.number,
        "started_s": attempt.started_s,
        "ended_s": attempt.ended_s or None,
        "queued_s": _queued_s(attempt),
        "resumed": attempt.resumed,
        "resumed_step": attempt.resumed_step,
        "notes": list(attempt.notes),
        "site_restarts": {
            task.placement.site: task.life - 1 for task in attempt.tasks.values() if task.life > 1
        },
        "first_step": min(steps, default=attempt.first_step) or None,
        "last_step": max(steps, default=attempt.last_step) or None,
        "checkpoint_step": attempt.checkpoint_step or None,
        "ended_because": outcome.code.value if outcome else None,
        "sentence": outcome.sentence if outcome else None,
        "used": [_used(use) for use in used if use.attempt == attempt.number],
    }


def _queued_s(attempt: Attempt) -> float | None:
    """Return how long it waited in queues of its sites; nothing when it did not, or does still."""
    until_s = attempt.ended_s if attempt.is_queued else attempt.queued_until_s
    return round(until_s - attempt.started_s, 3) if until_s else None


def _used(use: SiteUse) -> dict[str, Any]:
    return {
        "site": use.site,
        "site_job": use.site_job,
        "elapsed_s": use.elapsed_s,
        "cpu_s": round(use.cpu_s, 3),
        "max_rss_bytes": use.max_rss_bytes or None,
        "energy_wh": round(use.energy_j / 3600, 3) or None,
    }


def _reason(reason: Reason | None) -> dict[str, str] | None:
    if reason is None:
        return None
    return {"code": reason.code.value, "sentence": reason.sentence, "remedy": reason.remedy}


def _loss(kept: Mapping[int, Metric]) -> dict[str, float] | None:
    losses = [metric["loss"] for metric in kept.values() if metric.get("loss") is not None]
    return {"first": losses[0], "last": losses[-1]} if losses else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _step_s(job: Job, kept: Mapping[int, Metric]) -> dict[str, float | None]:
    option = job.attempts[-1].placement.option if job.attempts else job.spec.options[0]
    measured = [metric["step_s"] for metric in kept.values() if metric.get("step_s")]
    return {"predicted": option.step_s or None, "measured": _median(measured)}


def _sites(job: Job) -> dict[str, Any]:
    if not job.attempts:
        return {}
    sites: dict[str, Any] = {}
    first_rank = 0
    for task in job.attempts[-1].placement.tasks:
        ranks = list(range(first_rank, first_rank + len(task.devices)))
        first_rank += len(ranks)
        site = sites.setdefault(task.site, {"ranks": [], "nodes": {}})
        site["ranks"] += ranks
        site["nodes"][task.node] = list(task.devices)
    return sites


def _bytes(job: Job, metrics: Sequence[Metric], result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the training program says at its end; before, predicted from the shape alone.

    Where gradients are not exchanged whole at every step, only the program can foresee them.
    """
    if job.spec.recipe is None or not job.attempts or not metrics:
        return None
    weights = parameter_count(job.spec.recipe.shape)
    site_ranks = [count for _, count in job.attempts[-1].placement.site_ranks()]
    step = bytes_per_step(bucket_bytes(weights, len(site_ranks)), site_ranks)
    told = _object(result.get("bytes"))
    steps = told.get("steps", len(metrics))
    predicted: dict[str, int | None] = {"within_sites": None, "between_sites": None}
    plan = job.attempts[-1].placement.option.plan
    if plan.site_sync == SiteSync():
        predicted["between_sites"] = step.between_sites * steps
        if not plan.is_spread:
            predicted["within_sites"] = step.within_sites * steps
    return {
        "steps": steps,
        **{
            where: {
                "predicted": _object(told.get(where)).get("predicted", count),
                "measured": _object(told.get(where)).get("measured"),
            }
            for where, count in predicted.items()
        },
        "links": _links(metrics),
    }


def _links(metrics: Sequence[Metric]) -> dict[str, dict[str, int]]:
    """Return the bytes of the last attempt by the other site that they went to or came from."""
    found: dict[str, dict[str, int]] = {}
    for metric in metrics:
        if metric["attempt"] != metrics[-1]["attempt"]:
            continue
        for site, link in _object(metric.get("links")).items():
            counts = found.setdefault(site, {"sent": 0, "received": 0})
            for way in counts:
                counts[way] += int(number(_object(link).get(way)))
    return found


def _memory(job: Job, result: Mapping[str, Any]) -> dict[str, Any]:
    """What the model takes on the rank that takes most: the process without it does not count."""
    option = job.attempts[-1].placement.option if job.attempts else job.spec.options[0]
    seen = _object(result.get("memory"))
    peak, before = seen.get("peak_bytes_per_rank"), seen.get("before_model_bytes_per_rank")
    measured = peak - before if peak is not None and before is not None else None
    return {"predicted": option.memory_bytes or None, "measured": measured, "process": peak}


def _cost(job: Job, inventory: Inventory | None) -> dict[str, Any]:
    price = job.attempts[-1].placement.price_per_hour if job.attempts else 0.0
    currency = inventory.currency if inventory else "USD"
    return {"amount": round(job.cost, 6), "per_hour": price, "currency": currency}


def _energy_wh(job: Job, inventory: Inventory | None) -> float | None:
    """Watt hours by the sites' stated power per busy device: an estimate, not a meter's reading."""
    if inventory is None or not job.attempts:
        return None
    power_w = {site.name: site.power_w_per_accelerator for site in inventory.sites}
    total_w = sum(
        power_w.get(task.site, 0.0) * len(task.devices) for task in job.attempts[-1].placement.tasks
    )
    return round(total_w * job.run_s / 3600, 3) if total_w else None
