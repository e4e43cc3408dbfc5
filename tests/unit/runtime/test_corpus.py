from pathlib import Path

import pytest
import torch

from gridloom.base.errors import InputError
from gridloom.model.recipe import TextData
from gridloom.runtime.corpus import DOCUMENT, Corpus, Sampler, load_corpus, share_of, token_stream


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_bytes(b"alpha")
    (tmp_path / "b.txt").write_bytes(b"beta")
    (tmp_path / "deep" / "c.txt").write_bytes(b"gamma")
    (tmp_path / "empty.txt").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("entries", "documents"),
    [
        (["."], (b"alpha", b"beta", b"gamma")),
        (["a.txt", "b.txt"], (b"alpha", b"beta")),
        (["*.txt"], (b"alpha", b"beta")),
        (["**/c.*", "b.txt"], (b"beta", b"gamma")),
    ],
)
def test_files_directories_and_patterns(
    tree: Path, entries: list[str], documents: tuple[bytes, ...]
) -> None:
    corpus = load_corpus(TextData(text=tuple(str(tree / e) for e in entries), held_out=0))
    assert sorted(corpus.train) == sorted(documents)
    assert corpus.held_out == ()


def test_files_of_one_name_in_two_directories_are_two(tree: Path) -> None:
    (tree / "deep" / "a.txt").write_bytes(b"another")
    entries = (str(tree / "a.txt"), str(tree / "deep" / "a.txt"))
    assert load_corpus(TextData(text=entries, held_out=0)).train == (b"alpha", b"another")


def test_the_standard_library_is_at_hand_without_its_tests() -> None:
    corpus = load_corpus(TextData())
    size = sum(map(len, corpus.train + corpus.held_out))
    assert 5e6 < size < 30e6
    assert 0.002 < sum(map(len, corpus.held_out)) / size < 0.1
    assert not any(b"import unittest\nfrom test import support" in text for text in corpus.train)
    assert corpus.fingerprint == load_corpus(TextData()).fingerprint


@pytest.mark.parametrize(
    ("text", "held_out", "message"),
    [
        (("missing",), 0.0, "missing names no file; give a file, a directory, a glob pattern"),
        (("nothing*",), 0.0, r"nothing\* names no file"),
        (("empty.txt",), 0.0, "every file is empty"),
        (("a.txt",), 0.1, "all 1 files are held out, none is left to train on; give more files"),
        (("a.txt",), 0.7, "data.held_out: is 0.7, must be 0 to 0.5"),
    ],
)
def test_data_that_cannot_be_used(
    tree: Path, text: tuple[str, ...], held_out: float, message: str
) -> None:
    paths = tuple(str(tree / name) for name in text)
    with pytest.raises(InputError, match=message):
        load_corpus(TextData(text=paths, held_out=held_out))


def test_a_list_without_entries() -> None:
    with pytest.raises(InputError, match="no text in an empty list"):
        load_corpus(TextData(text=()))


def test_a_file_that_cannot_be_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"a\.txt cannot be read: Permission denied"):
        load_corpus(TextData(text=(str(tree / "a.txt"),), held_out=0))


def test_text_shorter_than_a_window() -> None:
    with pytest.raises(InputError, match="5 tokens, fewer than one window of 9"):
        Sampler([b"text"], 8, 1)


def test_documents_are_set_apart_in_the_stream() -> None:
    assert token_stream([b"ab", b"c"]).tolist() == [DOCUMENT, 97, 98, DOCUMENT, 99]


def test_targets_are_the_inputs_moved_by_one() -> None:
    inputs, targets = Sampler([bytes(range(200))], 8, 1).batch(3, 5)
    assert inputs.shape == targets.shape == (5, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(targets[:, -1], inputs[:, -1] + 1)


def test_names_and_contents_make_the_fingerprint() -> None:
    whole = Corpus({"a": b"xy", "b": b"z"}, 0).fingerprint
    assert whole != Corpus({"a": b"x", "b": b"yz"}, 0).fingerprint
    assert whole != Corpus({"c": b"xy", "b": b"z"}, 0).fingerprint


def test_more_ranks_than_samples_leaves_some_without() -> None:
    assert [len(share_of(rank, 4, 2)) for rank in range(4)] == [0, 1, 0, 1]
