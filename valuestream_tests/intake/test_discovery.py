"""Which objects a feed looks at: globs that mean what people mean and that no path can make slow (C24)."""

from __future__ import annotations

import time

import pytest

from valuestream_dagster.core.globs import glob_pattern
from valuestream_dagster.intake.discovery import select
from valuestream_dagster.stores.base import ObjectStat


def _stats(*paths: str) -> list[ObjectStat]:
    return [ObjectStat(path, 1, "s", None) for path in paths]


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.json", "a.json", True),
        ("*.json", "in/a.json", False),
        ("*.json", "a.json.tmp", False),
        ("*.json", "a.json\n", False),
        ("**/*.json", "a.json", True),
        ("**/*.json", "x/y/a.json", True),
        ("x/**/a.json", "x/a.json", True),
        ("x/**/a.json", "x/y/z/a.json", True),
        ("x/**/a.json", "xa.json", False),
        ("**/x/**/a", "p/x/q/x/a", True),
        ("in/**", "in/a/b", True),
        ("in/**", "in", False),
        ("in/*", "in/a/b", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("orders_*.manifest.json", "orders_20261130.manifest.json", True),
        ("[a].csv", "[a].csv", True),
        ("[a].csv", "a.csv", False),
        ("a.csv", "aXcsv", False),
        ("A.csv", "a.csv", False),
        ("**/**/a", "a", True),
        ("é*.csv", "é1.csv", True),
    ],
)
def test_a_glob_means_what_people_mean(glob: str, path: str, fits: bool) -> None:
    assert bool(glob_pattern(glob).match(path)) is fits


def test_what_is_excluded_is_not_selected_and_the_order_is_the_listings() -> None:
    listing = _stats("b.json", "a.json", "old/c.json", "d.csv")
    chosen = select(listing, ["*.json", "**/*.json"], ["old/**"])
    assert [stat.path for stat in chosen] == ["b.json", "a.json"]
    assert select(listing, [], []) == []


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 60 + "b", "a" * 1024),
        ("**/*a*" * 30 + "b", "a/" * 512),
        ("**a" * 60 + "b", "a" * 1024),
        ("**/a/" * 40 + "b", "a/" * 512),
    ],
)
def test_no_path_makes_a_glob_slow(glob: str, path: str) -> None:
    pattern = glob_pattern(glob)
    started = time.perf_counter()
    assert pattern.match(path) is None
    assert time.perf_counter() - started < 0.5


def test_ten_thousand_paths_are_selected_at_once() -> None:
    listing = _stats(*(f"in/{number % 7}/orders_{number}.manifest.json" for number in range(10_000)))
    started = time.perf_counter()
    assert len(select(listing, ["**/*.manifest.json"], ["**/*.tmp"])) == 10_000
    assert time.perf_counter() - started < 0.5
