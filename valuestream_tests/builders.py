"""Values that tests begin from: feeds, arrivals, looks, and a ledger filled in the way the publication fills it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from valuestream_dagster.core.continuity import Epoch, SliceState
from valuestream_dagster.core.decision import Applied, Bound, Identity, Incomplete, Invalid, KeyHistory, Verdict
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Kind, Manifest, SealedFile
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.observe import Arrival, Look, UnusableArrival
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    KeyRecord,
    Publication,
    PublishedFile,
    Receipt,
    RunRow,
    SeenObject,
    SliceEvent,
)
from valuestream_dagster.stores.base import ObjectStat
from valuestream_tests.feeds.feed_texts import feed as feed_from_text

NOON = datetime(2026, 9, 10, 12, tzinfo=UTC)


class Clock:
    """A clock that goes on by a second each time it is read."""

    def __init__(self, start: datetime = NOON) -> None:
        self.moment = start

    def __call__(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


def digest(name: str) -> Digest:
    """The digest of the bytes that a test calls ``name``."""
    return Digest(hashlib.sha256(name.encode()).hexdigest())


# --- feeds and arrivals ----------------------------------------------------------------------------------------------


def a_feed(mode: str = "periods", sequence: str = "{kind: integer}", more: str = "") -> Feed:
    """A feed ``acme/orders``; ``sequence`` and ``more`` are YAML."""
    chain = "key: [id]\nkind: delta\n" if mode == "chain" else ""
    return feed_from_text(
        "source: acme\ndataset: orders\nlanding: landing/orders\ncolumns: {id: BIGINT, amount: 'DECIMAL(18,2)', op: VARCHAR}\n"
        f"mode: {mode}\nsequence: {sequence}\n{chain}{more}"
    )


def key(feed: Feed, text: str | int) -> SequenceKey:
    """The feed's key of that text."""
    found = feed.sequence.parse(str(text))
    assert isinstance(found, SequenceKey), found
    return found


def arrival(
    feed: Feed,
    text: str | int,
    revision: int = 1,
    *,
    kind: Kind | None = None,
    missing: Sequence[str] = (),
    fault: str | None = None,
    known: bool = False,
) -> Arrival:
    """A manifest that is news; complete unless it lacks files or has a fault."""
    chosen = kind or feed.default_kind
    manifest = Manifest(feed.source, feed.dataset, chosen, key(feed, text), revision, ())
    completeness: Resolved | Incomplete | Invalid = Resolved(())
    if missing:
        completeness = Incomplete(tuple(missing))
    if fault:
        completeness = Invalid((Finding(fault, "it is wrong"),))
    stat = ObjectStat(f"{text}-{chosen}-r{revision}.manifest.json", 10, f"stamp-{text}-{revision}", None)
    return Arrival(stat, b"{}", manifest, completeness, ((stat.path, stat.stamp),), known)


def unusable(feed: Feed, path: str, text: str | int | None = None, *, settled: bool = True) -> UnusableArrival:
    """A manifest that is news and states no delivery."""
    found = key(feed, text) if text is not None else None
    return UnusableArrival(
        ObjectStat(path, 3, "s", None), b"?", (Finding("not_json", "it is no JSON"),), found, None, None, settled
    )


def a_look(arrivals: Iterable[Arrival] = (), unusable_ones: Iterable[UnusableArrival] = ()) -> Look:
    """A look that found these."""
    found, useless = tuple(arrivals), tuple(unusable_ones)
    present = frozenset(stat.path for stat in (*(one.stat for one in found), *(one.stat for one in useless)))
    return Look(present, found, useless)


def applied_record(revision: int = 1, name: str = "X", *, kind: Kind = Kind.FULL) -> KeyRecord:
    """What is known of a key whose slice succeeded."""
    history = KeyHistory((Bound(revision, digest(name)),), Applied(revision, digest(name), f"p{revision}", "hash"), ())
    return KeyRecord(SliceState.SUCCEEDED, "", {kind: history})


# --- a ledger, filled as the publication fills it --------------------------------------------------------------------


class Book:
    """Writes to a ledger what the publication of one feed would write.

    Args:
        session: the ledger, open.
        feed: ``source/dataset``.
        clock: the clock.
    """

    def __init__(self, session: LedgerSession, feed: str = "acme/orders", clock: Clock | None = None) -> None:
        self.session = session
        self.feed = feed
        self.clock = clock or Clock()
        self.count = 0

    def begin(self, run_id: str) -> None:
        """A run begins."""
        run = RunRow(run_id, self.feed, self.session.read.fence(self.feed) + 1, "host:1", self.clock())
        with self.session.transaction():
            self.session.write.run(run, "hash")

    def end(self, run_id: str, status: str = "ok") -> None:
        """A run ends."""
        with self.session.transaction():
            self.session.write.run_end(run_id, self.feed, status, self.clock())

    def epoch(self, number: int, baseline: SequenceKey) -> None:
        """An epoch opens."""
        with self.session.transaction():
            self.session.write.epoch(
                self.feed, Epoch(number, baseline), anchor=baseline.text, run_id=None, at=self.clock()
            )

    def publish(
        self,
        at: SequenceKey,
        revision: int = 1,
        name: str = "X",
        *,
        run_id: str | None = None,
        kind: Kind = Kind.FULL,
        requires: SequenceKey | None = None,
        epoch: int = 1,
        files: Sequence[PublishedFile] = (),
    ) -> str:
        """Record one accepted revision; in a closed run of its own where no run is named. Returns the publication's id."""
        own = run_id is None
        run = run_id or f"run-{self.feed}-{self.count}"
        if own:
            self.begin(run)
        self.count += 1
        publication_id = f"{run}.{self.count:05d}"
        now, found = self.clock(), digest(name)
        manifest = f"{at}-{kind}-r{revision}.manifest.json"
        with self.session.transaction():
            self.session.write.delivery(
                self.feed, Identity(kind, at, revision), found, manifest=manifest, manifest_sha256="m", at=now
            )
            self.event(
                at, SliceState.SUCCEEDED, revision, name, run_id=run, kind=kind, requires=requires, epoch=epoch,
                publication_id=publication_id,
            )  # fmt: skip
            self.session.write.publication(
                Publication(
                    publication_id, self.feed, kind, at, revision, found, "hash", run, 2, 20, now, epoch,
                    previous_key=None, position=at.text, totals=(("amount", "3.00"),), files=tuple(files),
                    lineage=(SealedFile("data", "a.csv", "5" * 64, 9, "file:///in/a.csv", "v1"),),
                )
            )  # fmt: skip
            self.receipt(Verdict.ACCEPTED, at, revision, name, kind=kind, run_id=run)
            self.session.write.objects_seen(self.feed, [SeenObject(manifest, f"stamp-{revision}", manifest)], now)
        if own:
            self.end(run)
        return publication_id

    def event(
        self,
        at: SequenceKey,
        state: SliceState,
        revision: int = 1,
        name: str = "X",
        *,
        run_id: str | None = None,
        kind: Kind = Kind.FULL,
        requires: SequenceKey | None = None,
        epoch: int = 1,
        publication_id: str | None = None,
        why: str | None = None,
    ) -> None:
        """Something happens to a slice."""
        self.session.write.slice_events(
            [
                SliceEvent(
                    self.feed, epoch, kind, at, state, self.clock(), requires, revision, digest(name).hex, run_id,
                    publication_id, why,
                )
            ]
        )  # fmt: skip

    def receipt(
        self,
        verdict: Verdict,
        at: SequenceKey | None,
        revision: int | None = 1,
        name: str | None = "X",
        *,
        kind: Kind | None = Kind.FULL,
        run_id: str | None = None,
        manifest: str | None = None,
        detail: str = "as it is",
    ) -> None:
        """An arrival and its verdict."""
        self.count += 1
        self.session.write.receipts(
            [
                Receipt(
                    f"receipt-{self.count}", self.clock(), self.feed, verdict, verdict.value, detail, "",
                    manifest or f"{at}-{kind}-r{revision}.manifest.json", kind, at, revision,
                    digest(name).hex if name else None, ("a warning",), ({"code": "x"},), run_id, "m",
                )
            ]
        )  # fmt: skip
