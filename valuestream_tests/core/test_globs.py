"""What globs over relative paths mean (C24)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.globs import GLOB_LIMIT, glob_fault, glob_pattern


def plain_pattern(pattern: str) -> re.Pattern[str]:
    """The glob as a regular expression over the whole path, written plainly: the oracle of `glob_pattern`."""
    out, index = [], 0
    while index < len(pattern):
        if pattern.startswith("**/", index) and (index == 0 or pattern[index - 1] == "/"):
            while pattern.startswith("**/", index):
                index += 3
            out.append("(?:[^/]+/)*")
        elif pattern.startswith("**", index):
            out.append(".*")
            index += 2
        elif pattern[index] == "*":
            out.append("[^/]*")
            index += 1
        elif pattern[index] == "?":
            out.append("[^/]")
            index += 1
        else:
            out.append(re.escape(pattern[index]))
            index += 1
    return re.compile("".join(out), re.DOTALL)


@pytest.mark.parametrize(
    ("pattern", "path", "selected"),
    [
        ("*.manifest.json", "a.manifest.json", True),
        ("*.manifest.json", "2026/a.manifest.json", False),
        ("**/*.manifest.json", "a.manifest.json", True),
        ("**/*.manifest.json", "2026/09/a.manifest.json", True),
        ("**/*.manifest.json", "2026/09/a.manifest.json.tmp", False),
        ("**/**/x", "x", True),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("a/**/x", "ab/x", False),
        ("a/**", "a/b/c", True),
        ("a/**", "ab", False),
        ("**", "a/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("[a]", "[a]", True),
        ("[a]", "a", False),
        ("*", "new\nline", True),
    ],
)
def test_a_glob_selects_by_the_whole_relative_path(pattern: str, path: str, selected: bool) -> None:
    assert bool(glob_pattern(pattern).match(path)) is selected


@pytest.mark.parametrize("pattern", ["", "/a", "a\\b", "../a", "a/..", "s3://b/*", "x" * (GLOB_LIMIT + 1)])
def test_a_glob_that_leaves_the_landing_place_is_refused(pattern: str) -> None:
    assert glob_fault(pattern)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_glob_without_stars_selects_itself_and_nothing_else(text: str, other: str) -> None:
    if not set(text) & set("*?"):
        assert glob_pattern(text).match(text)
        assert bool(glob_pattern(text).match(other)) is (text == other)


PARTS = st.sampled_from(["a", "b", "ab", "*", "?", "a*", "*b", "a*b*", "**", "**/", "/", "b/"])
PATHS = st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


@given(st.lists(PARTS, min_size=1, max_size=7).map("".join), PATHS)
def test_the_fast_pattern_answers_as_the_plain_one(glob: str, path: str) -> None:
    assert bool(glob_pattern(glob).match(path)) is bool(plain_pattern(glob).fullmatch(path))
