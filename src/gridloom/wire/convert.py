"""Documents to nouns: a job file to what the core and the planner see, a grid file to sites."""

from gridloom.model.inventory import Inventory, Link, Node, Site
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import Budget, JobSpec, Option, Program, RetryPolicy, ShapeRequest
from gridloom.wire.command import Command, parse_command
from gridloom.wire.documents_devices import Devices
from gridloom.wire.grid_document import NODE_ADDRESS, GridDocument, SiteDocument
from gridloom.wire.job_document import JobDocument, ModelDocument, steps_of
from gridloom.wire.launch import RECIPE_ARGV

_WARMUP_STEPS_MAX = 20


def to_inventory(grid: GridDocument) -> Inventory:
    """Return the sites and links of ``grid``."""
    return Inventory(
        sites=tuple(_site(name, site) for name, site in grid.sites.items()),
        links=tuple(
            Link(
                between=(link.between[0], link.between[1]),
                bandwidth_bits_per_s=link.bandwidth or 0.0,
                latency_s=link.latency or 0.0,
            )
            for link in grid.links
        ),
        currency=grid.currency,
    )


def to_request(job: JobDocument) -> ShapeRequest:
    """Return what ``job`` says about its shape, for the planner."""
    wanted, parallel = job.resources, job.parallel
    return ShapeRequest(
        accelerator=wanted.accelerators.kind,
        count_min=wanted.accelerators.least,
        count_max=wanted.accelerators.most,
        sites=wanted.sites,
        min_sites=wanted.min_sites,
        max_sites=_max_sites(job),
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        context=parallel.context,
        data=parallel.data,
        sync=job.sync,
        shape=_shape(job.model) if job.model else None,
        training=_training(job) if job.recipe else None,
    )


def to_job_spec(
    job: JobDocument, options: tuple[Option, ...], *, workdir: str, checkpoint_directory: str
) -> JobSpec:
    """Return ``job`` as the core sees it.

    Args:
        job: A document without problems.
        options: What the planner made of ``to_request(job)``.
        workdir: Absolute path in which every rank starts.
        checkpoint_directory: Absolute path for the recipe's checkpoints.
    """
    command = Command(RECIPE_ARGV) if job.run is None else parse_command(job.run)
    return JobSpec(
        name=job.name,
        program=Program(argv=command.argv, workdir=workdir, env=dict(job.env)),
        options=options,
        sites=job.resources.sites,
        min_sites=job.resources.min_sites,
        max_sites=_max_sites(job),
        priority=job.priority,
        grace_s=job.grace,
        retry=_retry(job, command),
        budget=Budget(cost_max=job.budget.max_cost or 0.0, run_s_max=job.budget.max_time or 0.0),
        recipe=_recipe(job, checkpoint_directory) if job.recipe else None,
    )


def _max_sites(job: JobDocument) -> int:
    wanted = job.resources
    return wanted.max_sites or max(len(wanted.sites), wanted.min_sites)


def _retry(job: JobDocument, command: Command) -> RetryPolicy:
    if job.retry is not None:
        return RetryPolicy(
            max_restarts=job.retry.max_restarts,
            on=job.retry.on,
            backoff_s=job.retry.backoff,
            backoff_s_max=job.retry.backoff_max,
        )
    if command.max_restarts is not None:
        return RetryPolicy(max_restarts=command.max_restarts, on="any")
    return RetryPolicy()


def _recipe(job: JobDocument, checkpoint_directory: str) -> GptRecipe:
    assert job.model is not None
    return GptRecipe(
        shape=_shape(job.model),
        data=TextData(text=job.data.text, held_out=job.data.held_out),
        training=_training(job),
        checkpoint=CheckpointPolicy(
            directory=checkpoint_directory,
            interval_steps=job.checkpoint.interval,
            keep=job.checkpoint.keep,
        ),
    )


def _shape(model: ModelDocument) -> GptShape:
    return GptShape(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads or model.heads,
        ffn=model.ffn or 3 * model.hidden,
        tied_embeddings=model.tied_embeddings,
        rope_base=model.rope_base,
    )


def _training(job: JobDocument) -> Training:
    optimizer, batch, length = job.optimizer, job.global_batch or 1, job.sequence_length or 1
    steps = steps_of(job.steps, job.tokens, batch * length)
    least, warmup = optimizer.min_learning_rate, optimizer.warmup_steps
    return Training(
        steps=steps,
        global_batch=batch,
        sequence_length=length,
        micro_batch=job.micro_batch,
        learning_rate=optimizer.learning_rate,
        min_learning_rate=optimizer.learning_rate / 10 if least is None else least,
        warmup_steps=min(_WARMUP_STEPS_MAX, steps // 10) if warmup is None else warmup,
        weight_decay=optimizer.weight_decay,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        clip_norm=optimizer.clip_norm,
        precision=job.precision,
        seed=job.seed,
    )


def _site(name: str, site: SiteDocument) -> Site:
    if site.accelerators is not None:
        nodes: tuple[Node, ...] = (_node(name, NODE_ADDRESS, site.accelerators, 0),)
    else:
        nodes = tuple(
            _node(node_name, node.address, node.accelerators, node.memory or 0)
            for node_name, node in site.nodes.items()
        )
    return Site(
        name=name,
        kind=site.kind,
        nodes=nodes,
        price_per_accelerator_hour=site.price_per_accelerator_hour,
        power_w_per_accelerator=site.power_per_accelerator,
        ports=site.ports,
    )


def _node(name: str, address: str, devices: Devices, memory_bytes: float) -> Node:
    return Node(
        name=name,
        address=address,
        accelerator=devices.kind,
        count=devices.least,
        memory_bytes=int(memory_bytes) // devices.least,
    )
