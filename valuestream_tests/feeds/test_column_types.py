"""Column types: one canonical name each, and only those that a published file gives back unchanged."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.feeds.column_types import adds_up_exactly, canonical_type, holds_every


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bigint", "BIGINT"),
        ("INT", "INTEGER"),
        ("text", "VARCHAR"),
        ("String", "VARCHAR"),
        ("REAL", "FLOAT"),
        ("double precision", "DOUBLE"),
        ("DATETIME", "TIMESTAMP"),
        ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
        ("Timestamp  with Time zone", "TIMESTAMP WITH TIME ZONE"),
        ("bool", "BOOLEAN"),
        ("utinyint", "UTINYINT"),
        ("uuid", "UUID"),
        ("DECIMAL", "DECIMAL(18,3)"),
        ("numeric(10)", "DECIMAL(10,0)"),
        ("Decimal( 18 , 2 )", "DECIMAL(18,2)"),
        ("DECIMAL(38,38)", "DECIMAL(38,38)"),
    ],
)
def test_every_spelling_has_one_canonical_name(text: str, canonical: str) -> None:
    assert canonical_type(text) == canonical
    assert canonical_type(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("HUGEINT", "write DECIMAL\\(38,0\\)"),
        ("UHUGEINT", "lose digits"),
        ("BLOB", "not built"),
        ("INTERVAL", "not built"),
        ("DECIMAL(39,2)", "precision from 1 to 38"),
        ("DECIMAL(0,0)", "precision from 1 to 38"),
        ("DECIMAL(5,6)", "more decimals than digits"),
        ("DECIMAL(18", "in quotes"),
        ("DECIML(18,2)", "did you mean DECIMAL\\(18,2\\)"),
        ("VARCHR", "did you mean VARCHAR"),
        ("INTEGER; DROP TABLE x", "no column type"),
        ("INTEGER[]", "no column type"),
        ("", "no column type"),
    ],
)
def test_what_is_no_type_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        canonical_type(text)


@given(st.text(max_size=30))
def test_a_type_is_canonical_or_refused(text: str) -> None:
    try:
        canonical = canonical_type(text)
    except ValueError:
        return
    assert canonical_type(canonical) == canonical


@pytest.mark.parametrize(
    ("canonical", "exact"),
    [
        ("BIGINT", True),
        ("UTINYINT", True),
        ("DECIMAL(18,2)", True),
        ("DOUBLE", False),
        ("VARCHAR", False),
        ("DATE", False),
    ],
)
def test_only_integers_and_decimals_have_exact_totals(canonical: str, exact: bool) -> None:
    assert adds_up_exactly(canonical) is exact


_EXTREMES = {
    "TINYINT": ["-128", "127"], "SMALLINT": ["-32768", "32767"], "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"], "UTINYINT": ["255"], "USMALLINT": ["65535"],
    "UINTEGER": ["4294967295"], "UBIGINT": ["18446744073709551615"], "FLOAT": ["0.1", "1e38"], "DOUBLE": ["0.1", "1e300"],
    "DECIMAL(4,2)": ["99.99", "-99.99"], "DECIMAL(6,2)": ["9999.99"], "DECIMAL(6,3)": ["999.999"], "DECIMAL(20,0)": ["9" * 20],
    "DATE": ["2026-09-01"], "TIMESTAMP": ["2026-09-01 23:59:59.123456"], "BOOLEAN": ["true"],
}  # fmt: skip


@pytest.mark.parametrize("new", [*_EXTREMES, "VARCHAR"])
def test_a_type_that_is_said_to_hold_every_value_of_another_holds_its_extremes(new: str) -> None:
    """L5: judged by DuckDB; what is not said to be held need not be lost"""
    for old, texts in _EXTREMES.items():
        if not holds_every(old, new):
            continue
        for text in texts:
            kept = duckdb.execute(
                f"SELECT TRY_CAST(TRY_CAST(v AS {new}) AS {old}) = v FROM (SELECT CAST('{text}' AS {old}) AS v)"
            )
            assert kept.fetchall() == [(True,)], f"{text} of {old} in {new}"


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        ("INTEGER", "BIGINT", True), ("UINTEGER", "BIGINT", True), ("UINTEGER", "INTEGER", False), ("TINYINT", "UBIGINT", False),
        ("BIGINT", "DOUBLE", False), ("INTEGER", "DOUBLE", True), ("BIGINT", "DECIMAL(20,0)", True),
        ("BIGINT", "DECIMAL(18,0)", False), ("DECIMAL(4,2)", "DECIMAL(6,3)", True), ("DECIMAL(6,2)", "DECIMAL(6,3)", False),
        ("DECIMAL(4,2)", "DOUBLE", False), ("TIMESTAMP", "DATE", False), ("DATE", "TIMESTAMP", True), ("UUID", "VARCHAR", True),
        ("VARCHAR", "BIGINT", False), ("DOUBLE", "FLOAT", False), ("FLOAT", "DOUBLE", True), ("BOOLEAN", "TINYINT", False),
    ],
)  # fmt: skip
def test_which_types_hold_every_value_of_which(old: str, new: str, holds: bool) -> None:
    assert holds_every(old, new) is holds
