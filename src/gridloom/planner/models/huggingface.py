"""A transformer from a Hugging Face ``config.json``, for the model types whose shape we can write.

Keys, defaults and what carries a bias are those of the configuration and modelling files of
huggingface/transformers for each model type; a key that changes the shape in a way that
`Transformer` cannot say is refused by name, never passed over.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.model.transformer import Experts, LatentAttention, Transformer


def from_config(config: Mapping[str, object]) -> Transformer:
    """Return the transformer that ``config``, the parsed content of a ``config.json``, describes.

    Raises:
        InputError: The model type is not known, a key is missing or its value makes no sense; every
            problem that was found, each with its field.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in _READERS:
        raise InputError([_unknown_type(model_type)])
    fields = _Fields(config)
    if model_type in _NESTED:
        fields = fields.nested(_NESTED[model_type])
    model = _READERS[model_type](fields)
    if not fields.problems:
        _check(model, fields)
    if fields.problems:
        raise InputError(fields.problems)
    name = config.get("_name_or_path")
    return replace(model, name=name if isinstance(name, str) and name else model_type)


def _unknown_type(model_type: object) -> Problem:
    known = "write one of " + ", ".join(sorted(_READERS))
    if model_type is None:
        return Problem("the model type is missing", remedy=known, field="model_type")
    return Problem(f"{model_type!r} is not a known model type", remedy=known, field="model_type")


class _Fields:
    """The keys of a configuration, read one by one; what is wrong with them is collected."""

    def __init__(self, config: Mapping[str, object], prefix: str = "") -> None:
        self._config = config
        self._prefix = prefix
        self._used: dict[str, str] = {}
        self.problems: list[Problem] = []

    def whole(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number under the first of ``keys`` that is present and not null.

        The first key is the one that most model types use, the last the one of this type.
        """
        for key in keys:
            value = self._config.get(key)
            if value is None:
                continue
            self._used[keys[0]] = key
            if isinstance(value, int) and not isinstance(value, bool) and value >= least:
                return value
            self.refuse(key, f"{value!r} is no possible value", f"write a whole number >= {least}")
            return least
        if default is not None:
            return default
        self.refuse(keys[-1], "the key is missing", f"write a whole number >= {least}")
        return least

    def whole_or_null(self, key: str, *, absent: int) -> int:
        """Return a whole number, 0 for null; ``absent`` when the key is missing."""
        return self.whole(key, default=0 if key in self._config else absent, least=0)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return whether ``key`` is true."""
        value = self._config.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self.refuse(key, f"{value!r} is no possible value", "write true or false")
        return default

    def numbers(self, key: str) -> list[int]:
        """Return a list of whole numbers; an empty one when the key is missing."""
        value = self._config.get(key) or []
        if isinstance(value, list) and all(type(item) is int for item in value):
            return value
        self.refuse(key, f"{value!r} is no possible value", "write a list of whole numbers")
        return []

    def words(self, key: str) -> list[str]:
        """Return a list of words; an empty one when the key is missing."""
        value = self._config.get(key) or []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        self.refuse(key, f"{value!r} is no possible value", "write a list of words")
        return []

    def word(self, key: str) -> str:
        """Return a word; an empty one when the key is missing."""
        value = self._config.get(key) or ""
        if isinstance(value, str):
            return value
        self.refuse(key, f"{value!r} is no possible value", "write a word")
        return ""

    def nested(self, key: str) -> "_Fields":
        """Return the keys of the object under ``key``, none when it is missing."""
        value = self._config.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, f"{value!r} is no possible value", "write an object")
            value = None
        inner = _Fields(value or {}, f"{self._prefix}{key}.")
        inner.problems = self.problems
        return inner

    def refuse(self, key: str, message: str, remedy: str) -> None:
        """Remember that the value of ``key``, or of what it is called here, cannot be used."""
        field = self._prefix + self._used.get(key, key)
        self.problems.append(Problem(message, remedy=remedy, field=field))


def _check(model: Transformer, fields: _Fields) -> None:
    """Collect what does not fit together."""
    if not model.head_size and model.hidden % model.heads and model.latent is None:
        fields.refuse(
            "hidden_size",
            f"the {model.heads} heads do not divide a width of {model.hidden}",
            "write head_dim, or a width that is a multiple of the heads",
        )
    if model.heads % model.kv_heads:
        fields.refuse(
            "num_key_value_heads",
            f"{model.kv_heads} key and value heads do not divide {model.heads} query heads",
            "write a divisor of num_attention_heads",
        )
    if model.experts is None:
        return
    if model.experts.per_token > model.experts.count:
        fields.refuse(
            "num_experts_per_tok",
            f"a token cannot go through {model.experts.per_token} of {model.experts.count} experts",
            "write at most the number of experts",
        )
    if model.experts.dense_layers > model.layers:
        fields.refuse(
            "first_k_dense_replace",
            f"{model.experts.dense_layers} of {model.layers} layers cannot be dense",
            "write at most num_hidden_layers",
        )


def _plain(fields: _Fields, *, tied: bool = False, head_size: int = 0) -> Transformer:
    """Return what the newer model types share; arguments are the defaults of missing keys."""
    heads = fields.whole("num_attention_heads")
    return Transformer(
        name="",
        layers=fields.whole("num_hidden_layers"),
        hidden=fields.whole("hidden_size"),
        ffn=fields.whole("intermediate_size"),
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", default=heads),
        head_size=fields.whole("head_dim", default=head_size),
        vocabulary=fields.whole("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=tied),
    )


def _biased(model: Transformer, fields: _Fields) -> Transformer:
    """Return ``model`` with the biases of ``attention_bias``, on all four projections."""
    bias = fields.flag("attention_bias")
    return replace(model, qkv_bias=bias, output_bias=bias)


def _llama(fields: _Fields) -> Transformer:
    return replace(_biased(_plain(fields), fields), ffn_bias=fields.flag("mlp_bias"))


def _phi3(fields: _Fields) -> Transformer:
    return replace(_plain(fields), window=fields.whole_or_null("sliding_window", absent=0))


def _mistral(fields: _Fields) -> Transformer:
    return replace(_plain(fields), window=fields.whole_or_null("sliding_window", absent=4096))


def _mixtral(fields: _Fields) -> Transformer:
    model = _phi3(fields)
    experts = Experts(
        count=fields.whole("num_local_experts", default=8),
        per_token=fields.whole("num_experts_per_tok", default=2),
        ffn=model.ffn,
    )
    return replace(model, experts=experts)


def _full_window(model: Transformer, fields: _Fields) -> None:
    """Refuse windows that only the later layers have (``max_window_layers``)."""
    if not fields.flag("use_sliding_window"):
        return
    if fields.whole("max_window_layers", default=28, least=0) < model.layers:
        fields.refuse(
            "use_sliding_window",
            "windows in the later layers only cannot be planned",
            "write false to plan with full attention",
        )


def _qwen2(fields: _Fields) -> Transformer:
    model = replace(_plain(fields), qkv_bias=True)
    _full_window(model, fields)
    return model


def _qwen_experts(fields: _Fields, *, shared: bool) -> Experts:
    dense = sorted(fields.numbers("mlp_only_layers"))
    every = fields.whole("decoder_sparse_step", default=1)
    if dense != list(range(len(dense))) or (dense and every > 1):
        fields.refuse(
            "mlp_only_layers",
            f"dense layers {dense} with experts in one layer of {every} cannot be planned",
            "only the first layers, or all but one in so many, may be dense",
        )
    return Experts(
        count=fields.whole("num_experts"),
        per_token=fields.whole("num_experts_per_tok"),
        ffn=fields.whole("moe_intermediate_size"),
        shared_ffn=fields.whole("shared_expert_intermediate_size") if shared else 0,
        shared_gate=shared,
        dense_layers=len(dense),
        every=every,
    )


def _qwen2_moe(fields: _Fields) -> Transformer:
    model = replace(_plain(fields), qkv_bias=fields.flag("qkv_bias", default=True))
    _full_window(model, fields)
    return replace(model, experts=_qwen_experts(fields, shared=True))


def _qwen3(fields: _Fields) -> Transformer:
    model = replace(_biased(_plain(fields, head_size=128), fields), qk_norm="head")
    _full_window(model, fields)
    return model


def _qwen3_moe(fields: _Fields) -> Transformer:
    # Unlike in the dense type, a head is hidden_size / num_attention_heads when head_dim is absent.
    model = replace(_biased(_plain(fields), fields), qk_norm="head")
    _full_window(model, fields)
    return replace(model, experts=_qwen_experts(fields, shared=False))


def _shared_experts(fields: _Fields, *, router_bias: bool) -> Experts:
    """Return experts as DeepSeek and GLM-4.5 write them."""
    width = fields.whole("moe_intermediate_size")
    if fields.whole("moe_layer_freq", default=1) != 1:
        fields.refuse(
            "moe_layer_freq", "every layer behind the first dense ones has experts", "write 1"
        )
    return Experts(
        count=fields.whole("n_routed_experts"),
        per_token=fields.whole("num_experts_per_tok"),
        ffn=width,
        shared_ffn=width * fields.whole_or_null("n_shared_experts", absent=1),
        dense_layers=fields.whole("first_k_dense_replace", least=0),
        router_bias=router_bias,
    )


def _deepseek_v2(fields: _Fields) -> Transformer:
    return _latent(fields, router_bias=False)


def _deepseek_v3(fields: _Fields) -> Transformer:
    return replace(
        _latent(fields, router_bias=True),
        prediction_layers=fields.whole("num_nextn_predict_layers", default=0, least=0),
    )


def _latent(fields: _Fields, *, router_bias: bool) -> Transformer:
    if fields.flag("attention_bias"):
        fields.refuse(
            "attention_bias", "biases of latent attention cannot be planned", "write false"
        )
    latent = LatentAttention(
        query_rank=fields.whole_or_null("q_lora_rank", absent=1536),
        kv_rank=fields.whole("kv_lora_rank"),
        rope_size=fields.whole("qk_rope_head_dim"),
        nope_size=fields.whole("qk_nope_head_dim"),
        value_size=fields.whole("v_head_dim"),
    )
    return replace(
        _plain(fields), latent=latent, experts=_shared_experts(fields, router_bias=router_bias)
    )


def _glm(fields: _Fields) -> Transformer:
    # The projection of attention's output never has a bias here.
    model = _plain(fields, head_size=128)
    return replace(model, qkv_bias=fields.flag("attention_bias"))


def _glm4(fields: _Fields) -> Transformer:
    return replace(_glm(fields), norms_per_layer=4)


def _glm4_moe(fields: _Fields) -> Transformer:
    return replace(
        _plain(fields),
        qkv_bias=fields.flag("attention_bias"),
        qk_norm="head" if fields.flag("use_qk_norm") else "",
        experts=_shared_experts(fields, router_bias=True),
        prediction_layers=fields.whole("num_nextn_predict_layers", default=0, least=0),
    )


def _gemma(fields: _Fields) -> Transformer:
    return _biased(_plain(fields, tied=True, head_size=256), fields)


def _gemma2(fields: _Fields) -> Transformer:
    return replace(
        _gemma(fields),
        norms_per_layer=4,
        window=fields.whole("sliding_window", default=4096),
        full_every=_full_every(fields, default=2),
    )


def _gemma3_text(fields: _Fields) -> Transformer:
    # The released files leave out what the configuration class has as a default.
    heads = fields.whole("num_attention_heads", default=8)
    model = Transformer(
        name="",
        layers=fields.whole("num_hidden_layers", default=26),
        hidden=fields.whole("hidden_size", default=2304),
        ffn=fields.whole("intermediate_size", default=9216),
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", default=4),
        head_size=fields.whole("head_dim", default=256),
        vocabulary=fields.whole("vocab_size", default=262208),
        tied=fields.flag("tie_word_embeddings", default=True),
        norms_per_layer=4,
        qk_norm="head",
        window=fields.whole("sliding_window", default=4096),
        full_every=_full_every(fields, default=6),
    )
    return _biased(model, fields)


def _full_every(fields: _Fields, default: int) -> int:
    """Return how many layers go to one that sees all tokens."""
    kinds = fields.words("layer_types")
    if not kinds:
        return fields.whole("sliding_window_pattern", "_sliding_window_pattern", default=default)
    if "full_attention" not in kinds:
        return 0
    every = kinds.index("full_attention") + 1
    regular = ["full_attention" if (i + 1) % every == 0 else kinds[0] for i in range(len(kinds))]
    if kinds != regular:
        fields.refuse(
            "layer_types",
            "windowed and full layers do not alternate regularly",
            "only one full layer in so many can be planned",
        )
    return every


def _olmo2(fields: _Fields) -> Transformer:
    return replace(_biased(_plain(fields), fields), qk_norm="all")


def _layer_norm(model: Transformer, **changes: Any) -> Transformer:
    """Return ``model`` with biased layer normalisation and without a gate."""
    return replace(model, norm="layer", norm_bias=True, gated=False, **changes)


def _nemotron(fields: _Fields) -> Transformer:
    return _layer_norm(_biased(_plain(fields), fields), ffn_bias=fields.flag("mlp_bias"))


def _gpt_neox(fields: _Fields) -> Transformer:
    bias = fields.flag("attention_bias", default=True)
    return _layer_norm(_plain(fields), qkv_bias=bias, output_bias=bias, ffn_bias=True)


def _gpt2(fields: _Fields) -> Transformer:
    hidden = fields.whole("hidden_size", "n_embd")
    heads = fields.whole("num_attention_heads", "n_head")
    model = Transformer(
        name="",
        layers=fields.whole("num_hidden_layers", "n_layer"),
        hidden=hidden,
        ffn=fields.whole("n_inner", default=4 * hidden),
        heads=heads,
        kv_heads=heads,
        vocabulary=fields.whole("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        positions=fields.whole("n_positions", default=1024),
    )
    return _layer_norm(model, qkv_bias=True, output_bias=True, ffn_bias=True)


def _bloom(fields: _Fields) -> Transformer:
    hidden = fields.whole("hidden_size", "n_embed")
    heads = fields.whole("num_attention_heads", "n_head")
    model = Transformer(
        name="",
        layers=fields.whole("num_hidden_layers", "n_layer"),
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=heads,
        vocabulary=fields.whole("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        embedding_norm=True,
    )
    return _layer_norm(model, qkv_bias=True, output_bias=True, ffn_bias=True)


def _mpt(fields: _Fields) -> Transformer:
    hidden = fields.whole("hidden_size", "d_model")
    heads = fields.whole("num_attention_heads", "n_heads")
    attention = fields.nested("attn_config")
    if attention.flag("qk_ln"):
        attention.refuse("qk_ln", "its layer normalisation cannot be planned", "write false")
    kv_heads = {"multiquery_attention": 1, "grouped_query_attention": 0}.get(
        attention.word("attn_type"), heads
    )
    learned = fields.flag("learned_pos_emb", default=True) and not attention.flag("alibi")
    biased = not fields.flag("no_bias", default=True)
    model = Transformer(
        name="",
        layers=fields.whole("num_hidden_layers", "n_layers"),
        hidden=hidden,
        ffn=hidden * fields.whole("expansion_ratio", default=4),
        heads=heads,
        kv_heads=kv_heads or attention.whole("num_key_value_heads", "kv_n_heads"),
        vocabulary=fields.whole("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        positions=fields.whole("max_seq_len", default=2048) if learned else 0,
    )
    model = _layer_norm(model, qkv_bias=biased, output_bias=biased, ffn_bias=biased)
    return replace(model, norm_bias=biased)


_READERS: dict[str, Callable[[_Fields], Transformer]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3_text,
    "gemma3_text": _gemma3_text,
    "glm": _glm,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}

_NESTED = {"gemma3": "text_config"}
"""Where a model with a vision tower keeps the configuration of its language model."""
