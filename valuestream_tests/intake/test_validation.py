"""What was read is compared with what was declared: rows, exact totals, keys (M3, M8)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import Column, DeclaredControls, MeasuredRows, RowContract
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.validation import validate

COLUMNS = (
    Column("id", "INTEGER"),
    Column("line", "INTEGER"),
    Column("amount", "DECIMAL(18,2)"),
    Column("rate", "DOUBLE"),
)
ROWS = "(1, 1, 0.10, 0.5, 'a.csv'), (1, 2, 0.20, 0.5, 'a.csv'), (2, 1, 0.70, 0.5, 'b.csv')"
FILES = (PayloadFile(Path("a"), "a.csv", 2), PayloadFile(Path("b"), "b.csv", 1), PayloadFile(Path("c"), "c.csv", None))
NOTHING_DECLARED = DeclaredControls()


def check(
    rows: str = ROWS,
    *,
    files: Sequence[PayloadFile] = FILES,
    key: tuple[str, ...] = (),
    totals: tuple[str, ...] = (),
    controls: DeclaredControls = NOTHING_DECLARED,
) -> tuple[MeasuredRows, tuple[Finding, ...]]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE given (id INTEGER, line INTEGER, amount DECIMAL(18,2), rate DOUBLE, _file VARCHAR)")
        if rows:
            con.execute(f"INSERT INTO given VALUES {rows}")
        return validate(con, "given", files, RowContract(COLUMNS, key=key, totals=totals), controls)


def test_rows_and_totals_are_measured_exactly_and_per_file() -> None:
    measured, findings = check(totals=("amount",), controls=DeclaredControls(3, (("amount", Decimal("1.0")),)))
    assert measured == MeasuredRows(3, (2, 1, 0), (("amount", Decimal("1.00")),))
    assert findings == ()


def test_a_file_with_other_rows_than_declared_is_named() -> None:
    _, (finding,) = check(files=(PayloadFile(Path("a"), "a.csv", 3), *FILES[1:]))
    assert (finding.code, finding.file, finding.expected, finding.found) == ("row_count_mismatch", "a.csv", "3", "2")


def test_a_declared_file_of_which_no_row_came_is_named() -> None:
    _, (finding,) = check(files=(*FILES[:2], PayloadFile(Path("c"), "c.csv", 5)))
    assert (finding.file, finding.expected, finding.found) == ("c.csv", "5", "0")


def test_the_count_of_the_whole_delivery_is_a_control_of_its_own() -> None:
    _, (finding,) = check(controls=DeclaredControls(rows=4))
    assert (finding.code, finding.file, finding.expected, finding.found) == ("row_count_mismatch", None, "4", "3")


def test_a_total_that_differs_by_a_cent_is_refused_with_both_exact_texts() -> None:
    _, (finding,) = check(controls=DeclaredControls(totals=(("amount", Decimal("1.01")),)))
    assert (finding.code, finding.column) == ("control_total_mismatch", "amount")
    assert (finding.expected, finding.found) == ("1.01", "1.00")


@pytest.mark.parametrize("name", ["nowhere", "rate", "_file"])
def test_a_total_over_an_unknown_or_inexact_column_is_refused(name: str) -> None:
    _, (finding,) = check(controls=DeclaredControls(totals=((name, Decimal(1)),)))
    assert (finding.code, finding.column) == ("control_unknown_column", name)


def test_a_total_that_no_64_bits_hold_stays_exact() -> None:
    rows = ", ".join("(1, 1, 9999999999999999.99, 0, 'a.csv')" for _ in range(1000))
    measured, _ = check(rows, files=FILES[1:], totals=("amount", "id"))
    assert measured.totals == (("amount", Decimal("9999999999999999990.00")), ("id", Decimal(1000)))


def test_without_rows_totals_are_zero() -> None:
    measured, findings = check("", files=(), totals=("amount",), key=("id",), controls=DeclaredControls(rows=0))
    assert measured == MeasuredRows(0, (), (("amount", Decimal(0)),))
    assert findings == ()


def test_a_repeated_key_is_refused_and_the_first_are_named() -> None:
    _, (finding,) = check(key=("id",))
    assert (finding.code, finding.column, finding.found) == ("duplicate_key", "id", "1")
    assert "id=1 (2 times)" in finding.detail


def test_a_key_of_several_columns_is_unique_as_a_whole() -> None:
    assert check(key=("id", "line"))[1] == ()
    _, (finding,) = check(ROWS + ", (2, 1, 0, 0, 'b.csv')", files=(), key=("id", "line"))
    assert "id=2, line=1 (2 times)" in finding.detail


def test_a_null_in_a_key_is_refused() -> None:
    _, (finding,) = check("(1, 1, 0, 0, 'a.csv'), (NULL, 1, 0, 0, 'a.csv')", files=(), key=("id",))
    assert (finding.code, finding.column, finding.found) == ("null_key", "id", "1")


def test_every_disagreement_is_told_and_none_hides_another() -> None:
    _, findings = check(
        ROWS + ", (NULL, 1, 0, 0, 'b.csv')",
        key=("id",),
        controls=DeclaredControls(9, (("amount", Decimal(9)), ("nowhere", Decimal(9)))),
    )
    assert [finding.code for finding in findings] == [
        "row_count_mismatch",
        "row_count_mismatch",
        "control_total_mismatch",
        "control_unknown_column",
        "null_key",
        "duplicate_key",
    ]
