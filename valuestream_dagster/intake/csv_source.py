"""One CSV file made ready to be read: unpacked to UTF-8, its header compared by name, its records as text. No types here.

Scratch copies (gzip, other encodings) belong to the caller's ``ExitStack``.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import CsvFormat, RowContract
from valuestream_dagster.errors import WrongUse

MAX_FINDINGS = 20
MAX_LINE_BYTES = 2_000_000
FOUND_LENGTH = 200
RESEND = "ask the producer to correct the file and resend it as a higher revision; nothing was applied."
_HEADER_LIMIT = 1024 * 1024
# Small files may unpack to this much whatever their ratio.
_SMALLEST_LIMIT = 16 * 1024 * 1024
_COPY_BYTES = 1024 * 1024
_BOM = codecs.BOM_UTF8
_UTF8 = ("utf-8", "utf-8-sig", "ascii")


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A file ready to be read: UTF-8 bytes, its columns' names in the file's order, where the rows start."""

    path: Path
    name: str
    columns: tuple[str, ...]
    start: int
    header: bool


def unpack(
    path: Path, name: str, dialect: CsvFormat, *, scratch: Path, stack: ExitStack, max_ratio: int
) -> Path | Finding:
    """The file as plain UTF-8 bytes: itself, or a copy in ``scratch`` that ``stack`` removes.

    Raises:
        WrongUse: the declared encoding does not exist.
    """
    try:
        encoding = codecs.lookup(dialect.encoding).name
    except LookupError as error:
        raise WrongUse(f"the encoding `{dialect.encoding}` is unknown.", next_step="write e.g. utf-8.") from error
    packed = dialect.compression == "gzip" or (dialect.compression == "auto" and name.lower().endswith(".gz"))
    if not packed and encoding in _UTF8:
        return path
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="payload-", dir=scratch)))
    try:
        if packed:
            unpacked = _gunzip(path, folder / "unpacked", limit_bytes=max(_SMALLEST_LIMIT, max_ratio * path.stat().st_size))
            if unpacked is None:
                detail = f"it unpacks to more than {max_ratio} times its size, the limit of this deployment"
                step = "ask the producer what it is; if it is right, raise `limits: {max_ratio}` in valuestream.yaml."
                return Finding("compression_ratio", detail, step, name, expected=f"at most {max_ratio} times")
            path = unpacked
        if encoding not in _UTF8:
            path = _transcode(path, folder / "transcoded", encoding)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return Finding(
            "compression_corrupt", f"the gzip data is damaged or cut off ({error})", RESEND, name, expected="gzip"
        )
    except UnicodeError as error:
        return Finding(
            "encoding_invalid",
            f"the file is not {dialect.encoding} ({error})",
            RESEND,
            name,
            expected=dialect.encoding,
        )
    return path


def _gunzip(packed: Path, target: Path, *, limit_bytes: int) -> Path | None:
    """The unpacked copy; None where there is no end to it within the limit."""
    written = 0
    with gzip.open(packed, "rb") as source, target.open("xb") as out:
        while block := source.read(_COPY_BYTES):
            written += len(block)
            if written > limit_bytes:
                return None
            out.write(block)
    return target


def _transcode(path: Path, target: Path, encoding: str) -> Path:
    with path.open("r", encoding=encoding, newline="") as source, target.open("x", encoding="utf-8", newline="") as out:
        while block := source.read(_COPY_BYTES):
            out.write(block)
    return target


def compare_header(path: Path, name: str, contract: RowContract) -> CsvSource | list[Finding]:
    """The file with its columns in its own order, or what its header lacks, adds or repeats."""
    declared = tuple(column.name for column in contract.columns)
    with path.open("rb") as file:
        head = file.read(_HEADER_LIMIT)
    bom = len(_BOM) if head.startswith(_BOM) else 0
    if not contract.csv.header:
        return CsvSource(path, name, declared, bom, header=False)
    if len(head) == bom:
        missing = "the file is empty, not even a header is there"
        return [Finding("header_missing", missing, RESEND, name, 1, expected=_listed(declared))]
    end = _header_end(head, contract.csv.quote.encode())
    try:
        found = next(csv.reader(StringIO(head[bom:end].decode("utf-8"), newline=""), **_dialect(contract.csv)), [])
    except (csv.Error, UnicodeDecodeError) as error:
        return [Finding("csv_malformed", f"the header cannot be read ({error})", RESEND, name, 1)]
    findings = _header_findings(found, declared, name)
    return findings or CsvSource(path, name, tuple(found), end, header=True)


def _header_end(head: bytes, quote: bytes) -> int:
    for newline in re.finditer(rb"\r\n|\n|\r", head):
        if head.count(quote, 0, newline.start()) % 2 == 0:
            return newline.end()
    return len(head)


def _header_findings(found: list[str], declared: tuple[str, ...], name: str) -> list[Finding]:
    faults = [(column, "is declared and missing in the header") for column in declared if column not in found]
    faults += [
        (column, "is in the header and not declared") for column in dict.fromkeys(found) if column not in declared
    ]
    faults += [
        (column, f"is {found.count(column)} times in the header")
        for column in dict.fromkeys(found)
        if found.count(column) > 1
    ]
    return [
        Finding(
            "header_mismatch",
            f"column `{column[:FOUND_LENGTH]}` {fault}",
            "ask the producer, or change `columns` in the feed file (with `since` if it is new from a key on).",
            name,
            1,
            column[:FOUND_LENGTH],
            _listed(declared),
            _listed(found),
        )
        for column, fault in faults[:MAX_FINDINGS]
    ]


def _listed(columns: Sequence[str]) -> str:
    return ",".join(columns)[: 10 * FOUND_LENGTH]


class BrokenRecordError(csv.Error):
    """A record that cannot be read, with the line (from 1) on which it starts."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def records(source: CsvSource, dialect: CsvFormat) -> Iterator[tuple[int, list[str]]]:
    """Every record with the line (from 1) on which it starts. A blank line is one only where there is a single column.

    Raises:
        BrokenRecordError: a quote is broken or never closed, or a field is too long.
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    line = 0
    with source.path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, **_dialect(dialect))
        try:
            if source.header:
                next(reader, None)
            line = reader.line_num
            for record in reader:
                if record or len(source.columns) == 1:
                    yield line + 1, record or [""]
                line = reader.line_num
        except csv.Error as error:
            too_long = "field larger than field limit" in str(error)
            long = f"a field is longer than {MAX_LINE_BYTES:,} characters"
            raise BrokenRecordError(line + 1, long if too_long else f"a quote is broken or never closed ({error})") from error


def uneven_line_end(source: CsvSource) -> int | None:
    """The first line (from 1) that ends otherwise than the first one, or None; quoted line breaks count like others."""
    first: bytes | None = None
    with source.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            end = b"\r\n" if line.endswith(b"\r\n") else (b"\n" if line.endswith(b"\n") else first)
            if first is not None and end != first:
                return number
            first = end
    return None


def widths(source: CsvSource, dialect: CsvFormat) -> frozenset[int]:
    """All numbers of fields that records have. Raises as ``records`` does."""
    return frozenset(len(record) for _, record in records(source, dialect))


class _Dialect(TypedDict):
    delimiter: str
    quotechar: str
    doublequote: bool
    escapechar: str | None
    strict: bool


def _dialect(dialect: CsvFormat) -> _Dialect:
    doubled = dialect.quote == dialect.escape
    return {
        "delimiter": dialect.delimiter,
        "quotechar": dialect.quote,
        "doublequote": doubled,
        "escapechar": None if doubled else dialect.escape,
        "strict": True,
    }
