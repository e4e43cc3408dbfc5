"""Presets: the published counts, the names people write, and sizes from tables."""

import pytest

from gridloom.base.errors import InputError
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.models.preset_row import Published
from gridloom.planner.models.presets import (
    PUBLISHED,
    closest_names,
    find_preset,
    matching,
    preset,
    preset_names,
)

ROWS = {row.model.name: row for row in PUBLISHED}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.unit == 1])
def test_exact_counts_are_met_exactly(name: str) -> None:
    row = ROWS[name]
    assert count_parameters(row.model).total + row.stored_again == row.count


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.unit > 1])
def test_rounded_counts_are_met_to_the_last_printed_digit(name: str) -> None:
    row = ROWS[name]
    total = count_parameters(row.model).total + row.stored_again
    cut, rounded = total // row.unit, (total + row.unit // 2) // row.unit
    assert row.count // row.unit in (cut, rounded)


def test_most_counts_are_exact_and_each_has_a_source() -> None:
    assert sum(row.unit == 1 for row in PUBLISHED) >= 99
    assert all(row.source for row in PUBLISHED)
    assert len(ROWS) == len(PUBLISHED) == len(preset_names())


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: str(row.model.name))
def test_every_name_and_alias_finds_its_preset(row: Published) -> None:
    for name in (row.model.name, *row.aliases):
        for written in (name, name.lower(), name.upper(), name.replace("-", "_"), f"some/{name}"):
            assert find_preset(written) == row.model


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("llama3-8b", "Llama-3-8B"),
        ("LLAMA3_70B", "Llama-3-70B"),
        ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("google/gemma-2-9b-it", "Gemma-2-9B"),
        ("openai-community/gpt2-xl", "GPT-2-XL"),
        ("bigscience/bloom-7b1", "BLOOM-7.1B"),
        ("GPT 175B", "GPT-3-175B"),
        ("gpt3-6.7b", "GPT-3-6.7B"),
        ("Qwen2.5-7B", "Qwen2.5-7B"),
        ("Qwen25-7B", "Qwen2.5-7B"),
        ("qwen2-57b", "Qwen2-57B-A14B"),
        ("deepseek-ai/DeepSeek-V3-Base", "DeepSeek-V3"),
        ("Grok1-314B", "Grok-1"),
        ("nemotron4 340b", "Nemotron-4-340B"),
    ],
)
def test_names_as_people_write_them(written: str, name: str) -> None:
    assert preset(written).name == name


def test_a_name_that_could_be_two_presets_is_none() -> None:
    assert find_preset("qwen257b") is None
    assert set(closest_names("qwen257b")) >= {"Qwen2.5-7B", "Qwen2-57B-A14B"}


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError) as caught:
        preset("lama-3.1-8b")
    assert "Llama-3.1-8B" in caught.value.problems[0].remedy
    assert len(closest_names("lama-3.1-8b")) <= 3
    with pytest.raises(InputError, match="zzz"):
        preset("zzz")
    assert closest_names("zzz") == ()
    with pytest.raises(InputError, match="''"):
        preset("")


@pytest.mark.parametrize(
    ("sizes", "more", "name"),
    [
        ((32, 4096, 32), {"kv_heads": 8, "vocabulary": 128256}, "Llama-3.1-8B"),
        ((32, 4096, 32), {"kv_heads": 8, "vocabulary": 32000}, "Mistral-7B"),
        ((32, 4096, 32), {"kv_heads": 8, "vocabulary": 32768}, "Mistral-7B-v0.3"),
        ((32, 4096, 32), {"kv_heads": 8, "experts": 8}, "Mixtral-8x7B"),
        ((32, 4096, 32), {"kv_heads": 32, "vocabulary": 32000}, "Llama-2-7B"),
        ((32, 4096, 32), {"kv_heads": 32, "vocabulary": 103168}, "InternLM-7B"),
        ((32, 4096, 32), {"vocabulary": 50368}, "MPT-7B-benchmark"),
        ((80, 8192, 64), {"kv_heads": 8, "vocabulary": 128256}, "Llama-3.1-70B"),
        ((96, 12288, 96), {"vocabulary": 51200}, "GPT-3-175B"),
        ((96, 12288, 96), {}, "GPT-3-175B"),
        ((61, 7168, 128), {"experts": 256}, "DeepSeek-V3"),
        ((94, 4096, 64), {"kv_heads": 4, "vocabulary": 151936, "experts": 128}, "Qwen3-235B-A22B"),
        ((64, 6144, 48), {"kv_heads": 8, "vocabulary": 131072, "experts": 8}, "Grok-1"),
    ],
)
def test_the_preset_of_a_row_of_a_table(
    sizes: tuple[int, int, int], more: dict[str, int], name: str
) -> None:
    found = matching(*sizes, **more)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("sizes", "more"),
    [
        ((96, 12288, 96), {"vocabulary": 250000}),  # no padding explains five times the rows
        ((96, 12288, 64), {}),
        ((96, 12288, 96), {"kv_heads": 8}),
        ((61, 7168, 128), {}),  # a dense model of DeepSeek-V3's sizes
        ((2, 6144, 48), {"kv_heads": 8, "experts": 8}),
    ],
)
def test_other_sizes_are_no_preset(sizes: tuple[int, int, int], more: dict[str, int]) -> None:
    assert matching(*sizes, **more) is None
