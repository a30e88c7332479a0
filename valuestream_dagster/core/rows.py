"""How rows are declared: columns, CSV dialect, keys and controls. Reading them is ``intake.payload``'s work."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
class Transform:
    """What makes published rows of delivered ones.

    Args:
        name: as the feed file names it: a SQL file, or ``package.module:function``.
        text: the SQL, or the source of the function's module: what decides the output.
        is_sql: which of the two.
    """

    name: str
    text: str
    is_sql: bool


@dataclass(frozen=True, slots=True)
class RowContract:
    """All that decides how payload becomes rows.

    Args:
        columns: declared columns, in the order in which they are published.
        csv: the payload's dialect.
        key: columns that are unique and never NULL within one delivery; empty for no check.
        totals: columns whose exact sum is computed (and compared where declared).
        delete_when: SQL condition over declared columns; rows that meet it are published as ``_op = 'D'``.
        transform: what makes these columns of the delivered ones; None where they are the same.
        delivered: the columns of the payload, where a transform makes others of them.
    """

    columns: tuple[Column, ...]
    csv: CsvFormat = CsvFormat()
    key: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    delete_when: str | None = None
    transform: Transform | None = None
    delivered: tuple[Column, ...] = ()

    @property
    def as_delivered(self) -> RowContract:
        """How the payload itself is read: what a transform makes of it, and of its key, comes after (counts and totals do not)."""
        if self.transform is None:
            return self
        return replace(self, columns=self.delivered or self.columns, key=(), delete_when=None, transform=None, delivered=())


@dataclass(frozen=True, slots=True)
class IndependentControl:
    """Counts and totals from another source than the delivery's own export (M8).

    Args:
        file: absolute path of the CSV that holds them by key.
        rows: whether rows are compared.
        totals: columns whose exact totals are.
        obtained: how, or from whom, they came, in words.
    """

    file: str
    rows: bool = True
    totals: tuple[str, ...] = ()
    obtained: str = ""


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

    @property
    def rows_delivered(self) -> int:
        """Rows of the files themselves; a transform may make fewer or more of them."""
        return sum(self.rows_per_file)


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """The payload's rows break the contract: every kind of fault found, none hidden by the first."""

    findings: tuple[Finding, ...]
