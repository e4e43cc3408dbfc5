"""The page about job and grid files lists every field as the code has it."""

from tests.golden.documents_page import PAGE, rewritten


def test_page_lists_every_field() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rewritten(text), "run: python -m tests.golden.documents_page"
