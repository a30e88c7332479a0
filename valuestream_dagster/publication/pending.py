"""Deliveries that lie sealed in our own store, as arrivals: they waited for their turn or for a person, and go the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from valuestream_dagster.core.decision import Identity
from valuestream_dagster.core.manifest import Manifest, SealedFile, digest_of
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import InStore
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.intake.records import SealRecord, read_record, record_name
from valuestream_dagster.intake.seal import sealed_name
from valuestream_dagster.ledger.rows import PendingDelivery
from valuestream_dagster.stores.base import ObjectStat
from valuestream_dagster.stores.local import LocalStore


def waiting_arrival(feed: Feed, pending: PendingDelivery, *, redo: bool = False) -> Arrival:
    """The delivery as far as the ledger knows it: enough to judge whose turn it is, without a look at the store."""
    manifest = Manifest(feed.source, feed.dataset, pending.kind, pending.key, pending.revision, ())
    stat = ObjectStat(pending.manifest, 0, "", None, stable=True)
    stored = InStore(pending.digest, pending.manifest_sha256, redo=redo, stopped=pending.stopped)
    return Arrival(stat, b"", manifest, stored, (), known=True)


def unknown_arrival(feed: Feed, record: SealRecord) -> Arrival:
    """A delivery that the store holds and the ledger never heard of: an older ledger was put back (ruling 16)."""
    pending = PendingDelivery(
        record.identity.kind, record.identity.key, record.identity.revision, record.digest, record.manifest, record.manifest_sha256
    )
    return waiting_arrival(feed, pending)


def redone_arrival(feed: Feed, pending: PendingDelivery, lineage: Sequence[SealedFile]) -> Arrival:
    """A published delivery that is to be made again.

    One that was sealed by a version that wrote no seal record is taken by its publication's lineage: counts and totals that its
    manifest declared were compared when it was accepted, and are not again.
    """
    arrival = waiting_arrival(feed, pending, redo=True)
    stored = arrival.completeness
    if not isinstance(stored, InStore):
        return arrival
    return replace(arrival, completeness=replace(stored, lineage=tuple(lineage)))


def taken_up(store: LocalStore, arrival: Arrival) -> Arrival:
    """The same with its record and its manifest's bytes: ready to be read.

    Raises:
        StoreFailure: the store does not hold them (any more).
    """
    manifest, stored = arrival.manifest, arrival.completeness
    if not isinstance(stored, InStore) or stored.record is not None:
        return arrival
    identity = Identity(manifest.kind, manifest.key, manifest.revision)
    name = record_name(manifest.source, manifest.dataset, identity, stored.digest, stored.manifest_sha256)
    record = read_record(store, name) or _by_lineage(stored, manifest, arrival.stat.path)
    if record is None:
        raise StoreFailure(
            f"{manifest.name}: its seal record {name} is not in the store.",
            next_step=f"put it back from a copy of the store, or ask {manifest.source} to send the delivery again.",
        )
    return _with_record(arrival, stored, record, store)


def _by_lineage(stored: InStore, manifest: Manifest, path: str) -> SealRecord | None:
    if stored.lineage is None or digest_of(stored.lineage) != stored.digest:
        return None
    return SealRecord(
        source=manifest.source,
        dataset=manifest.dataset,
        identity=Identity(manifest.kind, manifest.key, manifest.revision),
        digest=stored.digest,
        manifest=path,
        manifest_sha256=stored.manifest_sha256,
        files=stored.lineage,
        sealed_at=datetime.min.replace(tzinfo=UTC),  # nobody asks when
        empty=not stored.lineage,
    )


def _with_record(arrival: Arrival, stored: InStore, record: SealRecord, store: LocalStore) -> Arrival:
    identity = record.identity
    manifest = Manifest(
        record.source, record.dataset, identity.kind, identity.key, identity.revision, (),
        controls=record.controls, empty=record.empty,
    )  # fmt: skip
    try:
        data = store.path(sealed_name(record.manifest_sha256)).read_bytes()
    except OSError as error:
        raise StoreFailure(
            f"{manifest.name}: its kept manifest cannot be read: {error.strerror}.",
            next_step="put it back from a copy of the store.",
        ) from error
    return replace(arrival, manifest=manifest, data=data, completeness=replace(stored, record=record))
