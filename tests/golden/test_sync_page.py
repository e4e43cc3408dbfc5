"""The page about sync methods has the planner's rows and choices."""

from tests.golden.sync_page import PAGE, rewritten


def test_the_page_has_the_tables_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rewritten(text), "run: python -m tests.golden.sync_page"
