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
VALUE_ERRORS = (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.OutOfRangeException)
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
class CheckedRows:
    """Rows whose files have the declared columns; ``evaluate`` reads them.

    Args:
        contract: how rows are declared.
        sources: the files, made ready.
        proof: whether all large ones are plain, once that is known; None where there is none.
    """

    contract: RowContract
    sources: tuple[CsvSource, ...]
    proof: Future[bool] | None = None

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
                run(self._select(stamp, typed_from_bytes=PROOF_FROM_BYTES))
                if self.proof.result():
                    return ()
            except VALUE_ERRORS:
                pass  # the cell-by-cell reading says where
            undo()
            if not all(_well_formed(source, self.contract) for source in self.sources):
                return self.diagnose(con)
        try:
            run(self._select(stamp, typed_from_bytes=None))
        except VALUE_ERRORS:
            if findings := self.diagnose(con):
                return findings
            raise
        return ()

    def _select(self, stamp: RowStamp, *, typed_from_bytes: int | None) -> str:
        declared = ", ".join(identifier(column.name) for column in self.contract.columns)
        reads = (self._read(source, _is_large(source, typed_from_bytes)) for source in self.sources)
        rows = " UNION ALL ".join(f"({read})" for read in reads) or self._no_rows()
        names = [source.name for source in self.sources] or [""]
        return (
            f"SELECT {declared}, {_constant(stamp.key)} AS _key, {_constant(stamp.kind)} AS _kind, "
            f"CAST({stamp.seq} AS BIGINT) AS _seq, {self._operation()} AS _op, "
            f"CAST(_file AS {_enum(names)}) AS _file FROM ({rows})"
        )

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

    def _operation(self) -> str:
        upsert, delete = (f"CAST('{operation}' AS {_enum(('U', 'D'))})" for operation in "UD")
        condition = self.contract.delete_when
        return upsert if condition is None else f"CASE WHEN (\n{condition}\n) THEN {delete} ELSE {upsert} END"

    def _read(self, source: CsvSource, plain: bool) -> str:  # noqa: FBT001  # private, and its one argument
        types = _types(self.contract)
        alias = {name: f"c{place}" for place, name in enumerate(source.columns)}
        value = typed if plain else guarded
        columns = ", ".join(
            f"{value(alias[column.name], types[column.name], column.name)} AS {identifier(column.name)}"
            for column in self.contract.columns
        )
        read_as = [types[name] if plain else "VARCHAR" for name in source.columns]
        return f"SELECT {columns}, {literal(source.name)} AS _file FROM {read_csv(source, self.contract.csv, read_as)}"

    def _no_rows(self) -> str:
        columns = ", ".join(
            f"CAST(NULL AS {canonical}) AS {identifier(name)}" for name, canonical in _types(self.contract).items()
        )
        return f"SELECT {columns}, CAST(NULL AS VARCHAR) AS _file WHERE false"


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
        large = [source for source in sources if _is_large(source, PROOF_FROM_BYTES)]
        proof = None if findings else _begin_proof(large, contract, threads, stack)
        rows = CheckedRows(contract, tuple(sources), proof)
        if findings or not all(_well_formed(source, contract) for source in sources if not (proof and source in large)):
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


def _is_large(source: CsvSource, from_bytes: int | None) -> bool:
    return from_bytes is not None and source.path.stat().st_size >= from_bytes


def _begin_proof(
    large: Sequence[CsvSource], contract: RowContract, threads: int, stack: ExitStack
) -> Future[bool] | None:
    """Whether the bytes of these files prove that typed reading loses nothing, found out beside the caller's work."""
    types, quote = _types(contract), contract.csv.quote
    patterns = [row_pattern([types[name] for name in source.columns], contract.csv) for source in large]
    if not large or None in patterns:
        return None
    pool = stack.enter_context(ThreadPoolExecutor(1, "valuestream-proof"))
    beside = max(1, threads // _READERS_PER_PROVER)
    return pool.submit(
        lambda: all(
            is_plain(source.path, start=source.start, row=row, quote=quote, threads=beside)
            for source, row in zip(large, patterns, strict=True)
            if row is not None
        )
    )


def _well_formed(source: CsvSource, contract: RowContract) -> bool:
    """Whether every record has its fields; DuckDB alone would let an empty surplus field pass."""
    try:
        return widths(source, contract.csv) <= {len(source.columns)}
    except (csv.Error, UnicodeDecodeError):
        return False
