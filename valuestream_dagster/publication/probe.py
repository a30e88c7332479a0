"""What a feed would make of what lies at its landing place now, before anything is taken in (L22). Writes nothing.

One listing, every manifest or name read as if it were news, no ledger asked; so repeats, conflicts and order are not judged here.
Of one delivery the bytes are copied to a scratch folder and checked by the very steps that would check them later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb

from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import RowContract, RowsRefused
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.settings import Limits
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.discovery import select
from valuestream_dagster.intake.found import FoundFile, found_in
from valuestream_dagster.intake.grouping import Refusal
from valuestream_dagster.intake.observe import Arrival, Look, UnusableArrival, look
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.seal import seal
from valuestream_dagster.publication.outcomes import in_words
from valuestream_dagster.publication.parquet import check_only
from valuestream_dagster.publication.take_in import empty_fault
from valuestream_dagster.stores.base import LandingPlace, ObjectStat, OpenObject
from valuestream_dagster.stores.local import LocalStore

Stats = list[ObjectStat]


@dataclass(frozen=True, slots=True)
class Probed:
    """One object at the landing place and what it is to the feed.

    Args:
        stat: the object.
        what: ``manifest``, ``file``, ``refused``, ``unusable``, ``other feed``, ``not selected`` or ``in no delivery``.
        group: the delivery that it belongs to, or None.
        why: why it is refused or unusable, else empty.
    """

    stat: ObjectStat
    what: str
    group: Arrival | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name: the declared type and the narrowest that holds what was found; None where it is not there."""

    name: str
    declared: str | None
    found: str | None
    there: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One delivery, checked as it would be on its way in.

    Args:
        group: the delivery.
        columns: declared and found columns, in declared order, then those that are not declared.
        heads: the columns of the first file, in its order.
        rows: its first rows as text.
        number: rows in all files, or None where they cannot be counted.
        rejected: how many rows do not fit what is declared; a delivery with one such row is rejected as a whole.
        findings: what is wrong, the first of many.
    """

    group: Arrival
    columns: tuple[Column, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    number: int | None = None
    rejected: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """All of it: what lies there, and one delivery looked into (None where there is none, or it is not whole)."""

    feed: Feed
    objects: tuple[Probed, ...]
    groups: tuple[Arrival, ...]
    refusals: tuple[Refusal, ...]
    unusable: tuple[UnusableArrival, ...]
    absent: str | None
    sample: Sample | None

    @property
    def keys(self) -> tuple[SequenceKey, ...]:
        """Every key of which something is here, each once, in order."""
        found = {arrival.manifest.key.text: arrival.manifest.key for arrival in self.groups}
        return tuple(sorted(found.values(), key=lambda key: key.ordinal))

    @property
    def ok(self) -> bool:
        """Whether nothing here would be refused or rejected, as far as was looked; what is not whole yet would wait."""
        wrong = any(isinstance(arrival.completeness, Invalid) for arrival in self.groups)
        return not (self.refusals or self.unusable or wrong or (self.sample is not None and self.sample.findings))


def probe(
    feed: Feed,
    landing: LandingPlace,
    *,
    other_feeds: Collection[tuple[str, str]],
    now: datetime,
    limits: Limits,
    scratch: Path,
    key: SequenceKey | None = None,
    sample_rows: int = 5,
) -> Probe:
    """Look at a feed's landing place, and into one delivery there.

    Args:
        feed: whose place it is.
        landing: the place.
        other_feeds: (source, dataset) of the other declared feeds.
        now: the clock's reading.
        limits: bounds on manifests and payload.
        scratch: an existing empty folder, the caller's to take away; it will hold a copy of one delivery.
        key: which delivery to look into; the newest whole one where it is None.
        sample_rows: how many rows to show.

    Raises:
        WrongUse: nothing of the key is here.
        StoreFailure: the place cannot be listed or read.
    """
    listed = _Listed(landing, landing.list())
    seen = look(
        feed, listed, lambda pairs: (frozenset(path for path, _ in pairs), frozenset()),
        other_feeds=other_feeds, now=now, limits=limits,
    )  # fmt: skip
    chosen = _chosen(feed, seen.arrivals, key)
    sample = _sample(feed, landing, chosen, limits, scratch, sample_rows) if chosen else None
    objects = tuple(_objects(feed, listed.stats, seen))
    return Probe(feed, objects, seen.arrivals, seen.refusals, seen.unusable, seen.absent, sample)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A landing place with one listing of it kept, so that everything said is said of the same moment."""

    place: LandingPlace
    stats: Stats

    def list(self) -> Stats:
        """The kept listing."""
        return self.stats

    def absent(self) -> str | None:
        return self.place.absent()

    def head(self, path: str) -> ObjectStat | None:
        return self.place.head(path)

    def open(self, stat: ObjectStat) -> OpenObject:
        return self.place.open(stat)

    def read(self, stat: ObjectStat, limit_bytes: int) -> bytes:
        return self.place.read(stat, limit_bytes)

    def uri(self, path: str) -> str:
        return self.place.uri(path)


def _objects(feed: Feed, stats: Sequence[ObjectStat], seen: Look) -> list[Probed]:
    """What every object is."""
    selected = {stat.path for stat in select(stats, feed.include, feed.exclude)}
    what: dict[str, tuple[str, Arrival | None, str]] = {}
    for arrival in seen.arrivals:
        for path, _ in arrival.touched:
            what.setdefault(path, ("file", arrival, ""))
        if not feed.without_manifest:
            what[arrival.stat.path] = ("manifest", arrival, "")
    what |= {stat.path: ("other feed", None, "") for stat in seen.foreign}
    what |= {one.stat.path: ("unusable", None, str(one.findings[0])) for one in seen.unusable}
    what |= {one.path: ("refused", None, f"{one.detail} [{one.code}]") for one in seen.refusals}
    return [
        Probed(stat, *what.get(stat.path, ("in no delivery" if stat.path in selected else "not selected", None, "")))
        for stat in stats
    ]


def _chosen(feed: Feed, arrivals: Sequence[Arrival], key: SequenceKey | None) -> Arrival | None:
    """The delivery to look into: whole before not whole, then the newest."""
    there = [arrival for arrival in arrivals if key is None or arrival.manifest.key == key]
    if key is not None and not there:
        keys = [arrival.manifest.key.text for arrival in arrivals]
        here = f"here are {keys[0]} to {keys[-1]}" if keys else "nothing is here"
        what = f"nothing of {feed.name} {key} is at the landing place; {here}."
        raise WrongUse(what, next_step="leave --key out, or correct it.")
    return max(there, key=_rank, default=None)


def _rank(arrival: Arrival) -> tuple[bool, int, bool, int]:
    manifest = arrival.manifest
    whole = isinstance(arrival.completeness, Resolved)
    return whole, manifest.key.ordinal, manifest.kind is Kind.FULL, manifest.revision


def _sample(
    feed: Feed, landing: LandingPlace, group: Arrival, limits: Limits, scratch: Path, sample_rows: int
) -> Sample | None:
    """Seal one delivery into the scratch folder and check it as intake would; None where it is not whole."""
    if isinstance(group.completeness, Invalid):
        return Sample(group, findings=group.completeness.findings)
    if not isinstance(group.completeness, Resolved):
        return None
    sealed = seal(landing, group.completeness, LocalStore(scratch / "sealed"))
    if isinstance(sealed, Incomplete):
        return None
    if isinstance(sealed, Invalid):
        return Sample(group, findings=sealed.findings)
    contract = feed.computation_for(group.manifest.key).contract
    files = [PayloadFile(path, file.path, file.rows) for file, path in zip(sealed.files, sealed.paths, strict=True)]
    number, findings = _checked(feed, group, files, contract, limits, scratch)
    found = [
        found_in(file, contract, scratch=scratch, max_ratio=limits.max_ratio, sample_rows=sample_rows if not place else 0)
        for place, file in enumerate(files if findings else files[:1])
    ]
    readable = [one for one in found if isinstance(one, FoundFile)]
    first = readable[0] if readable else FoundFile((), 0, 0, ())
    columns = _columns(contract, first)
    unread = any(not column.there or column.declared is None for column in columns)
    return Sample(
        group,
        columns,
        tuple(name for name, _ in first.columns),
        first.sample,
        number if number is not None else sum(one.rows for one in readable),
        0 if not findings else sum(one.rows if unread else one.rows_unfit for one in readable),
        findings,
    )


def _checked(
    feed: Feed, group: Arrival, files: Sequence[PayloadFile], contract: RowContract, limits: Limits, scratch: Path
) -> tuple[int | None, tuple[Finding, ...]]:
    """How many rows there are, and what is wrong with them."""
    controls = group.manifest.controls
    try:
        measured = check_only(files, contract, controls=controls, scratch=scratch, max_ratio=limits.max_ratio)
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        step = f"correct `delete_when` in {feed.file}, if that is it; else look at this machine's memory and disk."
        return None, (Finding("not_checked", in_words(error), step),)
    if isinstance(measured, RowsRefused):
        return None, measured.findings
    empty = empty_fault(feed, group.manifest, measured)
    return measured.rows, (empty,) if empty else ()


def _columns(contract: RowContract, found: FoundFile) -> tuple[Column, ...]:
    types = dict(found.columns)
    declared = [Column(column.name, column.type, types.get(column.name), column.name in types) for column in contract.columns]
    names = {column.name for column in contract.columns}
    extra = [Column(name, None, type_, there=True) for name, type_ in types.items() if name not in names]
    return (*declared, *extra)
