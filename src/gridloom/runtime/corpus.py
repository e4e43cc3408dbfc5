"""Text as bytes: the corpus, the files held out, and a data order that needs no memory.

A document is a file. The training stream is every training file's bytes, each file preceded by
``DOCUMENT``; it is cut into windows of ``sequence_length`` inputs and as many targets. The sample
with number ``k`` (from 0 over the whole training) is the window at place ``k mod windows`` of the
permutation of pass ``k div windows``, so any rank can find any sample of any step by itself.
"""

import glob
import hashlib
import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import PYTHON_STDLIB, TextData

DOCUMENT = 256
"""The token between documents; 0 to 255 are the bytes themselves."""

Tokens = npt.NDArray[np.uint16]

_NOT_STDLIB = {
    "site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "idlelib",
    "lib2to3", "turtledemo", "ensurepip",
}  # fmt: skip


class Corpus:
    """The documents of a recipe, split into those to train on and those held out.

    Attributes:
        train: Training documents in order of their names.
        held_out: Held-out documents in order of their names.
        fingerprint: SHA-256 over all names and contents, equal where the data is equal.
    """

    def __init__(self, documents: dict[str, bytes], held_out: float) -> None:
        apart = held_out_names(documents, held_out)
        names = sorted(documents)
        self.train = tuple(documents[name] for name in names if name not in apart)
        self.held_out = tuple(documents[name] for name in names if name in apart)
        if not self.train:
            raise InputError(
                [
                    Problem(
                        f"all {len(names)} files are held out, none is left to train on",
                        remedy="give more files, or set data.held_out to 0",
                        field="data.held_out",
                    )
                ]
            )
        digest = hashlib.sha256()
        for name in names:
            digest.update(f"{name}\0{len(documents[name])}\0".encode() + documents[name])
        self.fingerprint = digest.hexdigest()


class Sampler:
    """Windows of the training stream in an order fixed by the seed alone."""

    def __init__(self, documents: Iterable[bytes], sequence_length: int, seed: int) -> None:
        self.stream = token_stream(documents)
        self.sequence_length, self.seed = sequence_length, seed
        self.windows = (len(self.stream) - 1) // sequence_length
        if self.windows < 1:
            raise InputError(
                [
                    Problem(
                        f"the training text has {len(self.stream)} tokens, fewer than one window "
                        f"of {sequence_length + 1}",
                        remedy="give more text, or a shorter sequence_length",
                        field="data.text",
                    )
                ]
            )
        self._pass: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, dtype=np.int64))

    def window(self, sample: int) -> int:
        """Return the number of the window that is sample ``sample``, counted from 0."""
        number, place = divmod(sample, self.windows)
        if self._pass[0] != number:
            order = np.random.default_rng((self.seed, number)).permutation(self.windows)
            self._pass = (number, order)
        return int(self._pass[1][place])

    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``[count, sequence_length]`` of samples from ``first`` on."""
        length = self.sequence_length
        starts = [self.window(first + i) * length for i in range(count)]
        rows = np.stack([self.stream[start : start + length + 1] for start in starts])
        tokens = torch.from_numpy(rows.astype(np.int64))
        return tokens[:, :-1], tokens[:, 1:]


def load_corpus(data: TextData) -> Corpus:
    """Read the corpus that a recipe names.

    Raises:
        InputError: Nothing there, nothing in it, or not readable.
    """
    if not 0 <= data.held_out <= 0.5:
        problem = Problem(f"is {data.held_out}, must be 0 to 0.5", field="data.held_out")
        raise InputError([problem])
    documents: dict[str, bytes] = {}
    for name, path in _find(data.text).items():
        try:
            content = path.read_bytes()
        except OSError as error:
            text = f"{path} cannot be read: {error.strerror}"
            remedy = "make it readable at every site"
            raise InputError([Problem(text, remedy=remedy, field="data.text")]) from error
        if content:
            documents[name] = content
    if not documents:
        text = f"no text in {', '.join(data.text) or 'an empty list'}: every file is empty"
        raise InputError([Problem(text, remedy="name files with text in them", field="data.text")])
    return Corpus(documents, data.held_out)


def held_out_names(names: Iterable[str], share: float) -> set[str]:
    """Return the names whose hash falls under ``share``; at least one when ``share`` > 0.

    A name's fate depends on nothing but itself, so files that are added move no other file.
    """
    if share <= 0:
        return set()
    places = {name: _hash_place(name) for name in names}
    under = {name for name, place in places.items() if place < share}
    return under or {min(places, key=lambda name: (places[name], name))}


def token_stream(documents: Iterable[bytes]) -> Tokens:
    """Return the documents as one stream of tokens, ``DOCUMENT`` before each."""
    parts: list[Tokens] = []
    for document in documents:
        parts.append(np.array([DOCUMENT], dtype=np.uint16))
        parts.append(np.frombuffer(document, dtype=np.uint8).astype(np.uint16))
    return np.concatenate(parts)


def share_of(rank: int, world_size: int, global_batch: int) -> range:
    """Return the samples of a step that are ``rank``'s: contiguous, uneven by at most one."""
    return range(rank * global_batch // world_size, (rank + 1) * global_batch // world_size)


def _hash_place(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _find(entries: Iterable[str]) -> dict[str, Path]:
    """Return all files by name: relative to the standard library, or to what the rest share."""
    named: dict[str, Path] = {}
    loose: set[Path] = set()
    for entry in entries:
        if entry == PYTHON_STDLIB:
            named.update(_standard_library())
        else:
            loose.update(_files_of(entry))
    if loose:
        root = os.path.commonpath([file.parent for file in loose])
        named.update({file.relative_to(root).as_posix(): file for file in loose})
    return named


def _standard_library() -> dict[str, Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    names = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {
        f"{PYTHON_STDLIB}/{name}": path
        for name, path in names.items()
        if _NOT_STDLIB.isdisjoint(name.split("/"))
    }


def _files_of(entry: str) -> list[Path]:
    path = Path(os.path.abspath(entry))
    if path.is_dir():
        found = list(path.rglob("*"))
    elif path.is_file():
        found = [path]
    else:
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    files = [file for file in found if file.is_file()]
    if not files:
        raise InputError(
            [
                Problem(
                    f"{entry} names no file",
                    remedy=f"give a file, a directory, a glob pattern or {PYTHON_STDLIB!r}",
                    field="data.text",
                )
            ]
        )
    return files
