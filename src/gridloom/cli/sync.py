"""The sync method of a job that is handed in: chosen where the job says ``auto``, and told."""

from gridloom.cli.sync_words import choice_words, forecast_words, method_words
from gridloom.model.inventory import CPU, Inventory
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.planner.site_sync import choose
from gridloom.planner.sync_forecast import forecast
from gridloom.planner.sync_job import JobSync, job_sync, with_sync

_WORTH_A_WORD = 1.1
"""A method that is so many times sooner at an equal loss is told of."""


def with_chosen_sync(spec: JobSpec, inventory: Inventory) -> JobSpec:
    """Return the job with the method that the planner finds best for its sites and links."""
    asked = _asked(spec, inventory)
    how = SiteSync() if asked is None else choose(asked.situation).best.how
    return with_sync(spec, how)


def sync_rows(spec: JobSpec, inventory: Inventory) -> list[tuple[str, str]]:
    """Return what is told of the method of a job before it is handed in; nothing at one site."""
    asked = _asked(spec, inventory)
    how = spec.options[0].plan.site_sync
    if asked is None:
        return []
    choice = choose(asked.situation)
    if how == choice.best.how:
        rows = [("between sites", choice_words(choice))]
    elif asked.unknown:
        return []  # nothing can be said of a method that somebody else has chosen
    else:
        found = forecast(how, asked.situation)
        rows = [("between sites", f"{method_words(how)}: {forecast_words(found)}")]
        if choice.best.worth > _WORTH_A_WORD * found.worth:
            rows.append(("`sync: auto`", choice_words(choice)))
    if asked.unknown:
        pairs = ", ".join(" and ".join(pair) for pair in asked.unknown)
        said = "the grid does not describe: taken for 100 Mbit/s and 40 ms there and back"
        rows.append(("links", f"{pairs}: {said}"))
    return rows


def _asked(spec: JobSpec, inventory: Inventory) -> JobSync | None:
    step_s = 0.0
    if spec.recipe is not None and spec.options[0].accelerator != CPU:
        from gridloom.cli.predict import step_alone_s  # numpy costs time that others do not need

        step_s = step_alone_s(spec, inventory)
    return job_sync(spec, inventory, step_s)
