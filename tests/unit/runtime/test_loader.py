"""Who reads which sample: all of them, once, in an order that ranks and stops do not change."""

import itertools
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import gridloom.runtime as gl
from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.runtime.loader import DataOptions, Loader, Share
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish


def loaders(samples: int, batch_size: int, ranks: int, **options: Any) -> list[Loader]:
    """Return what each rank has; a sample is its number, and a batch a list of them."""
    chosen: DataOptions = {"collate": list, **options}  # type: ignore[typeddict-item]
    dataset = list(range(samples))
    return [Loader(dataset, batch_size, Share(rank, ranks), chosen) for rank in range(ranks)]


def rows(ranks: Sequence[Loader]) -> list[list[int]]:
    """Return the global batches, each rank's share behind the other."""
    return [[n for own in shares for n in own] for shares in zip(*ranks, strict=True)]


def flat(batches: Sequence[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


@given(
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    ranks=st.integers(1, 6),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_every_sample_once_a_pass(
    samples: int, batch_size: int, ranks: int, passes: int, shuffle: bool
) -> None:
    options = {"passes": passes, "shuffle": shuffle, "drop_last": False}
    if samples * passes < ranks:
        with pytest.raises(InputError, match=r"data\.dataset: has"):
            loaders(samples, batch_size, ranks, **options)
        return
    world = loaders(samples, batch_size, ranks, **options)
    left = {len(one) for one in world}
    batches = rows(world)  # strict: equally many on all ranks
    assert left == {len(batches)}
    assert {len(one) for one in world} == {0}
    drawn = flat(batches)
    for start in range(0, samples * passes, samples):
        assert sorted(drawn[start : start + samples]) == list(range(samples))
    assert all(batch for batch in batches)
    assert all(len(batch) == batch_size * ranks for batch in batches[:-1])


@given(
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    ranks=st.integers(1, 6),
    passes=st.integers(1, 3),
)
def test_only_what_fills_no_batch_is_dropped(
    samples: int, batch_size: int, ranks: int, passes: int
) -> None:
    whole, rest = divmod(samples * passes, batch_size * ranks)
    if not whole:
        with pytest.raises(InputError, match="smaller batch_size"):
            loaders(samples, batch_size, ranks, passes=passes)
        return
    batches = rows(loaders(samples, batch_size, ranks, passes=passes))
    every = rows(loaders(samples, 1, 1, passes=passes))
    assert {len(batch) for batch in batches} == {batch_size * ranks}
    assert flat(batches) == flat(every)[: samples * passes - rest]


@given(
    samples=st.integers(4, 40),
    stop=st.integers(0, 40),
    ranks=st.sampled_from([(1, 1), (4, 4), (4, 2), (2, 4), (1, 4)]),
    drop_last=st.booleans(),
)
def test_a_resumed_loop_reads_on(
    samples: int, stop: int, ranks: tuple[int, int], drop_last: bool
) -> None:
    options = {"seed": 5, "passes": 2, "drop_last": drop_last}
    batch = [8 // count for count in ranks]  # the global batch stays what it is
    whole = rows(loaders(samples, batch[0], ranks[0], **options))
    before = loaders(samples, batch[0], ranks[0], **options)
    loops = [iter(one) for one in before]
    stop = min(stop, len(whole))
    read = [flat([next(loop) for loop in loops]) for _ in range(stop)]
    states = [one.state_dict() for one in before]
    assert all(state == states[0] for state in states)
    after = loaders(samples, batch[1], ranks[1], **options)
    for one in after:
        one.load_state_dict(states[0])
    left = 2 * samples - before[0].position
    if not drop_last and 0 < left < ranks[1]:
        assert rows(after) == []  # fewer samples than ranks by now
        return
    assert flat(read + rows(after)) == flat(whole)


def test_a_loop_that_was_left_is_gone_on_from() -> None:
    (loader,) = loaders(10, 2, 1)
    for _ in loader:
        break
    (again,) = loaders(10, 2, 1)
    assert flat(list(again)) == flat([next(iter(loaders(10, 2, 1)[0])), *loader])


def test_passes_have_orders_of_their_own_that_follow_from_the_seed() -> None:
    (loader,) = loaders(50, 50, 1, passes=None)
    endless = iter(loader)
    one, two, three = next(endless), next(endless), next(endless)
    assert one != two != three
    assert rows(loaders(50, 50, 1, passes=3)) == [one, two, three]
    assert rows(loaders(50, 50, 1, passes=1, seed=1)) != [one]
    assert rows(loaders(50, 50, 1, passes=1, shuffle=False)) == [list(range(50))]
    with pytest.raises(InputError, match="has no length"):
        len(loader)


def test_workers_change_nothing_but_who_reads() -> None:
    """What was read ahead does not count, and a model's random numbers do not notice."""
    dataset = TensorDataset(torch.arange(24.0))

    def loader(workers: int) -> Loader:
        return Loader(dataset, 2, Share(1, 2), {"workers": workers, "seed": 3})

    torch.manual_seed(0)
    alone = [batch for (batch,) in loader(0)]
    drawn = torch.rand(2)
    torch.manual_seed(0)
    ahead = loader(2)
    seen = []
    for (batch,) in ahead:
        seen.append(batch)
        if len(seen) == 2:
            break
    assert ahead.position == 8
    resumed = loader(2)
    resumed.load_state_dict(ahead.state_dict())
    seen += [batch for (batch,) in resumed]
    assert torch.equal(torch.stack(seen), torch.stack(alone))
    assert torch.equal(torch.rand(2), drawn)


def test_a_request_to_stop_is_not_for_those_who_read_ahead() -> None:
    """It goes to all processes of a rank; the one that trains still needs their batches."""
    batches = iter(Loader(list(range(12)), 2, Share(), {"workers": 1, "shuffle": False}))
    seen = next(batches).tolist()
    (worker,) = multiprocessing.active_children()
    assert worker.pid
    for wish in (signal.SIGTERM, signal.SIGUSR1):
        os.kill(worker.pid, wish)
    for batch in batches:
        seen += batch.tolist()
    assert seen == list(range(12))


def test_data_that_are_over_are_not_begun_again_unasked() -> None:
    (loader,) = loaders(6, 2, 1)
    first = list(loader)
    finished = loader.state_dict()
    with pytest.raises(InputError, match=r"all 1 passes .* call `rewind\(\)`"):
        next(iter(loader))
    loader.load_state_dict(finished)  # a training that was resumed after its end
    assert list(loader) == []
    loader.rewind()
    assert list(loader) == first


def test_a_position_that_moves_under_a_loop_is_refused() -> None:
    (loader,) = loaders(6, 2, 1)
    loop = iter(loader)
    next(loop)
    loader.rewind()
    with pytest.raises(InputError, match="was changed while a loop reads it"):
        next(loop)


def test_a_state_of_other_data_is_refused() -> None:
    (other,) = loaders(7, 2, 1, seed=2, shuffle=False)
    (loader,) = loaders(6, 2, 1)
    with pytest.raises(InputError) as caught:
        loader.load_state_dict(other.state_dict())
    assert [problem.field for problem in caught.value.problems] == [
        "data.samples",
        "data.seed",
        "data.shuffle",
    ]
    assert "is 6, the checkpoint has 7" in str(caught.value)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


class Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "a Stream can only be read from its beginning"),
        (Unsized(), "a Unsized is not a dataset"),
        ({1, 2}, "a set is not a dataset"),
        ([], "has 0 samples"),
        ([1, 2], "has 2 samples, and one batch on all ranks takes 4"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(dataset: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Loader(dataset, 4, Share(), {})


def test_all_numbers_that_cannot_be_are_named() -> None:
    with pytest.raises(InputError) as caught:
        Loader([1], 0, Share(), {"passes": 0, "workers": -1, "seed": -1})
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["data.batch_size", "data.passes", "data.workers", "data.seed"]


@pytest.mark.parametrize(("local", "times"), [(False, 1), (True, 2)])
def test_ranks_of_all_sites_share_what_is_not_a_site_s_own(
    monkeypatch: pytest.MonkeyPatch, local: bool, times: int
) -> None:
    run = Run(place_in({}), SystemClock(), StopWish())
    monkeypatch.setattr("gridloom.runtime.library.start._RUNS", [run])
    drawn = []
    for site, rank in itertools.product(("a", "b"), (0, 1)):
        run.place = replace(run.place, site=site, sites=("a", "b"), rank=rank, size=2)
        drawn += flat([b.tolist() for b in gl.data(list(range(16)), batch_size=2, local=local)])
    assert sorted(drawn) == sorted(list(range(16)) * times)


def test_the_library_needs_to_be_told_where_it_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridloom.runtime.library.start._RUNS", [])
    with pytest.raises(InputError, match=r"gl\.init\(\) comes first"):
        gl.data([1], batch_size=1)
