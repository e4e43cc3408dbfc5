"""What a job file says of its copies at different sites: how they stay one model."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gridloom.model.parallel import (
    OUTER_FRAGMENTS,
    Auto,
    Codec,
    SitePrivacy,
    SiteSync,
    SyncKind,
)
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_values import Choice, Flag, Quantity, Whole, found, wrong

_KIND = Choice(("every_step", "accumulated", "outer", "auto"))
_USUAL = SiteSync()
_PLAIN = ("share", "warm_up", "momentum", "rank", "fragments", "outer_learning_rate",
          "outer_momentum")  # fmt: skip
"""Fields that mean what they say; left out, they are as ``SiteSync`` has them."""


class PrivacyDocument(Document):
    """What of a site's update the others may see."""

    masked: Annotated[
        bool,
        Flag(),
        Field(description="Updates are added up under masks: nobody sees one alone."),
    ] = False
    clip_norm: Annotated[
        float,
        Quantity("a number"),
        Field(description="To which a site's update is clipped; 0: not at all."),
    ] = 0.0
    noise_multiplier: Annotated[
        float,
        Quantity("a number"),
        Field(description="Deviation of the noise in each of its numbers, over `clip_norm`."),
    ] = 0.0
    delta: Annotated[
        float,
        Quantity("a number", maximum=0.999999, above=True),
        Field(description="Probability at which what the noise promises may fail."),
    ] = 1e-6


class SyncDocument(Document):
    """How copies at different sites stay one model: a kind, or a mapping with more of it."""

    kind: Annotated[
        SyncKind | Auto,
        _KIND,
        Field(
            description="`every_step`: gradients are averaged at every training step;"
            " `accumulated`: once in `every` steps; `outer`: each site trains on, and what it has"
            " learnt is averaged behind; `auto`: what the planner finds best for the links, within"
            " 1 % of the loss of `every_step` where it can."
        ),
    ] = "every_step"
    accumulate: Annotated[
        int | None,
        Whole(1, 10**6),
        Field(description="Short for `kind: accumulated` with so many steps."),
    ] = None
    every: Annotated[
        int | None,
        Whole(0, 10**6),
        Field(
            description="Training steps from one exchange of a parameter to the next; 0, of `outer`"
            " and its default: as often as link and processor allow."
        ),
    ] = None
    codec: Annotated[
        Codec | None,
        Choice(("plain", "blocks", "top_k", "low_rank", "deep")),
        Field(
            description="How it is made small: `plain`: 32 or 16 bits a number; `blocks`: 8, 4 or"
            " 1; `top_k`: the largest numbers only; `low_rank`: factors; `deep`: the largest of"
            " what momentum has gathered; the last two of gradients. Default: `blocks` with"
            " `outer` or few `bits`, else, and under masks, `plain`."
        ),
    ] = None
    bits: Annotated[
        int | None,
        Whole(1, 32),
        Field(
            description="Of one number: 32, 16, 8, 4 or 1. Default: 8 with `blocks`, 4 with"
            " `outer`; 32 with the other codecs."
        ),
    ] = None
    share: Annotated[
        float | None,
        Quantity("a number", maximum=1.0, above=True),
        Field(
            description=f"Of the numbers, that `top_k` and `deep` send. Default: {_USUAL.share:g}."
        ),
    ] = None
    warm_up: Annotated[
        int | None,
        Whole(0, 10**6),
        Field(description="Exchanges over which `deep` comes down to its share. Default: 0."),
    ] = None
    momentum: Annotated[
        float | None,
        Quantity("a number", maximum=0.999999),
        Field(
            description="Of `deep`, in the place of the optimiser's own. Default:"
            f" {_USUAL.momentum:g}."
        ),
    ] = None
    rank: Annotated[
        int | None,
        Whole(1, 10**4),
        Field(description=f"Of the factors that `low_rank` sends. Default: {_USUAL.rank}."),
    ] = None
    fragments: Annotated[
        int | None,
        Whole(1, 10**4),
        Field(
            description="Parts of the parameters that `outer` exchanges one after the other."
            f" Default: {OUTER_FRAGMENTS}, with `privacy` {_USUAL.fragments}."
        ),
    ] = None
    outer_learning_rate: Annotated[
        float | None,
        Quantity("a number", above=True),
        Field(
            description="Of the outer optimiser, SGD with Nesterov's momentum. Default:"
            f" {_USUAL.outer_learning_rate:g}."
        ),
    ] = None
    outer_momentum: Annotated[
        float | None,
        Quantity("a number", maximum=0.999999),
        Field(description=f"Its momentum. Default: {_USUAL.outer_momentum:g}."),
    ] = None
    privacy: PrivacyDocument = Field(
        default=PrivacyDocument(),
        description="What of an update the other sites may see, where data may not leave the site;"
        " for `outer`.",
    )


def _by_kind(value: object) -> object:
    """Let a kind stand for the whole section."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise wrong(found(value), f"write {_KIND.right}, or a mapping with its fields")
    return {"kind": _KIND.parse(value)}


SyncSection = Annotated[
    SyncDocument,
    BeforeValidator(_by_kind, json_schema_input_type=SyncDocument | Annotated[str, _KIND]),
]
"""The section as it is written: a kind or a mapping."""


def to_sync(said: SyncDocument) -> SiteSync | Literal["auto"]:
    """Return what ``said`` means, with what it leaves out."""
    if said.kind == "auto":
        return "auto"
    kind: SyncKind = "accumulated" if said.accumulate else said.kind
    every = said.accumulate if said.every is None else said.every
    if every is None:
        every = 0 if kind == "outer" else 1
    masked = said.privacy.masked
    codec = said.codec or usual_codec(kind, said.bits, masked=masked)
    given = {name: value for name in _PLAIN if (value := getattr(said, name)) is not None}
    bits = said.bits or (32 if codec != "blocks" else 4 if kind == "outer" else 8)
    privacy = SitePrivacy(**dict(said.privacy))
    if kind == "outer" and said.fragments is None and privacy == SitePrivacy():
        given["fragments"] = min(OUTER_FRAGMENTS, every or OUTER_FRAGMENTS)
    return SiteSync(kind=kind, every=every, codec=codec, bits=bits, privacy=privacy, **given)


def usual_codec(kind: str, bits: int | None, *, masked: bool) -> Codec:
    """Return the codec where only its bits are said, or nothing; sums under masks are whole."""
    is_small = kind == "outer" and not masked if bits is None else bits < 16  # of a plain number
    return "blocks" if is_small else "plain"
