"""What the fields of a job's `sync` must be to each other, checked on whatever was read."""

from collections.abc import Iterator
from typing import Any

from gridloom.model.parallel import CODEC_BITS, MASKED_SITES_MIN, WHOLE_GRADIENT_CODECS
from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.job_document import JobDocument
from gridloom.wire.parallel_document_check import sites_of
from gridloom.wire.sync_document import SyncDocument, usual_codec

Job = Reading[JobDocument]

_ONLY_OUTER = ("fragments", "outer_learning_rate", "outer_momentum", "privacy")
_ONLY_CODECS = {
    "share": ("top_k", "deep"),
    "warm_up": ("deep",),
    "momentum": ("deep",),
    "rank": ("low_rank",),
}
_WHOLE_BITS = (32,)


def check_sync(job: Job) -> Iterator[Finding]:
    """Yield what does not fit together."""
    kind = _kind(job)
    if kind == "auto":
        yield from _auto(job)
    elif kind is not None:
        yield from _every(job, kind)
        yield from _codec(job, kind)
        if kind == "outer" and _given(job, "privacy"):
            yield from _privacy(job)
        for name in _ONLY_OUTER:
            if kind != "outer" and _given(job, name):
                yield ("sync", name), f"is for `outer`, and this is `{kind}`", "leave it out"


def _kind(job: Job) -> str | None:
    """Return the kind that is meant; None when what is written is none."""
    said = job.raw("sync")
    if isinstance(said, str):
        return said
    if isinstance(said, dict) and _given(job, "accumulate") and not _given(job, "kind"):
        return "accumulated"
    kind: str | None = job.value("sync", "kind")
    return kind


def _auto(job: Job) -> Iterator[Finding]:
    for name in SyncDocument.model_fields:
        if name != "kind" and _given(job, name):
            remedy = "leave it out, or write a kind, as `outer`"
            yield ("sync", name), "is chosen by `auto`", remedy
    if job.given("run"):
        message = "`auto` is chosen by the size of the recipe's model, and this job has `run`"
        yield ("sync",), message, "write `outer`, which goes by what the link can carry, or another"


def _every(job: Job, kind: str) -> Iterator[Finding]:
    every, here = _value(job, "every"), ("sync", "every")
    if _given(job, "accumulate"):
        if kind != "accumulated":
            remedy = "leave it out, or leave `kind` out"
            yield ("sync", "accumulate"), f"is another kind than `{kind}`", remedy
        elif _given(job, "every"):
            yield here, "is what `accumulate` says, too", "keep one of them"
    elif kind == "accumulated" and every is None:
        if not _given(job, "every"):
            message = "`accumulated` needs the training steps from one exchange to the next"
            yield ("sync",), message, "write `sync: {accumulate: 8}`"
    elif kind == "every_step" and every not in (None, 1):
        message = f"{every} training steps, and `every_step` exchanges at each"
        yield here, message, "write `kind: accumulated` or `kind: outer`"
    elif every == 0 and kind != "outer":
        yield here, f"found `0`, which is for `outer`, and this is `{kind}`", "write 1 or more"
    fragments = _value(job, "fragments")
    if kind == "outer" and every and fragments and fragments > every:
        message = f"{fragments} fragments cannot be exchanged one after the other in {every} steps"
        yield ("sync", "fragments"), message, f"write at most {every}"


def _codec(job: Job, kind: str) -> Iterator[Finding]:
    bits = _value(job, "bits")
    if (_given(job, "codec") and _value(job, "codec") is None) or (
        _given(job, "bits") and bits is None
    ):
        return  # said already
    masked = _given(job, "privacy") and bool(job.value("sync", "privacy", "masked"))
    codec = _value(job, "codec") or usual_codec(kind, bits, masked=masked)
    if kind == "outer" and masked and (codec, bits or 32) != ("plain", 32):
        where = "codec" if _given(job, "codec") else "bits"
        message = "sums under masks are of whole numbers of 32 bits"
        yield ("sync", where), message, "leave `codec` and `bits` out"
    right = CODEC_BITS[codec]
    here = ("sync", "bits")
    if bits is not None and right == _WHOLE_BITS:
        yield here, f"is not for `{codec}`, whose numbers have 32", "leave it out"
    elif bits is not None and bits not in right:
        *first, last = right if _given(job, "codec") else CODEC_BITS["top_k"]
        options = f"{', '.join(map(str, first))} or {last}"
        of = f" with the codec `{codec}`" if _given(job, "codec") else ""
        yield here, f"{bits} bits cannot be{of}", f"write {options}"
    for name, only in _ONLY_CODECS.items():
        if codec not in only and _given(job, name):
            message = f"is for `{'` and `'.join(only)}`, and the codec is `{codec}`"
            yield ("sync", name), message, "leave it out"
    beta1 = job.value("optimizer", "beta1") if codec == "deep" and job.given("recipe") else 0
    momentum = _value(job, "momentum")
    if beta1 and (momentum is None or momentum):
        message = f"`deep` gathers the momentum, and AdamW would once more by its beta1, {beta1:g}"
        yield ("sync", "codec"), message, "write `momentum: 0`, or `beta1: 0` of the `optimizer`"
    if codec in WHOLE_GRADIENT_CODECS and kind == "outer":
        message = f"`{codec}` works on whole gradients, not on what `outer` exchanges"
        yield ("sync", "codec"), message, "write `blocks`"


def _privacy(job: Job) -> Iterator[Finding]:
    fewest, most = sites_of(job)
    if job.value("sync", "privacy", "masked") and fewest < MASKED_SITES_MIN and most > 1:
        message = "a sum over 2 sites tells each of them the other's update"
        remedy = f"write `min_sites: {MASKED_SITES_MIN}`, or add noise instead"
        yield ("sync", "privacy", "masked"), message, remedy
    noise = job.value("sync", "privacy", "noise_multiplier")
    if noise and not job.value("sync", "privacy", "clip_norm"):
        message = "noise hides only what has a largest norm"
        yield ("sync", "privacy"), message, "give `clip_norm`, as 1.0"


def _given(job: Job, name: str) -> bool:
    return isinstance(job.raw("sync"), dict) and job.given("sync", name)


def _value(job: Job, name: str) -> Any:
    return job.value("sync", name) if _given(job, name) else None
