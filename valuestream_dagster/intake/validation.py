"""Compare what was read with what was declared: rows per file and in all, exact totals, keys unique and never NULL.

Works on any relation that carries the declared columns and ``_file``; the publication gives it the Parquet it has just written, so
what is proven is what was written. One scan for counts, totals and NULLs, a second for uniqueness. Types are ``payload``'s work.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import duckdb

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import DeclaredControls, MeasuredRows, RowContract
from valuestream_dagster.feeds.column_types import adds_up_exactly, canonical_type
from valuestream_dagster.intake.csv_sql import identifier
from valuestream_dagster.intake.payload import PayloadFile

_ASK = "ask the producer which is right, the manifest or the file, and for a resend; nothing was applied."
_SHOWN_KEYS = 3


def validate(
    con: duckdb.DuckDBPyConnection,
    relation_sql: str,
    files: Sequence[PayloadFile],
    contract: RowContract,
    controls: DeclaredControls,
) -> tuple[MeasuredRows, tuple[Finding, ...]]:
    """Measure a relation and compare it with what was declared.

    Args:
        con: the connection that can read the relation.
        relation_sql: a table expression with the declared columns and ``_file``.
        files: the delivery's files, in the manifest's order, with their declared rows.
        contract: key and totals.
        controls: what the manifest says the rows add up to.

    Returns:
        What was measured, and every disagreement.
    """
    exact = {column.name for column in contract.columns if adds_up_exactly(canonical_type(column.type))}
    declared = dict(controls.totals)
    summed = tuple(name for name in dict.fromkeys((*contract.totals, *declared)) if name in exact)
    rows, totals, nulls = _scan(con, relation_sql, summed, contract.key)
    measured = MeasuredRows(sum(rows.values()), tuple(rows.get(file.name, 0) for file in files), tuple(totals.items()))
    return measured, (
        *_row_findings(measured, files, controls),
        *_total_findings(totals, controls),
        *_null_findings(nulls),
        *_duplicates(con, relation_sql, _unique(contract), measured.rows),
    )


def _unique(contract: RowContract) -> tuple[str, ...]:
    """What must differ from row to row: the key; where rows can remove, a key may be removed and written once each (ruling 8)."""
    return (*contract.key, "_op") if contract.key and contract.delete_when else contract.key


def _scan(
    con: duckdb.DuckDBPyConnection, relation_sql: str, summed: Sequence[str], key: Sequence[str]
) -> tuple[dict[str, int], dict[str, Decimal], dict[str, int]]:
    """Rows by file, exact total by column, NULLs by key column."""
    wanted = ["_file", "count(*)"]
    wanted += [f"CAST(sum({identifier(name)}) AS VARCHAR)" for name in summed]
    wanted += [f"count(*) - count({identifier(name)})" for name in key]
    rows: dict[str, int] = {}
    totals = dict.fromkeys(summed, Decimal(0))
    nulls = dict.fromkeys(key, 0)
    for file, count, *rest in con.execute(f"SELECT {', '.join(wanted)} FROM {relation_sql} GROUP BY _file").fetchall():
        rows[str(file)] = int(count)
        for name, total in zip(summed, rest[: len(summed)], strict=True):
            totals[name] += Decimal(total or 0)
        for name, missing in zip(key, rest[len(summed) :], strict=True):
            nulls[name] += int(missing)
    return rows, totals, nulls


def _row_findings(measured: MeasuredRows, files: Sequence[PayloadFile], controls: DeclaredControls) -> list[Finding]:
    findings = [
        Finding(
            "row_count_mismatch",
            f"{found} rows, declared are {file.rows}",
            _ASK,
            file.name,
            expected=str(file.rows),
            found=str(found),
        )
        for file, found in zip(files, measured.rows_per_file, strict=True)
        if file.rows is not None and file.rows != found
    ]
    if controls.rows is not None and controls.rows != measured.rows:
        detail = f"{measured.rows} rows in all, declared are {controls.rows}"
        findings.append(
            Finding("row_count_mismatch", detail, _ASK, expected=str(controls.rows), found=str(measured.rows))
        )
    return findings


def _total_findings(totals: dict[str, Decimal], controls: DeclaredControls) -> list[Finding]:
    findings: list[Finding] = []
    for name, expected in controls.totals:
        found = totals.get(name)
        if found is None:
            detail = f"a total is declared over `{name}`, which is no integer or DECIMAL column of this feed"
            findings.append(Finding("control_unknown_column", detail, _ASK, column=name, expected=str(expected)))
        elif found != expected:
            detail = f"`{name}` adds up to {found:f}, declared is {expected:f}"
            findings.append(
                Finding(
                    "control_total_mismatch", detail, _ASK, column=name, expected=f"{expected:f}", found=f"{found:f}"
                )
            )
    return findings


def _null_findings(nulls: dict[str, int]) -> list[Finding]:
    return [
        Finding("null_key", f"key column `{name}` is NULL in {count} rows", _ASK, column=name, found=str(count))
        for name, count in nulls.items()
        if count
    ]


def _duplicates(con: duckdb.DuckDBPyConnection, relation_sql: str, key: Sequence[str], rows: int) -> list[Finding]:
    """One finding that names the first repeated keys; keys with a NULL are ``null_key``'s and count like others here."""
    if not key or rows < 2:
        return []
    columns = ", ".join(identifier(name) for name in key)
    # Cheap and sound first: as many different hashes as rows means as many different keys. Only otherwise look closely.
    different = con.execute(f"SELECT count(DISTINCT hash({columns})) FROM {relation_sql}").fetchone()
    if different == (rows,):
        return []
    repeated = con.execute(
        f"SELECT {columns}, count(*), count(*) OVER () FROM {relation_sql} "
        f"GROUP BY {columns} HAVING count(*) > 1 ORDER BY {columns} LIMIT {_SHOWN_KEYS}"
    ).fetchall()
    if not repeated:
        return []
    shown = "; ".join(
        f"{', '.join(f'{name}={value}' for name, value in zip(key, row, strict=False))} ({row[-2]} times)"
        for row in repeated
    )
    many = int(repeated[0][-1])
    detail = f"{many} keys occur more than once, first {shown}"
    return [Finding("duplicate_key", detail, _ASK, column=", ".join(key), found=str(many))]
