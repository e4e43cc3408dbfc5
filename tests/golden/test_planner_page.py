"""The planner's page tells the constants that ship."""

from tests.golden.planner_page import PAGE, meanings, page_with_table

from gridloom.planner.priors import PRIORS
from gridloom.planner.shipped import SHIPPED


def test_the_page_tells_the_shipped_constants() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with_table()


def test_every_constant_is_known_fitted_and_explained() -> None:
    assert set(PRIORS) == set(SHIPPED.shared)
    # Kernels of a layer and seconds to launch one only show as their product.
    assert set(meanings()) - set(PRIORS) == {"layer_kernels"}


def test_every_family_says_what_it_rests_on() -> None:
    assert set(SHIPPED.families) == set(SHIPPED.runs) == set(SHIPPED.groups) == set(SHIPPED.error)
