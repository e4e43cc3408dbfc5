"""What the `plan` commands are told, read into nouns: numbers, models; every fault is named."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from msgspec import structs

from gridloom.base.errors import InputError, Problem
from gridloom.base.files import cause_of, replace_file
from gridloom.base.units import parse_bytes, parse_count, parse_duration_s
from gridloom.cli.plan_flags import Aims, Asked, Terms
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import megatron
from gridloom.planner.goodput import DEVICE_MTBF_S, RESTART_S, STORAGE_BYTES_PER_S, Resilience
from gridloom.planner.models.huggingface import from_config
from gridloom.planner.models.presets import preset
from gridloom.planner.pins import SHORT, Pins

SIZE_MAX_BYTES = 64_000_000
"""A file that is larger is no model and no table of runs."""

COUNT_MAX = 10**9
"""No global batch, sequence or width of a model is larger; what is would only be a slip."""

LAYERS_MAX = 10_000
"""No model is deeper: layers are gone through one by one."""

_TOKENS_MAX = 1e18
_MONEY_MAX = 1e15
"""No training takes more: figures beyond tell nothing, and fit no table."""

_T = TypeVar("_T")
_LOOKS_LIKE_A_FILE = re.compile(r"^[./~]|\.(json|ya?ml|sh|txt|args|toml)$", re.IGNORECASE)


@dataclass
class Faults:
    """Problems found so far, so that all of them are told at once."""

    problems: list[Problem] = field(default_factory=list)

    def read(self, flag: str, text: str, reader: Callable[[str], _T], right: str) -> _T | None:
        """Return what ``reader`` makes of the flag's text, or nothing and note why not."""
        try:
            return reader(text)
        except (ValueError, OverflowError):
            self.problems.append(Problem(f"{text!r} cannot be", right, field=flag))
        return None

    def need(self, flag: str, met: object, message: str, right: str) -> None:
        """Note ``message`` unless ``met``."""
        if not met:
            self.problems.append(Problem(message, right, field=flag))

    def take(self, read: Callable[[], _T]) -> _T | None:
        """Return what ``read`` returns, or nothing and note its problems."""
        try:
            return read()
        except InputError as error:
            self.problems += error.problems
        return None

    def end(self) -> None:
        """Do nothing when nothing was wrong.

        Raises:
            InputError: Something was; carries all of it.
        """
        if self.problems:
            raise InputError(self.problems)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is trained.

    Attributes:
        model: Its shape.
        global_batch: Sequences a training step; 0 when not told.
        sequence: Tokens a sequence; 0 when not told.
        tokens: In all; 0 when not told.
        plan: Of a file of arguments; nothing when the model came without one.
    """

    model: Transformer
    global_batch: int
    sequence: int
    tokens: int = 0
    plan: ParallelPlan | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Numbers of `Aims`; 0 means no limit."""

    tokens: int = 0
    deadline_s: float = 0.0
    budget: float = 0.0


def read_subject(asked: Asked, faults: Faults, *, batch: bool = True) -> Subject | None:
    """Return what is trained, or nothing and note why not.

    Args:
        asked: The flags.
        faults: Where problems are noted.
        batch: The global batch must be known.
    """
    faults.need("--global-batch", asked.global_batch >= 0, "is below 0", "write a count of 1 on")
    faults.need("--seq", asked.seq >= 0, "is below 0", "write a count of 1 on")
    if not asked.model:
        faults.need("--model", False, "is needed", "name a model, as llama3-8b, or its config.json")
        return None
    found = faults.take(lambda: read_model(asked.model))
    if found is None:
        return None
    subject = Subject(
        model=found.model,
        global_batch=asked.global_batch or found.global_batch,
        sequence=asked.seq or found.sequence,
        tokens=found.tokens,
        plan=found.plan,
    )
    for flag, count in (("--global-batch", subject.global_batch), ("--seq", subject.sequence)):
        faults.need(flag, count <= COUNT_MAX, "is too large", f"write at most {COUNT_MAX:,}")
    faults.need("--seq", subject.sequence, "is needed", "write the tokens of a sequence, as 4096")
    if batch:
        right = "write the sequences of a training step, as 512"
        faults.need("--global-batch", subject.global_batch, "is needed", right)
    return subject


def read_model(text: str) -> Subject:
    """Return the model that ``text`` names, and what else a file says with it.

    Raises:
        InputError: There is no such model or file, or the file cannot be used.
    """
    path = Path(text).expanduser()
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.is_file():
        return _read_model_file(path, text)
    if _LOOKS_LIKE_A_FILE.search(text) or path.is_dir():
        what = "there is no config.json in it" if path.is_dir() else "there is no such file"
        raise InputError([Problem(what, "name a file, or a published model", file=text)])
    try:
        return Subject(model=preset(text), global_batch=0, sequence=0)
    except InputError as error:
        problems = [Problem(p.message, p.remedy, field="--model") for p in error.problems]
        raise InputError(problems) from error


def _read_model_file(path: Path, name: str) -> Subject:
    text = read_text(path, name)
    if not text.strip():
        raise InputError([Problem("is empty", "name a file with a model in it", file=name)])
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[")):
            raise InputError([_not_json(error, name)]) from error
        config = None
    if config is not None and not isinstance(config, dict):
        right = "name a config.json, or a file of Megatron-LM arguments"
        raise InputError([Problem("is JSON, but no object with keys", right, file=name)])
    try:
        if config is not None:
            return Subject(model=_possible(from_config(config)), global_batch=0, sequence=0)
        read = megatron.from_arguments(text)
    except InputError as error:
        problems = [
            Problem(p.message, p.remedy, file=name, line=p.line, field=p.field)
            for p in error.problems
        ]
        raise InputError(problems) from error
    assert read.model is not None  # Megatron's arguments always have one
    return Subject(
        model=_possible(structs.replace(read.model, name=read.model.name or path.stem), name),
        global_batch=read.goal.global_batch,
        sequence=read.goal.sequence_length,
        tokens=read.goal.tokens,
        plan=read.plan,
    )


def _possible(model: Transformer, name: str = "") -> Transformer:
    """Return ``model``.

    Raises:
        InputError: It is larger than any that could be computed.
    """
    sizes = {"layers": model.layers, "hidden": model.hidden, "heads": model.heads}
    sizes |= {"ffn": model.ffn, "vocabulary": model.vocabulary}
    sizes |= {"experts": model.experts.count} if model.experts else {}
    limits = {"layers": LAYERS_MAX}
    problems = [
        Problem(f"{size:,} is too large", f"write at most {most:,}", file=name, field=what)
        for what, size in sizes.items()
        if size > (most := limits.get(what, COUNT_MAX))
    ]
    if problems:
        raise InputError(problems)
    return model


def _not_json(error: Exception, name: str) -> Problem:
    line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
    said = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
    if isinstance(error, RecursionError):
        said = "brackets stand in each other too deep"
    return Problem(f"is not JSON: {said}", "correct it", file=name, line=line)


def read_text(path: Path, name: str = "") -> str:
    """Return the text of a file.

    Raises:
        InputError: It cannot be read, is too large, or is no text.
    """
    name = name or str(path)
    try:
        with path.open("rb") as opened:
            data = opened.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise InputError([Problem(f"cannot be read: {cause_of(error)}", file=name)]) from error
    if len(data) > SIZE_MAX_BYTES:
        raise InputError([Problem("is too large", "name another file", file=name)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError([Problem("is not UTF-8 text", file=name, line=line)]) from error
    if "\x00" in text:
        raise InputError([Problem("is not text", "name a text file", file=name)])
    return text


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole: where that fails, what was there before stays.

    Raises:
        InputError: It cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout, cannot be replaced
            path.write_text(text, encoding="utf-8")
        else:
            replace_file(path, text.encode(), durable=False)
    except OSError as error:
        problem = Problem(f"cannot be written: {cause_of(error)}", file=str(path))
        raise InputError([problem]) from error


def read_pins(flag: str, text: str, faults: Faults) -> Pins:
    """Return the values in ``text``, as ``tp=8,pp=1``; nothing and a note when it is malformed."""
    pins: dict[str, int | str] = {}
    seen: set[str] = set()
    for pair in (part.strip() for part in text.split(",")):
        name, sign, value = (piece.strip() for piece in pair.partition("="))
        if pair and not (name and sign and value):
            right = "write names and values, as tp=8,pp=1"
            faults.need(flag, False, f"{pair!r} is no name with a value", right)
        elif pair and SHORT.get(name, name) in seen:
            faults.need(flag, False, f"{name} stands there twice", "write it once")
        elif pair:
            pins[name] = value
            seen.add(SHORT.get(name, name))
    return pins


def read_limits(aims: Aims, faults: Faults) -> Limits:
    """Return the limits, and note what is wrong with them."""
    tokens = deadline_s = budget = None
    if aims.tokens:
        right = "write a count, as 300B or 1.5T"
        tokens = faults.read("--tokens", aims.tokens, _up_to(_TOKENS_MAX), right)
    if aims.deadline:
        right = "write a duration, as 30d or 12h"
        deadline_s = faults.read("--deadline", aims.deadline, _duration_s, right)
    if aims.budget:
        right = "write an amount of money, as 1000000 or 1.5M"
        budget = faults.read("--budget", aims.budget, _up_to(_MONEY_MAX), right)
    limited = bool(aims.deadline or aims.budget or aims.objective == "deadline")
    if limited and not aims.tokens:
        faults.need("--tokens", False, "is needed for a limit", "write the tokens to train on")
    if aims.objective == "deadline" and not aims.deadline:
        faults.need("--deadline", False, "is needed for its objective", "write one, as 30d")
    faults.need("--top", 1 <= aims.top <= 1000, f"{aims.top} cannot be", "write 1 to 1000")
    return Limits(tokens=tokens or 0, deadline_s=deadline_s or 0.0, budget=budget or 0.0)


def read_resilience(terms: Terms, faults: Faults) -> Resilience:
    """Return what a job meets, and note what is wrong with the terms."""
    mtbf_s, restart_s, rate = DEVICE_MTBF_S, RESTART_S, STORAGE_BYTES_PER_S
    right = "write a duration, as 50000h"
    if terms.device_mtbf:
        mtbf_s = faults.read("--device-mtbf", terms.device_mtbf, _duration_s, right) or mtbf_s
    if terms.restart:
        restart_s = faults.read("--restart", terms.restart, _duration_s, right) or restart_s
    if terms.checkpoint_rate:
        text = terms.checkpoint_rate.removesuffix("/s")
        right = "write bytes a second, as 125MB or 2GB"
        rate = faults.read("--checkpoint-rate", text, _above(parse_bytes), right) or rate
    for flag, value, least, most in (
        ("--price", terms.price, 0, 1_000_000),
        ("--carbon", terms.carbon, 0, 1_000_000),
        ("--pue", terms.pue, 1, 100),
    ):
        right = f"write a number from {least} to {most}"
        faults.need(flag, least <= value <= most, f"{value:g} cannot be", right)
    return Resilience(
        device_mtbf_s=mtbf_s,
        restart_s=restart_s,
        storage_bytes_per_s=rate,
        in_background=terms.checkpoint_behind,
    )


def read_words(flag: str, text: str, kind: Any, faults: Faults) -> tuple[str, ...]:
    """Return the comma-separated words of ``text``, each one of a Literal type's."""
    words = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    for word in words:
        known = get_args(kind)
        faults.need(flag, word in known, f"{word!r} is unknown", f"write {' or '.join(known)}")
    return words


def read_one(flag: str, text: str, kind: Any, faults: Faults) -> tuple[str, ...]:
    """Return the one word of ``text``, of a Literal type's; notes none, and several."""
    words = read_words(flag, text, kind, faults)
    faults.need(
        flag, len(words) == 1, f"{text!r} cannot be", f"write {' or '.join(get_args(kind))}"
    )
    return words


def _above(reader: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = reader(text)
        if not value > 0:
            raise ValueError(text)
        return value

    return read


_duration_s = _above(parse_duration_s)


def _up_to(most: float) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = _above(parse_count)(text)
        if value > most:
            raise ValueError(text)
        return int(value)

    return read
