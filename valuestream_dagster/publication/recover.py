"""Settling what an interrupted run left: verify what it recorded, keep the good, void the rest, close it as ``partial``.

Called under the feed's run lock: a run that is still open then has no process any more (L13). Files that no row names are
inert and left for vacuum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from valuestream_dagster.core.continuity import Mode, SliceState
from valuestream_dagster.core.decision import Identity
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.records import record_name
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import Publication, SeenObject, SliceEvent
from valuestream_dagster.stores.local import LocalStore


@dataclass(frozen=True, slots=True)
class Settled:
    """A run that died, closed: how many of its deliveries were verified and kept, and why the others are done again."""

    run_id: str
    holder: str
    kept: int
    voided: tuple[str, ...]


def settle_interrupted(
    session: LedgerSession, feed: Feed, store: LocalStore, now: Callable[[], datetime]
) -> tuple[Settled, ...]:
    """Close every run of a feed that never ended, keeping what is verified (L14, L15, L19); what was done with each.

    Costs nothing where no run is open; otherwise one read of each file that the run recorded.
    """
    settled: list[Settled] = []
    for run in session.read.open_runs(feed.name):
        recorded = session.read.publications_of_run(run.run_id)
        damaged = _damaged(recorded, feed, store)
        with session.transaction():
            for publication, fault in damaged:
                _void(session, store, publication, fault, now())
            session.write.run_end(run.run_id, feed.name, "partial", now())
        voided = tuple(f"{feed.name} {publication.key}: {fault}" for publication, fault in damaged)
        settled.append(Settled(run.run_id, run.holder, len(recorded) - len(damaged), voided))
    return tuple(settled)


def _damaged(recorded: Iterable[Publication], feed: Feed, store: LocalStore) -> list[tuple[Publication, str]]:
    """What a run recorded and cannot be kept, with why.

    In a chain nothing is kept that was recorded on top of what is lost: readers would see a state that never was.
    """
    damaged: list[tuple[Publication, str]] = []
    for publication in recorded:
        fault = fault_of(publication, store)
        if fault is None and damaged and feed.mode is Mode.CHAIN and feed.rule.required:
            fault = f"{damaged[0][0].key}, which it builds on, is damaged"
        if fault is not None:
            damaged.append((publication, fault))
    return damaged


def fault_of(publication: Publication, store: LocalStore) -> str | None:
    """Why a recorded publication cannot be kept, or None (L14)."""
    for file in publication.files:
        try:
            with store.path(file.path).open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            return f"{file.path} cannot be read: {error.strerror}"
        if found != file.sha256:
            return f"{file.path} does not hold the recorded bytes"
    return None


def _void(session: LedgerSession, store: LocalStore, publication: Publication, fault: str, at: datetime) -> None:
    """The publication counts no more; its delivery waits in the store, so that the next pass takes it up again.

    One that was sealed by a version that wrote no seal record is taken from the landing place: its manifest becomes news.
    """
    manifest, manifest_sha256 = session.read.manifest_of(publication) or ("", "")
    identity = Identity(publication.kind, publication.key, publication.revision)
    source, dataset = publication.feed.split("/")
    in_store = store.exists(record_name(source, dataset, identity, publication.digest, manifest_sha256))
    session.write.voided(publication.publication_id, fault, at)
    session.write.slice_events(
        [
            SliceEvent(
                publication.feed, publication.epoch, publication.kind, publication.key, SliceState.INTERRUPTED, at,
                revision=publication.revision, digest=publication.digest.hex if in_store else None,
                run_id=publication.run_id, why=fault,
            )
        ]
    )  # fmt: skip
    if manifest and not in_store:
        session.write.objects_seen(publication.feed, [SeenObject(manifest, "voided", manifest)], at)
