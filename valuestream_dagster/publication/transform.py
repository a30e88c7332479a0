"""Carrying out a feed's transform: rows as delivered in, the declared columns out, in a DuckDB of its own.

SQL sees one table, ``delivery``, and no file but those of this very work; a function is the deployment's own code. What comes out
must be exactly the declared columns, and every value must be one of its type: nothing is rounded on the way. Whatever goes wrong
here is a fault of ours, never of the producer: it fails the slice, and the delivery stays sealed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from valuestream_dagster.core.rows import Column, RowContract, RowStamp, Transform
from valuestream_dagster.errors import ValueStreamError
from valuestream_dagster.feeds.column_types import canonical_type, holds_every
from valuestream_dagster.intake.csv_sql import identifier, literal
from valuestream_dagster.intake.payload import stamped


class TransformFailed(ValueStreamError):
    """A feed's transform did not give what it must."""

    kind = "transform_failed"


def carry_out(
    delivered: Path,
    contract: RowContract,
    *,
    stamp: RowStamp,
    provenance: Mapping[str, str],
    target: Path,
    threads: int,
) -> None:
    """Write what the transform makes of delivered rows as a Parquet file.

    Args:
        delivered: Parquet of the rows as they were delivered, in a folder that is this work's alone.
        contract: with the transform, and the columns that must come out.
        stamp: what every row carries.
        provenance: embedded in the file's metadata, text by text.
        target: the file to write, in the same folder.
        threads: how many to use.

    Raises:
        TransformFailed: it cannot be carried out, or gives other columns or values than declared.
    """
    transform = contract.transform
    if transform is None:
        raise TransformFailed("there is no transform to carry out.")
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "temp_directory": str(delivered.parent),
        "autoinstall_known_extensions": False,
    }
    with duckdb.connect(":memory:", config=config) as con:
        con.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        names = ", ".join(identifier(column.name) for column in contract.as_delivered.columns)
        con.execute(f"CREATE VIEW delivery AS SELECT {names} FROM read_parquet({literal(str(delivered))})")
        try:
            _define(con, transform, delivered.parent)
            _check_columns(con, contract.columns, transform)
            select = ", ".join(f"CAST({identifier(c.name)} AS {c.type}) AS {identifier(c.name)}" for c in contract.columns)
            rows = f"SELECT {select}, CAST(NULL AS VARCHAR) AS _file FROM transformed"
            pairs = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in provenance.items())
            embedded = f", KV_METADATA {{{pairs}}}" if pairs else ""
            con.execute(
                f"COPY ({stamped(contract, stamp, rows)}) TO {literal(str(target))} "
                f"(FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2{embedded})"
            )
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            raise _failed(transform, str(error).splitlines()[0]) from error


def _define(con: duckdb.DuckDBPyConnection, transform: Transform, folder: Path) -> None:
    """Make the view ``transformed``."""
    if not transform.is_sql:
        module, _, function = transform.name.partition(":")
        try:
            made = getattr(importlib.import_module(module), function)(con.view("delivery"))
        except duckdb.Error:
            raise
        except Exception as error:
            raise _failed(transform, f"{type(error).__name__}: {error}") from error
        if not isinstance(made, duckdb.DuckDBPyRelation):
            raise _failed(transform, f"it gives {type(made).__name__}, no DuckDB relation")
        made.create_view("transformed")
        return
    con.execute(f"SET allowed_directories = [{literal(str(folder))}]")
    con.execute("SET enable_external_access = false; SET lock_configuration = true")
    statements = con.extract_statements(transform.text)
    if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
        raise _failed(transform, "it is not one SELECT")
    con.execute(f"CREATE VIEW transformed AS {transform.text}")


def _check_columns(con: duckdb.DuckDBPyConnection, declared: Sequence[Column], transform: Transform) -> None:
    """Every declared column, no other, and no value that its type would change."""
    given = {row[0]: row[1] for row in con.execute("DESCRIBE transformed").fetchall()}
    wanted = {column.name: canonical_type(column.type) for column in declared}
    if missing := [name for name in wanted if name not in given]:
        raise _failed(transform, f"it does not give the declared column `{missing[0]}`")
    if more := [name for name in given if name not in wanted]:
        raise _failed(transform, f"it gives `{more[0]}`, which is not declared")
    doubtful = [name for name, type_ in wanted.items() if not _holds(given[name], type_)]
    if not doubtful:
        return
    changed = ", ".join(
        f"count(*) FILTER (CAST(TRY_CAST({identifier(n)} AS {wanted[n]}) AS {given[n]}) IS DISTINCT FROM {identifier(n)})"
        for n in doubtful
    )
    counts = con.execute(f"SELECT {changed} FROM transformed").fetchall()[0]
    for name, count in zip(doubtful, counts, strict=True):
        if count:
            raise _failed(
                transform, f"`{name}` comes out as {given[name]}, and {count} of its values are no {wanted[name]} without loss"
            )


def _holds(given: str, wanted: str) -> bool:
    try:
        return holds_every(canonical_type(given), wanted)
    except ValueError:
        return False


def _failed(transform: Transform, why: str) -> TransformFailed:
    return TransformFailed(
        f"the transform {transform.name} failed: {why}.",
        next_step="mend the transform, then run `valuestream apply` again; the delivery is sealed and stays.",
    )
