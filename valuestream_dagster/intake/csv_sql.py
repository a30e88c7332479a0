"""The SQL that reads one CSV file: DuckDB's reader with everything said, and a condition per value. Nothing is sniffed.

Columns are called ``c0``, ``c1``, ... in the file's order, so that no header text becomes SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from valuestream_dagster.core.rows import CsvFormat
from valuestream_dagster.intake.csv_source import MAX_LINE_BYTES, CsvSource
from valuestream_dagster.intake.lossless import is_floating, plain_pattern

# DuckDB's own 32 MB buffers need 100 MB more memory and are no faster.
_BUFFER_BYTES = 8_000_000
_NEVER = "\ue000\ue001"  # DuckDB wants at least one null text; this one stands for "none"


def identifier(name: str) -> str:
    """A column name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def read_csv(source: CsvSource, dialect: CsvFormat, types: Sequence[str], more: str = "") -> str:
    """The table expression that reads a file as these types, one per column in the file's order."""
    columns = ", ".join(f"'c{place}': {literal(canonical)}" for place, canonical in enumerate(types))
    nulls = ", ".join(literal(null) for null in dialect.null or (_NEVER,))
    return (
        f"read_csv({literal(str(source.path))}, auto_detect = false, columns = {{{columns}}}, "
        f"header = {str(source.header).lower()}, delim = {literal(dialect.delimiter)}, quote = {literal(dialect.quote)}, "
        f"escape = {literal(dialect.escape)}, nullstr = [{nulls}], allow_quoted_nulls = false, compression = 'none', "
        f"max_line_size = {MAX_LINE_BYTES}, buffer_size = {_BUFFER_BYTES}{more})"
    )


def typed(alias: str, canonical: str, name: str) -> str:
    """A value whose text is proven plain and read by DuckDB as its type."""
    if not is_floating(canonical):
        return alias
    return f"CASE WHEN isinf({alias}) THEN error({literal(f'{name}: out of range')}) ELSE {alias} END"


def guarded(alias: str, canonical: str, name: str) -> str:
    """A value read as text: cast where it is plain and fits, an error everywhere else; NULL stays NULL."""
    if plain_pattern(canonical) is None:
        return alias
    message = literal(f"{name}: does not fit {canonical}")
    return f"CASE WHEN {unfit(alias, canonical)} THEN error({message}) ELSE CAST({alias} AS {canonical}) END"


def unfit(alias: str, canonical: str) -> str:
    """Condition that a text is not NULL and no value of this type."""
    pattern = plain_pattern(canonical)
    if pattern is None:
        return "false"
    unfit = f"NOT regexp_full_match({alias}, {literal(pattern)}) OR TRY_CAST({alias} AS {canonical}) IS NULL"
    if is_floating(canonical):
        unfit += f" OR isinf(TRY_CAST({alias} AS {canonical}))"
    return f"({alias} IS NOT NULL AND ({unfit}))"
