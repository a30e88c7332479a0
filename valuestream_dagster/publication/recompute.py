"""Making published deliveries again from sealed bytes, where an edit has made them stale or a person forces it (L5, L6, L20).

The work goes in pieces, each a ledger run of its own under the feed's run lock, so that new deliveries are taken in between.
None of these runs is ended before nothing is stale any more; then all of them are ended in one transaction, and readers switch
once, a year of keys too. What was done before Ctrl-C, a crash or a power loss stays: the next call goes on after it. An edit of
what decides the output in between makes that work void (ruling 12: what was made by one declaration never appears under another).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from valuestream_dagster.errors import NotApplied
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.observe import Arrival, Look
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import PendingDelivery, StaleDelivery
from valuestream_dagster.publication.locks import is_busy, run_lock, working
from valuestream_dagster.publication.pending import redone_arrival
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.recover import fault_of
from valuestream_dagster.publication.run import FeedRun

RECOMPUTE = "recompute"
_REFUSED_SHOWN = 20
_TURN_SECONDS, _PAUSE_SECONDS = 600, 0.1


@dataclass(slots=True)
class Recomputed:
    """What came of it.

    Args:
        keys: deliveries made again by this call.
        earlier: those that an unfinished call before had made.
        refused: why some could not be made again; then nothing was switched, and readers see what they saw.
        switched: whether readers see the new files now.
    """

    keys: int = 0
    earlier: int = 0
    refused: list[str] = field(default_factory=list)
    switched: bool = False


def recompute(
    publisher: Publisher,
    *,
    key: str | None = None,
    force: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Recomputed:
    """Make again what is stale, and let readers switch once all of it is there.

    Args:
        publisher: of the feed.
        key: only this key.
        force: also what the same computation made; it deletes nothing and overrides nothing else (ruling 12).
        on_progress: told (deliveries done, deliveries in all) as it goes.

    Raises:
        FeedBusy: another process runs the feed; what was done stays, and a later call goes on.
        NotApplied: one key alone while an unfinished recomputation waits; or what an earlier call made was damaged since.
        StoreFailure, LedgerFailure: the store or the ledger did not answer.
    """
    work = _Work(publisher, key, force=force)
    while work.go_on():
        if on_progress is not None:
            on_progress(work.tried, work.wanted)
    return work.done


class _Work:
    """One call's way through what is stale, a piece at a time."""

    def __init__(self, publisher: Publisher, key: str | None, *, force: bool) -> None:
        self.done = Recomputed()
        self.tried = 0
        self._publisher = publisher
        self._key = key
        self._force = force
        self._own: set[str] = set()
        self._wanted: frozenset[str] | None = None
        self._refused: set[str] = set()

    @property
    def wanted(self) -> int:
        """How many deliveries this call set out to make again."""
        return len(self._wanted or ())

    def go_on(self) -> bool:
        """Do one piece; False once nothing is left, with what came of it in ``done``."""
        publisher, feed = self._publisher, self._publisher.feed
        if self.tried:
            _wait_for_turn(publisher)
        with run_lock(publisher.locks, feed.name, since=publisher.now()), working(publisher.locks):
            publisher.settle_held()
            piece = self._next_piece()
            if not piece:
                if not self._refused:
                    self.done.earlier, self.done.switched = _switch(publisher, self._own)
                return False
            for one, why in _redo(publisher, piece, self._own):
                self.tried += 1
                if why is None:
                    self.done.keys += 1
                else:
                    self._refused.add(one.publication_id)
                    self.done.refused.append(why)
        return True

    def _next_piece(self) -> list[StaleDelivery]:
        publisher, feed = self._publisher, self._publisher.feed
        with publisher.ledger.session() as session:
            _void_what_another_declaration_made(publisher, session)
            unfinished = {run.run_id for run in session.read.open_recomputations(feed.name)} - self._own
            stale = session.read.stale(feed.name, feed.computations, feed.work_hash, key=self._key, force=self._force)
        if unfinished and self._key is not None:  # readers would be switched to half of that work
            raise NotApplied(
                f"an unfinished recomputation of {feed.name} waits to be gone on with, so {self._key} is not made again alone.",
                next_step=f"run `valuestream apply {feed.name} --recompute` first.",
            )
        if self._wanted is None:
            self._wanted = frozenset(one.publication_id for one in stale)
        if len(self._refused) >= _REFUSED_SHOWN:
            return []
        # With force, what came up meanwhile is none of this call's; by an edit, all that is stale is.
        mine = [one for one in stale if not self._force or one.publication_id in self._wanted]
        left = [one for one in mine if one.publication_id not in self._refused]
        return left[: publisher.settings.limits.keys_per_ledger_run]


def _wait_for_turn(publisher: Publisher) -> None:
    """Let a run that takes deliveries in have the feed between two pieces; it is not waited for without end."""
    until = time.monotonic() + _TURN_SECONDS
    while is_busy(publisher.locks, publisher.feed.name) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)


def _redo(
    publisher: Publisher, piece: list[StaleDelivery], own: set[str]
) -> Iterator[tuple[StaleDelivery, str | None]]:
    """One piece as a ledger run that is left open; each delivery with why it could not be made again, or None."""
    feed, names = publisher.feed, [one.key.text for one in piece]
    with publisher.ledger.session() as session:
        arrivals = {one.publication_id: _arrival(feed, session, one) for one in piece}
        run = FeedRun(
            publisher,
            Look(frozenset()),
            None,
            records=session.read.records(feed.name, names),
            existing={},
            epoch=publisher.epoch_of(session, [one.key for one in piece]),
            position=session.read.position(feed.name, required=feed.rule.required),
            stored=list(arrivals.values()),
            purpose=RECOMPUTE,
        )
    try:
        told = {(o.key.text, o.kind): o.told for key in run.work([one.key for one in piece]) for o in key.outcomes}
    finally:
        run.abandon()
    if run.run_id is not None:
        own.add(run.run_id)
    for one in piece:
        words = told.get((one.key.text, one.kind))
        yield one, None if words is not None and words.ok else str(words or f"{feed.name} {one.key}: nothing was made of it.")


def _arrival(feed: Feed, session: LedgerSession, one: StaleDelivery) -> Arrival:
    publication = session.read.publication(one.publication_id)
    manifest, sha256 = (session.read.manifest_of(publication) if publication else None) or ("", "")
    pending = PendingDelivery(one.kind, one.key, one.revision, one.digest, manifest, sha256)
    return redone_arrival(feed, pending, publication.lineage if publication else ())


def _void_what_another_declaration_made(publisher: Publisher, session: LedgerSession) -> None:
    """An unfinished recomputation of another declaration is worth nothing any more, and is ended as failed."""
    feed, now = publisher.feed, publisher.now()
    others = [run for run in session.read.open_recomputations(feed.name) if run.computation_hash != feed.work_hash]
    for run in others:
        with session.transaction():
            for publication in session.read.publications_of_run(run.run_id):
                session.write.voided(publication.publication_id, "the declaration was edited before it was shown", now)
            session.write.run_end(run.run_id, feed.name, "failed", now)


def _switch(publisher: Publisher, own: set[str]) -> tuple[int, bool]:
    """End every unfinished recomputation at once; what an earlier process made is verified first (L14)."""
    feed, now = publisher.feed, publisher.now()
    with publisher.ledger.session() as session:
        runs = [run.run_id for run in session.read.open_recomputations(feed.name)]
        if not runs:
            return 0, False
        earlier = 0
        for run_id in runs:
            if run_id in own:
                continue
            for publication in session.read.publications_of_run(run_id):
                earlier += 1
                if (fault := fault_of(publication, publisher.store)) is not None:
                    with session.transaction():
                        session.write.voided(publication.publication_id, fault, now)
                    raise NotApplied(
                        f"{feed.name} {publication.key}: {fault}, so it is made again.",
                        next_step=f"run `valuestream apply {feed.name} --recompute` once more.",
                    )
        with session.transaction():
            for run_id in runs:
                session.write.run_end(run_id, feed.name, "ok", now)
        publisher.publish_catalogue(session)
    return earlier, True
