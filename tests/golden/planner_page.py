"""The table of constants on the planner's page, from the constants as they ship.

`python -m tests.golden.planner_page` writes it between its two marks.
"""

import ast
import itertools
from pathlib import Path

from gridloom.planner.priors import PRIORS
from gridloom.planner.shipped import SHIPPED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how" / "planner.md"
CONSTANTS = ROOT / "src" / "gridloom" / "planner" / "constants.py"
BEGIN, END = "<!-- constants -->\n", "<!-- end of constants -->\n"


def table() -> str:
    """Return the constants as Markdown: shared ones, then what scales them by family."""
    meaning = meanings()
    lines = ["| constant | before | shipped | |", "|---|---:|---:|---|"]
    for name, value in SHIPPED.shared.items():
        before = PRIORS[name].value
        lines.append(f"| `{name}` | {before:.3g} | {value:.3g} | {meaning[name]} |")
    scaled = [name for name, prior in PRIORS.items() if prior.family_spread]
    lines += ["", "| family | runs | groups | " + " | ".join(f"`{n}` x" for n in scaled) + " |"]
    lines.append("|---|" + "---:|" * (len(scaled) + 2))
    for family, factors in SHIPPED.families.items():
        values = " | ".join(f"{factors[name]:.2f}" for name in scaled)
        runs, groups = SHIPPED.runs[family], SHIPPED.groups[family]
        lines.append(f"| {family} | {runs} | {groups} | {values} |")
    return "\n".join(lines) + "\n"


def meanings() -> dict[str, str]:
    """Return what each constant is: the text below its field, on one line."""
    tree = ast.parse(CONSTANTS.read_text(encoding="utf-8"))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            sentence = " ".join(str(text.value.value).split()).removesuffix(".")
            found[field.target.id] = sentence[0].lower() + sentence[1:]
    return found


def page_with_table() -> str:
    """Return the page with its table as it should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + table() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
