"""How rows are declared: columns, CSV dialect, keys and controls. Reading them is ``intake.payload``'s work."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from valuestream_dagster.core.finding import Finding

# Columns that every published file carries beside the declared ones; declared names never start with "_".
PROVENANCE_COLUMNS = ("_key", "_kind", "_seq", "_op", "_file")


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column: its name as in the header, and its DuckDB type as text (``DECIMAL(18,2)``)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The dialect of CSV payload; ``null`` are the unquoted texts that mean NULL."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    encoding: str = "utf-8"
    null: tuple[str, ...] = ("",)
    compression: Literal["auto", "none", "gzip"] = "auto"


@dataclass(frozen=True, slots=True)
class RowContract:
    """All that decides how payload becomes rows.

    Args:
        columns: declared columns, in the order in which they are published.
        csv: the payload's dialect.
        key: columns that are unique and never NULL within one delivery; empty for no check.
        totals: columns whose exact sum is computed (and compared where declared).
        delete_when: SQL condition over declared columns; rows that meet it are published as ``_op = 'D'``.
    """

    columns: tuple[Column, ...]
    csv: CsvFormat = CsvFormat()
    key: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    delete_when: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredControls:
    """What the manifest says the rows add up to; ``None`` where it says nothing."""

    rows: int | None = None
    totals: tuple[tuple[str, Decimal], ...] = ()


@dataclass(frozen=True, slots=True)
class RowStamp:
    """The constants that every row of one delivery carries: its key, its kind and its place in the sequence."""

    key: str
    kind: str
    seq: int


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """What was really read: rows in all and per file (in the order given), and the exact totals."""

    rows: int
    rows_per_file: tuple[int, ...]
    totals: tuple[tuple[str, Decimal], ...] = ()


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """The payload's rows break the contract: every kind of fault found, none hidden by the first."""

    findings: tuple[Finding, ...]
