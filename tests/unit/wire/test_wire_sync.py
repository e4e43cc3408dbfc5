"""The `sync` of a job file: what it may be, what it means, and what is wrong with it."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.errors import InputError
from gridloom.model.parallel import Auto, SitePrivacy, SiteSync
from gridloom.wire.convert import to_job_spec, to_request
from gridloom.wire.documents import read_job

RECIPE = """\
name: j
recipe: gpt
model: {layers: 1, hidden: 8, heads: 1}
steps: 1
global_batch: 4
sequence_length: 8
resources: {accelerators: 'cpu:3', min_sites: 3}
optimizer: {beta1: 0}
"""
LINE = RECIPE.count("\n") + 1


def read(sync: str, head: str = RECIPE) -> SiteSync | Auto:
    job = read_job(f"{head}{sync and f'sync: {sync}'}\n".encode(), "f").document
    spec = to_job_spec(job, (), workdir="/w", checkpoint_directory="/c")
    said = to_request(job).sync
    if spec.recipe is not None:
        assert spec.recipe.sync == (SiteSync() if said == "auto" else said)
    return said


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", SiteSync()),
        ("every_step", SiteSync()),
        ("auto", "auto"),
        ("{kind: auto}", "auto"),
        ("outer", SiteSync(kind="outer", every=0, codec="blocks", bits=4, fragments=4)),
        (
            "{kind: outer, every: 2}",
            SiteSync(kind="outer", every=2, codec="blocks", bits=4, fragments=2),
        ),
        ("{accumulate: 8}", SiteSync(kind="accumulated", every=8)),
        (
            "{accumulate: 8, bits: 8}",
            SiteSync(kind="accumulated", every=8, codec="blocks", bits=8),
        ),
        ("{kind: accumulated, every: 8}", SiteSync(kind="accumulated", every=8)),
        ("{bits: 16}", SiteSync(bits=16)),
        ("{bits: 4}", SiteSync(codec="blocks", bits=4)),
        ("{codec: blocks}", SiteSync(codec="blocks", bits=8)),
        ("{codec: top_k, share: 0.02}", SiteSync(codec="top_k", share=0.02)),
        ("{codec: top_k, bits: 4}", SiteSync(codec="top_k", bits=4)),
        ("{codec: low_rank, rank: 8}", SiteSync(codec="low_rank", rank=8)),
        (
            "{codec: deep, warm_up: 9, momentum: 0.5}",
            SiteSync(codec="deep", warm_up=9, momentum=0.5),
        ),
        (
            "{kind: outer, every: 48, fragments: 8, outer_learning_rate: 1, outer_momentum: 0}",
            SiteSync(
                kind="outer",
                every=48,
                fragments=8,
                codec="blocks",
                bits=4,
                outer_learning_rate=1.0,
                outer_momentum=0.0,
            ),
        ),
        (
            "{kind: outer, privacy: {masked: true, clip_norm: 1}}",
            SiteSync(
                kind="outer",
                every=0,
                codec="plain",
                bits=32,
                privacy=SitePrivacy(masked=True, clip_norm=1.0),
            ),
        ),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, meant: SiteSync | Auto) -> None:
    assert read(text) == meant


def test_a_program_of_ones_own_says_its_method_too() -> None:
    head = "name: j\nrun: sleep 1\nresources: {accelerators: 'cpu:2', min_sites: 2}\n"
    assert read("{accumulate: 2}", head) == SiteSync(kind="accumulated", every=2)
    with pytest.raises(InputError) as told:
        read("auto", head)
    (problem,) = told.value.problems
    assert (problem.line, problem.field) == (4, "sync")
    assert "this job has `run`" in problem.message
    assert "write `outer`" in problem.remedy


@pytest.mark.parametrize(
    ("text", "field", "said", "right"),
    [
        ("sometimes", "sync", "found `sometimes`", "one of `every_step`"),
        ("outr", "sync", "found `outr`", "did you mean `outer`"),
        ("3", "sync", "found `3`", "or a mapping with its fields"),
        ("[outer]", "sync", "found a list", "or a mapping with its fields"),
        ("", "sync", "no value", "or a mapping with its fields"),
        ("accumulated", "sync", "needs the training steps", "{accumulate: 8}"),
        ("{kind: accumulated}", "sync", "needs the training steps", "{accumulate: 8}"),
        ("{kind: auto, every: 3}", "sync.every", "is chosen by `auto`", "leave it out"),
        ("{kind: outer, accumulate: 3}", "sync.accumulate", "another kind", "leave `kind` out"),
        ("{accumulate: 3, every: 3}", "sync.every", "is what `accumulate` says", "keep one"),
        ("{every: 3}", "sync.every", "`every_step` exchanges at each", "`kind: outer`"),
        ("{every: 0}", "sync.every", "`every_step` exchanges at each", "`kind: outer`"),
        ("{kind: accumulated, every: 0}", "sync.every", "is for `outer`", "write 1 or more"),
        ("{kind: outer, every: -1}", "sync.every", "found `-1`", "from 0"),
        (
            "{kind: outer, every: 4, fragments: 8}",
            "sync.fragments",
            "cannot be exchanged one after the other in 4 steps",
            "at most 4",
        ),
        ("{fragments: 2}", "sync.fragments", "is for `outer`", "leave it out"),
        ("{privacy: {masked: true}}", "sync.privacy", "is for `outer`", "leave it out"),
        ("{kind: outer, bits: 4, privacy: {masked: true}}", "sync.bits", "of 32 bits", "leave"),
        (
            "{kind: outer, codec: blocks, privacy: {masked: true}}",
            "sync.codec",
            "of 32 bits",
            "leave",
        ),
        (
            "{kind: outer, privacy: {noise_multiplier: 1}}",
            "sync.privacy",
            "has a largest norm",
            "clip_norm",
        ),
        ("{kind: outer, privacy: {delta: 2}}", "sync.privacy.delta", "found `2`", "at most"),
        ("{bits: 12}", "sync.bits", "12 bits cannot be", "4, 8, 16 or 32"),
        ("{codec: blocks, bits: 16}", "sync.bits", "with the codec `blocks`", "4 or 8"),
        ("{codec: low_rank, bits: 8}", "sync.bits", "is not for `low_rank`", "leave it out"),
        ("{bits: x}", "sync.bits", "found `x`", "a whole number"),
        ("{codec: zip}", "sync.codec", "found `zip`", "`blocks`"),
        ("{rank: 4}", "sync.rank", "is for `low_rank`", "leave it out"),
        ("{codec: top_k, share: 0}", "sync.share", "found `0`", "above 0"),
        ("{kind: outer, codec: low_rank}", "sync.codec", "on whole gradients", "write `blocks`"),
        ("{evry: 3}", "sync.evry", "unknown field", "did you mean `every`"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(text: str, field: str, said: str, right: str) -> None:
    with pytest.raises(InputError) as told:
        read_job(f"{RECIPE}sync: {text}\n".encode(), "f")
    problems = [p for p in told.value.problems if p.field == field]
    (problem,) = problems
    assert (problem.file, problem.line) == ("f", LINE)
    assert said in problem.message
    assert right in problem.remedy


def test_what_the_sites_themselves_would_refuse_is_told_when_the_job_is_read() -> None:
    two = RECIPE.replace("cpu:3', min_sites: 3", "cpu:2', min_sites: 2")
    masked = "{kind: outer, privacy: {masked: true}}"
    assert read(masked) == SiteSync(kind="outer", every=0, privacy=SitePrivacy(masked=True))
    with pytest.raises(InputError, match=r"sync.privacy.masked: a sum over 2 sites .*sites: 3`"):
        read(masked, two)
    usual = RECIPE.replace("beta1: 0", "beta1: 0.9")
    with pytest.raises(InputError, match=r"sync.codec: `deep` gathers .* beta1, 0.9; write `mom"):
        read("{codec: deep}", usual)
    assert read("{codec: deep, momentum: 0}", usual) == SiteSync(codec="deep", momentum=0.0)


NUMBERS = st.floats(0.01, 0.99)


@st.composite
def methods(draw: st.DrawFn) -> tuple[dict[str, Any], SiteSync]:
    """Return a mapping as a person would write it, and the method."""
    kind = draw(st.sampled_from(["every_step", "accumulated", "outer"]))
    codecs = ["plain", "blocks", "top_k", *([] if kind == "outer" else ["low_rank", "deep"])]
    said: dict[str, Any] = {"kind": kind, "codec": draw(st.sampled_from(codecs))}
    if said["codec"] in ("plain", "blocks"):
        said["bits"] = draw(st.sampled_from([16, 32] if said["codec"] == "plain" else [4, 8]))
    if said["codec"] in ("top_k", "deep"):
        said["share"] = draw(NUMBERS)
    if said["codec"] == "low_rank":
        said["rank"] = draw(st.integers(1, 64))
    if kind == "accumulated":
        said["every"] = draw(st.integers(1, 1000))
    if kind == "outer":
        said["every"] = draw(st.integers(0, 1000))
        said["fragments"] = draw(st.integers(1, said["every"] or 64))
        said["outer_learning_rate"] = draw(NUMBERS)
        said["outer_momentum"] = draw(NUMBERS)
    return said, SiteSync(**said)


@given(methods())
def test_every_method_can_be_written(pair: tuple[dict[str, Any], SiteSync]) -> None:
    said, meant = pair
    assert read(yaml.safe_dump(said, default_flow_style=True, width=1000).strip()) == meant
