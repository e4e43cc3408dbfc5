"""The state of a part of a training, taken apart for a checkpoint and put together again.

A state is what ``state_dict`` returns: tensors in dictionaries, lists and tuples, and anything
simple beside them. Taken apart it is a *frame*, in which a name stands for each tensor, and the
tensors by their names.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem

_TENSOR = "gridloom.tensor"
"""The only key of the dictionary that stands in a frame for a tensor."""


@dataclass(frozen=True)
class Taken:
    """A state, taken apart.

    Attributes:
        frame: The state with a name for each tensor.
        tensors: The tensors by name.
    """

    frame: Any
    tensors: Mapping[str, Tensor]


def take_apart(state: object, name: str) -> Taken:
    """Return a state as its frame and its tensors, which share memory with it.

    Args:
        state: The state.
        name: Prefix of the tensors' names.
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: object, path: str) -> object:
        if isinstance(value, Tensor):
            tensors[path] = value.detach()
            return {_TENSOR: path}
        before = len(tensors)
        if isinstance(value, Mapping):
            walked: object = {key: walk(inner, f"{path}/{key}") for key, inner in value.items()}
        elif isinstance(value, list | tuple):
            inners = [walk(inner, f"{path}/{i}") for i, inner in enumerate(value)]
            walked = inners if isinstance(value, list) else tuple(inners)
        else:
            return value
        return value if len(tensors) == before else walked

    return Taken(walk(state, name), tensors)


def put_together(frame: object, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state that was taken apart."""
    match frame:
        case dict():
            if frame.keys() == {_TENSOR}:
                return tensors[frame[_TENSOR]]
            return {key: put_together(inner, tensors) for key, inner in frame.items()}
        case list():
            return [put_together(inner, tensors) for inner in frame]
        case tuple() if type(frame) is tuple:
            return tuple(put_together(inner, tensors) for inner in frame)
        case _:
            return frame


def frame_tensors(frame: object) -> list[str]:
    """Return the names of the tensors in a frame, in their order."""
    match frame:
        case dict():
            if frame.keys() == {_TENSOR}:
                return [frame[_TENSOR]]
            return [name for inner in frame.values() for name in frame_tensors(inner)]
        case list() | tuple():
            return [name for inner in frame for name in frame_tensors(inner)]
        case _:
            return []


def pack_frames(frames: Mapping[str, object]) -> bytes:
    """Return frames as bytes.

    Raises:
        InputError: A state has something in it that could not be read again safely.
    """
    for name, frame in frames.items():
        try:
            unpack_frames(_bytes_of({name: frame}))
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            text = f"the state of {name} cannot be kept: {first_line}"
            remedy = "keep tensors, numbers, text, and lists and dictionaries of them in it"
            raise InputError([Problem(text, remedy, field="checkpoint")]) from error
    return _bytes_of(frames)


def unpack_frames(data: bytes) -> dict[str, Any]:
    """Return the frames in bytes; nothing in them can run code."""
    frames: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return frames


def _bytes_of(frames: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(frames), buffer)
    return buffer.getvalue()
