"""Which paths below a landing place are a feed's (C24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.feeds.selection import GLOB_LIMIT, glob_fault, selects


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
    assert selects([pattern], [], path) is selected


def test_what_is_excluded_is_not_selected_though_it_is_included() -> None:
    assert selects(["**/*"], ["test/**"], "live/x")
    assert not selects(["**/*"], ["test/**"], "test/x")


@pytest.mark.parametrize("pattern", ["", "/a", "a\\b", "../a", "a/..", "s3://b/*", "x" * (GLOB_LIMIT + 1)])
def test_a_glob_that_leaves_the_landing_place_is_refused(pattern: str) -> None:
    assert glob_fault(pattern)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_glob_without_stars_selects_itself_and_nothing_else(text: str, other: str) -> None:
    if not set(text) & set("*?"):
        assert selects([text], [], text)
        assert selects([text], [], other) is (text == other)
