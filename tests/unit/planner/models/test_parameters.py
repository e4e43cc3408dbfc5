"""Counts against a list of every tensor, against published splits, and by property."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner.cases import model_columns, stack
from gridloom.planner.models.parameters import (
    Parameters,
    attention_weights,
    count_parameters,
    embedding_weights,
    expert_weights,
    ffn_weights,
    norm_weights,
    output_weights,
    parameter_columns,
    prediction_weights,
    router_weights,
    shared_expert_weights,
)
from gridloom.planner.models.presets import preset

Tensors = Iterator[tuple[int, ...]]


def tensors(model: Transformer) -> Tensors:
    """Every tensor of the main model, one by one, as a checkpoint would list them."""
    norm = [(model.hidden,)] * (2 if model.norm_bias else 1)
    yield (model.vocabulary, model.hidden)
    if model.positions:
        yield (model.positions, model.hidden)
    if model.embedding_norm:
        yield from norm
    experts = model.experts
    first = experts.dense_layers if experts else model.layers
    every = experts.every if experts else 1
    for layer in range(model.layers):
        of_experts = layer >= first and (layer - first + 1) % every == 0
        yield from norm * model.norms_per_layer
        yield from block_tensors(model, of_experts=of_experts)
    yield from norm
    if not model.tied:
        yield (model.vocabulary, model.hidden)
    if model.head_bias:
        yield (model.vocabulary,)


def block_tensors(model: Transformer, *, of_experts: bool) -> Tensors:
    yield from latent_tensors(model) if model.latent else projection_tensors(model)
    experts = model.experts
    if experts is None or not of_experts:
        yield from ffn_tensors(model, model.ffn)
        return
    yield (experts.count, model.hidden)
    if experts.router_bias:
        yield (experts.count,)
    for _ in range(experts.count):
        yield from ffn_tensors(model, experts.ffn)
    if experts.shared_ffn:
        yield from ffn_tensors(model, experts.shared_ffn)
    if experts.shared_gate:
        yield (1, model.hidden)


def projection_tensors(model: Transformer) -> Tensors:
    size = model.width_per_head
    for heads in (model.heads, model.kv_heads, model.kv_heads):
        yield (heads * size, model.hidden)
        if model.qkv_bias:
            yield (heads * size,)
    yield (model.hidden, model.heads * size)
    if model.output_bias:
        yield (model.hidden,)
    if model.qk_norm == "head":
        yield from ((size,), (size,))
    if model.qk_norm == "all":
        yield from ((model.heads * size,), (model.kv_heads * size,))


def latent_tensors(model: Transformer) -> Tensors:
    latent = model.latent
    assert latent is not None
    query = model.heads * (latent.nope_size + latent.rope_size)
    if latent.query_rank:
        yield from ((latent.query_rank, model.hidden), (latent.query_rank,))
        yield (query, latent.query_rank)
    else:
        yield (query, model.hidden)
    yield from ((latent.kv_rank + latent.rope_size, model.hidden), (latent.kv_rank,))
    yield (model.heads * (latent.nope_size + latent.value_size), latent.kv_rank)
    yield (model.hidden, model.heads * latent.value_size)
    if model.output_bias:
        yield (model.hidden,)


def ffn_tensors(model: Transformer, width: int) -> Tensors:
    for _ in range(2 if model.gated else 1):
        yield (width, model.hidden)
        if model.ffn_bias:
            yield (width,)
    yield (model.hidden, width)
    if model.ffn_bias:
        yield (model.hidden,)


def elements(listed: Tensors) -> int:
    return sum(math.prod(shape) for shape in listed)


LATENT = st.builds(
    LatentAttention,
    query_rank=st.integers(0, 5),
    kv_rank=st.integers(1, 5),
    rope_size=st.integers(1, 4),
    nope_size=st.integers(1, 4),
    value_size=st.integers(1, 4),
)
EXPERTS = st.builds(
    Experts,
    count=st.integers(2, 5),
    per_token=st.integers(1, 2),
    ffn=st.integers(1, 9),
    shared_ffn=st.integers(0, 9),
    shared_gate=st.booleans(),
    dense_layers=st.integers(0, 2),
    every=st.integers(1, 3),
    router_bias=st.booleans(),
)
MODELS = st.builds(
    Transformer,
    name=st.just("any"),
    layers=st.integers(2, 7),
    hidden=st.sampled_from([8, 16]),
    ffn=st.integers(1, 40),
    heads=st.sampled_from([2, 4]),
    kv_heads=st.sampled_from([1, 2]),
    head_size=st.integers(0, 6),
    vocabulary=st.integers(1, 50),
    gated=st.booleans(),
    tied=st.booleans(),
    positions=st.integers(0, 9),
    norm_bias=st.booleans(),
    norms_per_layer=st.sampled_from([1, 2, 4]),
    qk_norm=st.sampled_from(["", "head", "all"]),
    embedding_norm=st.booleans(),
    qkv_bias=st.booleans(),
    output_bias=st.booleans(),
    ffn_bias=st.booleans(),
    head_bias=st.booleans(),
    latent=st.none() | LATENT,
    experts=st.none() | EXPERTS,
    prediction_layers=st.integers(0, 2),
)


@given(model=MODELS)
def test_every_tensor_is_counted_once(model: Transformer) -> None:
    counted = count_parameters(model)
    assert counted.main == elements(tensors(model))
    assert isinstance(counted.total, int)


@given(model=MODELS)
def test_a_prediction_module_is_a_block_that_joins_two_streams(model: Transformer) -> None:
    norm = model.hidden * (2 if model.norm_bias else 1)
    block = elements(block_tensors(model, of_experts=model.experts is not None))
    module = block + (3 + model.norms_per_layer) * norm + 2 * model.hidden * model.hidden
    assert prediction_weights(model_columns(model)) == module
    assert count_parameters(model).prediction == model.prediction_layers * module


@given(model=MODELS, more=st.sampled_from(["layers", "ffn", "vocabulary", "heads"]))
def test_a_larger_model_has_more(model: Transformer, more: str) -> None:
    larger = replace(model, **{more: 2 * asdict(model)[more]}, head_size=model.head_size or 3)
    model = replace(model, head_size=larger.head_size)
    before, after = count_parameters(model), count_parameters(larger)
    # A dense width is of no use where every layer has experts.
    unused = more == "ffn" and model.expert_layers == model.layers and not model.prediction_layers
    if unused or (more == "ffn" and model.expert_layers == model.layers and model.experts):
        assert after.total == before.total
    else:
        assert after.total > before.total


@given(model=MODELS)
def test_tying_removes_one_table(model: Transformer) -> None:
    tied = count_parameters(replace(model, tied=True)).total
    untied = count_parameters(replace(model, tied=False)).total
    assert untied - tied == model.vocabulary * model.hidden


@given(model=MODELS)
def test_a_token_goes_through_part_of_the_experts(model: Transformer) -> None:
    counted = count_parameters(model)
    idle = 0
    if model.experts is not None:
        resting = model.experts.count - model.experts.per_token
        idle = model.expert_layers * resting * elements(ffn_tensors(model, model.experts.ffn))
    assert counted.active == counted.main - idle


@given(models=st.lists(MODELS, min_size=1, max_size=6))
def test_a_table_of_models_counts_like_each_of_them(models: list[Transformer]) -> None:
    table = parameter_columns(stack([model_columns(model) for model in models]))
    singles = [count_parameters(model) for model in models]
    for part in Parameters.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(table, part), [getattr(one, part) for one in singles])
    np.testing.assert_array_equal(table.total, [one.total for one in singles])
    np.testing.assert_array_equal(table.active, [one.active for one in singles])


def test_a_layer_of_llama_by_hand() -> None:
    columns = model_columns(preset("Llama-3.1-8B"))
    assert embedding_weights(columns) == output_weights(columns) == 128256 * 4096
    assert attention_weights(columns) == 4096 * (4096 + 1024 + 1024 + 4096)
    assert ffn_weights(columns) == 3 * 4096 * 14336
    assert norm_weights(columns) == 2 * 4096
    assert expert_weights(columns) == shared_expert_weights(columns) == router_weights(columns) == 0


def test_the_experts_of_deepseek_by_hand() -> None:
    columns = model_columns(preset("DeepSeek-V3"))
    assert expert_weights(columns) == shared_expert_weights(columns) == 3 * 7168 * 2048
    assert router_weights(columns) == 256 * 7168 + 256
    counted = count_parameters(preset("DeepSeek-V3"))
    assert counted.routed_experts == 58 * 256 * 3 * 7168 * 2048
    assert counted.ffn == 3 * 3 * 7168 * 18432


@pytest.mark.parametrize(
    ("name", "tenths", "unit"),
    # Tenths of 10^9 as publishers print them, some rounded, some cut; the unit of the last digit.
    [
        ("Mixtral-8x7B", 129, 1),
        ("Mixtral-8x22B", 390, 10),
        ("Qwen3-30B-A3B", 33, 1),
        ("Qwen3-235B-A22B", 220, 10),
        ("Qwen3-Coder-480B-A35B", 350, 10),
        ("Qwen2-57B-A14B", 140, 10),
        ("DeepSeek-V2", 210, 10),
        ("DeepSeek-V3", 370, 10),
        ("DeepSeekMoE-16B", 28, 1),
        ("Kimi-K2", 320, 10),
    ],
)
def test_active_parameters_as_published(name: str, tenths: int, unit: int) -> None:
    active = count_parameters(preset(name)).active / (unit * 1e8)
    assert tenths // unit in (math.floor(active), round(active))


@pytest.mark.parametrize(
    ("name", "non_embedding"),
    # EleutherAI/pythia, README: parameters without both tables.
    [
        ("Pythia-70M", 18_915_328),
        ("Pythia-160M", 85_056_000),
        ("Pythia-410M", 302_311_424),
        ("Pythia-1B", 805_736_448),
        ("Pythia-1.4B", 1_208_602_624),
        ("Pythia-2.8B", 2_517_652_480),
        ("Pythia-6.9B", 6_444_163_072),
        ("Pythia-12B", 11_327_027_200),
    ],
)
def test_the_split_that_pythia_prints(name: str, non_embedding: int) -> None:
    counted = count_parameters(preset(name))
    assert counted.total - counted.embedding - counted.output == non_embedding
