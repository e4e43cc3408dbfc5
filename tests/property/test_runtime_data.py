"""Laws of the data: every sample once a pass, whatever the ranks; every held-out byte once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.corpus import Sampler, held_out_names, share_of
from gridloom.runtime.evaluate import held_out_windows
from gridloom.runtime.gpt import IGNORED

documents = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=6)
names = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=30)


@given(world=st.integers(1, 40), batch=st.integers(1, 200))
def test_shares_are_a_partition_and_uneven_by_at_most_one(world: int, batch: int) -> None:
    shares = [share_of(rank, world, batch) for rank in range(world)]
    assert [sample for share in shares for sample in share] == list(range(batch))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(documents=documents, length=st.integers(2, 9), seed=st.integers(0, 99))
def test_a_pass_sees_every_window_once_and_the_next_in_another_order(
    documents: list[bytes], length: int, seed: int
) -> None:
    if sum(map(len, documents)) + len(documents) <= length:
        return
    sampler = Sampler(documents, length, seed)
    count = sampler.windows
    passes = [[sampler.window(p * count + i) for i in range(count)] for p in range(3)]
    assert all(sorted(order) == list(range(count)) for order in passes)
    if count >= 12:
        assert passes[0] != passes[1] != passes[2]
    fresh = Sampler(documents, length, seed)
    assert fresh.window(2 * count) == passes[2][0], "no memory of earlier samples is needed"


@given(world=st.integers(1, 7), step=st.integers(1, 50))
def test_ranks_together_see_what_one_would(world: int, step: int) -> None:
    sampler = Sampler([bytes(range(256)) * 3], 8, 4)
    batch, first = 10, (step - 1) * 10
    alone = sampler.batch(first, batch)[0]
    shares = [share_of(rank, world, batch) for rank in range(world)]
    parts = [sampler.batch(first + share.start, len(share))[0] for share in shares if share]
    assert torch.equal(torch.cat(parts), alone)


@given(names=names, more=names, share=st.floats(0.01, 0.5))
def test_added_files_move_no_other_file(names: set[str], more: set[str], share: float) -> None:
    before, after = held_out_names(names, share), held_out_names(names | more, share)
    assert before
    if len(before) > 1:
        assert before == after & names
    assert held_out_names(names, 0) == set()


@given(documents=documents, length=st.integers(2, 16))
def test_every_held_out_byte_is_predicted_once(documents: list[bytes], length: int) -> None:
    windows = held_out_windows(documents, length)
    assert windows.inputs.shape == windows.targets.shape
    wanted = windows.targets[windows.targets != IGNORED]
    assert bytes(wanted.tolist()) == b"".join(documents)


@given(document=st.binary(min_size=1, max_size=80), length=st.integers(2, 16))
def test_predictions_follow_their_own_context(document: bytes, length: int) -> None:
    windows = held_out_windows([document], length)
    for inputs, targets in zip(windows.inputs, windows.targets, strict=True):
        for place in range(length - 1):
            if targets[place] != IGNORED and targets[place + 1] != IGNORED:
                assert inputs[place + 1] == targets[place]
