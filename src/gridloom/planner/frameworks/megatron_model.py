"""A transformer as Megatron-LM's arguments, and back.

Names, defaults and meanings are those of `megatron/training/arguments.py` in NVIDIA/Megatron-LM and
of `TransformerConfig` in Megatron-Core 0.16.
"""

import ast
from collections.abc import Sequence

from gridloom.model.transformer import Experts, LatentAttention, Norm, Transformer
from gridloom.planner.frameworks.common import Goal
from gridloom.planner.frameworks.megatron_text import Arguments
from gridloom.planner.frameworks.refusal import Rule

_TOKENIZERS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
"""Entries of the tokenizers that bring their own vocabulary."""

_PADDING = 128
"""The embedding is padded to a multiple of so many rows for each tensor rank."""


def model_rules(model: Transformer, goal: Goal) -> list[Rule]:
    """Return what Megatron-LM asks of a model."""
    biases = (model.qkv_bias, model.output_bias, model.ffn_bias)
    refused = [
        ("norm_bias", model.norm_bias != (model.norm == "layer"), "layer norms have a bias"),
        ("norms_per_layer", model.norms_per_layer != 2, "a layer has two norms"),
        ("embedding_norm", model.embedding_norm, "no norm follows the embedding"),
        ("qk_norm", model.qk_norm == "all", "queries and keys are normalised a head"),
        (
            "qk_norm",
            model.latent is not None and model.qk_norm == "head",
            "latent attention normalises its latents",
        ),
        ("head_bias", model.head_bias, "the output layer has no bias"),
        (
            "output_bias",
            biases not in {(True,) * 3, (False,) * 3, (True, False, False)},
            "biases are in all matrices, in none, or in query, key and value only",
        ),
    ]
    shape = "train it with a framework that has this, or plan for the shape that Megatron-LM has"
    return [
        *(
            Rule(broken, field, f"not in Megatron-LM, where {fact}", shape)
            for field, broken, fact in refused
        ),
        Rule(
            model.head_size == 0 and model.hidden % model.heads != 0,
            "head_size",
            f"{model.heads} heads do not divide a width of {model.hidden}",
            "state `head_size`",
        ),
        Rule(
            0 < model.positions < goal.sequence_length,
            "positions",
            f"a table of {model.positions} positions cannot serve {goal.sequence_length} tokens",
            "shorten the sequence, or lengthen the table",
        ),
    ]


def model_arguments(model: Transformer, goal: Goal) -> list[str]:
    """Return the arguments that make ``model``."""
    latent = model.latent
    words: list[tuple[object, ...]] = [
        ("--num-layers", model.layers),
        ("--hidden-size", model.hidden),
        ("--ffn-hidden-size", model.ffn),
        ("--num-attention-heads", model.heads),
        ("--kv-channels", model.width_per_head),
        ("--seq-length", goal.sequence_length),
        ("--max-position-embeddings", model.positions or goal.sequence_length),
        ("--vocab-size", model.vocabulary),
        ("--normalization", "RMSNorm" if model.norm == "rms" else "LayerNorm"),
        ("--position-embedding-type", "learned_absolute" if model.positions else "rope"),
    ]
    if latent is None and model.kv_heads != model.heads:
        words += [("--group-query-attention",), ("--num-query-groups", model.kv_heads)]
    switches = {
        "--swiglu": model.gated,
        "--untie-embeddings-and-output-weights": not model.tied,
        "--disable-bias-linear": not model.ffn_bias,
        "--add-qkv-bias": model.qkv_bias and not model.ffn_bias,
        # With latent attention it stands for the norms of the latents, which are always there
        "--qk-layernorm": model.qk_norm == "head" or latent is not None,
    }
    words += [(name,) for name, on in switches.items() if on]
    if model.window:
        words.append(("--window-size", f"{model.window - 1},0"))
    if model.window and model.full_every:
        words.append(("--window-attn-skip-freq", model.full_every))
    if latent is not None:
        words += [
            ("--multi-latent-attention",),
            *([("--q-lora-rank", latent.query_rank)] if latent.query_rank else []),
            ("--kv-lora-rank", latent.kv_rank),
            ("--qk-head-dim", latent.nope_size),
            ("--qk-pos-emb-head-dim", latent.rope_size),
            ("--v-head-dim", latent.value_size),
        ]
    if model.experts is not None:
        words += _expert_words(model, model.experts)
    if model.prediction_layers:
        words.append(("--mtp-num-layers", model.prediction_layers))
    return [str(word) for group in words for word in group]


def _expert_words(model: Transformer, experts: Experts) -> list[tuple[object, ...]]:
    words: list[tuple[object, ...]] = [
        ("--num-experts", experts.count),
        ("--moe-router-topk", experts.per_token),
        ("--moe-ffn-hidden-size", experts.ffn),
        ("--moe-layer-freq", _frequency(model, experts)),
    ]
    if experts.shared_ffn:
        words.append(("--moe-shared-expert-intermediate-size", experts.shared_ffn))
    if experts.shared_ffn and experts.shared_gate:
        words.append(("--moe-shared-expert-gate",))
    if experts.capacity_factor:
        words.append(("--moe-expert-capacity-factor", experts.capacity_factor))
    if experts.router_bias:  # Megatron-Core: expert bias only supports the sigmoid score function
        words += [
            ("--moe-router-enable-expert-bias",),
            ("--moe-router-score-function", "sigmoid"),
        ]
    return words


def _frequency(model: Transformer, experts: Experts) -> str:
    """Return which layers have experts, as a Python expression of ones and zeros."""
    dense, every, count = experts.dense_layers, experts.every, model.expert_layers
    if dense == 0 and every == 1:
        return "1"
    period = "[1]" if every == 1 else f"([1]+[0]*{every - 1})"
    parts = [f"{period}*{count}"]
    if dense:
        parts.insert(0, f"[0]*{dense}")
    left = model.layers - dense - every * count
    if left:
        parts.append(f"[0]*{left}")
    return f"({'+'.join(parts)})"


def read_model(given: Arguments, vocabulary: int, tensor: int) -> Transformer:
    """Return the model that ``given`` makes; what is wrong is added to ``given.problems``."""
    layers = _required(given, "num-layers", "encoder-num-layers")
    hidden, heads = _required(given, "hidden-size"), _required(given, "num-attention-heads")
    gated = given.has("swiglu", "quick-geglu")
    usual_ffn = 4 * hidden * 2 // 3 // 64 * 64 if given.has("swiglu") else 4 * hidden
    biased = not given.has("disable-bias-linear")
    latent = _latent(given) if given.has("multi-latent-attention") else None
    norm: Norm = "rms" if _is_rms(given) else "layer"
    ffn = given.number("ffn-hidden-size", usual_ffn)
    head_size = given.number("kv-channels", 0)
    given.has("squared-relu", "openai-gelu")  # not gated, as the default
    return Transformer(
        name=given.word("name"),
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=_kv_heads(given, heads),
        head_size=0 if head_size * heads == hidden else head_size,
        vocabulary=vocabulary or _vocabulary(given, tensor),
        gated=gated,
        tied=not given.has("untie-embeddings-and-output-weights"),
        positions=_positions(given),
        norm=norm,
        norm_bias=norm == "layer",
        qk_norm="head" if given.has("qk-layernorm") and latent is None else "",
        qkv_bias=given.has("add-qkv-bias") or biased,
        output_bias=biased,
        ffn_bias=biased,
        window=_window(given),
        full_every=given.number("window-attn-skip-freq", 0),
        latent=latent,
        experts=_experts(given, layers, ffn) if given.has("num-experts") else None,
        prediction_layers=given.number("mtp-num-layers", 0, least=0),
    )


def _required(given: Arguments, *names: str) -> int:
    for name in names:
        if given.has(name):
            return given.number(name, 1)
    given.fault(names[0], "is not given", "add it: without it there is no model")
    return 1


def _is_rms(given: Arguments) -> bool:
    return given.choice("normalization", ("LayerNorm", "RMSNorm"), "LayerNorm") == "RMSNorm"


def _kv_heads(given: Arguments, heads: int) -> int:
    groups = given.number("num-query-groups", 1)
    return groups if given.has("group-query-attention") else heads


def _vocabulary(given: Arguments, tensor: int) -> int:
    tokenizer = given.word("tokenizer-type")
    if given.has("padded-vocab-size", "vocab-size"):
        return given.number("padded-vocab-size", 0) or given.number("vocab-size", 1)
    if tokenizer in _TOKENIZERS:
        multiple = given.number("make-vocab-size-divisible-by", _PADDING) * tensor
        return -(-_TOKENIZERS[tokenizer] // multiple) * multiple
    given.fault("vocab-size", "is not given", "add it, or hand in the size of the vocabulary")
    return 1


def _positions(given: Arguments) -> int:
    table = given.number("max-position-embeddings", 0)
    kinds = ("learned_absolute", "rope", "mrope", "yarn", "relative", "none")
    kind = given.choice("position-embedding-type", kinds, "learned_absolute")
    rotary = given.has("use-rotary-position-embeddings") or given.has("no-position-embedding")
    return table if kind == "learned_absolute" and not rotary else 0


def _window(given: Arguments) -> int:
    """Return the tokens that a windowed layer sees: those to the left, and the one itself."""
    word = given.word("window-size")
    if not word:
        return 0
    left = word.strip("()").partition(",")[0]
    if not left.isdigit():
        given.fault("window-size", f"{word} is no window", "write it as 4095,0")
        return 0
    return int(left) + 1


def _latent(given: Arguments) -> LatentAttention:
    return LatentAttention(
        query_rank=given.number("q-lora-rank", 0, least=0),
        kv_rank=given.number("kv-lora-rank", 32),
        rope_size=given.number("qk-pos-emb-head-dim", 64, least=0),
        nope_size=given.number("qk-head-dim", 128, least=0),
        value_size=given.number("v-head-dim", 128),
    )


def _experts(given: Arguments, layers: int, ffn: int) -> Experts | None:
    count = given.number("num-experts", 0, least=0)
    if count == 0:
        return None
    dense, every = _which_layers(given, layers)
    given.has("moe-router-score-function")
    return Experts(
        count=count,
        per_token=given.number("moe-router-topk", 2),
        ffn=given.number("moe-ffn-hidden-size", ffn),
        shared_ffn=given.number("moe-shared-expert-intermediate-size", 0, least=0),
        shared_gate=given.has("moe-shared-expert-gate"),
        dense_layers=dense,
        every=every,
        capacity_factor=given.real("moe-expert-capacity-factor"),
        router_bias=given.has("moe-router-enable-expert-bias"),
    )


def _which_layers(given: Arguments, layers: int) -> tuple[int, int]:
    """Return the dense layers at the start, and the distance from one expert layer to the next."""
    word = given.word("moe-layer-freq", "1")
    try:
        pattern = _pattern(word, layers)
    except (SyntaxError, ValueError):
        given.fault("moe-layer-freq", f"{word} is no pattern", "write it as ([0]*3+[1]*58)")
        return 0, 1
    at = [index for index, one in enumerate(pattern) if one]
    dense = at[0] if at else layers
    every = at[1] - at[0] if len(at) > 1 else max(1, layers - dense)
    regular = range(dense, dense + every * ((layers - dense) // every), every)
    if len(pattern) != layers or at != list(regular):
        given.fault(
            "moe-layer-freq",
            f"{word} is not a number of dense layers and then experts at one distance in"
            f" {layers} layers",
            "write a regular pattern over all layers",
        )
    return dense, every


def _pattern(word: str, layers: int) -> list[int]:
    if word.isdigit():
        return [int(index % max(1, int(word)) == 0) for index in range(layers)]
    return list(_ones_and_zeros(ast.parse(word.strip(), mode="eval").body))


def _ones_and_zeros(node: ast.expr) -> Sequence[int]:
    if isinstance(node, ast.List):
        return [_digit(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_ones_and_zeros(node.left), *_ones_and_zeros(node.right)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        times = node.right
        if isinstance(times, ast.Constant) and isinstance(times.value, int):
            return [*_ones_and_zeros(node.left)] * min(times.value, 10_000)
    raise ValueError


def _digit(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and node.value in {0, 1}:
        return int(bool(node.value))
    raise ValueError
