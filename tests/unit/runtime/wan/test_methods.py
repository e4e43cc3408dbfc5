"""What a method sends with, and the methods that cannot be."""

import pytest
import torch

from gridloom.base.errors import InputError
from gridloom.model.parallel import SiteSync
from gridloom.runtime.wan.methods import check, encoder

SHAPES = [(16, 12), (8,)]
NUMBERS = 200

METHODS = [
    SiteSync(),
    SiteSync(bits=16),
    SiteSync(codec="blocks", bits=8),
    SiteSync(codec="blocks", bits=4),
    SiteSync(codec="top_k", share=0.1),
    SiteSync(codec="low_rank", rank=2),
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
    torch.testing.assert_close(sent / 60, gradients, atol=0.6, rtol=0)
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
        (SiteSync(codec="top_k", share=1.5), ["share"]),
        (SiteSync(kind="outer", outer_learning_rate=0.0), ["outer_learning_rate"]),
        (SiteSync(kind="outer", outer_momentum=1.0), ["outer_momentum"]),
    ],
)
def test_every_field_that_cannot_be_is_named(how: SiteSync, fields: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        check(how)
    assert [one.field for one in caught.value.problems] == [f"sync.{field}" for field in fields]
