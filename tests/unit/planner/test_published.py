"""Rows of a table of measured runs as cases: what is read, inferred, assumed and refused."""

import pytest
from tests.unit.planner.published_rows import refused, row, run

from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.models.presets import preset
from gridloom.planner.published import Unexpressed, read_run

# --- a whole row


def test_a_complete_row() -> None:
    found = run()
    assert (found.id, found.group, found.label) == ("row-1", "table 1", "GPT 7.5B")
    assert found.program == "Megatron-LM"
    assert found.accelerator is ACCELERATORS["a100"]
    assert (found.devices, found.sequence, found.global_batch) == (128, 2048, 512)
    plan = found.plan
    assert (plan.tensor, plan.pipeline, plan.context, plan.data) == (4, 2, 1, 16)
    assert (plan.micro_batch, plan.zero, plan.shard, plan.expert) == (4, 0, 0, 1)
    assert (plan.precision, plan.recompute, plan.flash_attention) == ("bf16", "none", True)
    assert (plan.schedule, plan.virtual_stages, plan.stage_layers) == ("1f1b", 1, ())
    assert (found.step_s, found.memory_bytes) == (3.5, 0.0)
    assert (found.grade, found.assumed, found.guessed) == ("A", (), False)


@pytest.mark.parametrize(
    ("completeness", "grade"),
    [("A", "A"), ("B:vpp+micro_batch", "B"), ("C", "C"), ("OOM", "OOM"), ("", "A")],
)
def test_grades(completeness: str, grade: str) -> None:
    assert run(completeness=completeness).grade == grade


def test_a_row_without_a_group_belongs_to_its_source() -> None:
    assert run(group="").group == "a paper"


def test_degrees_that_are_not_stated_are_one_and_data_ranks_the_rest() -> None:
    plan = run(tp="", pp="", cp="", dp="", ep="").plan
    assert (plan.tensor, plan.pipeline, plan.context, plan.expert) == (1, 1, 1, 1)
    assert plan.data == 128
    assert run(dp="").plan.data == 16
    assert run(dp="", cp="2").plan.data == 8


# --- what is no case


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kind": "formula"}, "not a measurement: formula"),
        ({"notes": "LoRA rank 8"}, "not full training of a language model"),
        ({"model": "ViT-G"}, "not full training of a language model"),
        ({"optimizer": "Adapter"}, "not full training of a language model"),
        ({"layers": ""}, "not stated: layers"),
        ({"layers": "", "hidden": "", "n_gpus": ""}, "not stated: layers, hidden, n_gpus"),
        ({"seq_len": ""}, "not stated: seq_len"),
        ({"gpu": "K80"}, "unknown accelerator 'K80'"),
        ({"gpu": ""}, "unknown accelerator ''"),
        ({"notes": "not packed"}, "no plan names this technique: not packed"),
        ({"act_ckpt": "selective: mlp"}, "no plan names this technique: selective: mlp"),
        ({"unit": "ms"}, "measured in ms, not bytes"),
        ({"unit": "%"}, "measured in %, not bytes"),
        ({"dp": "8"}, "the degrees make 64 ranks, not 128"),
        ({"tp": "3", "dp": ""}, "the degrees make 126 ranks, not 128"),
        ({"tp": "8", "pp": "32", "dp": ""}, "the degrees make 256 ranks, not 128"),
        (
            {"tp": "8", "pp": "32", "dp": "", "micro_batch": ""},
            "the degrees make 256 ranks, not 128",
        ),
    ],
)
def test_what_cannot_be_expressed_says_why(cells: dict[str, str], reason: str) -> None:
    assert refused(**cells) == reason


def test_an_unexpressed_row_keeps_its_id_and_grade() -> None:
    found = read_run(row(gpu="K80", completeness="B:micro_batch"))
    assert found == Unexpressed("row-1", "B", "unknown accelerator 'K80'")


def test_supervised_fine_tuning_trains_the_whole_model() -> None:
    assert run(notes="full finetune, SFT").devices == 128


# --- the model


def test_a_model_is_gated_or_tied_as_its_parameter_count_says() -> None:
    sizes = {"layers": "30", "ffn": "16384"}
    flags = [(gated, tied) for gated in (False, True) for tied in (False, True)]
    counts = {}
    for gated, tied in flags:
        matrices = 4 * 4096**2 + (3 if gated else 2) * 4096 * 16384
        counts[gated, tied] = 30 * matrices + (1 if tied else 2) * 51200 * 4096
    for expected, count in counts.items():
        model = run(params_B=f"{count / 1e9:.4f}", **sizes).model
        assert (model.gated, model.tied) == expected
        assert float(count_parameters(model).total) == pytest.approx(count, rel=1e-3)


def test_without_a_parameter_count_the_plain_gpt_is_taken() -> None:
    model = run(params_B="", layers="30").model
    assert (model.gated, model.tied) == (False, True)


def test_a_feed_forward_that_is_not_stated_is_four_times_as_wide() -> None:
    found = run(ffn="", layers="30")
    assert found.model.ffn == 4 * 4096
    assert found.assumed == ("ffn=16384",)


def test_heads_that_are_not_stated_have_a_size_of_128() -> None:
    found = run(heads="", hidden="3072", layers="30")
    assert found.model.heads == found.model.kv_heads == 24
    assert "heads=24" in found.assumed


def test_grouped_heads_and_vocabulary() -> None:
    found = run(kv_heads="8", vocab="", layers="30").model
    assert (found.kv_heads, found.vocabulary) == (8, 51200)


def test_sizes_of_a_published_model_are_that_model() -> None:
    sizes = {"layers": "32", "hidden": "4096", "ffn": "14336", "heads": "32", "kv_heads": "8"}
    found = run(model="some Llama", vocab="128256", params_B="8", **sizes).model
    assert found.name.startswith("Llama-3")
    assert found == preset(found.name)
    # The same sizes with another vocabulary are another model.
    other = run(model="some Llama", vocab="51200", params_B="8", **sizes).model
    assert (other.name, other.vocabulary) == ("some Llama", 51200)


def test_a_named_model_needs_no_sizes() -> None:
    cells = dict.fromkeys(("layers", "hidden", "ffn", "heads", "vocab", "params_B"), "")
    found = run(model="Llama3-8B torchtitan", tp="1", pp="1", dp="128", **cells)
    assert found.model is preset("llama3-8b")
    assert found.label == "Llama3-8B torchtitan"


@pytest.mark.parametrize(("arch", "width"), [("moe_ffn 1408", 1408), ("a config", 16384)])
def test_experts(arch: str, width: int) -> None:
    model = run(moe="64, top 6", layers="30", arch_source=arch).model
    assert model.experts is not None
    assert (model.experts.count, model.experts.per_token, model.experts.ffn) == (64, 6, width)
    assert (model.gated, model.tied) == (True, False)


def test_one_number_is_no_mixture() -> None:
    assert run(moe="8", layers="30").model.experts is None


# --- the plan


@pytest.mark.parametrize(
    ("pp", "dp", "batch", "micro"),
    [
        ("2", "16", "512", 1),  # a pipeline lives on many micro-batches
        ("1", "32", "512", 4),
        ("1", "32", "64", 2),
        ("1", "32", "96", 1),
        ("1", "32", "", 1),
    ],
)
def test_a_micro_batch_that_is_not_stated(pp: str, dp: str, batch: str, micro: int) -> None:
    found = run(micro_batch="", pp=pp, dp=dp, global_batch=batch)
    assert found.plan.micro_batch == micro
    assert f"micro_batch={micro}" in found.assumed
    assert found.guessed
    assert found.global_batch == (int(batch) if batch else micro * int(dp))


def test_a_batch_that_is_not_stated_is_one_micro_batch_a_replica() -> None:
    found = run(global_batch="")
    assert found.global_batch == 4 * 16
    assert found.assumed == ("global_batch=64",)
    assert not found.guessed


@pytest.mark.parametrize(
    ("layers", "chunks"), [("36", 3), ("48", 3), ("32", 2), ("40", 2), ("28", 1)]
)
def test_an_interleaved_schedule_cuts_stages_into_up_to_three(layers: str, chunks: int) -> None:
    found = run(notes="interleaved schedule", pp="4", dp="8", layers=layers)
    assert found.plan.virtual_stages == chunks
    assert found.plan.schedule == ("interleaved" if chunks > 1 else "1f1b")
    assert found.assumed == (f"virtual_stages={chunks}",)
    assert found.guessed


def test_stated_chunks_stand_and_two_stages_are_not_interleaved() -> None:
    found = run(vpp="6", notes="interleaved schedule", pp="4", dp="8")
    assert (found.plan.virtual_stages, found.assumed) == (6, ())
    assert run(notes="interleaved schedule").plan.virtual_stages == 1


def test_bigscience_spares_its_first_and_last_stage_a_layer() -> None:
    cells = {"source": "bigscience", "pp": "4", "dp": "8"}
    assert run(layers="30", **cells).plan.stage_layers == (7, 8, 8, 7)
    assert run(layers="32", **cells).plan.stage_layers == ()
    assert run(layers="30", pp="4", dp="8").plan.stage_layers == ()


def test_bigscience_fills_its_stages_one_after_the_other() -> None:
    cells = {"source": "bigscience", "n_gpus": "384", "nodes": "48", "dp": "8"}
    found = run(layers="78", pp="12", **cells).plan.stage_layers
    assert found == (*(7,) * 11, 1)  # chronicles-prequel.md, "Re-do"
    assert run(layers="31", source="bigscience").plan.stage_layers == (16, 15)
    # Eleven stages of four would hold more than there are.
    assert run(layers="38", pp="12", **cells).plan.stage_layers == ()
    assert run(layers="78", pp="12", **cells | {"source": "a paper"}).plan.stage_layers == ()


def test_bigscience_exchanges_after_the_last_micro_batch() -> None:
    plans = [run(source=source, zero="1").plan for source in ("bigscience", "a paper")]
    assert [plan.overlap_gradients for plan in plans] == [False, True]
    assert [plan.overlap_parameters for plan in plans] == [False, True]


@pytest.mark.parametrize(
    ("text", "gpu", "precision", "assumed"),
    [
        ("bf16", "A100", "bf16", ()),
        ("FP16", "A100", "fp16", ()),
        ("fp32", "A100", "fp32", ()),
        ("bf16 with fp32 accumulation", "A100", "bf16", ()),
        ("pure bf16", "A100", "bf16_pure", ()),
        ("fp8", "H100", "fp8", ()),
        ("float8 rowwise", "H100", "fp8_rowwise", ()),
        ("nvfp4", "B200", "fp8", ()),
        ("mixed", "A100", "bf16", ()),
        ("", "A100", "bf16", ("precision=bf16",)),
        ("", "H100", "fp8", ("precision=fp8",)),
    ],
)
def test_precisions(text: str, gpu: str, precision: str, assumed: tuple[str, ...]) -> None:
    found = run(precision=text, gpu=gpu)
    assert (found.plan.precision, found.assumed) == (precision, assumed)


@pytest.mark.parametrize(
    ("cells", "kind", "layers"),
    [
        ({"act_ckpt": "none"}, "none", 0),
        ({"act_ckpt": "full"}, "full", 0),
        ({"act_ckpt": "selective"}, "selective", 0),
        ({"act_ckpt": "who knows"}, "none", 0),
        ({"act_ckpt": "selective (per op)", "source": "torchtitan"}, "operators", 0),
        (
            {"act_ckpt": "selective", "source": "torchtitan", "notes": "every 2nd layer"},
            "full",
            9,
        ),
        ({"act_ckpt": "full", "source": "torchtitan"}, "full", 0),
    ],
)
def test_recomputation(cells: dict[str, str], kind: str, layers: int) -> None:
    plan = run(**cells).plan
    assert (plan.recompute, plan.recompute_layers) == (kind, layers)


def test_recomputation_that_is_not_stated_is_assumed_away() -> None:
    found = run(act_ckpt="")
    assert found.plan.recompute == "none"
    assert found.assumed == ("recompute=none",)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"tp": "1", "dp": "64", "seq_parallel": "yes"}, False),
        ({"seq_parallel": "yes"}, True),
        ({"seq_parallel": "True"}, True),
        ({"seq_parallel": "no", "act_ckpt": "selective"}, False),
        ({"act_ckpt": "selective"}, True),  # Megatron introduced both together
        ({"act_ckpt": "full"}, False),
        ({"source": "NeMo"}, True),
        ({"source": "llm-foundry"}, False),
    ],
)
def test_sequence_parallelism(cells: dict[str, str], expected: bool) -> None:
    assert run(**cells).plan.sequence_parallel is expected


@pytest.mark.parametrize(
    ("cells", "flash"),
    [
        ({"flash_attention": "y"}, True),
        ({"flash_attention": "yes"}, True),
        ({"flash_attention": "n"}, False),
        ({"flash_attention": "n", "gpu": "H100"}, False),
        ({"flash_attention": ""}, False),
        ({"flash_attention": "", "gpu": "H100"}, True),
        ({"flash_attention": "", "gpu": "V100"}, False),
        ({"flash_attention": "", "source": "torchtune"}, True),
    ],
)
def test_fused_attention(cells: dict[str, str], flash: bool) -> None:
    assert run(**cells).plan.flash_attention is flash


def test_unstated_attention_that_cannot_fit_is_recomputed() -> None:
    cells = {"flash_attention": "", "seq_len": "16384", "act_ckpt": "none"}
    found = run(**cells)
    assert (found.plan.flash_attention, found.plan.recompute) == (False, "selective")
    assert found.assumed == ("attention=its core recomputed",)
    assert run(**cells | {"flash_attention": "n"}).plan.recompute == "none"
    assert run(**cells | {"completeness": "OOM"}).plan.recompute == "none"
    assert run(**cells | {"act_ckpt": "full"}).plan.recompute == "full"
    assert run(**cells | {"seq_len": "2048"}).assumed == ()


@pytest.mark.parametrize(
    ("source", "gpu", "native"),
    [
        ("Megatron-LM", "H100", True),
        ("torchtitan", "H100", False),  # written for the generation before
        ("torchtitan", "A100", True),
        ("torchtitan", "B200", False),
    ],
)
def test_kernels_of_the_devices_generation(source: str, gpu: str, native: bool) -> None:
    assert run(source=source, gpu=gpu).plan.native_attention is native


@pytest.mark.parametrize(
    ("cells", "zero", "shard"),
    [
        ({"zero": ""}, 0, 0),
        ({"zero": "1"}, 1, 0),
        ({"zero": "3 (FSDP)"}, 3, 0),
        ({"zero": "3, shard group 8"}, 3, 8),
        ({"zero": "3", "notes": "HSDP with FSDP=4"}, 3, 4),
        ({"zero": "3, shard group 999"}, 3, 16),
    ],
)
def test_shards(cells: dict[str, str], zero: int, shard: int) -> None:
    plan = run(**cells).plan
    assert (plan.zero, plan.shard) == (zero, shard)


@pytest.mark.parametrize(
    ("devices", "shard"), [("64", 64), ("128", 128), ("256", 256), ("512", 128)]
)
def test_maxtexts_shards_are_a_product_said_for_two_sizes_of_a_job(
    devices: str, shard: int
) -> None:
    notes = "MaxText; ici_FSDP 8 x dcn_FSDP 16 (32 at 256 GPUs), rest DP"
    cells = {"zero": "3", "tp": "1", "pp": "1", "n_gpus": devices, "dp": devices}
    assert run(notes=notes, **cells).plan.shard == shard
    plain = notes.replace(" (32 at 256 GPUs)", "")
    assert run(notes=plain, **cells).plan.shard == min(int(devices), 128)


@pytest.mark.parametrize(
    ("cells", "overlaps", "unit"),
    [
        ({"zero": "0"}, False, "layer"),
        ({"zero": "1"}, True, "layer"),
        ({"zero": "3", "model": "GPT ZeRO-3"}, False, "tensor"),
        ({"zero": "3", "source": "torchtitan"}, True, "layer"),
    ],
)
def test_what_is_gathered_and_reduced_ahead(
    cells: dict[str, str], overlaps: bool, unit: str
) -> None:
    plan = run(**cells).plan
    assert plan.overlap_gradients is plan.overlap_parameters is overlaps
    assert plan.gather_unit == unit


@pytest.mark.parametrize(
    ("cells", "width"),
    [
        ({}, 0),
        ({"source": "bigscience"}, 6),
        ({"source": "bigscience", "precision": "fp16"}, 2),
        ({"precision": "fp16"}, 0),
        ({"source": "NeMo"}, 2),
    ],
)
def test_bytes_of_summed_gradients(cells: dict[str, str], width: int) -> None:
    assert run(**cells).plan.gradient_bytes == width


def test_programs_set_what_rows_do_not_say() -> None:
    plan = run(source="bigscience").plan
    assert (plan.blocking_launches, plan.fused, plan.dropout) == (True, False, True)
    tune = run(source="torchtune", precision="fp32").plan
    assert tune.precision == "bf16_pure"
