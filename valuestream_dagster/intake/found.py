"""What a CSV file looks like, whatever was declared: its columns, the narrowest type of each, its first rows. Decides nothing.

A type is named only where every value that was looked at fits it without loss, by the rule that accepts rows (``lossless``), so
that what is shown here can be written into a feed file.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import duckdb

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import CsvFormat, RowContract
from valuestream_dagster.feeds.column_types import canonical_type
from valuestream_dagster.intake.csv_source import CsvSource, records, unpack
from valuestream_dagster.intake.csv_sql import read_csv, unfit
from valuestream_dagster.intake.payload import PayloadFile

ROWS_LOOKED_AT = 100_000
COLUMNS_LOOKED_AT = 500
_CANDIDATES = ("BIGINT", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME", "UUID", "BOOLEAN", "DOUBLE")
_DECIMAL = "DECIMAL(38,19)"  # stands for every decimal in the question; the answer has the digits that were found


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file as it is.

    Args:
        columns: (name, narrowest type) in the file's order; the type is None where every value is NULL or nothing could be read.
        rows: how many records it has.
        rows_unfit: how many of them cannot be read as declared: another number of fields, or a value that does not fit its type.
        sample: the first rows as text, NULL as None.
    """

    columns: tuple[tuple[str, str | None], ...]
    rows: int
    rows_unfit: int
    sample: tuple[tuple[str | None, ...], ...]


def found_in(
    file: PayloadFile, contract: RowContract, *, scratch: Path, max_ratio: int, sample_rows: int
) -> FoundFile | Finding:
    """Look at one file.

    Args:
        file: the file.
        contract: its dialect, and the declared types by which rows are counted as unfit.
        scratch: existing folder for unpacked copies.
        max_ratio: unpacked bytes per packed byte beyond which a file is refused.
        sample_rows: how many rows to show.

    Returns:
        What was found; or the finding that says why it cannot be read at all.

    Raises:
        WrongUse: the declared encoding does not exist.
    """
    with ExitStack() as stack:
        path = unpack(file.path, file.name, contract.csv, scratch=scratch, stack=stack, max_ratio=max_ratio)
        if isinstance(path, Finding):
            return path
        source = _source(path, file.name, contract)
        widths, sample = _texts(source, contract.csv, sample_rows)
        with duckdb.connect(":memory:", config={"threads": 1}) as con:
            con.execute("SET TimeZone = 'UTC'")
            types = _types(con, source, contract.csv)
            misfits = _misfits(con, source, contract)
    uneven = sum(1 for width in widths if width != len(source.columns))
    found = tuple(zip(source.columns, types, strict=True))
    return FoundFile(found, len(widths), min(len(widths), uneven + misfits), sample)


def _source(path: Path, name: str, contract: RowContract) -> CsvSource:
    """The file with its own columns; the declared ones where it has no header."""
    if not contract.csv.header:
        return CsvSource(path, name, tuple(column.name for column in contract.columns), 0, header=False)
    head: list[str] = []
    with suppress(csv.Error, UnicodeDecodeError):  # the checks say so; here is only nothing to show
        _, head = next(records(CsvSource(path, name, ("",), 0, header=False), contract.csv), (0, []))
    return CsvSource(path, name, tuple(head), 0, header=True)


def _texts(source: CsvSource, dialect: CsvFormat, sample_rows: int) -> tuple[list[int], tuple[tuple[str | None, ...], ...]]:
    """The number of fields of every record that can be read, and the first records as text."""
    widths: list[int] = []
    sample: list[tuple[str | None, ...]] = []
    with suppress(csv.Error, UnicodeDecodeError):
        for _, record in records(source, dialect):
            widths.append(len(record))
            if len(sample) < sample_rows:
                sample.append(tuple(None if text in dialect.null else text for text in record))
    return widths, tuple(sample)


def _types(con: duckdb.DuckDBPyConnection, source: CsvSource, dialect: CsvFormat) -> list[str | None]:
    """The narrowest type of each column by its first rows."""
    nothing: list[str | None] = [None] * len(source.columns)
    aliases = [f"c{place}" for place in range(len(source.columns))][:COLUMNS_LOOKED_AT]
    questions = [question for alias in aliases for question in _questions(alias)]
    if not questions:
        return nothing
    reading = read_csv(source, dialect, ["VARCHAR"] * len(source.columns), ", ignore_errors = true")
    try:
        row = con.execute(f"SELECT {', '.join(questions)} FROM (FROM {reading} LIMIT {ROWS_LOOKED_AT})").fetchone() or ()
    except duckdb.Error:
        return nothing
    answers, size = iter(row), len(_CANDIDATES) + 4
    return [_narrowest(list(islice(answers, size))) for _ in aliases] + nothing[len(aliases) :]


def _questions(alias: str) -> list[str]:
    """How many values there are, how many no candidate and no decimal holds, and a decimal's digits before and after the point."""
    digits = f"ltrim(split_part({alias}, '.', 1), '-+')"
    return [
        f"count({alias})",
        *(f"count(*) FILTER (WHERE {unfit(alias, type_)})" for type_ in _CANDIDATES),
        f"count(*) FILTER (WHERE {unfit(alias, _DECIMAL)})",
        f"max(length({digits}))",
        f"max(length(split_part({alias}, '.', 2)))",
    ]


def _narrowest(answers: Sequence[int | None]) -> str | None:
    count, *misfits, no_decimal, before, after = answers
    if not count:
        return None
    fitting = [type_ for type_, number in zip(_CANDIDATES, misfits, strict=True) if not number]
    if not no_decimal and "BIGINT" not in fitting:
        return f"DECIMAL({max(1, (before or 0) + (after or 0))},{after or 0})"
    return fitting[0] if fitting else "VARCHAR"


def _misfits(con: duckdb.DuckDBPyConnection, source: CsvSource, contract: RowContract) -> int:
    """Records of the right width of which a value does not fit its declared type; none where nothing can be read."""
    declared = {column.name: canonical_type(column.type) for column in contract.columns}
    checks = [unfit(f"c{place}", declared[name]) for place, name in enumerate(source.columns) if name in declared]
    if not checks:
        return 0
    reading = read_csv(source, contract.csv, ["VARCHAR"] * len(source.columns), ", ignore_errors = true")
    try:
        row = con.execute(f"SELECT count(*) FILTER (WHERE {' OR '.join(checks)}) FROM {reading}").fetchone()
    except duckdb.Error:
        return 0
    return int(row[0]) if row else 0
