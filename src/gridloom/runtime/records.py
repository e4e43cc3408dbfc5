"""What a run writes for others: report lines, a row of metrics a step, and the result.

In the run directory: ``metrics.jsonl`` (one ``StepMetrics`` a line; a step that a later attempt
repeated appears again with that attempt's number) and ``result.json`` (one ``Result``).
"""

import os
from pathlib import Path

import msgspec

from gridloom.base.codec import decode, encode, pretty

METRICS_FILE = "metrics.jsonl"
SITE_METRICS_FILE = "metrics-{site}.jsonl"
"""Of the other sites than the first, where each has rows of its own."""
RESULT_FILE = "result.json"
RECIPE_FILE = "recipe.json"


class LinkBytes(msgspec.Struct, frozen=True, kw_only=True):
    """What went over the link to one other site, framing included, TCP's own not.

    Attributes:
        sent: Bytes sent to it.
        received: Bytes received from it.
    """

    sent: int = 0
    received: int = 0

    def __add__(self, other: "LinkBytes") -> "LinkBytes":
        return LinkBytes(sent=self.sent + other.sent, received=self.received + other.received)

    def __sub__(self, other: "LinkBytes") -> "LinkBytes":
        return LinkBytes(sent=self.sent - other.sent, received=self.received - other.received)


class SiteMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One site in one training step; seconds are means over the site's ranks.

    The exchange that carries these numbers cannot time itself, so what is not known before it is
    the step before's. Where gradients of several steps are gathered, the row of the update has
    means over these steps.

    Attributes:
        ranks: Ranks at the site.
        tokens: Tokens it trained on in this step.
        compute_s: Forward and backward passes of this step.
        data_s: Fetching the samples of this step.
        within_site_s: Exchange inside the site in the step before, waiting included.
        between_site_s: Exchange between sites in the step before, waiting included.
        checkpoint_s: The checkpoint after the step before; 0 without one.
        forward_s: The forward part of ``compute_s``; ``None`` where stages of a pipeline have the
            passes take turns.
        optimizer_s: Clipping and update in the step before.
        between_site_hidden_s: Travel between sites behind the training, in the step before.
        step_s: All of the step before, without its checkpoint; 0 in the first of an attempt.
    """

    ranks: int
    tokens: int
    compute_s: float
    data_s: float
    within_site_s: float
    between_site_s: float
    checkpoint_s: float
    forward_s: float | None = None
    optimizer_s: float = 0.0
    between_site_hidden_s: float = 0.0
    step_s: float = 0.0


class RoundMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One outer round, as the result was taken in at a site.

    Attributes:
        round: Its number, from 1.
        fragment: Which part of the parameters.
        sites: Whose offers were averaged.
        norm: Of the averaged pseudo-gradient.
        cosine: Between the pseudo-gradients of two sites; ``None`` if they did not come apart.
        stale_steps: Training steps from this site's offer to the result taken in.
        epsilon: What this site's updates had told about it by then; ``None`` where it is not
            counted.
    """

    round: int
    fragment: int
    sites: tuple[str, ...]
    norm: float
    cosine: float | None
    stale_steps: int
    epsilon: float | None = None


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One training step, seen by the first rank of a site.

    Where sites exchange gradients, ``loss``, ``tokens`` and bytes are those of all sites whose
    gradients are in the update; otherwise, and in steps without an update, of this site alone.

    Seconds are those of the rank that writes, and its parts do not overlap: ``step_s`` is the sum
    of ``data_s``, ``compute_s``, ``within_site_s``, ``between_site_s``, ``optimizer_s`` and
    ``other_s``. On an accelerator the parts are its own time, and what it has not come to yet
    stands in the next row. Hidden seconds lie behind the others, and are in none of them.

    Attributes:
        attempt: The attempt that ran the step.
        step: Its number, from 1.
        loss: Mean over tokens, nats a token.
        learning_rate: Used in this step.
        grad_norm: Global norm before clipping; ``None`` in steps without an update.
        tokens: Tokens of this step.
        tokens_per_s: ``tokens / step_s``.
        step_s: The step without its checkpoint.
        compute_s: Forward and backward passes, with what sums and exchanges ranks do in them.
        within_site_s: Exchange inside the site after them, waiting for slower ranks included.
        between_site_s: Exchange between the sites while the training stands still for it: work on
            payloads, and waiting, for slower sites too.
        data_s: Fetching the samples.
        within_sites_bytes: Bytes sent inside sites since the same count of the row before, as
            measured; ``None`` where the system does not count. The last step's exchange is in
            the result only.
        between_sites_bytes: The same between sites.
        sites: By name, the sites whose numbers are known.
        now_s: When the step ended, seconds since the Unix epoch.
        checkpoint_s: The checkpoint after this step; 0 without one.
        rounds: Outer rounds whose result was taken in after this step.
        forward_s: The forward part of ``compute_s``; ``None`` where stages of a pipeline have the
            passes take turns.
        backward_s: The rest of it, with recomputed activations, and with encoding what is sent to
            other sites during the pass.
        optimizer_s: Clipping, with the norm over the site's ranks, and the update.
        other_s: What is none of these.
        within_site_hidden_s: Sums over the site's ranks that were on their way while the passes
            went on; ``None`` where that cannot be told: where weights or layers are cut over the
            ranks the exchange is inside the passes, and on an accelerator in its own queue.
        between_site_hidden_s: Travel between sites, by the connections, while the training went on.
        mfu: Share of the devices' peak rate that model flops took; ``None`` without a peak.
        links: By other site, what went over the link since the row before; those of the site that
            writes.
    """

    attempt: int
    step: int
    loss: float
    learning_rate: float
    grad_norm: float | None
    tokens: int
    tokens_per_s: float
    step_s: float
    compute_s: float
    within_site_s: float
    between_site_s: float
    data_s: float
    within_sites_bytes: int | None
    between_sites_bytes: int | None
    sites: dict[str, SiteMetrics]
    now_s: float
    checkpoint_s: float = 0.0
    rounds: tuple[RoundMetrics, ...] = ()
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float = 0.0
    other_s: float = 0.0
    within_site_hidden_s: float | None = None
    between_site_hidden_s: float = 0.0
    mfu: float | None = None
    links: dict[str, LinkBytes] = msgspec.field(default_factory=dict)


class ByteCount(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes sent in the training steps of one attempt, all ranks together.

    Attributes:
        predicted: From the shape, the cut and the sync alone; ``None`` where nothing is foreseen.
        measured: By the counters of the kernel and of the connections; ``None`` where there are
            none.
    """

    predicted: int | None
    measured: int | None


class ResultBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic of the training steps.

    Attributes:
        steps: Training steps that the counts are for: the last attempt's.
        within_sites: Inside sites.
        between_sites: Between sites.
    """

    steps: int
    within_sites: ByteCount
    between_sites: ByteCount


class ResultMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the process that used most.

    Attributes:
        peak_bytes_per_rank: Highest resident memory (on a GPU: highest allocated there).
        before_model_bytes_per_rank: Resident memory with libraries and data, before the model.
    """

    peak_bytes_per_rank: int
    before_model_bytes_per_rank: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a training ended.

    Attributes:
        attempt: The attempt that finished it.
        steps: Training steps in all.
        loss_first: Of the first training step, whichever attempt ran it.
        loss_last: Of the last.
        bits_per_byte: On the held-out files; ``None`` when nothing is held out.
        bigram_bits_per_byte: The baseline on the same files.
        held_out_files: Their number.
        held_out_bytes: Their size.
        parameters: Of the model.
        tokens: Trained on in all steps, all attempts' together.
        bytes: Traffic.
        memory: Memory.
        train_s: Seconds in this attempt's training steps, checkpoints included.
        evaluate_s: Seconds of the evaluation.
        ranks: Ranks of this attempt.
        sites: Ranks of every site.
        flops_per_token: Model flops, forward and backward; 0 where nobody has counted.
        device_flops: Peak rate of the first rank's device that MFU is a share of, in flop/s;
            ``None`` without one.
    """

    attempt: int
    steps: int
    loss_first: float | None
    loss_last: float | None
    bits_per_byte: float | None
    bigram_bits_per_byte: float | None
    held_out_files: int
    held_out_bytes: int
    parameters: int
    tokens: int
    bytes: ResultBytes
    memory: ResultMemory
    train_s: float
    evaluate_s: float
    ranks: int
    sites: dict[str, int]
    flops_per_token: int = 0
    device_flops: float | None = None


def metrics_file(site: str, number: int) -> str:
    """Return where a site writes its rows of metrics, if it does, by its place in the job."""
    return METRICS_FILE if number == 0 else SITE_METRICS_FILE.format(site=site)


def append_line(path: Path, record: msgspec.Struct) -> None:
    """Append one JSON line in one write, so that a reader never sees two lines mixed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, encode(record) + b"\n")
    finally:
        os.close(descriptor)


def first_and_last_loss(run_dir: Path) -> tuple[float, float] | None:
    """Return the losses of the first and the last row of metrics, ``None`` when there is none."""
    try:
        rows = (run_dir / METRICS_FILE).read_bytes().splitlines()
        first, last = (decode(row, StepMetrics).loss for row in (rows[0], rows[-1]))
    except (OSError, IndexError, msgspec.DecodeError):
        return None
    return first, last


def write_result(run_dir: Path, result: Result) -> None:
    """Write ``result.json`` so that it is there in full or not at all."""
    temporary = run_dir / f"{RESULT_FILE}.tmp"
    temporary.write_text(pretty(result))
    temporary.replace(run_dir / RESULT_FILE)
