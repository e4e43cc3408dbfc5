"""What a method sends with, and the methods that cannot be."""

import math

import pytest
import torch

from gridloom.base.errors import InputError
from gridloom.model.parallel import SitePrivacy, SiteSync
from gridloom.runtime.wan.methods import check, codec, encoder, last_passes

SHAPES = [(16, 12), (8,)]
NUMBERS = 200

METHODS = [
    SiteSync(),
    SiteSync(bits=16),
    SiteSync(codec="blocks", bits=8),
    SiteSync(codec="blocks", bits=4),
    SiteSync(codec="blocks", bits=1),
    SiteSync(codec="top_k", share=0.1),
    SiteSync(codec="top_k", share=0.1, bits=4),
    SiteSync(codec="low_rank", rank=2),
    SiteSync(codec="deep", share=0.1, momentum=0.0),
]


@pytest.mark.parametrize("how", METHODS, ids=str)
def test_what_is_encoded_has_its_size_and_nothing_is_lost_for_good(how: SiteSync) -> None:
    check(how)
    made = encoder(how, NUMBERS, SHAPES)
    gradients = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(1))
    sent = torch.zeros(NUMBERS)
    for _ in range(60):
        payload = made.encode(gradients)
        assert payload.shape == (made.size_bytes(NUMBERS),)
        sent += made.decode(payload, NUMBERS)
    atol = 1.4 if how.bits == 1 else 0.6  # signs are slow to tell how large the largest are
    torch.testing.assert_close(sent / 60, gradients, atol=atol, rtol=0)
    assert torch.nn.functional.cosine_similarity(sent, gradients, dim=0) > 0.95


@pytest.mark.parametrize("how", METHODS[1:], ids=str)
def test_what_is_taken_back_is_sent_with_the_next(how: SiteSync) -> None:
    made = encoder(how, NUMBERS, SHAPES)
    gradients = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(1))
    made.take_back(made.encode(gradients))
    again = made.decode(made.encode(torch.zeros(NUMBERS)), NUMBERS)
    assert float((again - gradients).norm()) < float(gradients.norm())


def test_an_exact_method_forgets_what_is_taken_back() -> None:
    made = encoder(SiteSync(), NUMBERS, SHAPES)
    made.take_back(made.encode(torch.ones(NUMBERS)))
    assert not made.decode(made.encode(torch.zeros(NUMBERS)), NUMBERS).any()


@pytest.mark.parametrize(
    ("how", "fields"),
    [
        (SiteSync(every=0, fragments=0, rank=0), ["every", "fragments", "rank"]),
        (SiteSync(bits=8), ["bits"]),
        (SiteSync(codec="blocks", bits=16), ["bits"]),
        (SiteSync(kind="outer", codec="low_rank"), ["codec"]),
        (SiteSync(codec="top_k", share=0.0), ["share"]),
        (SiteSync(codec="deep", warm_up=-1, momentum=1.0), ["warm_up", "momentum"]),
        (SiteSync(kind="outer", codec="deep"), ["codec"]),
        (SiteSync(codec="top_k", share=1.5), ["share"]),
        (SiteSync(kind="outer", outer_learning_rate=0.0), ["outer_learning_rate"]),
        (SiteSync(kind="outer", outer_momentum=1.0), ["outer_momentum"]),
        (SiteSync(privacy=SitePrivacy(masked=True)), ["privacy"]),
        (
            SiteSync(kind="outer", codec="blocks", bits=8, privacy=SitePrivacy(masked=True)),
            ["codec"],
        ),
        (
            SiteSync(
                kind="outer",
                privacy=SitePrivacy(clip_norm=-1.0, noise_multiplier=math.inf, delta=0.0),
            ),
            [
                "privacy.clip_norm",
                "privacy.noise_multiplier",
                "privacy.clip_norm",
                "privacy.delta",
            ],
        ),
    ],
)
def test_every_field_that_cannot_be_is_named(how: SiteSync, fields: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        check(how)
    assert [one.field for one in caught.value.problems] == [f"sync.{field}" for field in fields]


def test_sums_under_masks_are_of_numbers_as_large_as_clipping_and_noise_leave_them() -> None:
    policy = SitePrivacy(masked=True, clip_norm=2.0, noise_multiplier=1.0)
    values = torch.tensor([17.5, -30.0])
    for privacy, most in ((policy, 18.0), (SitePrivacy(masked=True), 8.0)):
        how = SiteSync(kind="outer", privacy=privacy)
        check(how)
        made = codec(how)
        back = made.decode(made.encode(values), 2)
        torch.testing.assert_close(back, values.clamp(-most, most))


@pytest.mark.parametrize(
    ("how", "passes"),
    [
        (SiteSync(kind="outer"), 2),
        (SiteSync(kind="outer", codec="blocks", bits=4), 2),
        (SiteSync(kind="outer", codec="blocks", bits=1), 6),
        (SiteSync(kind="outer", codec="top_k", share=1.0), 2),
        (SiteSync(kind="outer", codec="top_k", share=0.05, bits=16), 16),
    ],
)
def test_the_last_passes_leave_little_of_what_a_codec_loses(how: SiteSync, passes: int) -> None:
    assert last_passes(how) == passes
    left = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1))
    energy, sender = float(left @ left), codec(how)
    for _ in range(passes - 1):
        left = left - sender.decode(sender.encode(left), len(left))
    assert float(left @ left) < 0.03 * energy


def test_there_is_an_end_to_the_last_passes() -> None:
    assert last_passes(SiteSync(kind="outer", codec="top_k", share=1e-9)) == 51
