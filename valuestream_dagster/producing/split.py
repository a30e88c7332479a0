"""Carving one large CSV file into a delivery per key: every record goes to its key's file in order, byte for byte."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.producing.csv_text import CsvText, Sums, open_csv, records
from valuestream_dagster.producing.drop import Drop
from valuestream_dagster.producing.pack import Packed, Prepared, hand_over
from valuestream_dagster.producing.statement import KeyForm, PackOptions, StatedFile, check_options, file_stem, key_form

# What all pieces together may hold in memory before they are written.
_BUFFERED_BYTES = 64 * 1024 * 1024


def pack_split(
    file: Path,
    into: Path,
    *,
    split_by: str,
    options: PackOptions,
    from_key: str | None = None,
    to_key: str | None = None,
) -> tuple[Packed, ...]:
    """Carve a CSV file into one delivery per key and hand all of them over, in the order of their keys.

    Args:
        file: the CSV file.
        into: the folder, made if need be.
        split_by: SQL expression over the columns, all of them texts, that gives a record's key.
        options: what is said of every delivery.
        from_key: first key to take, or None for the lowest.
        to_key: last key to take, or None for the highest.

    Raises:
        WrongUse: the file or the expression cannot be read, or a record's key is none.
        ObjectExists: the folder holds other bytes under one of the names.
    """
    check_options(options)
    with ExitStack() as stack:
        text = open_csv(file, file.name, options, stack)
        sums = Sums(text, options, split_by)
        stack.callback(sums.close)
        form, wanted = _wanted(sums.distinct_keys(), from_key, to_key)
        totals = _totals(sums, wanted, options)
        pieces = _Pieces(Drop(into, stack), text, options)
        _deal(text, sums, wanted, pieces, options)
        deliveries = [
            Prepared(key, (pieces.finish(key),), totals.get(key.text, {}))
            for key in sorted(set(wanted.values()), key=lambda key: key.ordinal)
        ]
        return hand_over(pieces.drop, deliveries, form, options)


def _wanted(
    texts: list[str | None], from_key: str | None, to_key: str | None
) -> tuple[KeyForm, dict[str, SequenceKey]]:
    """The form of the keys, and those within the bounds by the text that SQL gave."""
    given = sorted(text for text in texts if text)
    if len(given) != len(texts) or not given:
        what = "a record has no key" if texts else "there is no record"
        raise WrongUse(f"{what}.", next_step="correct --split-by, so that it gives every record a text.")
    bounds = [bound for bound in (from_key, to_key) if bound is not None]
    form = key_form([*given, *bounds])
    low = form.keys[from_key].ordinal if from_key is not None else None
    high = form.keys[to_key].ordinal if to_key is not None else None
    wanted = {
        text: form.keys[text]
        for text in given
        if (low is None or form.keys[text].ordinal >= low) and (high is None or form.keys[text].ordinal <= high)
    }
    if not wanted:
        raise WrongUse(
            f"no record lies within the bounds; keys go from {given[0]} to {given[-1]}.",
            next_step="correct --from-key and --to-key.",
        )
    return form, wanted


def _totals(sums: Sums, wanted: dict[str, SequenceKey], options: PackOptions) -> dict[str, dict[str, Decimal]]:
    totals: dict[str, dict[str, Decimal]] = {}
    for text, found in sums.totals().items():
        if text in wanted:
            so_far = totals.setdefault(wanted[text].text, dict.fromkeys(options.totals, Decimal(0)))
            totals[wanted[text].text] = {column: so_far[column] + amount for column, amount in found.items()}
    return totals


def _deal(text: CsvText, sums: Sums, wanted: dict[str, SequenceKey], pieces: _Pieces, options: PackOptions) -> None:
    """Give every record to its key; the two readings of the file must agree on how many there are."""
    keys = sums.keys()
    for record in records(text, options.delimiter):
        key = wanted.get(found) if (found := next(keys, None)) is not None else None
        if found is None:
            raise _disagree(text)
        if key is not None:
            pieces.add(key, record)
    if next(keys, None) is not None:
        raise _disagree(text)


def _disagree(text: CsvText) -> WrongUse:
    return WrongUse(
        f"{text.name}: it is not clear where its records end (quotes or line ends are mixed).",
        next_step="write the file as RFC 4180 says: quotes doubled inside quotes, one kind of line end.",
    )


class _Piece:
    def __init__(self, name: str, temp: Path, header: bytes) -> None:
        self.name = name
        self.temp = temp
        self.rows = 0
        self.bytes = 0
        self.digest = hashlib.sha256()
        self.waiting = bytearray(header)

    def write(self) -> None:
        """Put what waits to the end of the file; no file stays open, however many pieces there are."""
        with self.temp.open("ab") as file:
            file.write(self.waiting)
        self.digest.update(self.waiting)
        self.bytes += len(self.waiting)
        self.waiting.clear()


class _Pieces:
    """The files that are being filled, one per key."""

    def __init__(self, drop: Drop, text: CsvText, options: PackOptions) -> None:
        self.drop = drop
        self._options = options
        self._header = text.header if text.header.endswith((b"\n", b"\r")) else text.header + b"\n"
        self._suffix = Path(text.name.removesuffix(".gz")).suffix
        self._pieces: dict[SequenceKey, _Piece] = {}
        self._buffered = 0

    def add(self, key: SequenceKey, record: bytes) -> None:
        """A record to the end of its key's file."""
        piece = self._pieces.get(key)
        if piece is None:
            name = f"{self._options.name_prefix}{file_stem(self._options, key)}{self._suffix}"
            piece = self._pieces[key] = _Piece(name, self.drop.temp(name), self._header)
        piece.waiting += record
        piece.rows += 1
        self._buffered += len(record)
        if self._buffered >= _BUFFERED_BYTES:
            for waiting in self._pieces.values():
                waiting.write()
            self._buffered = 0

    def finish(self, key: SequenceKey) -> tuple[StatedFile, Path]:
        """A key's whole file, durable under its temporary name."""
        piece = self._pieces[key]
        piece.write()
        with piece.temp.open("rb") as file:
            os.fsync(file.fileno())
        rows = piece.rows if self._options.count_rows else None
        return StatedFile(piece.name, piece.bytes, piece.digest.hexdigest(), rows), piece.temp
