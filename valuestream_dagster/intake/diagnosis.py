"""Say why a CSV file's rows cannot be read: line, column, expected type and found text of its faults. The slow path.

Run only after a reading failed. DuckDB finds the values that do not fit, Python's ``csv`` finds the lines and the broken records.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import CsvFormat
from valuestream_dagster.intake.csv_source import (
    FOUND_LENGTH,
    MAX_FINDINGS,
    RESEND,
    BrokenRecordError,
    CsvSource,
    records,
    uneven_line_end,
)
from valuestream_dagster.intake.csv_sql import read_csv, unfit
from valuestream_dagster.intake.lossless import plain_pattern


def diagnose_source(
    con: duckdb.DuckDBPyConnection, source: CsvSource, types: Mapping[str, str], dialect: CsvFormat
) -> tuple[list[Finding], int]:
    """The first findings of one file in line order, and how many faults there are in all.

    Args:
        con: any connection.
        source: the file.
        types: canonical type by column name.
        dialect: the file's dialect.
    """
    undecodable = _undecodable_line(source)
    if undecodable is not None:
        fault = Finding(
            "encoding_invalid", "this line is not UTF-8", RESEND, source.name, undecodable, expected="utf-8"
        )
        return [fault], 1
    refusal, values, misfits = "", list[tuple[int, str, str]](), 0
    try:
        values, misfits = _unfit_values(con, source, types, dialect)
    except duckdb.Error as error:
        refusal = " ".join(str(error).split("\n", 1)[0].split())[:FOUND_LENGTH]
    lines, findings, malformed = _locate({record for record, _, _ in values}, source, dialect)
    findings += [_misfit(source, lines.get(record), column, types[column], text) for record, column, text in values]
    if refusal and not findings:
        uneven = uneven_line_end(source)
        why = f"the file cannot be read ({refusal})" if uneven is None else "this line ends otherwise than the first one (CRLF, LF)"
        return [Finding("csv_malformed", why, RESEND, source.name, uneven)], 1
    return sorted(findings, key=lambda finding: finding.line or 0), malformed + misfits


def _misfit(source: CsvSource, line: int | None, column: str, canonical: str, text: str) -> Finding:
    found = text[:FOUND_LENGTH]
    detail = f"`{found}` is no {canonical} without loss"
    return Finding("value_does_not_fit", detail, RESEND, source.name, line, column, canonical, found)


def _unfit_values(
    con: duckdb.DuckDBPyConnection, source: CsvSource, types: Mapping[str, str], dialect: CsvFormat
) -> tuple[list[tuple[int, str, str]], int]:
    """The first values that do not fit as (record from 1, column, text), and how many there are."""
    checks = [
        (name, f"c{place}", unfit(f"c{place}", types[name]))
        for place, name in enumerate(source.columns)
        if plain_pattern(types[name]) is not None
    ]
    if not checks:
        return [], 0
    reading = read_csv(source, dialect, ["VARCHAR"] * len(source.columns), ", ignore_errors = true")
    texts = ", ".join(f"CASE WHEN {is_unfit} THEN {alias} END AS {alias}" for _, alias, is_unfit in checks)
    faulty = " OR ".join(f"{alias} IS NOT NULL" for _, alias, _ in checks)
    found = con.execute(
        f"SELECT * FROM (SELECT row_number() OVER () AS record, {texts} FROM {reading}) "
        f"WHERE {faulty} ORDER BY record LIMIT {MAX_FINDINGS}"
    ).fetchall()
    counts = ", ".join(f"count(*) FILTER (WHERE {is_unfit})" for _, _, is_unfit in checks)
    counted = con.execute(f"SELECT {counts} FROM {reading}").fetchone() or ()
    values = [
        (int(record), name, str(text))
        for record, *row in found
        for (name, _, _), text in zip(checks, row, strict=True)
        if text is not None
    ]
    return values[:MAX_FINDINGS], sum(counted)


def _locate(wanted: set[int], source: CsvSource, dialect: CsvFormat) -> tuple[dict[int, int], list[Finding], int]:
    """The line of every wanted record (as DuckDB counts them), the first malformed records, and how many those are."""
    lines: dict[int, int] = {}
    findings: list[Finding] = []
    malformed = number = 0
    width = len(source.columns)
    try:
        for line, record in records(source, dialect):
            if len(record) == width or (len(record) == width + 1 and record[-1] == ""):
                number += 1
                if number in wanted:
                    lines[number] = line
            if len(record) != width:
                malformed += 1
                if malformed <= MAX_FINDINGS:
                    fault = f"{len(record)} fields instead of {width}"
                    findings.append(
                        Finding(
                            "csv_malformed",
                            fault,
                            RESEND,
                            source.name,
                            line,
                            expected=str(width),
                            found=str(len(record)),
                        )
                    )
    except BrokenRecordError as error:
        malformed += 1
        findings.append(Finding("csv_malformed", error.why, RESEND, source.name, error.line))
    return lines, findings, malformed


def _undecodable_line(source: CsvSource) -> int | None:
    with source.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None
