"""What programs are known to do, found by the words of a row."""

import re

import pytest

from gridloom.planner.published_programs import PROGRAMS, Program, program_of


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("bigscience tr11 chronicles", "Megatron-DeepSpeed (bigscience)"),
        ("Megatron-LM SC21 GPT ZeRO-3 baseline", "DeepSpeed ZeRO-3"),
        ("MaxText on TPU v5e", "MaxText on TPU"),
        ("NVIDIA/JAX-Toolbox", "JAX on GPU"),
        ("Paxml GPT3 on H100", "JAX on GPU"),
        ("pytorch/torchtitan benchmarks", "torchtitan"),
        ("pytorch/ao docs", "torchtitan"),
        ("torchtune README", "torchtune"),
        ("NeMo performance summary", "NeMo"),
        ("NVIDIA Megatron-Bridge", "NeMo"),
        ("NVIDIA/dgxc-benchmarking", "NeMo"),
        ("mosaicml/llm-foundry throughput", "llm-foundry"),
        ("MPT-7B", "llm-foundry"),
        ("InternLM/InternEvo", "InternEvo"),
        ("Korthikanti 2022, table 5", "Megatron-LM"),
        ("NVIDIA/Megatron-LM images", "Megatron-LM"),
        ("", "Megatron-LM"),
    ],
)
def test_words_name_a_program(words: str, name: str) -> None:
    assert program_of(words).name == name


def test_the_first_match_wins() -> None:
    both = "MaxText on TPU beside bigscience"
    assert program_of(both) is PROGRAMS[0]


def test_only_the_last_program_stands_for_everything() -> None:
    assert PROGRAMS[-1].words == ""
    assert all(program.words for program in PROGRAMS[:-1])
    assert all(re.compile(program.words) for program in PROGRAMS)


@pytest.mark.parametrize(
    ("words", "fused"),
    [("torchtitan", True), ("torchtitan eager", False), ("pytorch/ao float8nocompile", False)],
)
def test_torchtitan_is_fused_unless_it_runs_eagerly(words: str, fused: bool) -> None:
    assert program_of(words).fused is fused


def test_torchtitan_overlaps_tensor_collectives_when_it_says_so() -> None:
    assert not program_of("torchtitan TP 8").overlap_tensor
    assert program_of("torchtitan with async TP").overlap_tensor


@pytest.mark.parametrize(
    ("words", "loss"),
    [
        ("torchtitan H100", "copies"),
        ("pytorch/ao docs B200", "fused"),
        ("pytorch/ao docs H100", "copies"),
    ],
)
def test_the_loss_is_compiled_where_the_compiler_took_the_whole_model(
    words: str, loss: str
) -> None:
    assert program_of(words).loss == loss


@pytest.mark.parametrize(
    ("words", "fused", "loss"),
    [
        ("torchtune", True, "copies"),
        ("torchtune packed", False, "copies"),
        ("torchtune packed, chunked loss", False, "chunked"),
        ("torchtune activation checkpointing", True, "chunked"),
    ],
)
def test_torchtunes_recipes(words: str, fused: bool, loss: str) -> None:
    found = program_of(words)
    assert (found.fused, found.loss) == (fused, loss)


def test_only_korthikantis_megatron_trains_with_dropout() -> None:
    later, earlier = program_of("Megatron-LM"), program_of("Korthikanti 2022")
    assert (earlier.dropout, earlier.loss) == (True, "copies")
    assert (later.dropout, later.loss) == (False, "in_place")
    assert earlier.sequence_parallel == later.sequence_parallel == "selective"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.words or "all others")
def test_conventions_are_possible(program: Program) -> None:
    assert program.sequence_parallel in {"never", "always", "selective"}
    assert program.gradient_bytes in {0, 2, 4, 6}
    assert program.reduce_bytes in {0, 2, 4}
    assert not (program.gather_by_tensor and program.even_ends)
