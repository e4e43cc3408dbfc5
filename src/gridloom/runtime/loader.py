"""Batches of a dataset for one rank: who gets which sample follows from the seed and a position.

Sample number ``k`` of a training, from 0, is number ``k mod n`` of the permutation of pass ``k div
n`` over the ``n`` samples of the dataset. A *global batch* is a run of as many of them as all
ranks of all sites together take at a time; each rank takes its share of the run. So the position
of a training, in samples, says all there is to say about its data, for any number of ranks.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.corpus import share_of

Collate = Callable[[list[Any]], Any]


class DataOptions(TypedDict, total=False):
    """What ``gl.data`` may be told.

    Attributes:
        seed: Of the order of samples; the same at all ranks.
        shuffle: Whether each pass has an order of its own; else that of the dataset.
        passes: Over the dataset, in all; ``None`` for ever.
        collate: Makes a batch of a list of samples; by default as torch does.
        workers: Processes that read ahead; 0 to read when asked. What a sample is must depend on
            its number alone, or it depends on their number too.
        drop_last: Leave the last samples out that do not fill a batch on every rank. Otherwise
            they are a smaller last batch, or, if they are fewer than ranks, part of a larger one:
            every sample is read, and all ranks have equally many batches.
        local: The dataset is this site's own; it is shared out among the site's ranks alone.
    """

    seed: int
    shuffle: bool
    passes: int | None
    collate: Collate | None
    workers: int
    drop_last: bool
    local: bool


@dataclass(frozen=True)
class Share:
    """Which part of every global batch is this rank's.

    Attributes:
        number: Of this rank, from 0, among all that share the dataset.
        count: Of these ranks.
    """

    number: int = 0
    count: int = 1


class Loader:
    """Iterates over the batches of one rank, from where the last loop over it ended.

    Attributes:
        position: Samples of the whole training that have been handed out, to all ranks together.
    """

    def __init__(
        self, dataset: object, batch_size: int, share: Share, options: DataOptions
    ) -> None:
        """Begin with the first sample.

        Args:
            dataset: Has ``__len__`` and ``__getitem__``, and is the same on all ranks.
            batch_size: Samples a rank.
            share: This rank's.
            options: The rest.

        Raises:
            InputError: The dataset cannot be shared out, or a number cannot be.
        """
        self._dataset, self._samples = _counted(dataset)
        self._batch_size, self._share = batch_size, share
        self._seed, self._shuffle = options.get("seed", 0), options.get("shuffle", True)
        self._passes: int | None = options.get("passes", 1)
        self._collate = options.get("collate")
        self._workers = options.get("workers", 0)
        self._drop_last = options.get("drop_last", True)
        self.position = 0
        self._is_over = False
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, dtype=np.int64))
        self._check()

    def __len__(self) -> int:
        """Return how many batches are left."""
        if self._passes is None:
            raise InputError("data without an end (passes=None) has no length")
        left = self._passes * self._samples - self.position
        whole, rest = divmod(left, self._global_batch)
        return whole + int(not self._drop_last and rest >= self._share.count)

    def __iter__(self) -> Iterator[Any]:
        """Yield batches; the position counts those that have been handed out.

        Raises:
            InputError: All have been handed out to a loop before, or the position was changed by
                another one.
        """
        if self._is_over:
            text = f"all {self._passes} passes over the data have been handed out"
            remedy = "give as many `passes` as are to be read, or call `rewind()`"
            raise InputError([Problem(text, remedy, field="data.passes")])
        position = self.position
        runs = self._runs(position)
        batches = DataLoader(
            self._dataset,
            batch_sampler=_Numbers(self, position),
            num_workers=self._workers,
            collate_fn=self._collate,
            worker_init_fn=_outlive_signals,
            # one of its own: what a model draws must not depend on who reads its data
            generator=torch.Generator().manual_seed(self._seed),
        )
        for (_, stop), batch in zip(runs, batches, strict=True):
            if self.position != position:
                raise InputError("the position of the data was changed while a loop reads it")
            self.position = position = stop
            yield batch
        self._is_over = True

    def rewind(self) -> None:
        """Begin again with the first sample."""
        self.position, self._is_over = 0, False

    def state_dict(self) -> dict[str, int | bool]:
        """Return what a later loop goes on from, on any number of ranks."""
        return {
            "position": self.position,
            "samples": self._samples,
            "seed": self._seed,
            "shuffle": self._shuffle,
        }

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Let the next loop go on from there.

        Raises:
            InputError: It is the state of other data, or of another order.
        """
        own = self.state_dict()
        problems = [
            Problem(
                f"is {own[name]}, the checkpoint has {state[name]}",
                remedy="restore it, or start from a fresh checkpoint directory",
                field=f"data.{name}",
            )
            for name in ("samples", "seed", "shuffle")
            if own[name] != state[name]
        ]
        if problems:
            raise InputError(problems)
        self.position, self._is_over = int(state["position"]), False

    @property
    def _global_batch(self) -> int:
        return self._batch_size * self._share.count

    def _runs(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield first and last sample (exclusive) of each global batch from a position on."""
        whole, count = self._global_batch, self._share.count
        while True:
            left = whole if self._passes is None else self._passes * self._samples - position
            if left < whole and (self._drop_last or left < count):
                return
            # samples that are too few for a batch of their own are added to the last one
            is_last = not self._drop_last and left - whole < count
            stop = position + (left if is_last and self._passes is not None else min(left, whole))
            yield position, stop
            position = stop

    def own_numbers(self, position: int) -> Iterator[list[int]]:
        """Yield the numbers in the dataset of this rank's samples, a batch at a time."""
        for start, stop in self._runs(position):
            own = share_of(self._share.number, self._share.count, stop - start)
            yield [self._place(start + sample) for sample in own]

    def _place(self, sample: int) -> int:
        """Return the number in the dataset of a sample of the training."""
        number, place = divmod(sample, self._samples)
        if not self._shuffle:
            return place
        if self._order[0] != number:
            order = np.random.default_rng((self._seed, number)).permutation(self._samples)
            self._order = (number, order)
        return int(self._order[1][place])

    def _check(self) -> None:
        problems = []
        for name, value, least in (
            ("batch_size", self._batch_size, 1),
            ("passes", 1 if self._passes is None else self._passes, 1),
            ("workers", self._workers, 0),
            ("seed", self._seed, 0),
        ):
            if value < least:
                problems.append(
                    Problem(f"is {value}, must be at least {least}", field=f"data.{name}")
                )
        total = self._samples * (self._passes or 1)
        needed = self._global_batch if self._drop_last else self._share.count
        if not problems and (not self._samples or (self._passes is not None and total < needed)):
            text = f"has {self._samples} samples, and one batch on all ranks takes {needed}"
            remedy = "give more data, a smaller batch_size, or drop_last=False"
            problems.append(Problem(text, remedy, field="data.dataset"))
        if problems:
            raise InputError(problems)


class _Numbers:
    """Which samples a rank reads, batch by batch, as ``DataLoader`` asks for it."""

    def __init__(self, loader: Loader, position: int) -> None:
        self._loader, self._position = loader, position

    def __iter__(self) -> Iterator[list[int]]:
        return self._loader.own_numbers(self._position)


def _counted(dataset: object) -> tuple[Dataset[Any], int]:
    """Return the dataset, and how many samples it has, if they are numbered."""
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        text = f"a {kind} can only be read from its beginning: it cannot be shared out or resumed"
    elif hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return cast("Dataset[Any]", dataset), len(dataset)
    else:
        text = f"a {kind} is not a dataset"
    remedy = "give a torch Dataset with __len__ and __getitem__ (map-style), or a sequence"
    raise InputError([Problem(text, remedy, field="data.dataset")])


def _outlive_signals(worker: int) -> None:
    """Leave requests to stop to the process that trains: it still needs this one's batches."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
