import math

import pytest
import torch

from gridloom.model.recipe import GptShape
from gridloom.runtime.evaluate import (
    bigram_bits_per_byte,
    bits_per_byte,
    held_out_windows,
    nats,
)
from gridloom.runtime.gpt import Gpt

SHAPE = GptShape(layers=1, hidden=16, heads=2, kv_heads=1, ffn=16)
DOCUMENTS = (b"def f(x):\n    return x\n" * 3, b"z", b"a line that is longer than a window")


def never() -> bool:
    return False


def test_shares_add_up_to_the_whole() -> None:
    model, windows = Gpt(SHAPE, 1), held_out_windows(DOCUMENTS, 16)
    whole = nats(model, windows, slice(None), never)
    parts = [nats(model, windows, slice(i, i + 5), never) for i in range(0, len(windows.inputs), 5)]
    assert sum(parts) == pytest.approx(whole, rel=1e-6)
    assert bits_per_byte(whole, DOCUMENTS) == pytest.approx(math.log2(257), abs=0.2)


def test_a_document_within_one_window_is_predicted_from_its_start() -> None:
    model, windows = Gpt(SHAPE, 1), held_out_windows([b"abc"], 16)
    direct = model.loss_sum(torch.tensor([[256, 97, 98]]), torch.tensor([[97, 98, 99]]))
    assert nats(model, windows, slice(None), never) == pytest.approx(direct.item(), rel=1e-6)


def test_an_evaluation_that_is_told_to_stop_stops() -> None:
    windows = held_out_windows(DOCUMENTS, 16)
    assert nats(Gpt(SHAPE, 1), windows, slice(None), lambda: True) == 0


def test_nothing_held_out_gives_no_figure() -> None:
    windows = held_out_windows([], 16)
    assert nats(Gpt(SHAPE, 1), windows, slice(None), never) == 0
    assert bits_per_byte(0.0, []) is None
    assert bigram_bits_per_byte([b"ab"], []) is None


def test_the_bigram_counts_what_was_trained_on_plus_one() -> None:
    # After the document's start "a" was seen once: (1+1)/(1+256). "b" after "a": twice of twice.
    seen = [b"aba", b"xab"]
    expected = -(math.log2(2 / 258) + math.log2(3 / 258)) / 2
    assert bigram_bits_per_byte(seen, [b"ab"]) == pytest.approx(expected)
    assert bigram_bits_per_byte(seen, [b"\x00"]) == pytest.approx(-math.log2(1 / 258))
