"""One look at a landing place: what is new there, and what each new manifest says. Listing and manifests only, no payload bytes.

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
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import ObjectChanged, ObjectMissing, StoreFailure
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.settings import Limits
from valuestream_dagster.intake.completion import InStore, Listing, Resolved, resolve
from valuestream_dagster.intake.discovery import select
from valuestream_dagster.manifests import native
from valuestream_dagster.stores.base import LandingPlace, ObjectStat


@dataclass(frozen=True, slots=True)
class Arrival:
    """A manifest that is news and states a delivery.

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
        absent: why there can be nothing to list, or None.
    """

    present: frozenset[str]
    arrivals: tuple[Arrival, ...] = ()
    unusable: tuple[UnusableArrival, ...] = ()
    foreign: tuple[ObjectStat, ...] = ()
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
    if not wanted:  # most looks: the rest would cost as much as the listing itself
        return Look(frozenset(stat.path for stat in listing), absent=landing.absent())
    selected = select(listing, feed.include, feed.exclude)
    by_path = Listing(listing, [stat.path for stat in selected])
    arrivals: list[Arrival] = []
    unusable: list[UnusableArrival] = []
    foreign: list[ObjectStat] = []
    for stat in selected:
        if stat.path not in wanted:
            continue
        if stat.bytes > limits.manifest_bytes:
            unusable.append(_unusable(stat, b"", native.too_large(stat.bytes, limits.manifest_bytes), settled=True))
            continue
        try:
            data = landing.read(stat, limits.manifest_bytes)
        except (ObjectChanged, ObjectMissing):
            continue  # it is being replaced: the next look sees what came of it
        except StoreFailure as error:
            unusable.append(_unreadable(stat, error))
            continue
        if native.identify(data) in other_feeds:
            foreign.append(stat)
            continue
        parsed = native.parse(
            data,
            sequence=feed.sequence,
            source=feed.source,
            dataset=feed.dataset,
            default_kind=feed.default_kind,
            entries_limit=limits.manifest_entries,
            allowed_kinds=frozenset(Kind) if feed.mode is Mode.CHAIN else frozenset({feed.default_kind}),
            allow_empty=feed.allow_empty,
        )
        if isinstance(parsed, UnusableManifest):
            settled = _settled(stat, now, limits.settle_seconds)
            unusable.append(_unusable(stat, data, parsed, settled=settled))
            continue
        completeness = resolve(parsed, stat, by_path, now=now, settle_seconds=limits.settle_seconds)
        arrivals.append(
            Arrival(stat, data, parsed, completeness, _touched(stat, parsed, completeness, by_path), stat.path not in changed)
        )
    arrivals.sort(key=lambda arrival: (arrival.manifest.key.ordinal, arrival.manifest.revision))
    return Look(frozenset(by_path), tuple(arrivals), tuple(unusable), tuple(foreign), landing.absent())


def _unusable(stat: ObjectStat, data: bytes, parsed: UnusableManifest, *, settled: bool) -> UnusableArrival:
    return UnusableArrival(stat, data, parsed.findings, parsed.key, parsed.kind, parsed.revision, settled)


def _unreadable(stat: ObjectStat, error: StoreFailure) -> UnusableArrival:
    """A manifest that cannot be opened, a symbolic link among others."""
    finding = Finding("manifest_unreadable", error.message, error.next_step, file=stat.path)
    return _unusable(stat, b"", UnusableManifest((finding,)), settled=True)


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
