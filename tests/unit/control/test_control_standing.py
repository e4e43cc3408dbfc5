"""What sites say of their nodes becomes news once, and nothing of it is forgotten."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gridloom.control.standing import news
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import Mark
from gridloom.model.event import NodeMarked


def said(node: str, mark: str = "drain", sentence: str = "fans") -> NodeMarked:
    return NodeMarked(domain=f"s/{node}", mark=mark, sentence=sentence, by_site=True)  # type: ignore[arg-type]


def known(mark: str = "drain", sentence: str = "fans", **more: bool) -> Mark:
    return Mark(mark=mark, sentence=sentence, since_s=1.0, **more)  # type: ignore[arg-type]


def test_what_is_new_changed_or_over_is_news() -> None:
    marks = {
        "s/old": known(by_site=True),
        "s/worse": known("cordon", by_site=True),
        "s/over": known(by_site=True),
        "s/ours": known("taint", by_core=True),
        "s/theirs": known("cordon", "a person's"),
        "t/other": known(by_site=True),
    }
    told = [said("old"), said("worse"), said("new"), said("ours"), said("theirs")]
    assert news(marks, "s", told) == [
        said("worse"),
        said("new"),
        said("ours"),
        said("over", "", ""),
    ]


def test_nothing_is_news_while_the_site_cannot_be_asked() -> None:
    assert news({"s/n": known(by_site=True)}, "s", None) == []


@given(
    st.lists(
        st.none()
        | st.dictionaries(
            st.sampled_from(["a", "b"]), st.sampled_from(["drain", "cordon"]), max_size=2
        ),
        max_size=6,
    )
)
def test_the_core_ends_up_with_what_the_site_said_last(
    history: list[dict[str, str] | None],
) -> None:
    machine, now_s = Machine(), 1.0
    for told in history:
        asked = None if told is None else [said(node, mark) for node, mark in told.items()]
        now_s += 1.0
        machine.step(news(machine.state.marks, "s", asked), now_s, random.Random(0))
        laws.check(machine.state)
        assert news(machine.state.marks, "s", asked) == []
    last = next((told for told in reversed(history) if told is not None), {})
    marks = {domain[2:]: mark.mark for domain, mark in machine.state.marks.items()}
    assert marks == last
