"""How well text that was held out is predicted, in bits a byte, and a baseline to beat.

Every byte of every held-out document is predicted exactly once, from what came before it in its
own document. Windows overlap by half, so that but for a document's start each prediction sees at
least half a window of context.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gridloom.runtime.corpus import DOCUMENT, token_stream
from gridloom.runtime.gpt import IGNORED, Gpt
from gridloom.runtime.inside.site_model import SiteModel

_BATCH = 32  # windows a forward pass: as fast as more, and the logits stay small


@dataclass(frozen=True)
class Windows:
    """Held-out text, ready for the model.

    Attributes:
        inputs: ``[windows, sequence_length]``.
        targets: The same shape; ``IGNORED`` where another window predicts, or nothing is.
    """

    inputs: Tensor
    targets: Tensor


def held_out_windows(documents: Sequence[bytes], length: int) -> Windows:
    """Return windows of ``length`` in which every byte of ``documents`` is a target once."""
    inputs, targets = [], []
    for document in documents:
        tokens = token_stream([document]).astype(np.int64)
        predicted = 0  # bytes of the document that are targets by now
        while predicted < len(document):
            start = max(0, predicted - length // 2)
            window = tokens[start : start + length + 1]
            pad = (0, length + 1 - len(window))
            inputs.append(np.pad(window, pad, constant_values=DOCUMENT)[:-1])
            wanted = np.pad(window, pad, constant_values=IGNORED)[1:]
            wanted[: predicted - start] = IGNORED
            targets.append(wanted)
            predicted = start + len(window) - 1
    if not inputs:
        empty = torch.zeros((0, length), dtype=torch.int64)
        return Windows(empty, empty)
    return Windows(torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets)))


def nats(model: Gpt, windows: Windows, share: slice, stopped: Callable[[], bool]) -> float:
    """Return the cross-entropy of a share of the windows, summed; less where ``stopped`` early."""
    device = next(model.parameters()).device
    total = 0.0
    inputs, targets = windows.inputs[share], windows.targets[share]
    with torch.no_grad():
        for start in range(0, len(inputs), _BATCH):
            if stopped():
                break
            part = slice(start, start + _BATCH)
            total += float(model.loss_sum(inputs[part].to(device), targets[part].to(device)))
    return total


def site_nats(model: SiteModel, windows: Windows, batch: int, stopped: Callable[[], bool]) -> float:
    """Return the cross-entropy of windows, summed over the ranks of a site; all must call it.

    Args:
        model: The site's.
        windows: The same on all ranks; each copy of the model takes a share of them.
        batch: Windows that a copy takes at a time; 0 for as many as are good.
        stopped: Says whether to stop early; the same on all ranks.
    """
    copies, number = model.axes.data_ranks, model.axes.data_rank
    count = len(windows.inputs)
    batch = batch or min(_BATCH, -(-count // copies))
    total = 0.0
    # ranks that share weights must all take as many batches of one size
    for start in range(0, count, batch * copies):
        if stopped():
            break
        own = slice(start + number * batch, start + (number + 1) * batch)
        inputs = _filled_up(windows.inputs[own], batch, DOCUMENT)
        targets = _filled_up(windows.targets[own], batch, IGNORED)
        total += float(model.sum_totals(model.evaluate(inputs, targets)).loss_sum)
    return total


def bits_per_byte(total_nats: float, held_out: Sequence[bytes]) -> float | None:
    """Return bits a byte, or ``None`` when nothing was held out."""
    count = sum(map(len, held_out))
    return total_nats / math.log(2) / count if count else None


def bigram_bits_per_byte(train: Sequence[bytes], held_out: Sequence[bytes]) -> float | None:
    """Return the bits a byte of a byte bigram with add-one smoothing, counted on ``train``.

    ``P(b | a) = (n(a, b) + 1) / (n(a) + 256)``, with ``DOCUMENT`` before a document's first byte.
    """
    if not held_out:
        return None
    counts = np.ones((DOCUMENT + 1, DOCUMENT), dtype=np.float64)
    before, after = _pairs(train)
    counts += np.bincount(before * DOCUMENT + after, minlength=counts.size).reshape(counts.shape)
    bits = -np.log2(counts / counts.sum(axis=1, keepdims=True))
    before, after = _pairs(held_out)
    return float(bits[before, after].sum()) / len(after)


def _filled_up(rows: Tensor, count: int, value: int) -> Tensor:
    """Return ``[rows, length]`` with rows of one value added, up to so many."""
    missing = rows.new_full((count - len(rows), rows.shape[1]), value)
    return torch.cat([rows, missing])


def _pairs(documents: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return each byte's predecessor and each byte, over all documents."""
    stream = token_stream(documents).astype(np.int64)
    is_byte = stream[1:] != DOCUMENT
    return stream[:-1][is_byte], stream[1:][is_byte]
