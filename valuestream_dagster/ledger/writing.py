"""Appending to the ledger: one method per table, inside the caller's transaction. Nothing is decided here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import duckdb

from valuestream_dagster.core.continuity import Epoch
from valuestream_dagster.core.decision import Identity
from valuestream_dagster.core.manifest import Digest
from valuestream_dagster.ledger.rows import Publication, Receipt, RemovedFile, Ruling, RunRow, SeenObject, SliceEvent

_ROWS_AT_ONCE = 200


def to_naive_utc(moment: datetime) -> datetime:
    """UTC without a zone: what the schema stores, so that no reader needs a time zone extension."""
    return moment.astimezone(UTC).replace(tzinfo=None)


class LedgerWriter:
    """Inserts, and nothing else. Rows wait in memory until ``flush``, which the session calls before it reads or commits."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._waiting: dict[str, list[list[object]]] = {}

    def _insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self._waiting.setdefault(table, []).extend(
                [to_naive_utc(value) if isinstance(value, datetime) else value for value in row] for row in rows
            )

    def flush(self) -> None:
        """Write the rows that wait, table by table.

        A small INSERT is all planning: without the optimizer, and as a SELECT where it is one row, it costs a third.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        self._connection.execute("PRAGMA disable_optimizer")
        for table, rows in waiting.items():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                self._write(table, rows[start : start + _ROWS_AT_ONCE])
        self._connection.execute("PRAGMA enable_optimizer")

    def _write(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        source = f"SELECT {marks}" if len(rows) == 1 else f"VALUES {', '.join([f'({marks})'] * len(rows))}"
        self._connection.execute(f"INSERT INTO {table} {source}", [value for row in rows for value in row])

    def discard(self) -> None:
        """Forget the rows that wait: their transaction is rolled back."""
        self._waiting.clear()

    def feed_version(
        self, *, feed: str, source: str, dataset: str, mode: str, config_hash: str, shape: str, at: datetime
    ) -> None:
        """A feed's declaration, when it is new or changed (L26)."""
        self._insert("feed_versions", [[feed, source, dataset, mode, config_hash, shape, at]])

    def objects_seen(self, feed: str, objects: Iterable[SeenObject], at: datetime) -> None:
        """The stamps under which objects were looked at."""
        self._insert("objects_seen", [[feed, seen.path, seen.stamp, seen.manifest, at] for seen in objects])

    def receipts(self, receipts: Iterable[Receipt]) -> None:
        """Arrivals and their verdicts (M20)."""
        self._insert(
            "receipts",
            [
                [
                    receipt.receipt_id,
                    receipt.received_at,
                    receipt.feed,
                    receipt.kind,
                    receipt.key.text if receipt.key else None,
                    receipt.key.ordinal if receipt.key else None,
                    receipt.revision,
                    receipt.digest,
                    receipt.verdict,
                    receipt.code,
                    receipt.detail,
                    receipt.next_step,
                    list(receipt.warnings),
                    json.dumps(list(receipt.findings)),
                    receipt.run_id,
                    receipt.manifest,
                    receipt.manifest_sha256,
                ]
                for receipt in receipts
            ],
        )

    def delivery(
        self, feed: str, identity: Identity, digest: Digest, *, manifest: str, manifest_sha256: str, at: datetime
    ) -> None:
        """Bind an identity to a digest (ruling 1)."""
        key = identity.key
        self._insert(
            "deliveries",
            [
                [feed, identity.kind, key.text, key.ordinal, identity.revision, digest.hex, manifest, manifest_sha256, at]
            ],
        )

    def epoch(self, feed: str, epoch: Epoch, *, anchor: str | None, run_id: str | None, at: datetime) -> None:
        """Open an epoch (C34, C35): a new row, old ones stay."""
        self._insert(
            "epochs", [[feed, epoch.number, epoch.baseline.text, epoch.baseline.ordinal, anchor, at, run_id]]
        )

    def computation(self, feed: str, computation_hash: str, decisive: str, at: datetime) -> None:
        """What a computation hash stands for; once per hash."""
        self._insert("computations", [[feed, computation_hash, decisive, at]])

    def run(self, run: RunRow, computation_hash: str) -> None:
        """A run begins: the outer barrier (L9)."""
        self._insert(
            "runs",
            [
                [
                    run.run_id, run.feed, run.fence, run.dagster_run_id, run.holder, computation_hash, run.started_at,
                    run.purpose,
                ]
            ],
        )

    def run_end(self, run_id: str, feed: str, status: str, at: datetime) -> None:
        """A run ends as ``ok``, ``partial`` or ``failed``; its identity never changes (L11)."""
        self._insert("run_ends", [[run_id, feed, status, at]])

    def slice_events(self, events: Iterable[SliceEvent]) -> None:
        """What happened to slices; ``requires`` is stored on the successor (C20)."""
        self._insert(
            "slice_events",
            [
                [
                    event.feed,
                    event.epoch,
                    event.kind,
                    event.key.text,
                    event.key.ordinal,
                    event.requires.text if event.requires else None,
                    event.requires.ordinal if event.requires else None,
                    event.state,
                    event.revision,
                    event.digest,
                    event.run_id,
                    event.publication_id,
                    event.why,
                    event.happened_at,
                ]
                for event in events
            ],
        )

    def publication(self, publication: Publication) -> None:
        """A revision with its files and lineage, together (M18, L10)."""
        p = publication
        self._insert(
            "publications",
            [
                [
                    p.publication_id,
                    p.feed,
                    p.kind,
                    p.key.text,
                    p.key.ordinal,
                    p.revision,
                    p.digest.hex,
                    p.computation_hash,
                    p.run_id,
                    p.rows,
                    p.bytes,
                    json.dumps(dict(p.totals)),
                    p.previous_key,
                    p.position,
                    p.epoch,
                    p.published_at,
                ]
            ],
        )
        self._insert("files", [[p.publication_id, f.path, f.sha256, f.bytes, f.rows] for f in p.files])
        self._insert(
            "lineage",
            [[p.publication_id, o.role, o.path, o.uri, o.version, o.sha256, o.bytes] for o in p.lineage],
        )

    def ruling(self, ruling: Ruling) -> None:
        """What a person decided; never changed, a later one about the same revision takes its place."""
        ruled = ruling.ruled
        self._insert(
            "rulings",
            [
                [
                    ruling.feed, ruling.key.text, ruling.kind, ruled.revision, ruled.digest.hex if ruled.digest else None,
                    ruled.ruling, ruling.by, ruling.why, ruling.ruled_at, [digest.hex for digest in ruled.settles],
                ]
            ],
        )  # fmt: skip

    def identity(self, ledger_id: str, at: datetime) -> None:
        """The ledger's own name, once."""
        self._insert("ledger_identity", [[ledger_id, at]])

    def removals(self, removals: Iterable[RemovedFile], at: datetime) -> None:
        """What vacuum takes away; written before the files go."""
        self._insert("removals", [[one.path, one.bytes, one.why, one.publication_id, at] for one in removals])

    def reported(self, feed: str, publication_ids: Iterable[str], at: datetime) -> None:
        """Dagster has a materialization of these publications."""
        self._insert("reported", [[feed, publication_id, at] for publication_id in publication_ids])

    def voided(self, publication_id: str, why: str, at: datetime) -> None:
        """A publication of an interrupted run is damaged and counts no more (L15)."""
        self._insert("voided", [[publication_id, why, at]])

    def segment(self, table: str, *, from_row: int, to_row: int, path: str, sha256: str, at: datetime) -> None:
        """Rows of a table were exported as an immutable file (ruling 15)."""
        self._insert("segments", [[table, from_row, to_row, path, sha256, at]])
