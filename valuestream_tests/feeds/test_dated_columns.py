"""Ruling 12: what a declaration of dated columns must keep; each fault names its line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_dagster.errors import ConfigurationInvalid
from valuestream_dagster.feeds.loading import parse_feed
from valuestream_dagster.feeds.versions import Shown, fits

HEAD = "source: acme\ndataset: orders\nlanding: in\nkey: [id]\nsequence: {kind: integer}\ncolumns:\n"
FIRST = "  - columns: {id: BIGINT, amount: INTEGER, old: VARCHAR}\n"


def faults(*lines: str) -> list[tuple[int, str]]:
    with pytest.raises(ConfigurationInvalid) as invalid:
        parse_feed(HEAD + FIRST + "".join(lines), "feeds/orders.yaml", deployment=Path("/d"), environ={})
    return [(finding.line, finding.message) for finding in invalid.value.findings]


def test_older_rows_are_followed_through_every_renaming_to_the_newest_columns() -> None:
    text = (
        HEAD
        + FIRST
        + "  - {since: 5, columns: {id: BIGINT, price: BIGINT, old: VARCHAR, c: VARCHAR}, renamed: {price: amount},\n"
        + "     defaults: {c: x}}\n"
        + "  - {since: 9, columns: {id: BIGINT, cost: BIGINT, c: VARCHAR, d: DATE}, renamed: {cost: price}}\n"
    )
    feed = parse_feed(text, "feeds/orders.yaml", deployment=Path("/d"), environ={})
    oldest, middle = feed.older
    assert oldest.shown == (Shown("id", "id"), Shown("cost", "amount"), Shown("c", None, "x"), Shown("d"))
    assert middle.shown == (Shown("id", "id"), Shown("cost", "price"), Shown("c", "c"), Shown("d"))
    assert [since for since, _ in feed.computations] == [None, 5, 9]
    assert feed.computation_for(feed.sequence.at(4)).hash == oldest.hash
    assert feed.computation_for(feed.sequence.at(5)).hash == middle.hash
    assert feed.computation_for(feed.sequence.at(9)).hash == feed.computation_hash


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  - columns: {id: BIGINT}\n", "only the first version goes without `since`"),
        ("  - {since: monday, columns: {id: BIGINT}}\n", "`since` is no key of this feed"),
        ("  - {since: 5, columns: {id: BIGINT, amount: SMALLINT}}\n", "which cannot show every INTEGER of the keys before"),
        ("  - {since: 5, columns: {id: BIGINT, p: INTEGER}, renamed: {p: amonut}}\n", "`amonut` is no column of the version"),
        ("  - {since: 5, columns: {id: BIGINT}, renamed: {p: amount}}\n", "`p` is no column of this version"),
        ("  - {since: 5, columns: {id: BIGINT, old: VARCHAR}, renamed: {old: amount}}\n", "is a column of the version before"),
        ("  - {since: 5, columns: {id: BIGINT, amount: INTEGER}, defaults: {amount: 1}}\n", "`amount` is not new in this version"),
        ("  - {since: 5, columns: {id: BIGINT, n: INTEGER}, defaults: {n: many}}\n", "`many` is no INTEGER"),
        ("  - {since: 5, columns: {id: BIGINT, id2: INTEGR}}\n", "INTEGR"),
        ("  - {since: 5, colums: {id: BIGINT}}\n", "unknown field `colums`; did you mean `columns`?"),
    ],
)
def test_a_version_that_is_wrong_is_told_with_its_line(line: str, told: str) -> None:
    found = faults(line)
    assert any(number == 8 and told in message for number, message in found), found


def test_versions_come_in_the_order_of_their_keys() -> None:
    found = faults("  - {since: 9, columns: {id: BIGINT}}\n", "  - {since: 5, columns: {id: BIGINT}}\n")
    assert any(number == 9 and "does not come after 9" in message for number, message in found)


def test_a_key_column_is_there_in_every_version() -> None:
    text = HEAD.replace("key: [id]", "key: [new]") + FIRST + "  - {since: 5, columns: {id: BIGINT, new: BIGINT}}\n"
    with pytest.raises(ConfigurationInvalid, match="is not in the first version"):
        parse_feed(text, "feeds/orders.yaml", deployment=Path("/d"), environ={})


@pytest.mark.parametrize(
    ("text", "type_", "right"),
    [
        ("1", "TINYINT", True), ("128", "TINYINT", False), ("-1", "UTINYINT", False), ("255", "UTINYINT", True),
        ("1.25", "DECIMAL(4,2)", True), ("1.255", "DECIMAL(4,2)", False), ("100", "DECIMAL(4,2)", False),
        ("nan", "DECIMAL(4,2)", False),
        ("true", "BOOLEAN", True), ("yes", "BOOLEAN", False), ("2026-02-29", "DATE", False), ("2026-02-28", "DATE", True),
        ("00:00:00", "TIME", True), ("0.0", "DOUBLE", True), ("x", "DOUBLE", False), ("anything", "VARCHAR", True),
        ("2026-02-28T00:00:00", "TIMESTAMP", True), ("zz", "UUID", False),
    ],
)  # fmt: skip
def test_a_default_is_a_value_of_its_columns_type(text: str, type_: str, right: bool) -> None:
    assert fits(text, type_) is right
