"""One look at a landing place: what is new there, and what each new manifest or group of names says.

Listing and manifests only, no payload bytes, but where two files without manifests claim one place in a delivery (ruling 11).

News is a manifest whose stamp was never looked at, or one that names an object whose stamp has changed since (M4: a listing
is never evidence of completeness, only of what may be looked at). Nothing is written and nothing is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from valuestream_dagster.core.continuity import Mode
from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Kind, Manifest, UnusableManifest, normal_path
from valuestream_dagster.core.pattern import Named, NameProblem
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import ObjectChanged, ObjectMissing, StoreFailure
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.settings import Limits
from valuestream_dagster.intake.completion import InStore, Listing, Resolved, resolve
from valuestream_dagster.intake.discovery import select
from valuestream_dagster.intake.grouping import Group, Grouped, Refusal, group_by_name, name_refusal
from valuestream_dagster.manifests import native
from valuestream_dagster.stores.base import LandingPlace, ObjectStat

COMPARED_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Arrival:
    """A manifest that is news and states a delivery; or a group of files without one, then the first file stands for it.

    Args:
        stat: the manifest object as it was listed.
        data: its bytes.
        manifest: what it says.
        completeness: which objects its entries are, or why that is not so.
        touched: (path, stamp) of the manifest and of every listed object that it names.
        known: the manifest itself is unchanged, only an object that it names has changed.
    """

    stat: ObjectStat
    data: bytes
    manifest: Manifest
    completeness: Resolved | InStore | Incomplete | Invalid
    touched: tuple[tuple[str, str], ...]
    known: bool

    @property
    def sha256(self) -> str:
        """Digest of the manifest's own bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class UnusableArrival:
    """A manifest that is news and states no delivery. ``settled``: its bytes have stopped changing."""

    stat: ObjectStat
    data: bytes
    findings: tuple[Finding, ...]
    key: SequenceKey | None
    kind: Kind | None
    revision: int | None
    settled: bool


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found, oldest key first.

    Args:
        present: path of every object that is there.
        arrivals: manifests that are news and state a delivery.
        unusable: manifests that are news and state none.
        foreign: manifests of other declared feeds at the same place.
        refusals: why nothing of the feed may be planned until it is mended (ruling 11).
        absent: why there can be nothing to list, or None.
    """

    present: frozenset[str]
    arrivals: tuple[Arrival, ...] = ()
    unusable: tuple[UnusableArrival, ...] = ()
    foreign: tuple[ObjectStat, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    absent: str | None = None

    def of_key(self, key: str) -> tuple[Arrival, ...]:
        """The arrivals of one key: fulls before deltas, newest revision first (ruling 11)."""
        return newest_first(arrival for arrival in self.arrivals if arrival.manifest.key.text == key)


def newest_first(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Arrivals of one key in the order in which they are tried: fulls before deltas, newest revision first (ruling 11)."""
    return tuple(sorted(arrivals, key=lambda arrival: (arrival.manifest.kind != Kind.FULL, -arrival.manifest.revision)))


NewsQuery = Callable[[Sequence[tuple[str, str]]], tuple[frozenset[str], frozenset[str]]]


def look(
    feed: Feed,
    landing: LandingPlace,
    news: NewsQuery,
    *,
    other_feeds: Collection[tuple[str, str]],
    again: Iterable[str] = (),
    now: datetime,
    limits: Limits,
) -> Look:
    """Look at a feed's landing place once.

    Costs one listing, one ledger question over the listed stamps, and one small read for each manifest that is news.

    Args:
        feed: whose place it is.
        landing: the place.
        news: the ledger's answer to "which of these (path, stamp) are news, and which manifests named them before".
        other_feeds: (source, dataset) of the other declared feeds, whose manifests are passed over.
        again: manifests to read although they are no news (a person asked for their key).
        now: the clock's reading.
        limits: bounds on manifests.

    Raises:
        StoreFailure: the place cannot be listed.
    """
    listing = landing.list()
    changed, owners = news([(stat.path, stat.stamp) for stat in listing])
    wanted = changed | owners | frozenset(again)
    present = frozenset(stat.path for stat in listing)
    if feed.without_manifest:
        grouped = _grouped(feed, landing, select(listing, feed.include, feed.exclude), wanted, now=now, limits=limits)
        arrivals = tuple(_arrival_of(group) for group in grouped.groups)
        return Look(present, arrivals, refusals=grouped.refusals, absent=landing.absent())
    if not wanted:  # most looks: the rest would cost as much as the listing itself
        return Look(present, absent=landing.absent())
    selected = select(listing, feed.include, feed.exclude)
    reader = _ManifestReader(feed, landing, Listing(listing, [stat.path for stat in selected]), other_feeds, changed, now, limits)
    for stat in selected:
        if stat.path in wanted:
            reader.read(stat)
    reader.arrivals.sort(key=lambda arrival: (arrival.manifest.key.ordinal, arrival.manifest.revision))
    return Look(
        present, tuple(reader.arrivals), tuple(reader.unusable), tuple(reader.foreign), tuple(reader.refusals), landing.absent()
    )


class _ManifestReader:
    """Manifests being read one after the other: what each turned out to be."""

    def __init__(
        self,
        feed: Feed,
        landing: LandingPlace,
        by_path: Listing,
        other_feeds: Collection[tuple[str, str]],
        changed: Collection[str],
        now: datetime,
        limits: Limits,
    ) -> None:
        self.arrivals: list[Arrival] = []
        self.unusable: list[UnusableArrival] = []
        self.foreign: list[ObjectStat] = []
        self.refusals: list[Refusal] = []
        self._feed = feed
        self._landing = landing
        self._by_path = by_path
        self._other_feeds = other_feeds
        self._changed = changed
        self._now = now
        self._limits = limits

    def read(self, stat: ObjectStat) -> None:
        """Read one manifest, unless it is being replaced: then the next look sees what came of it."""
        limits, data = self._limits, b""
        found: UnusableManifest | None = None
        if stat.bytes > limits.manifest_bytes:
            found = native.too_large(stat.bytes, limits.manifest_bytes)
        else:
            try:
                data = self._landing.read(stat, limits.manifest_bytes)
            except (ObjectChanged, ObjectMissing):
                return
            except StoreFailure as error:
                found = _unreadable(stat, error)
        if native.identify(data) in self._other_feeds:
            self.foreign.append(stat)
            return
        named = self._feed.pattern.read(stat.path) if self._feed.pattern else None
        if isinstance(named, NameProblem):
            self.refusals.append(name_refusal(self._feed, stat.path, named))
        elif found is not None:
            self._note_unusable(stat, data, found, named, settled=True)
        else:
            self._parse(stat, data, named)

    def _parse(self, stat: ObjectStat, data: bytes, named: Named | None) -> None:
        feed, limits = self._feed, self._limits
        parsed = native.parse(
            data,
            sequence=feed.sequence,
            source=feed.source,
            dataset=feed.dataset,
            default_kind=feed.default_kind,
            entries_limit=limits.manifest_entries,
            allowed_kinds=frozenset(Kind) if feed.mode is Mode.CHAIN else frozenset({feed.default_kind}),
            allow_empty=feed.allow_empty,
            named=named,
        )
        if isinstance(parsed, UnusableManifest):
            self._note_unusable(stat, data, parsed, named, settled=_settled(stat, self._now, limits.settle_seconds))
            return
        completeness = resolve(parsed, stat, self._by_path, now=self._now, settle_seconds=limits.settle_seconds)
        touched = _touched(stat, parsed, completeness, self._by_path)
        self.arrivals.append(Arrival(stat, data, parsed, completeness, touched, stat.path not in self._changed))

    def _note_unusable(
        self, stat: ObjectStat, data: bytes, parsed: UnusableManifest, named: Named | None, *, settled: bool
    ) -> None:
        key = parsed.key or (named.key if named else None)
        kind = parsed.kind or (named.kind if named else None)
        revision = parsed.revision or (named.revision if named else None)
        self.unusable.append(UnusableArrival(stat, data, parsed.findings, key, kind, revision, settled))


def _grouped(
    feed: Feed, landing: LandingPlace, selected: Sequence[ObjectStat], wanted: Collection[str], *, now: datetime, limits: Limits
) -> Grouped:
    """The new groups of a feed without manifests; of old files the names alone are read: they may refuse it at any time (C24)."""
    return group_by_name(
        feed,
        selected,
        fresh=wanted,
        same_bytes=lambda one, two: _digest(landing, one) == _digest(landing, two) is not None,
        now=now,
        settle_seconds=limits.settle_seconds,
        entries_limit=limits.manifest_entries,
    )


def _arrival_of(group: Group) -> Arrival:
    return Arrival(group.stats[0], group.data, group.manifest, group.completeness, group.touched, known=False)


def _digest(landing: LandingPlace, stat: ObjectStat) -> str | None:
    """sha256 of an object; None where it cannot be read, or is another one by now."""
    digest, buffer = hashlib.sha256(), bytearray(COMPARED_BYTES)
    try:
        with landing.open(stat) as opened:
            view = memoryview(buffer)
            while count := opened.readinto(view):
                digest.update(view[:count])
            opened.confirm()
    except StoreFailure:
        return None
    return digest.hexdigest()


def _unreadable(stat: ObjectStat, error: StoreFailure) -> UnusableManifest:
    """A manifest that cannot be opened, a symbolic link among others."""
    return UnusableManifest((Finding("manifest_unreadable", error.message, error.next_step, file=stat.path),))


def _settled(stat: ObjectStat, now: datetime, settle_seconds: float) -> bool:
    """Whether an object has stopped changing: whole objects at once, files when they have rested for a while."""
    if stat.stable or stat.modified_at is None:
        return True
    return now - stat.modified_at >= timedelta(seconds=settle_seconds)


def _touched(
    stat: ObjectStat,
    manifest: Manifest,
    completeness: Resolved | Incomplete | Invalid,
    by_path: Mapping[str, ObjectStat],
) -> tuple[tuple[str, str], ...]:
    """The manifest and whatever it names that is there, with the stamps of this look."""
    if isinstance(completeness, Resolved):
        named = [found for _, found in completeness.entries]
    else:
        folder = stat.path.rpartition("/")[0]
        paths = (f"{folder}/{normal_path(entry.path)}".lstrip("/") for entry in manifest.entries)
        named = [by_path[path] for path in paths if path in by_path]
    return tuple((found.path, found.stamp) for found in (stat, *named))
