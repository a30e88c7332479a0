"""A producer's CSV file as it stands: its header, its records byte for byte, exact sums over its texts.

Rows are counted as records, not lines, and a file that the receiving side could not read is refused here, by line.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from valuestream_dagster.errors import WrongUse
from valuestream_dagster.producing.statement import PackOptions

_QUOTE = b'"'
_WITHOUT = "correct the file; to hand it over as it is, pack it with --no-count-rows and without --total."


@dataclass(frozen=True, slots=True)
class CsvText:
    """An unpacked CSV file: where it is, what messages call it, its header's bytes and column names."""

    path: Path
    name: str
    header: bytes
    columns: tuple[str, ...]


def is_csv(name: str) -> bool:
    """Whether a file's name says that it is CSV, packed or not."""
    return name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


def open_csv(path: Path, name: str, options: PackOptions, stack: ExitStack) -> CsvText:
    """The file's header; a packed file is unpacked into scratch that lives as long as ``stack``.

    Raises:
        WrongUse: it has no header that can be read.
    """
    plain = _unpacked(path, name, stack)
    with plain.open("rb") as file:
        header = next(_joined_lines(file, name), b"")
    try:
        names = next(csv.reader([header.decode("utf-8-sig")], delimiter=options.delimiter, strict=True), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise WrongUse(f"{name}: the header cannot be read ({error}).", next_step=_WITHOUT) from error
    if not names or len(set(names)) != len(names):
        what = "two columns of one name" if names else "no header"
        raise WrongUse(f"{name} has {what}.", next_step=_WITHOUT)
    return CsvText(plain, name, header, tuple(names))


def _unpacked(path: Path, name: str, stack: ExitStack) -> Path:
    if not name.lower().endswith(".gz"):
        return path
    plain = Path(stack.enter_context(TemporaryDirectory(prefix="pack-"))) / "unpacked"
    try:
        with gzip.open(path, "rb") as packed, plain.open("xb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WrongUse(f"{name} is damaged or cut off ({error}).", next_step="pack a whole file.") from error
    return plain


def records(text: CsvText, delimiter: str) -> Iterator[bytes]:
    """Every record after the header, byte for byte, each checked to have the header's number of fields.

    Raises:
        WrongUse: a record is malformed.
    """
    fields, mark = len(text.columns), delimiter.encode()
    with text.path.open("rb") as file:
        lines = _joined_lines(file, text.name)
        next(lines, None)
        for number, record in enumerate(lines, 2):
            bare = record.rstrip(b"\r\n")
            if not bare and fields > 1:
                continue  # a blank line is no record
            plain = _QUOTE not in bare and b"\r" not in bare
            found = bare.count(mark) + 1 if plain else _fields(record, delimiter, text.name, number)
            if found != fields:
                raise WrongUse(
                    f"{text.name}: record {number} (the header is 1) has {found} fields, the header has {fields}.",
                    next_step=_WITHOUT,
                )
            yield record


def _joined_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Lines, those joined that a quoted line break keeps apart."""
    parts: list[bytes] = []
    odd = False
    for line in file:
        if not parts and _QUOTE not in line:
            yield line
            continue
        parts.append(line)
        odd ^= line.count(_QUOTE) % 2 == 1
        if not odd:
            yield b"".join(parts)
            parts.clear()
    if parts:
        raise WrongUse(f"{name}: a quote is opened and never closed.", next_step=_WITHOUT)


def _fields(record: bytes, delimiter: str, name: str, number: int) -> int:
    try:
        # As one string: a line break outside quotes, of whatever kind, is then an error and no second record.
        return len(next(csv.reader([record.decode("utf-8")], delimiter=delimiter, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        message = f"{name}: record {number} (the header is 1) cannot be read ({error})."
        raise WrongUse(message, next_step=_WITHOUT) from error


class Sums:
    """The records of one CSV file in a database of their own: the SQL key of each, and exact sums of columns.

    Args:
        text: the file.
        options: its dialect and the columns to add up.
        key_sql: expression over the text columns; None for no keys.

    Raises:
        WrongUse: DuckDB cannot read the file, or the expression is wrong, or a column is not there.
    """

    def __init__(self, text: CsvText, options: PackOptions, key_sql: str | None) -> None:
        import duckdb

        from valuestream_dagster.intake.csv_source import CsvSource
        from valuestream_dagster.intake.csv_sql import identifier, read_csv

        for column in options.totals:
            if column not in text.columns:
                raise WrongUse(
                    f"{text.name} has no column {column}.", next_step=f"the columns are: {', '.join(text.columns)}."
                )
        self._name, self._columns = text.name, options.totals
        self._connection = duckdb.connect()
        source = CsvSource(text.path, text.name, text.columns, 0, header=True)
        read = read_csv(source, options.csv, ["VARCHAR"] * len(text.columns))
        names = ", ".join(f"c{place} AS {identifier(column)}" for place, column in enumerate(text.columns))
        sums = "".join(f", {identifier(column)} AS t{place}" for place, column in enumerate(options.totals))
        key = f"CAST((\n{key_sql}\n) AS VARCHAR)" if key_sql else "''"
        try:
            self._connection.execute(
                f"CREATE TABLE records AS SELECT {key} AS key{sums} FROM (SELECT {names} FROM {read})"
            )
        except duckdb.Error as error:
            raise WrongUse(
                f"{text.name}: {str(error).strip()}",
                next_step="correct --split-by: it is SQL over the columns as texts." if key_sql else _WITHOUT,
            ) from error

    def distinct_keys(self) -> list[str | None]:
        """Every key once."""
        return [row[0] for row in self._connection.execute("SELECT DISTINCT key FROM records").fetchall()]

    def keys(self) -> Iterator[str]:
        """The key of every record, in the file's order."""
        cursor = self._connection.execute("SELECT key FROM records ORDER BY rowid")
        while rows := cursor.fetchmany(100_000):
            for row in rows:
                yield row[0]

    def totals(self) -> dict[str, dict[str, Decimal]]:
        """For each key the exact sum of each column.

        Raises:
            WrongUse: a text is no decimal number, or the sum has more than 38 digits.
        """
        import duckdb

        if not self._columns:
            return {}
        scales = [self._scale(f"t{place}", column) for place, column in enumerate(self._columns)]
        sums = ", ".join(
            f"coalesce(sum(CAST(t{place} AS DECIMAL(38,{scale}))), 0)" for place, scale in enumerate(scales)
        )
        try:
            rows: Sequence[tuple[str, ...]] = self._connection.execute(
                f"SELECT key, {sums} FROM records GROUP BY key"
            ).fetchall()
        except duckdb.Error as error:
            raise WrongUse(f"{self._name}: {error}", next_step="leave --total out for this column.") from error
        return {
            row[0]: {name: Decimal(value) for name, value in zip(self._columns, row[1:], strict=True)} for row in rows
        }

    def _scale(self, alias: str, column: str) -> int:
        """Most decimals of any text of the column, after all are seen to be decimal numbers."""
        from valuestream_dagster.intake.csv_sql import literal
        from valuestream_dagster.intake.lossless import plain_pattern

        plain = literal(plain_pattern("DECIMAL(38,38)") or "")
        found = self._connection.execute(
            f"""SELECT coalesce(max(length(split_part({alias}, '.', 2))), 0),
                       any_value({alias}) FILTER (NOT regexp_full_match({alias}, {plain})) FROM records"""
        ).fetchone()
        assert found is not None
        if found[1] is not None:
            raise WrongUse(
                f"{self._name}: {found[1][:80]!r} in column {column} is no decimal number, so there is no exact total.",
                next_step=f"correct it, name the text for no value with --null, or leave out --total {column}.",
            )
        return int(found[0])

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
