"""A producer for tests: hands deliveries over the way producers do, and all the ways they should not.

Files are put whole under their final name and with an old time, as if they had rested for long; manifests come last.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Long before the clock of any test: whatever is put has stopped changing.
RESTED = 1_750_000_000
_numbers = itertools.count()

Put = Callable[[str, bytes], None]


def into_folder(root: Path) -> Put:
    """Puts files below a folder, whole or not at all, over whatever has the name."""

    def put(path: str, data: bytes) -> None:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        aside = root.parent / f".upload-{os.getpid()}-{next(_numbers)}"
        aside.write_bytes(data)
        os.utime(aside, (RESTED, RESTED))
        aside.replace(target)

    return put


def csv_text(rows: Sequence[Sequence[object]], header: str = "id,amount,op") -> bytes:
    """Rows as CSV bytes."""
    return "".join(f"{line}\n" for line in (header, *(",".join(map(str, row)) for row in rows))).encode()


@dataclass(frozen=True, slots=True)
class Delivery:
    """One handover in hand: its files by path, and what its manifest says. Change it with ``with_*`` before it is put."""

    key: str
    files: Mapping[str, bytes]
    statement: Mapping[str, Any]
    name: str

    def with_file(self, data: bytes, path: str | None = None) -> Delivery:
        """The same manifest beside other bytes (the first file's, where none is named)."""
        return replace(self, files={**self.files, path or next(iter(self.files)): data})

    def without_file(self, path: str | None = None) -> Delivery:
        """The same manifest without the file (the first, where none is named)."""
        gone = path or next(iter(self.files))
        return replace(self, files={name: data for name, data in self.files.items() if name != gone})

    def with_statement(self, **fields: Any) -> Delivery:
        """The same files under a manifest with other fields; ``None`` takes one away."""
        merged = {name: value for name, value in {**self.statement, **fields}.items() if value is not None}
        return replace(self, statement=merged)

    def with_entry(self, **fields: Any) -> Delivery:
        """The same with other fields in the manifest's first file entry."""
        first, *others = self.statement["files"]
        entry = {name: value for name, value in {**first, **fields}.items() if value is not None}
        return self.with_statement(files=[entry, *others])

    def named(self, name: str) -> Delivery:
        """The same delivery under other names: manifest and files."""
        renamed = {f"{name}-{path.rpartition('-')[2]}": data for path, data in self.files.items()}
        paths = dict(zip(self.files, renamed, strict=True))
        entries = [{**entry, "path": paths.get(entry["path"], entry["path"])} for entry in self.statement["files"]]
        return replace(self, files=renamed, name=name).with_statement(files=entries)

    @property
    def manifest_path(self) -> str:
        """Where the manifest is put, below the landing place."""
        return f"{self.name}.manifest.json"

    @property
    def manifest(self) -> bytes:
        """The manifest's bytes."""
        return json.dumps(dict(self.statement)).encode()


class Producer:
    """Who hands over deliveries of one feed.

    Args:
        put: writes an object below the landing place.
        source: the feed's source.
        dataset: the feed's dataset.
    """

    def __init__(self, put: Put, source: str = "acme", dataset: str = "orders") -> None:
        self.put = put
        self.source = source
        self.dataset = dataset

    def make(
        self,
        key: str | int,
        rows: Sequence[Sequence[object]] | bytes,
        *,
        revision: int = 1,
        kind: str | None = None,
        name: str | None = None,
        header: str = "id,amount,op",
        parts: int = 1,
    ) -> Delivery:
        """A right delivery, not handed over yet.

        Args:
            key: the sequence key.
            rows: rows, or the CSV bytes themselves.
            revision: from 1.
            kind: ``full`` or ``delta``, where it is to be said.
            name: what the manifest and the files are called; by key, kind and revision where it is not given.
            header: the CSV header.
            parts: over how many files the rows are spread.
        """
        called = name or f"{key}-{kind or 'data'}-r{revision}"
        files: dict[str, bytes] = {}
        entries: list[dict[str, Any]] = []
        for part in range(parts):
            data = rows if isinstance(rows, bytes) else csv_text(rows[part::parts], header)
            path = f"{called}-{part + 1}.csv"
            files[path] = data
            entry: dict[str, Any] = {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            if not isinstance(rows, bytes):
                entry["rows"] = len(rows[part::parts])
            entries.append(entry)
        statement: dict[str, Any] = {
            "source": self.source,
            "dataset": self.dataset,
            "sequence": str(key),
            "revision": revision,
            "files": entries,
        }
        if kind is not None:
            statement["kind"] = kind
        return Delivery(str(key), files, statement, called)

    def hand_over(self, delivery: Delivery) -> Delivery:
        """Put the files, then the manifest."""
        for path, data in delivery.files.items():
            self.put(path, data)
        self.put(delivery.manifest_path, delivery.manifest)
        return delivery

    def deliver(
        self,
        key: str | int,
        rows: Sequence[Sequence[object]],
        *,
        revision: int = 1,
        kind: str | None = None,
        name: str | None = None,
    ) -> Delivery:
        """Make a right delivery and hand it over."""
        return self.hand_over(self.make(key, rows, revision=revision, kind=kind, name=name))

    def overwrite(self, delivery: Delivery, data: bytes) -> None:
        """Replace the first file in place, after the manifest was put."""
        self.put(next(iter(delivery.files)), data)
