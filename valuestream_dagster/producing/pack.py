"""Handing over one delivery: files and their manifest, the manifest last."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.producing.csv_text import Sums, is_csv, open_csv, records
from valuestream_dagster.producing.drop import Drop
from valuestream_dagster.producing.statement import (
    KeyForm,
    PackOptions,
    StatedFile,
    check_options,
    key_form,
    manifest_bytes,
    manifest_name,
)


@dataclass(frozen=True, slots=True)
class Packed:
    """One delivery handed over; ``written`` is False where exactly this was there already."""

    manifest: Path
    key: SequenceKey
    files: tuple[StatedFile, ...]
    totals: dict[str, Decimal]
    written: bool

    @property
    def rows(self) -> int | None:
        """Records in all, or None where they were not counted."""
        counted = [file.rows for file in self.files if file.rows is not None]
        return sum(counted) if len(counted) == len(self.files) else None


def pack_delivery(files: Sequence[Path], into: Path, *, key: str, options: PackOptions) -> Packed:
    """Copy files into a folder and write their manifest when all are in place.

    Args:
        files: the payload; none for a delivery that says it is empty.
        into: the folder, made if need be.
        key: the delivery's sequence key.
        options: what else is said of it.

    Raises:
        WrongUse: what is given is no delivery that a feed could take, or a CSV file cannot be read.
        ObjectExists: the folder holds other bytes under one of the names.
    """
    check_options(options)
    form = key_form([key])
    names = [options.name_prefix + path.name for path in files]
    if len(set(names)) != len(names):
        raise WrongUse("two of the files have one name.", next_step="pack files whose names differ.")
    with ExitStack() as stack:
        drop = Drop(into, stack)
        staged: list[tuple[StatedFile, Path]] = []
        totals = dict.fromkeys(options.totals, Decimal(0)) if files else {}
        for path, name in zip(files, names, strict=True):
            temp, sha256, size = drop.copy(path, name)
            rows, sums = _measure(temp, name, options)
            totals = {column: total + sums[column] for column, total in totals.items()}
            staged.append((StatedFile(name, size, sha256, rows), temp))
        return hand_over(drop, [Prepared(form.keys[key], tuple(staged), totals)], form, options)[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A delivery whose payload lies aside."""

    key: SequenceKey
    files: tuple[tuple[StatedFile, Path], ...]
    totals: dict[str, Decimal]


def hand_over(drop: Drop, deliveries: Sequence[Prepared], form: KeyForm, options: PackOptions) -> tuple[Packed, ...]:
    """Name every payload file, make the names durable, and only then name the manifests, in the order given.

    Raises:
        WrongUse: a manifest would not be taken.
        ObjectExists: a name is taken by other content; nothing that was there is changed.
    """
    manifests = [
        (manifest_name(options, one.key), manifest_bytes(options, form, one.key, [f for f, _ in one.files], one.totals))
        for one in deliveries
    ]
    for name, data in manifests:
        drop.refuse_other_manifest(name, data)
    for one in deliveries:
        for stated, temp in one.files:
            drop.put_payload(stated, temp)
    drop.sync()
    packed = tuple(
        Packed(drop.folder / name, one.key, tuple(f for f, _ in one.files), one.totals, drop.put_manifest(name, data))
        for one, (name, data) in zip(deliveries, manifests, strict=True)
    )
    drop.sync()
    return packed


def _measure(path: Path, name: str, options: PackOptions) -> tuple[int | None, dict[str, Decimal]]:
    """Records (None where not counted) and sums of one file."""
    if options.totals and not is_csv(name):
        raise WrongUse(f"{name} is no CSV file, so it has no totals.", next_step="leave out --total.")
    if not is_csv(name) or not (options.count_rows or options.totals):
        return None, {}
    with ExitStack() as stack:
        text = open_csv(path, name, options, stack)
        rows = sum(1 for _ in records(text, options.delimiter))
        if not options.totals:
            return rows, {}
        sums = Sums(text, options, None)
        stack.callback(sums.close)
        zero = dict.fromkeys(options.totals, Decimal(0))
        return (rows if options.count_rows else None), sums.totals().get("", zero)
