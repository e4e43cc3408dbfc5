"""A whole table of measured runs: what one row leaves out, others of its group may state."""

from collections import Counter
from collections.abc import Sequence

from gridloom.planner.published import Row, Run, Unexpressed, read_run

_BORROWED = ("heads", "kv_heads")
"""Cells that runs of one group and one width share; the most frequent value stands in."""


def read_table(rows: Sequence[Row]) -> tuple[Run | Unexpressed, ...]:
    """Return the case of each row, or why it is none, in order.

    A row without heads takes those that most rows of its group with the same width state: a sweep
    over layouts keeps the model.
    """
    stated: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}
    for row in rows:
        if row.get("heads") and row.get("hidden"):
            heads = tuple(row.get(name) or "" for name in _BORROWED)
            stated.setdefault(_model_key(row), Counter())[heads] += 1
    return tuple(_read(row, stated.get(_model_key(row))) for row in rows)


def _model_key(row: Row) -> tuple[str, str]:
    return row.get("group") or row.get("source") or "", row.get("hidden") or ""


def _read(row: Row, stated: Counter[tuple[str, ...]] | None) -> Run | Unexpressed:
    if row.get("heads") or not stated:
        return read_run(row)
    most = max(stated.items(), key=lambda item: (item[1], item[0]))[0]
    return read_run({**row, **dict(zip(_BORROWED, most, strict=True))}, (f"heads={most[0]}",))
