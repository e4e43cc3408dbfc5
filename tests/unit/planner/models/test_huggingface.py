"""Configurations of published models give the presets; nonsense is refused by name."""

from typing import Any

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.planner.models.huggingface import from_config
from gridloom.planner.models.presets import preset

# The keys that decide the shape, with the values of the models' public configurations.
CONFIGS: dict[str, dict[str, Any]] = {
    "GPT-2": {
        "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "vocab_size": 50257,
    },
    "GPT-2-XL": {
        "model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_inner": None,
        "n_positions": 1024, "vocab_size": 50257,
    },
    "Llama-2-7B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
        "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000,
    },
    "Llama-3.1-8B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "vocab_size": 128256,
    },
    "Llama-3.2-3B": {
        "model_type": "llama", "head_dim": 128, "hidden_size": 3072, "intermediate_size": 8192,
        "num_attention_heads": 24, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "vocab_size": 128256,
    },
    "Mistral-7B": {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "sliding_window": 4096, "vocab_size": 32000,
    },
    "Mistral-7B-v0.3": {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "sliding_window": None, "vocab_size": 32768,
    },
    "Mistral-Nemo-12B": {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
        "sliding_window": None, "vocab_size": 131072,
    },
    "Mixtral-8x7B": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
        "vocab_size": 32000,
    },
    "Qwen2-7B": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "sliding_window": 131072, "use_sliding_window": False,
        "tie_word_embeddings": False, "vocab_size": 152064,
    },
    "Qwen2-57B-A14B": {
        "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 3584,
        "intermediate_size": 18944, "moe_intermediate_size": 2560, "num_attention_heads": 28,
        "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "shared_expert_intermediate_size": 20480,
        "use_sliding_window": False, "vocab_size": 151936,
    },
    "Qwen3-0.6B": {
        "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_size": 1024,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 151936,
    },
    "Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
        "intermediate_size": 6144, "mlp_only_layers": [], "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936,
    },
    "DeepSeek-V2-Lite": {
        "model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048,
        "intermediate_size": 10944, "kv_lora_rank": 512, "moe_intermediate_size": 1408,
        "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
        "num_key_value_heads": 16, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    },
    "DeepSeek-V3-MTP": {
        "model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168,
        "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
        "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
        "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    },
    "Nemotron-4-340B": {
        "model_type": "nemotron", "attention_bias": False, "head_dim": 192, "hidden_size": 18432,
        "intermediate_size": 73728, "mlp_bias": False, "num_attention_heads": 96,
        "num_hidden_layers": 96, "num_key_value_heads": 8, "vocab_size": 256000,
    },
    "BLOOM-560M": {
        "model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
        "vocab_size": 250880,
    },
    "BLOOM-176B": {
        "model_type": "bloom", "hidden_size": 14336, "n_head": 112, "n_layer": 70,
        "vocab_size": 250880,
    },
    "MPT-7B": {
        "model_type": "mpt", "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
        "d_model": 4096, "expansion_ratio": 4, "learned_pos_emb": True, "max_seq_len": 2048,
        "n_heads": 32, "n_layers": 32, "no_bias": True, "vocab_size": 50432,
    },
    "MPT-13B": {
        "model_type": "mpt", "d_model": 5120, "max_seq_len": 2048, "n_heads": 40, "n_layers": 40,
        "no_bias": False, "vocab_size": 50368,
    },
    "Gemma-2B": {
        "model_type": "gemma", "head_dim": 256, "hidden_size": 2048, "intermediate_size": 16384,
        "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1,
        "vocab_size": 256000,
    },
    "Gemma-2-27B": {
        "model_type": "gemma2", "head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864,
        "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16,
        "sliding_window": 4096, "vocab_size": 256000,
    },
    "Gemma-3-1B": {
        "model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152,
        "intermediate_size": 6912, "num_attention_heads": 4, "num_hidden_layers": 26,
        "num_key_value_heads": 1, "sliding_window": 512, "sliding_window_pattern": 6,
        "vocab_size": 262144,
    },
    "GLM-4-9B": {
        "model_type": "glm", "attention_bias": True, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 13696, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "vocab_size": 151552,
    },
    "GLM-4-9B-0414": {
        "model_type": "glm4", "attention_bias": True, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 13696, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "vocab_size": 151552,
    },
    "GLM-4.5-Air-MTP": {
        "model_type": "glm4_moe", "attention_bias": True, "first_k_dense_replace": 1,
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1,
        "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46,
        "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "use_qk_norm": False,
        "vocab_size": 151552,
    },
    "GLM-4.5": {
        "model_type": "glm4_moe", "attention_bias": True, "first_k_dense_replace": 3,
        "head_dim": 128, "hidden_size": 5120, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 1,
        "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 92,
        "num_key_value_heads": 8, "use_qk_norm": True, "vocab_size": 151552,
    },
    "Pythia-1B": {
        "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192,
        "num_attention_heads": 8, "num_hidden_layers": 16, "tie_word_embeddings": False,
        "vocab_size": 50304,
    },
    "Phi-4": {
        "model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920,
        "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
        "sliding_window": None, "vocab_size": 100352,
    },
    "OLMo-2-32B": {
        "model_type": "olmo2", "hidden_size": 5120, "intermediate_size": 27648,
        "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
        "vocab_size": 100352,
    },
}  # fmt: skip

LLAMA = CONFIGS["Llama-3.1-8B"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_configuration_is_its_preset(name: str) -> None:
    read, expected = from_config(CONFIGS[name]), preset(name)
    # Where the configuration spells out the usual size of a head, so does what was read.
    assert read.width_per_head == expected.width_per_head
    assert replace(read, name=name, head_size=0) == replace(expected, head_size=0)


def test_the_name_is_the_path_or_the_type() -> None:
    assert from_config(LLAMA).name == "llama"
    assert from_config({**LLAMA, "_name_or_path": "my/llama"}).name == "my/llama"


def test_kimi_is_read_like_deepseek() -> None:
    config = {
        **CONFIGS["DeepSeek-V3-MTP"], "model_type": "kimi_k2", "first_k_dense_replace": 1,
        "n_routed_experts": 384, "num_attention_heads": 64, "num_key_value_heads": 64,
        "num_nextn_predict_layers": 0, "vocab_size": 163840,
    }  # fmt: skip
    assert replace(from_config(config), name="Kimi-K2") == preset("Kimi-K2")


def test_a_vision_model_is_planned_by_its_language_model() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024}  # fmt: skip
    read = from_config({"model_type": "gemma3", "text_config": text})
    assert replace(read, name="Gemma-3-4B", vocabulary=262144) == preset("Gemma-3-4B")
    with pytest.raises(InputError, match=r"text_config\.hidden_size"):
        from_config({"model_type": "gemma3", "text_config": {**text, "hidden_size": "wide"}})
    with pytest.raises(InputError, match="text_config: 3"):
        from_config({"model_type": "gemma3", "text_config": 3})


@pytest.mark.parametrize(
    ("kinds", "every"),
    [
        (["sliding_attention"] * 5 + ["full_attention"], 6),
        ((["sliding_attention"] * 5 + ["full_attention"]) * 4 + ["sliding_attention"] * 2, 6),
        (["sliding_attention"] * 26, 0),
        (["full_attention"] * 26, 1),
    ],
)
def test_the_kinds_of_layers_say_how_often_one_sees_all(kinds: list[str], every: int) -> None:
    config = {**CONFIGS["Gemma-3-1B"], "layer_types": kinds}
    assert from_config(config).full_every == every


def test_attention_of_mpt() -> None:
    config = {**CONFIGS["MPT-7B"], "attn_config": {"attn_type": "multiquery_attention"}}
    assert from_config(config).kv_heads == 1
    assert from_config(config).positions == 2048
    grouped = {"attn_type": "grouped_query_attention", "kv_n_heads": 8, "alibi": True}
    assert from_config({**config, "attn_config": grouped}).kv_heads == 8
    assert from_config({**config, "attn_config": grouped}).positions == 0
    assert from_config({**config, "learned_pos_emb": False}).positions == 0


def test_biases_and_layers_of_experts_that_only_a_key_says() -> None:
    biased = from_config({**LLAMA, "attention_bias": True, "mlp_bias": True})
    assert biased.qkv_bias
    assert biased.output_bias
    assert biased.ffn_bias
    assert from_config({**CONFIGS["Gemma-2B"], "attention_bias": True}).output_bias
    experts = from_config({**CONFIGS["Qwen3-30B-A3B"], "mlp_only_layers": [1, 0]}).experts
    assert experts is not None
    assert experts.dense_layers == 2
    experts = from_config({**CONFIGS["Qwen3-30B-A3B"], "decoder_sparse_step": 2}).experts
    assert experts is not None
    assert experts.every == 2
    lone = from_config({**CONFIGS["GLM-4.5"], "n_shared_experts": None}).experts
    assert lone is not None
    assert lone.shared_ffn == 0


def test_windows_that_no_layer_has() -> None:
    config = {**CONFIGS["Qwen2-7B"], "use_sliding_window": True}
    assert from_config(config).window == 0
    with pytest.raises(InputError, match="use_sliding_window"):
        from_config({**config, "max_window_layers": 20})


@pytest.mark.parametrize(
    ("base", "change", "field", "says"),
    [
        ("Llama-3.1-8B", {"hidden_size": None}, "hidden_size", "missing"),
        ("Llama-3.1-8B", {"num_hidden_layers": -1}, "num_hidden_layers", "-1"),
        ("Llama-3.1-8B", {"num_hidden_layers": True}, "num_hidden_layers", "True"),
        ("Llama-3.1-8B", {"vocab_size": 32000.0}, "vocab_size", "32000.0"),
        ("Llama-3.1-8B", {"hidden_size": 4100}, "hidden_size", "32 heads"),
        ("Llama-3.1-8B", {"num_key_value_heads": 5}, "num_key_value_heads", "5"),
        ("Llama-3.1-8B", {"tie_word_embeddings": "no"}, "tie_word_embeddings", "'no'"),
        ("GPT-2", {"n_embd": 770}, "n_embd", "12 heads"),
        ("GPT-2", {"n_layer": None}, "n_layer", "missing"),
        ("MPT-7B", {"d_model": None}, "d_model", "missing"),
        ("MPT-7B", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln", "cannot be planned"),
        ("MPT-7B", {"attn_config": {"attn_type": 3}}, "attn_config.attn_type", "3"),
        (
            "MPT-7B",
            {"attn_config": {"attn_type": "grouped_query_attention"}},
            "attn_config.kv_n_heads",
            "missing",
        ),
        ("Mixtral-8x7B", {"num_experts_per_tok": 9}, "num_experts_per_tok", "9 of 8"),
        ("GLM-4.5", {"first_k_dense_replace": 93}, "first_k_dense_replace", "93 of 92"),
        ("DeepSeek-V2-Lite", {"attention_bias": True}, "attention_bias", "cannot be planned"),
        ("DeepSeek-V2-Lite", {"moe_layer_freq": 2}, "moe_layer_freq", "every layer"),
        ("DeepSeek-V2-Lite", {"kv_lora_rank": 0}, "kv_lora_rank", "0"),
        ("Qwen3-30B-A3B", {"mlp_only_layers": [3]}, "mlp_only_layers", "[3]"),
        ("Qwen3-30B-A3B", {"mlp_only_layers": "all"}, "mlp_only_layers", "'all'"),
        (
            "Qwen3-30B-A3B",
            {"mlp_only_layers": [0], "decoder_sparse_step": 2},
            "mlp_only_layers",
            "of 2",
        ),
        ("Gemma-3-1B", {"layer_types": 6}, "layer_types", "6"),
        (
            "Gemma-3-1B",
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types",
            "regularly",
        ),
    ],
)
def test_nonsense_is_refused_by_name(
    base: str, change: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        from_config({**CONFIGS[base], **change})
    (problem,) = [one for one in caught.value.problems if one.field == field]
    assert says in problem.message
    assert problem.remedy


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        from_config({"model_type": "llama", "hidden_size": "wide"})
    assert {problem.field for problem in caught.value.problems} == {
        "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
        "vocab_size",
    }  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_missing_key_is_told_once(name: str) -> None:
    config = {"model_type": CONFIGS[name]["model_type"]}
    if config["model_type"] == "gemma3_text":  # has a default for every key
        assert from_config(config).layers == 26
        return
    with pytest.raises(InputError) as caught:
        from_config(config)
    told = [problem.field for problem in caught.value.problems]
    assert len(told) == len(set(told)) >= 4


@pytest.mark.parametrize("model_type", [None, 3, "t5", ["llama"]])
def test_an_unknown_type_is_answered_with_the_known_ones(model_type: object) -> None:
    with pytest.raises(InputError) as caught:
        from_config({"model_type": model_type})
    (problem,) = caught.value.problems
    assert problem.field == "model_type"
    assert "llama" in problem.remedy
