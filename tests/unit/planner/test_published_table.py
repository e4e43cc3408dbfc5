"""A table of runs completes its rows from others of the same group."""

from gridloom.planner.published import Run, Unexpressed
from gridloom.planner.published_table import read_table


def row(**cells: str) -> dict[str, str]:
    return {
        "id": "r1",
        "group": "sweep",
        "model": "GPT",
        "layers": "80",
        "hidden": "14400",
        "ffn": "57600",
        "precision": "fp16",
        "gpu": "A100-SXM-80",
        "n_gpus": "320",
        "nodes": "40",
        "tp": "8",
        "pp": "10",
        "dp": "4",
        "seq_len": "2048",
        "vocab": "250000",
        "micro_batch": "2",
        "global_batch": "2048",
        "measured_step_time_s": "200",
        "act_ckpt": "full",
        **cells,
    }


def heads(found: Run | Unexpressed) -> tuple[int, tuple[str, ...]]:
    assert isinstance(found, Run)
    return found.model.heads, found.assumed


def test_heads_come_from_most_rows_of_the_group_and_width() -> None:
    table = [
        row(),
        row(heads="96", kv_heads="96"),
        row(heads="96", kv_heads="96"),
        row(heads="120", kv_heads="120"),
    ]
    assert heads(read_table(table)[0]) == (96, ("heads=96",))


def test_another_group_or_width_tells_nothing() -> None:
    table = [
        row(),
        row(group="other", heads="96"),
        row(hidden="12288", heads="64"),
    ]
    # Whole on 8 ranks and closest to a size of 128.
    assert heads(read_table(table)[0]) == (120, ("heads=120",))


def test_stated_heads_stay_and_the_order_is_kept() -> None:
    table = [row(id="a", heads="96"), row(id="b", heads="120"), row(id="c", gpu="unheard of")]
    found = read_table(table)
    assert [heads(one)[0] for one in found[:2]] == [96, 120]
    assert isinstance(found[2], Unexpressed)
    assert [one.id for one in found] == ["a", "b", "c"]


def test_equal_counts_are_settled_by_value() -> None:
    table = [row(), row(heads="96"), row(heads="120")]
    assert heads(read_table(table)[0]) == heads(read_table(list(reversed(table)))[2])


def test_an_empty_table_has_no_runs() -> None:
    assert read_table([]) == ()
