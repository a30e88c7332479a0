"""Column types: one canonical name each, and only those that a published file gives back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.feeds.column_types import adds_up_exactly, canonical_type


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
