"""What publishing one feed needs, and where its files lie. Every effect comes in as an argument."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.settings import Settings
from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.publication.catalogue import CatalogueState, known_state, publish_catalogue
from valuestream_dagster.stores.base import LandingPlace
from valuestream_dagster.stores.local import LocalStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What publishing one feed needs; every effect comes in as an argument.

    Args:
        feed: the feed.
        settings: the deployment's.
        ledger: the record of truth.
        landing: where deliveries arrive.
        store: our own write-once folder.
        other_feeds: (source, dataset) of the other declared feeds.
        now: the clock.
    """

    feed: Feed
    settings: Settings
    ledger: DuckLedger
    landing: LandingPlace
    store: LocalStore
    other_feeds: Collection[tuple[str, str]]
    now: Callable[[], datetime]

    @property
    def locks(self) -> Path:
        """Folder of the run locks."""
        return self.settings.ledger.parent / "locks"

    @property
    def segments(self) -> Path:
        """Folder of the ledger's exported rows."""
        return self.settings.ledger.parent / "segments"

    def shown(self, session: LedgerSession) -> tuple[CatalogueState | None, bool]:
        """The published catalogue's state, and whether it shows all that the ledger has to show.

        Raises:
            LedgerFailure: it shows more than the ledger knows.
        """
        state = known_state(session, path=self.settings.catalog, store=self.settings.store)
        generation = session.read.generation()
        return state, generation == 0 or (state is not None and state.shows_all(generation, self.settings.store))

    def publish_catalogue(self, session: LedgerSession) -> int:
        """Show what the ledger says is visible."""
        return publish_catalogue(
            session, path=self.settings.catalog, store=self.settings.store, segments=self.segments, now=self.now
        )
