"""The conflict dossier: two contents of one revision side by side, out of the store, with a text for whoever sent them (ruling 4).

Both are staged again from their sealed bytes by the feed's own contract and compared row by row. Costs one reading of both and one
comparison in DuckDB; nothing is recorded, and nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from valuestream_dagster.core.manifest import Digest
from valuestream_dagster.core.rows import RowsRefused, RowStamp
from valuestream_dagster.errors import ValueStreamError
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.csv_sql import identifier, literal
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.records import SealRecord, read_record, record_name
from valuestream_dagster.intake.seal import from_store
from valuestream_dagster.ledger.rows import BoundDelivery
from valuestream_dagster.publication.parquet import StagedFile, stage
from valuestream_dagster.stores.local import LocalStore

SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Version:
    """One of the contents: when and by which manifest it came, and what it holds."""

    digest: str
    manifest: str
    sealed_at: datetime
    applied: bool
    files: tuple[tuple[str, int, str], ...]
    rows: int | None
    totals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """How the second's rows differ from the first's.

    Without a unique key a changed row cannot be told from one removed and one added: ``changed`` is None then. Samples are rows as
    text by column, few of each.
    """

    added: int
    removed: int
    changed: int | None
    samples_added: tuple[dict[str, str | None], ...] = ()
    samples_removed: tuple[dict[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Dossier:
    """Two contents of one revision, compared; ``unread`` says why their rows could not be, where they could not."""

    feed: str
    kind: str
    key: str
    revision: int
    first: Version
    second: Version
    rows: RowDifference | None
    unread: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it, with the text for the producer."""
        return {**asdict(self), "to_the_producer": self.letter()}

    def letter(self) -> str:
        """A text to send to the producer: what arrived twice, how the two differ, what is asked."""
        source = self.feed.split("/")[0]
        files = [f"  {name}: {size} bytes, sha256 {sha256}" for name, size, sha256 in self.second.files]
        lines = [
            f"To {source}:",
            f"{self.feed} {self.key} ({self.kind}) revision {self.revision} reached us with two different contents.",
            f"First, by {self.first.manifest} at {self.first.sealed_at:%Y-%m-%d %H:%M:%S} UTC: {_content(self.first)}.",
            f"Then, by {self.second.manifest} at {self.second.sealed_at:%Y-%m-%d %H:%M:%S} UTC: {_content(self.second)}.",
            f"{self.differences()}.",
            "The files that came later are:",
            *files,
            "Which of the two is right? Please send it again under a higher revision; until then nothing of ours changes.",
        ]
        return "\n".join(lines)

    def differences(self) -> str:
        """How the second differs from the first, in a sentence without its full stop."""
        if self.rows is None:
            return f"How their rows differ could not be read: {self.unread}"
        changed = f", {self.rows.changed} changed" if self.rows.changed is not None else ""
        totals = [
            f"the total of {column} is {now} instead of {before}"
            for (column, before), (_, now) in zip(self.first.totals, self.second.totals, strict=False)
            if before != now
        ]
        return "; ".join([f"Against the first, {self.rows.added} rows are added, {self.rows.removed} removed{changed}", *totals])


def _content(version: Version) -> str:
    rows = f", {version.rows} rows" if version.rows is not None else ""
    totals = "".join(f", {column} adds up to {total}" for column, total in version.totals)
    return f"digest {version.digest}{rows}{totals}"


def compare(feed: Feed, store: LocalStore, first: BoundDelivery, second: BoundDelivery, *, applied: Digest | None) -> Dossier:
    """Both contents, compared as far as their bytes can be read again.

    Args:
        feed: whose deliveries they are.
        store: where they are sealed.
        first: what was sealed first, or is applied.
        second: what came with other bytes.
        applied: the digest of what is applied of that revision, if anything is.
    """
    scratch = store.path("tmp")
    scratch.mkdir(parents=True, exist_ok=True)
    unread: str | None = None
    staged: list[tuple[SealRecord | None, StagedFile | None]] = []
    difference = None
    with TemporaryDirectory(dir=scratch, prefix="dossier-") as folder:
        for one in (first, second):
            record = read_record(store, record_name(feed.source, feed.dataset, one.identity, one.digest, one.manifest_sha256))
            file = None
            try:
                file = _staged(feed, store, record, Path(folder)) if record is not None else "it was sealed without a record"
            except (ValueStreamError, OSError, duckdb.Error) as error:
                file = getattr(error, "message", str(error))
            if isinstance(file, str):
                unread = unread or f"{one.digest.short}: {file}"
            staged.append((record, file if isinstance(file, StagedFile) else None))
        before, after = staged[0][1], staged[1][1]
        if before is not None and after is not None:
            contract = feed.computation_for(first.key).contract
            difference = differing(before.path, after.path, [column.name for column in contract.columns], contract.key)
    versions = [
        Version(
            one.digest.hex, one.manifest, one.sealed_at, one.digest == applied,
            tuple((file.path, file.bytes, file.sha256) for file in record.files) if record else (),
            file.measured.rows if file else None,
            tuple((column, str(total)) for column, total in file.measured.totals) if file else (),
        )
        for one, (record, file) in zip((first, second), staged, strict=True)
    ]  # fmt: skip
    return Dossier(feed.name, first.kind.value, first.key.text, first.revision, versions[0], versions[1], difference, unread)


def _staged(feed: Feed, store: LocalStore, record: SealRecord, folder: Path) -> StagedFile | str:
    sealed = from_store(store, record.files)
    files = [PayloadFile(path, file.path, file.rows) for file, path in zip(sealed.files, sealed.paths, strict=True)]
    staged = stage(
        files,
        feed.computation_for(record.identity.key).contract,
        stamp=RowStamp(record.identity.key.text, record.identity.kind.value, record.identity.key.ordinal),
        controls=record.controls,
        provenance={},
        directory=folder,
        scratch=folder,
    )
    return str(staged.findings[0]) if isinstance(staged, RowsRefused) else staged


def differing(first: Path, second: Path, columns: Sequence[str], key: Sequence[str]) -> RowDifference:
    """How the rows of one Parquet file differ from another's.

    Args:
        first: the one.
        second: the other.
        columns: what is compared.
        key: the columns that name a row; none compares whole rows as often as they occur.
    """
    names = ", ".join(identifier(column) for column in columns)
    with duckdb.connect(":memory:") as con:
        for view, path in (("a", first), ("b", second)):
            con.execute(f"CREATE VIEW {view} AS SELECT {names} FROM read_parquet({literal(str(path))})")
        con.execute("CREATE TEMP TABLE gone AS (FROM a EXCEPT ALL FROM b)")
        con.execute("CREATE TEMP TABLE new AS (FROM b EXCEPT ALL FROM a)")
        added, removed = _count(con, "new"), _count(con, "gone")
        changed = None
        if key:
            keys = ", ".join(identifier(column) for column in key)
            changed = _count(con, f"(SELECT {keys} FROM new INTERSECT SELECT {keys} FROM gone)")
            added, removed = added - changed, removed - changed
        return RowDifference(added, removed, changed, _sample(con, "new", columns), _sample(con, "gone", columns))


def _count(con: duckdb.DuckDBPyConnection, source: str) -> int:
    return int(con.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])


def _sample(con: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]) -> tuple[dict[str, str | None], ...]:
    texts = ", ".join(f"CAST({identifier(column)} AS VARCHAR)" for column in columns)
    rows = con.execute(f"SELECT {texts} FROM {table} ORDER BY ALL LIMIT {SAMPLES}").fetchall()
    return tuple(dict(zip(columns, row, strict=True)) for row in rows)
