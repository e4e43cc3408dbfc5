"""Whether a job's model and devices can be cut as its `parallel` says, checked on what was read."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gridloom.base.errors import Problem
from gridloom.model.inventory import CPU
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import (
    copies_problems,
    cut_problems,
    length_problems,
    shape_problems,
)
from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.job_document import JobDocument
from gridloom.wire.model_document import ModelDocument, to_shape
from gridloom.wire.parallel_document import ParallelDocument, is_open, to_plan

Job = Reading[JobDocument]


def check_parallel(job: Job) -> Iterator[Finding]:
    """Yield what does not fit together; what depends on how many devices there are, if known.

    Of a range of devices, those numbers are offered that can be (`planner.options`).
    """
    said = job.section(ParallelDocument, "parallel")
    if said is None:
        return
    plan, sites = to_plan(said), 1
    if job.given("recipe"):
        yield from _cut(job, plan)
        if plan.is_spread:
            fewest, most = sites_of(job)
            if fewest != most:
                yield _uneven(fewest, most)
                return
            sites = most
    yield from _devices(job, said, plan, sites)


def sites_of(job: Job) -> tuple[int, int]:
    """Return at how many sites the job runs, at least and at most."""
    fewest = job.value("resources", "min_sites") or 1
    listed = job.value("resources", "sites") or ()
    most = job.value("resources", "max_sites") or max(len(listed), fewest)
    return fewest, max(most, fewest)


def _uneven(fewest: int, most: int) -> Finding:
    message = (
        "a model is cut over the ranks of a site, so all sites must have as many, and this job"
        f" may run at {fewest} to {most} sites"
    )
    remedy = f"write `min_sites: {most}`, or `max_sites: {fewest}`"
    return ("resources", "min_sites"), message, remedy


def _cut(job: Job, plan: ParallelPlan) -> Iterator[Finding]:
    """Yield why the recipe's model cannot be cut so, on any number of devices."""
    model = job.section(ModelDocument, "model")
    shape = to_shape(model) if model is not None else None
    if shape is not None and not shape_problems(shape):
        yield from _findings(cut_problems(plan, shape))
    if length := job.value("sequence_length"):
        yield from _findings(length_problems(plan, length))
    codec = job.value("sync", "codec") if isinstance(job.raw("sync"), dict) else None
    if plan.zero and codec == "low_rank" and sites_of(job)[1] > 1:
        message = "`low_rank` works on whole matrices, and with `zero` ranks have parts of them"
        yield ("sync", "codec"), message, "write `blocks` or `top_k`, or leave `zero` out"


def _devices(job: Job, said: ParallelDocument, plan: ParallelPlan, sites: int) -> Iterator[Finding]:
    """Yield why the devices are no copies of the model, or the copies cannot share the work."""
    devices = job.value("resources", "accelerators")
    if devices is None:
        return
    unit = plan.replica_ranks * sites
    pinned = plan.replica_ranks * said.data
    if devices.most and devices.most - devices.most % unit < devices.least:
        message = (
            f"a copy of the model takes {plan.replica_ranks} devices (tensor x pipeline x context)"
        )
        even = f", and {sites} sites have as many of them each" if sites > 1 else ""
        yield ("parallel",), message + even, f"ask for a multiple of {unit} accelerators"
    elif pinned and (pinned < devices.least or 0 < devices.most < pinned):
        message = f"the degrees make {pinned} devices, which `accelerators` does not allow"
        remedy = f"ask for `{devices.kind}:{pinned}`, or write `auto`"
        yield ("parallel", "data"), message, remedy
    elif said.data % sites:
        message = f"{said.data} copies cannot be shared evenly among {sites} sites"
        yield ("parallel", "data"), message, f"write a multiple of {sites}"
    elif job.given("recipe") and (devices.kind == CPU or not is_open(said)):
        # else the planner may find a cut with fewer copies; it has no data sheet of CPUs
        exact = pinned or (devices.least if devices.least == devices.most else 0)
        fewest = -(-devices.least // plan.replica_ranks)
        if exact:
            yield from _copies(job, replace(plan, data=exact // plan.replica_ranks), sites)
        else:
            yield from _copies(job, ParallelPlan(data=fewest), 1)


def _copies(job: Job, plan: ParallelPlan, sites: int) -> Iterator[Finding]:
    """Yield why so many copies, over all sites, cannot be or cannot share the batch."""
    batch = job.value("global_batch") or plan.data  # one that goes, where none is known
    micro = job.value("micro_batch") or 0
    for path, message, remedy in _findings(copies_problems(plan, sites, batch, micro)):
        is_written = path != ("micro_batch",) or job.given(*path)
        yield (path if is_written else ("parallel", "pipeline")), message, remedy


def _findings(problems: Sequence[Problem]) -> Iterator[Finding]:
    for problem in problems:
        yield tuple(problem.field.split(".")), problem.message, problem.remedy
