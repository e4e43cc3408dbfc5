"""Predicted memory of a rank, against what autograd really keeps."""

import msgspec
import pytest

from gridloom.model.recipe import GptShape, Training
from gridloom.planner.recipe_memory import memory, memory_bytes, micro_batch
from gridloom.planner.shape import parameter_count

SHAPE = GptShape(layers=3, hidden=64, heads=4, kv_heads=2, ffn=192)
TRAINING = Training(steps=10, global_batch=8, sequence_length=128)


def lines(training: Training = TRAINING, ranks: int = 4) -> dict[str, int]:
    return {line.kind: line.size_bytes for line in memory(SHAPE, training, ranks)}


def test_state_is_sixteen_bytes_a_parameter() -> None:
    found, count = lines(), parameter_count(SHAPE)
    assert found["parameters"] == found["gradients (exchange bucket)"] == 4 * count
    assert found["optimizer moments"] == 8 * count
    assert memory_bytes(SHAPE, TRAINING, 4) == sum(found.values())


def test_bf16_adds_copies_and_shrinks_activations() -> None:
    half = lines(msgspec.structs.replace(TRAINING, precision="bf16"))
    matrices = parameter_count(SHAPE) - 7 * 64
    assert half["bf16 copies of the matrices"] == 2 * matrices
    assert half["activations: feed-forward"] * 2 == lines()["activations: feed-forward"]


@pytest.mark.parametrize(
    ("global_batch", "wanted", "ranks", "sequences"),
    [(8, 0, 4, 2), (8, 1, 4, 1), (8, 3, 4, 2), (9, 0, 4, 3), (3, 0, 4, 1), (8, 8, 1, 8)],
)
def test_micro_batch(global_batch: int, wanted: int, ranks: int, sequences: int) -> None:
    training = Training(steps=1, global_batch=global_batch, sequence_length=1, micro_batch=wanted)
    assert micro_batch(training, ranks) == sequences


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_are_what_autograd_keeps(precision: str) -> None:
    torch = pytest.importorskip("torch")
    gpt = pytest.importorskip("gridloom.runtime.gpt")
    model = gpt.Gpt(SHAPE, 1)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, object] = {}
    tokens = torch.zeros((2, 128), dtype=torch.long)

    def keep(tensor: "torch.Tensor") -> "torch.Tensor":  # type: ignore[name-defined]
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage
        return tensor

    copies = precision == "bf16"
    context = torch.autocast("cpu", dtype=torch.bfloat16, enabled=copies)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), context:
        model.loss_sum(tokens, tokens)
    measured = sum(storage.nbytes() for storage in kept.values())  # type: ignore[attr-defined]
    found = lines(msgspec.structs.replace(TRAINING, precision=precision))
    predicted = sum(size for kind, size in found.items() if kind.startswith("activations"))
    predicted += found["logits and loss"] // 2  # the logits' gradient comes later
    predicted += found.get("bf16 copies of the matrices", 0)
    rotary = 2 * 128 * 16 * 4
    assert measured == pytest.approx(predicted + rotary, rel=1e-3)
