"""What the fields of a job must be to each other and to the grid, checked on whatever was read."""

from collections.abc import Callable, Iterator

from gridloom.base.errors import Problem
from gridloom.model.inventory import Inventory
from gridloom.model.plan_check import shape_problems
from gridloom.wire.command import parse_command
from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.documents_values import did_you_mean
from gridloom.wire.documents_variables import variable_findings
from gridloom.wire.job_document import JobDocument, steps_of
from gridloom.wire.model_document import ModelDocument, to_shape
from gridloom.wire.parallel_document_check import check_parallel
from gridloom.wire.schedule_document_check import check_schedule, check_schedule_against_grid
from gridloom.wire.sync_document_check import check_sync

RESERVED_ENV = frozenset(
    {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE",
    }
)  # fmt: skip
"""Variables by which a process learns who it is; ``GRIDLOOM_*`` are reserved too."""

RECIPE_FIELDS = (
    "model", "data.text", "data.held_out", "steps", "tokens", "global_batch", "sequence_length",
    "micro_batch", "precision", "device_flops", "optimizer", "seed", "checkpoint",
)  # fmt: skip

Job = Reading[JobDocument]


def check_job(job: Job) -> list[Problem]:
    """Return what does not fit together inside the job."""
    return [problem for check in _CHECKS for problem in job.located(check(job))]


def check_job_against_grid(job: Job, inventory: Inventory) -> list[Problem]:
    """Return what the job names that the grid does not have, by line."""
    problems = job.located(_against_grid(job, inventory))
    return sorted(problems, key=lambda problem: problem.line)


def _against_grid(job: Job, inventory: Inventory) -> Iterator[Finding]:
    names = [site.name for site in inventory.sites]
    for index, name in enumerate(job.value("resources", "sites") or ()):
        if name not in names:
            is_list = job.size("resources", "sites") > 0
            path = ("resources", "sites", index) if is_list else ("resources", "sites")
            remedy = did_you_mean(name, names) or f"the grid has: {', '.join(names)}"
            yield path, f"the grid has no site `{name}`", remedy
    devices = job.value("resources", "accelerators")
    kinds = sorted({node.accelerator for site in inventory.sites for node in site.nodes})
    if devices is not None and devices.kind not in kinds:
        remedy = did_you_mean(devices.kind, kinds) or f"the grid has: {', '.join(kinds)}"
        message = f"the grid has no accelerator of kind `{devices.kind}`"
        yield ("resources", "accelerators"), message, remedy
    fewest = job.value("resources", "min_sites")
    if fewest is not None and fewest > len(names):
        message = f"the job wants {fewest} sites at once, the grid has {len(names)}"
        yield ("resources", "min_sites"), message, f"write at most {len(names)}"
    yield from check_schedule_against_grid(job, inventory)


def _kind_of_work(job: Job) -> Iterator[Finding]:
    if job.given("run") and job.given("recipe"):
        yield ("recipe",), "both `run` and `recipe` are given", "keep one of them"
    elif not job.given("run") and not job.given("recipe"):
        remedy = "write `run: python train.py`, or `recipe: gpt` with its model"
        yield (), "neither `run` nor `recipe` is given", remedy
    elif job.given("run"):
        for name in RECIPE_FIELDS:
            path = tuple(name.split("."))
            if job.given(*path):
                message = "is read with `recipe: gpt` only, and this job has `run`"
                yield path, message, "remove it; tell your program in its command line"


def _command(job: Job) -> Iterator[Finding]:
    text = job.value("run")
    if text is not None:
        for problem in parse_command(text).problems:
            yield ("run",), problem.message, problem.remedy


def _recipe_is_whole(job: Job) -> Iterator[Finding]:
    if not job.given("recipe"):
        return
    for name, example in (
        ("model", "{layers: 4, hidden: 128, heads: 4}"),
        ("global_batch", "32"),
        ("sequence_length", "128"),
    ):
        if not job.given(name):
            yield (name,), "is missing, and `recipe` needs it", f"write `{name}: {example}`"
    if job.given("steps") and job.given("tokens"):
        yield ("tokens",), "both `steps` and `tokens` are given", "keep one of them"
    elif not job.given("steps") and not job.given("tokens"):
        message = "neither `steps` nor `tokens` is given, and `recipe` needs one"
        yield ("steps",), message, "write `steps: 300` or `tokens: 2M`"


def _model(job: Job) -> Iterator[Finding]:
    hidden, heads = job.value("model", "hidden"), job.value("model", "heads")
    kv_heads = job.value("model", "kv_heads")
    if kv_heads and heads and heads % kv_heads:
        message = f"{kv_heads} key and value heads do not divide {heads} heads"
        yield ("model", "kv_heads"), message, f"write a divisor of {heads}"
    if not (hidden and heads):
        return
    if hidden % heads:
        message = f"{heads} heads do not divide the width {hidden}"
        yield ("model", "heads"), message, f"write a divisor of {hidden}"
    elif hidden // heads % 2:
        message = f"the head size {hidden} / {heads} = {hidden // heads} is odd"
        yield ("model", "heads"), message, "rotary positions need an even head size"
    model = job.section(ModelDocument, "model")
    for problem in shape_problems(to_shape(model)) if model is not None else ():
        path = tuple(problem.field.split("."))
        if path[:2] == ("model", "experts"):
            yield path, problem.message, problem.remedy


def _training(job: Job) -> Iterator[Finding]:
    batch, length = job.value("global_batch"), job.value("sequence_length")
    steps = steps_of(job.value("steps"), job.value("tokens"), (batch or 1) * (length or 1))
    warmup = job.value("optimizer", "warmup_steps")
    known = job.value("steps") or (batch and length)
    if warmup is not None and steps and known and warmup >= steps:
        message = f"{warmup} steps of warm-up leave none of {steps} training steps"
        yield ("optimizer", "warmup_steps"), message, f"write less than {steps}"
    peak = job.value("optimizer", "learning_rate")
    least = job.value("optimizer", "min_learning_rate")
    if peak is not None and least is not None and least > peak:
        message = f"{least:g} is above the peak learning rate {peak:g}"
        yield ("optimizer", "min_learning_rate"), message, f"write at most {peak:g}"
    micro = job.value("micro_batch")
    if micro and batch and micro > batch:
        message = f"a micro-batch of {micro} is larger than the global batch of {batch}"
        yield ("micro_batch",), message, f"write at most {batch}, or `auto`"


def _resources(job: Job) -> Iterator[Finding]:
    sites = job.value("resources", "sites") or ()
    fewest, most = job.value("resources", "min_sites"), job.value("resources", "max_sites")
    devices = job.value("resources", "accelerators")
    here = ("resources", "min_sites")
    for index, name in enumerate(sites):
        if name in sites[:index]:
            yield ("resources", "sites", index), f"`{name}` is listed twice", "keep one"
    if fewest is None:
        return
    if most is not None and fewest > most:
        yield here, f"{fewest} is more than `max_sites`, {most}", f"write at most {most}"
    if sites and fewest > len(sites):
        message = f"{fewest} sites at once, but only {len(sites)} are listed in `sites`"
        yield here, message, f"write at most {len(sites)}, or list more sites"
    if devices is not None and 0 < devices.most < fewest:
        message = f"{fewest} sites need at least as many accelerators, the job has {devices.most}"
        yield here, message, "ask for more accelerators or fewer sites"


def _environment(job: Job) -> Iterator[Finding]:
    yield from variable_findings(job.keys("env"), ("env",))
    for name in job.keys("env"):
        if name in RESERVED_ENV or name.startswith("GRIDLOOM_"):
            yield ("env", name), f"gridloom itself sets `{name}` for every rank", "remove it"


def _retry(job: Job) -> Iterator[Finding]:
    first, longest = job.value("retry", "backoff"), job.value("retry", "backoff_max")
    if job.given("retry") and first is not None and longest is not None and first > longest:
        place = "backoff" if job.given("retry", "backoff") else "backoff_max"
        message = f"the first wait of {first:g} s is longer than the longest, {longest:g} s"
        yield ("retry", place), message, "write `backoff` at most `backoff_max`"


_CHECKS: tuple[Callable[[Job], Iterator[Finding]], ...] = (
    _kind_of_work, _command, _recipe_is_whole, _model, _training, _resources, check_parallel,
    _environment, _retry, check_schedule, check_sync,
)  # fmt: skip
