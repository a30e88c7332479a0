"""Which tests prove which rule: a table made from the tests themselves. ``python -m valuestream_tests.rules`` prints it.

A test proves a rule that its own text names, in its docstring or a comment (``M14``, ``L20``, ``S5``); a rule that only the
docstring of a test module names is proved by the module as a whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
_RULE = re.compile(r"\b([MLCVS])([1-9]\d?)\b(?:\s?(?:-|\u2013|to)\s?(?:\1)?([1-9]\d?)\b)?")
SCENARIOS_OF_ISSUE_3 = (*range(1, 16), 28, 30, 31)
WANTED = (
    *(f"M{number}" for number in range(1, 21)),
    *(f"L{number}" for number in range(1, 30)),
    *(f"S{number}" for number in SCENARIOS_OF_ISSUE_3),
)


def named(text: str) -> Iterator[str]:
    """The rules that a text names; ``L14-L16`` names three."""
    for letter, first, last in _RULE.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number}"


def table() -> dict[str, list[str]]:
    """For each rule the tests that name it, as ``file::test``; modules as ``file``."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text("utf-8")
        module = ast.parse(source)
        file = str(path.relative_to(TESTS))
        for rule in dict.fromkeys(named(ast.get_docstring(module) or "")):
            found.setdefault(rule, []).append(file)
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for rule in dict.fromkeys(named(ast.get_source_segment(source, node) or "")):
                    found.setdefault(rule, []).append(f"{file}::{node.name}")
    return found


def _order(rule: str) -> tuple[int, int]:
    return "MLCVS".index(rule[0]), int(rule[1:])


def main() -> None:
    """Print the table."""
    found = table()
    for rule in sorted({*found, *WANTED}, key=_order):
        for place, test in enumerate(found.get(rule, ["-"])):
            print(f"{rule if not place else '':<4} {test}")  # noqa: T201 - a table for people


if __name__ == "__main__":
    main()
