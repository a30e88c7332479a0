"""Read the rows of CSV payload strictly: the SELECT that yields them, or every finding that says why there is none.

Order: unpack (gzip, other encodings) into scratch, compare header names, then read. A large file is read typed and fast
while, beside it, its bytes are proven plain (``csv_proof``); where the proof fails, what was read is thrown away and it is
read again cell by cell, as small files are at once. What a type accepts is ``lossless``'s rule. Columns are matched by name,
never by position; without a header they are taken in declared order. Unquoted null texts are NULL; a quoted text never is, so
``""`` is the empty text. Counts, keys and totals belong to ``validation``, writing to ``publication.parquet``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import RowContract, RowsRefused, RowStamp
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.feeds.column_types import canonical_type
from valuestream_dagster.intake.csv_proof import is_plain, row_pattern
from valuestream_dagster.intake.csv_source import MAX_FINDINGS, RESEND, CsvSource, compare_header, unpack, widths
from valuestream_dagster.intake.csv_sql import guarded, identifier, literal, read_csv, typed
from valuestream_dagster.intake.diagnosis import diagnose_source

# DuckDB's way of saying that a value does not fit.
_VALUE_ERRORS = (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.OutOfRangeException)
# A thread proves as fast as four parse.
_READERS_PER_PROVER = 4
# Below this size the cell-by-cell reading is done before the proof's automaton is built.
PROOF_FROM_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class PayloadFile:
    """One sealed file of a delivery.

    Args:
        path: local sealed bytes, as delivered (maybe compressed).
        name: path as the manifest declares it; its ``.gz`` decides compression ``auto``.
        rows: declared number of rows, ``None`` where the manifest says nothing.
    """

    path: Path
    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """Names of the files that are being proven plain, and whether they all are, once that is known."""

    names: frozenset[str]
    holds: Future[bool]


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows whose files have the declared columns; ``evaluate`` reads them.

    Args:
        contract: how rows are declared.
        sources: the files, made ready.
        proof: which of them are being proven plain; None where none is.
    """

    contract: RowContract
    sources: tuple[CsvSource, ...]
    proof: Proof | None = None

    def evaluate(
        self,
        con: duckdb.DuckDBPyConnection,
        stamp: RowStamp,
        run: Callable[[str], object],
        undo: Callable[[], object] = lambda: None,
    ) -> tuple[Finding, ...]:
        """Run the SELECT of the declared columns and ``PROVENANCE_COLUMNS``; what is wrong with the rows, or nothing.

        Args:
            con: the connection to find faults by.
            stamp: what every row carries.
            run: evaluates a SELECT.
            undo: throws away what ``run`` has made of rows that were not plain after all.

        Raises:
            duckdb.Error: not the rows' fault.
        """
        if self.proof is not None:
            try:
                run(self._select(stamp, self.proof.names))
                if self.proof.holds.result():
                    return ()
            except _VALUE_ERRORS:
                pass  # the cell-by-cell reading says where
            undo()
            if not all(_well_formed(source, self.contract) for source in self.sources):
                return self.diagnose(con)
        try:
            run(self._select(stamp, frozenset()))
        except _VALUE_ERRORS:
            if findings := self.diagnose(con):
                return findings
            raise
        return ()

    def _select(self, stamp: RowStamp, plain: frozenset[str]) -> str:
        rows = " UNION ALL ".join(f"({self._read(source, plain)})" for source in self.sources) or self._no_rows()
        names = [source.name for source in self.sources] or [""]
        return stamped(self.contract, stamp, rows, file=f"CAST(_file AS {_enum(names)})")

    def diagnose(self, con: duckdb.DuckDBPyConnection) -> tuple[Finding, ...]:
        """Every fault of form or value with its place; the first ``MAX_FINDINGS``, then one finding that counts the rest."""
        findings: list[Finding] = []
        more = 0
        for source in self.sources:
            found, total = diagnose_source(con, source, _types(self.contract), self.contract.csv)
            kept = found[: MAX_FINDINGS - len(findings)]
            findings += kept
            more += total - len(kept)
        if more:
            findings.append(Finding("more_findings", f"and {more} more of these faults", RESEND))
        return tuple(findings)

    def _read(self, source: CsvSource, plain: frozenset[str]) -> str:
        types = _types(self.contract)
        alias = {name: f"c{place}" for place, name in enumerate(source.columns)}
        is_plain_file = source.name in plain
        value = typed if is_plain_file else guarded
        columns = ", ".join(
            f"{value(alias[column.name], types[column.name], column.name)} AS {identifier(column.name)}"
            for column in self.contract.columns
        )
        read_as = [types[name] if is_plain_file else "VARCHAR" for name in source.columns]
        return f"SELECT {columns}, {literal(source.name)} AS _file FROM {read_csv(source, self.contract.csv, read_as)}"

    def _no_rows(self) -> str:
        columns = ", ".join(
            f"CAST(NULL AS {canonical}) AS {identifier(name)}" for name, canonical in _types(self.contract).items()
        )
        return f"SELECT {columns}, CAST(NULL AS VARCHAR) AS _file WHERE false"


def stamped(contract: RowContract, stamp: RowStamp, rows: str, *, file: str = "_file") -> str:
    """The SELECT of the declared columns and ``PROVENANCE_COLUMNS`` over rows that have the declared columns and ``_file``."""
    declared = ", ".join(identifier(column.name) for column in contract.columns)
    upsert, delete = (f"CAST('{operation}' AS {_enum(('U', 'D'))})" for operation in "UD")
    condition = contract.delete_when
    operation = upsert if condition is None else f"CASE WHEN (\n{condition}\n) THEN {delete} ELSE {upsert} END"
    return (
        f"SELECT {declared}, {_constant(stamp.key)} AS _key, {_constant(stamp.kind)} AS _kind, "
        f"CAST({stamp.seq} AS BIGINT) AS _seq, {operation} AS _op, {file} AS _file FROM ({rows})"
    )


@contextmanager
def open_rows(
    files: Sequence[PayloadFile], contract: RowContract, *, scratch: Path, threads: int = 1, max_ratio: int = 200
) -> Iterator[CheckedRows | RowsRefused]:
    """Prepare files for reading; scratch copies (gzip, other encodings) live until the context ends.

    Args:
        files: the delivery's files, names all different.
        contract: how its rows are declared.
        scratch: existing folder for unpacked copies.
        threads: how many threads prove large files.
        max_ratio: unpacked bytes per packed byte beyond which a file is refused.

    Raises:
        WrongUse: two files of one name, or a column type or encoding that cannot be read.
    """
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        raise WrongUse(f"two payload files have one name in {names}.", next_step="give every file its own name.")
    _types(contract)
    with ExitStack() as stack:
        sources: list[CsvSource] = []
        findings: list[Finding] = []
        for file in files:
            unpacked = unpack(file.path, file.name, contract.csv, scratch=scratch, stack=stack, max_ratio=max_ratio)
            opened = unpacked if isinstance(unpacked, Finding) else compare_header(unpacked, file.name, contract)
            match opened:
                case Finding():
                    findings.append(opened)
                case list():
                    findings += opened
                case CsvSource():
                    sources.append(opened)
        proof = None if findings else _begin_proof(sources, contract, threads, stack)
        proving = proof.names if proof else frozenset()
        rows = CheckedRows(contract, tuple(sources), proof)
        if findings or not all(_well_formed(source, contract) for source in sources if source.name not in proving):
            with duckdb.connect(":memory:", config={"threads": 1}) as con:
                con.execute("SET TimeZone = 'UTC'")
                findings += rows.diagnose(con)
        yield RowsRefused(tuple(findings)) if findings else rows


def _enum(values: Sequence[str]) -> str:
    """The type of these texts. Parquet writes an ENUM as text from a ready dictionary, at a tenth of what VARCHAR costs."""
    return f"ENUM({', '.join(literal(value) for value in values)})"


def _constant(text: str) -> str:
    return f"CAST({literal(text)} AS {_enum([text])})"


def _types(contract: RowContract) -> dict[str, str]:
    """Canonical type by column name, in declared order."""
    try:
        return {column.name: canonical_type(column.type) for column in contract.columns}
    except ValueError as error:
        raise WrongUse(f"{error}.", next_step="correct `columns` in the feed file.") from error


def _begin_proof(
    sources: Sequence[CsvSource], contract: RowContract, threads: int, stack: ExitStack
) -> Proof | None:
    """Begin to prove, beside the caller's work, that typed reading of the large files loses nothing; None where none can be."""
    types = _types(contract)
    large = [source for source in sources if source.path.stat().st_size >= PROOF_FROM_BYTES]
    rows = [(one, row_pattern([types[name] for name in one.columns], contract.csv)) for one in large]
    provable = [(one, row) for one, row in rows if row is not None]
    if not provable:
        return None
    beside = max(1, threads // _READERS_PER_PROVER)

    def prove() -> bool:
        return all(
            is_plain(one.path, start=one.start, row=row, quote=contract.csv.quote, threads=beside) for one, row in provable
        )

    pool = stack.enter_context(ThreadPoolExecutor(1, "valuestream-proof"))
    return Proof(frozenset(one.name for one, _ in provable), pool.submit(prove))


def _well_formed(source: CsvSource, contract: RowContract) -> bool:
    """Whether every record has its fields; DuckDB alone would let an empty surplus field pass."""
    try:
        return widths(source, contract.csv) <= {len(source.columns)}
    except (csv.Error, UnicodeDecodeError):
        return False
