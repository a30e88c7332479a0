"""Looking after a deployment: settle what died, offer again what the ledger does not know, copy it, put it back, rebuild it.

What goes on by itself at the start of every apply and tick is in ``publication``; here is what a person asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.errors import NotApplied, ValueStreamError, WrongUse
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.records import read_record, record_names
from valuestream_dagster.ledger.loss import Backup, back_up, put_back, read_backup, rebuild, set_aside
from valuestream_dagster.publication.catalogue import catalogue_state
from valuestream_dagster.publication.locks import sweeping
from valuestream_dagster.publication.outcomes import ArrivalOutcome
from valuestream_dagster.publication.owner import adopt, owner_of
from valuestream_dagster.publication.pending import unknown_arrival
from valuestream_dagster.publication.recover import Settled
from valuestream_dagster.publication.vacuum import store_names

BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class RecoveredFeed:
    """What was done for one feed: runs that died, and sealed deliveries that the ledger did not know; or why it could not be."""

    feed: Feed
    settled: tuple[Settled, ...] = ()
    offered: tuple[ArrivalOutcome, ...] = ()
    error: ValueStreamError | None = None


def recover(opened: Deployment, feeds: Sequence[Feed], *, older_ledger: bool = False) -> list[RecoveredFeed]:
    """Settle what died, offer again what only the store knows, and bring the catalogue up to date.

    Costs one listing of the seal records; a feed that is being run is told of as busy, and the others go on.

    Args:
        opened: the deployment.
        feeds: which feeds.
        older_ledger: the ledger was put back older than what readers see, and is the one that counts from here on.
    """
    if older_ledger:
        _let_the_ledger_count(opened)
    done: list[RecoveredFeed] = []
    for feed in feeds:
        try:
            done.append(RecoveredFeed(feed, opened.publisher(feed).settle(), offer_again(opened, feed)))
        except ValueStreamError as error:
            done.append(RecoveredFeed(feed, error=error))
    opened.refresh_catalogue()
    return done


def _let_the_ledger_count(opened: Deployment) -> None:
    """Put a catalogue aside that shows more than the ledger knows, so that the ledger may be shown again."""
    with opened.ledger.session() as session:
        adopt(session, opened.store, opened.now())
        state = catalogue_state(opened.settings.catalog, session.connection)
        ahead = state is not None and state.generation > session.read.generation()
    if ahead:
        set_aside(opened.settings.catalog, opened.now())


def offer_again(opened: Deployment, feed: Feed) -> tuple[ArrivalOutcome, ...]:
    """Take in what is sealed and the ledger never heard of; the next apply publishes it (ruling 16)."""
    with opened.ledger.session() as session:
        names = store_names(session, opened.store)
    records = [
        record
        for name in record_names(opened.store, feed.source, feed.dataset)
        if not names.knows(name) and (record := read_record(opened.store, name)) is not None
    ]
    records.sort(key=lambda record: (record.identity.key.ordinal, record.identity.revision, record.sealed_at))
    return opened.publisher(feed).take_in_early([unknown_arrival(feed, record) for record in records]) if records else ()


def backup(opened: Deployment, target: Path | None) -> tuple[Path, Backup]:
    """Copy the ledger into a folder, by default ``backups/TIME`` beside it; while others work.

    The store is not in it: its files never change, and any copy of the folder taken afterwards holds all that the ledger names.
    """
    folder = target or opened.settings.ledger.parent / BACKUPS / f"{opened.now():%Y%m%dT%H%M%S}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder, back_up(opened.ledger, opened.settings.ledger.parent / "segments", folder, opened.now())


def restore(opened: Deployment, folder: Path) -> tuple[Path | None, list[RecoveredFeed]]:
    """Let a backup take the ledger's place, then offer again all that was sealed since; where the present ledger was put aside.

    Raises:
        WrongUse: the folder is no backup, or is of another ledger than the store's.
        FeedBusy: deliveries are being taken in.
    """
    kept, marked = read_backup(folder), owner_of(opened.store)
    if None not in (kept.ledger_id, marked) and kept.ledger_id != marked:
        raise WrongUse(
            f"the backup {folder} is of another ledger ({kept.ledger_id}) than the store's ({marked}).",
            next_step="name a backup of this deployment.",
        )
    with sweeping(opened.settings.ledger.parent / "locks"):
        aside = put_back(opened.settings.ledger, opened.settings.ledger.parent / "segments", folder, opened.now())
    return aside, recover(opened, opened.selected(None), older_ledger=True)


def _is_empty(opened: Deployment) -> bool:
    with opened.ledger.session() as session:
        return session.read.generation() == 0 and session.read.ledger_id() is None


def rebuild_ledger(opened: Deployment) -> tuple[dict[str, int], list[RecoveredFeed]]:
    """Make a lost ledger anew from the catalogue and its segments, then offer again what was sealed after it; rows by table.

    Raises:
        WrongUse: a ledger is there, or no catalogue is.
        FeedBusy: deliveries are being taken in.
        NotApplied: what was rebuilt is not the store's ledger.
    """
    settings = opened.settings
    with sweeping(settings.ledger.parent / "locks"):
        if settings.ledger.exists() and _is_empty(opened):
            set_aside(settings.ledger, opened.now())  # who only asked after the loss has made a new one by that
        rows = rebuild(settings.ledger, settings.catalog, now=opened.now)
    with opened.ledger.session() as session:
        mine, marked = session.read.ledger_id(), owner_of(opened.store)
    if None not in (mine, marked) and mine != marked:
        set_aside(settings.ledger, opened.now())
        raise NotApplied(
            f"the catalogue {settings.catalog} is of another ledger ({mine}) than the store's ({marked}).",
            next_step="restore a backup of this deployment; what was rebuilt was put aside.",
        )
    return rows, recover(opened, opened.selected(None), older_ledger=True)
