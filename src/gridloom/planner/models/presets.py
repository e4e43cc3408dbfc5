"""Published models by name, and the one whose sizes a table of measured runs gives."""

import re
from collections.abc import Callable
from difflib import get_close_matches

from gridloom.base.errors import InputError, Problem
from gridloom.model.transformer import Transformer
from gridloom.planner.models.preset_row import Published
from gridloom.planner.models.presets_experts import EXPERT_PRESETS
from gridloom.planner.models.presets_gpt import GPT_PRESETS
from gridloom.planner.models.presets_llama import LLAMA_PRESETS
from gridloom.planner.models.presets_others import OTHER_PRESETS
from gridloom.planner.models.presets_qwen import QWEN_PRESETS

PUBLISHED: tuple[Published, ...] = (
    *GPT_PRESETS,
    *LLAMA_PRESETS,
    *QWEN_PRESETS,
    *EXPERT_PRESETS,
    *OTHER_PRESETS,
)
"""Every preset, with the parameter count that its source states."""


def preset(name: str) -> Transformer:
    """Return the published model that ``name`` means, as ``llama3-8b``.

    Case, blanks, dashes, the publisher in front (``meta-llama/``) and what says which tuning of the
    model is meant (``-instruct``, ``-hf``) make no difference.

    Raises:
        InputError: No preset has this name; the remedy names the closest ones.
    """
    found = find_preset(name)
    if found is not None:
        return found
    near = closest_names(name)
    remedy = f"did you mean {' or '.join(near)}?" if near else "write the sizes of the model"
    raise InputError([Problem(message=f"no model preset is called {name!r}", remedy=remedy)])


def find_preset(name: str) -> Transformer | None:
    """Return the published model that ``name`` means, or nothing."""
    key = _dashed(name)
    return (
        _BY_DASHED.get(key) or _BY_DASHED_WITHOUT_DOTS.get(key) or _BY_SQUASHED.get(_squashed(name))
    )


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, family by family."""
    return tuple(row.model.name for row in PUBLISHED)


def closest_names(name: str) -> tuple[str, ...]:
    """Return up to three names of presets that resemble ``name``, the closest first."""
    near = get_close_matches(_dashed(name), _BY_DASHED, n=9, cutoff=0.6)
    return tuple(dict.fromkeys(_BY_DASHED[key].name for key in near))[:3]


def matching(
    layers: int,
    hidden: int,
    heads: int,
    *,
    kv_heads: int = 0,
    vocabulary: int = 0,
    experts: int = 0,
) -> Transformer | None:
    """Return the preset with exactly these sizes, or nothing.

    Args:
        layers: Transformer blocks.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; 0 when unknown.
        vocabulary: Rows of the embedding, padded or not: of several presets with the same sizes,
            the nearest is taken, and none that padding cannot explain; 0 when unknown.
        experts: Routed experts a layer; 0 for a dense model.
    """
    sizes = (layers, hidden, heads, kv_heads, experts)
    models = [row.model for row in PUBLISHED if _sizes(row.model, kv_heads) == sizes]
    if not vocabulary:
        return models[0] if models else None
    padded = [
        model for model in models if abs(model.vocabulary - vocabulary) <= vocabulary * _PADDING
    ]
    return min(padded, key=lambda model: abs(model.vocabulary - vocabulary), default=None)


def _sizes(model: Transformer, kv_heads: int) -> tuple[int, ...]:
    """Return the sizes to compare; key and value heads only when the other side knows its own."""
    experts = model.experts.count if model.experts else 0
    compared = model.kv_heads if kv_heads else 0
    return (model.layers, model.hidden, model.heads, compared, experts)


_PADDING = 1 / 16
"""Share by which two statements of one vocabulary differ: GPT's 50257 is padded to 51200."""

_TUNINGS = {"instruct", "chat", "base", "text", "hf", "it", "pt", "meta"}


def _dashed(name: str) -> str:
    """Return the words of ``name`` in small letters, without publisher and tuning."""
    words = re.split(r"[^a-z0-9.]+", name.lower().rsplit("/", 1)[-1].strip())
    return "-".join(word for word in words if word and word not in _TUNINGS)


def _squashed(name: str) -> str:
    return _dashed(name).replace("-", "")


def _keys(*folds: Callable[[str], str]) -> dict[str, Transformer]:
    """Return the presets by their names as ``folds`` write them.

    A key that two presets share is left out: ``qwen257b`` is Qwen2.5-7B or Qwen2-57B.
    """
    found: dict[str, dict[str, Transformer]] = {}
    for row in PUBLISHED:
        for name in (row.model.name, *row.aliases):
            for fold in folds:
                found.setdefault(fold(name), {})[row.model.name] = row.model
    return {key: next(iter(models.values())) for key, models in found.items() if len(models) == 1}


_BY_DASHED = _keys(_dashed)
_BY_DASHED_WITHOUT_DOTS = _keys(lambda name: _dashed(name).replace(".", ""))
_BY_SQUASHED = _keys(_squashed, lambda name: _squashed(name).replace(".", ""))
