"""Deliveries without manifests: files grouped by what their names say. Names, sizes and times only, never a byte of payload.

One group per kind, key and revision, the same whoever lists and in whatever order (L1, L2). A name that says no delivery, or two
files of which nobody can say which is meant, is a refusal of the feed's plan and never a group of its own (C11, C26, ruling 11).
Whole is a group when all the parts that its names number are there, else when nothing of it has changed for a while, which is weak
evidence and said so (M2, M4).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from valuestream_dagster.core.continuity import Mode
from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.manifest import Entry, Kind, Manifest
from valuestream_dagster.core.pattern import Named, NamePattern, NameProblem
from valuestream_dagster.errors import Broken
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import Listing, Resolved, resolve
from valuestream_dagster.stores.base import ObjectStat

GROUPING_VERSION = 1
PARTS_NAMED = 20
_ROOT = ObjectStat("", 0, "", None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a feed's plan is refused until somebody mends it (ruling 11, C25, C26).

    Args:
        code: closed word, e.g. ``pattern_mismatch``.
        path: of the culprit, below the landing place.
        expected_pattern: what names must look like.
        detail: one sentence.
        next_step: what to do, and who.
    """

    code: str
    path: str
    expected_pattern: str
    detail: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Group:
    """One delivery that has no manifest.

    Args:
        stats: its files in order of their parts.
        data: what was grouped, as text: it stands where a producer's manifest would.
        manifest: the delivery, as its names state it.
        completeness: which objects its entries are, or why it is not whole.
    """

    stats: tuple[ObjectStat, ...]
    data: bytes
    manifest: Manifest
    completeness: Resolved | Incomplete | Invalid

    @property
    def touched(self) -> tuple[tuple[str, str], ...]:
        """(path, stamp) of every file."""
        return tuple((stat.path, stat.stamp) for stat in self.stats)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups of which a file is fresh, oldest key first, and every refusal."""

    groups: tuple[Group, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class _File:
    stat: ObjectStat
    named: Named
    fresh: bool

    @property
    def slot(self) -> tuple[int, str]:
        """Its place within the delivery: no two files have one."""
        return self.named.part or 0, self.named.role or "data"


def name_refusal(feed: Feed, path: str, problem: NameProblem) -> Refusal:
    """The refusal of a selected name that says no delivery."""
    return Refusal(
        problem.code, path, problem.expected, f"{path}: {problem.detail}",
        f"ask {feed.source} to name it as {problem.expected}, or leave it out by `exclude` in {feed.file}.",
    )  # fmt: skip


def group_by_name(
    feed: Feed,
    selected: Sequence[ObjectStat],
    *,
    fresh: Collection[str],
    same_bytes: Callable[[ObjectStat, ObjectStat], bool],
    now: datetime,
    settle_seconds: float,
    entries_limit: int,
) -> Grouped:
    """Group the selected files of a feed without manifests; names are read of all of them, groups made where a file is fresh.

    Args:
        feed: its pattern says what names mean.
        selected: the listed objects that the feed looks at.
        fresh: paths that are news; a file that was judged before gives way to one that was not (ruling 11: unsettled objects).
        same_bytes: whether two objects hold the same bytes; asked only of two fresh files of one place.
        now: the clock's reading.
        settle_seconds: parts that changed less than this ago are taken to be arriving still.
        entries_limit: most files of one delivery.
    """
    if feed.pattern is None:
        raise Broken(f"{feed.name} was accepted without a manifest and without a pattern")
    refusals: list[Refusal] = []
    members: dict[tuple[int, str, Kind, int], list[_File]] = {}
    for stat in selected:
        named = feed.pattern.read(stat.path)
        if isinstance(named, NameProblem):
            refusals.append(name_refusal(feed, stat.path, named))
            continue
        kind = named.kind or feed.default_kind
        if feed.mode is not Mode.CHAIN and kind is not feed.default_kind:
            what = f"{stat.path}: it is a {kind}, and the feed takes {feed.default_kind} deliveries"
            refusals.append(_refusal(feed, "kind_mismatch", stat.path, what))
            continue
        identity = (named.key.ordinal, named.key.text, kind, named.revision or 1)
        members.setdefault(identity, []).append(_File(stat, named, stat.path in fresh))
    groups: list[Group] = []
    for (_, _, kind, _), files in sorted(members.items()):
        if not any(file.fresh for file in files):
            continue
        picked = _pick(feed, files, same_bytes)
        if isinstance(picked, Refusal):
            refusals.append(picked)
        elif len(picked) > entries_limit:
            what = f"{files[0].stat.path}: its delivery has {len(picked)} files, more than the limit of {entries_limit}"
            refusals.append(_refusal(feed, "entries_too_many", files[0].stat.path, what))
        else:
            groups.append(_group(feed, kind, picked, now, settle_seconds))
    return Grouped(tuple(groups), tuple(refusals))


def _refusal(feed: Feed, code: str, path: str, detail: str) -> Refusal:
    step = f"take one of them away, or leave it out by `exclude` in {feed.file}; else ask {feed.source} what it is."
    return Refusal(code, path, feed.pattern.text if feed.pattern else "", detail, step)


def _pick(
    feed: Feed, files: Sequence[_File], same_bytes: Callable[[ObjectStat, ObjectStat], bool]
) -> list[_File] | Refusal:
    """One file for each place of a delivery, in order; a refusal where nobody can say which file is meant (ruling 11)."""
    fresh = [file for file in files if file.fresh]
    totals = {file.named.parts: file for file in fresh}
    if len(totals) > 1:
        (one, first), (two, second), *_ = totals.items()
        what = f"{second.stat.path}: it is one of {two} parts, and {first.stat.path} of the same delivery one of {one}"
        return _refusal(feed, "parts_disagree", second.stat.path, what)
    chosen: dict[tuple[int, str], _File] = {}
    for file in (*fresh, *(file for file in files if not file.fresh)):
        before = chosen.setdefault(file.slot, file) if file.named.parts in totals else file
        if before is file or not (before.fresh and file.fresh):
            continue
        if before.stat.bytes != file.stat.bytes or not same_bytes(before.stat, file.stat):
            what = f"{file.stat.path}: it holds other bytes than {before.stat.path}, and both are named {_called(feed, file)}"
            return _refusal(feed, "duplicate_sequence_key", file.stat.path, what)
    return [chosen[slot] for slot in sorted(chosen)]


def _called(feed: Feed, file: _File) -> str:
    """How people call the place that a file has."""
    part = f" part {file.named.part}" if file.named.part is not None else ""
    role = f" {file.named.role}" if file.named.role else ""
    return f"{feed.name} {file.named.key} r{file.named.revision or 1}{part}{role}"


def _group(feed: Feed, kind: Kind, files: Sequence[_File], now: datetime, settle_seconds: float) -> Group:
    named, stats = files[0].named, tuple(file.stat for file in files)
    manifest = Manifest(
        source=feed.source,
        dataset=feed.dataset,
        kind=kind,
        key=named.key,
        revision=named.revision or 1,
        entries=tuple(Entry(file.stat.path, file.stat.bytes, role=file.named.role or "data") for file in files),
        warnings=_warnings(feed),
    )
    seconds = settle_seconds if feed.quiet_seconds is None else feed.quiet_seconds
    missing = (*_missing_parts(feed.pattern, files), *_restless(stats, seconds, now, by_parts=feed.quiet_seconds is None))
    whole = Incomplete(missing) if missing else resolve(manifest, _ROOT, Listing(stats), now=now, settle_seconds=0)
    return Group(stats, _statement(feed, manifest, stats), manifest, whole)


def _warnings(feed: Feed) -> tuple[str, ...]:
    if feed.quiet_seconds is None:
        return ("no manifest: the names say which parts there are, nothing says how long they are or what they hold",)
    quiet = f"nothing changed for {feed.quiet_seconds} s"
    return (f"no manifest: it was taken to be whole because {quiet}, which is weak evidence",)


def _missing_parts(pattern: NamePattern | None, files: Sequence[_File]) -> tuple[str, ...]:
    """The parts that are not there, by number and by the name that they would have; the first of many."""
    parts = files[0].named.parts
    if parts is None or pattern is None:
        return ()
    there = {file.named.part for file in files}
    gone = _first(number for number in range(1, parts + 1) if number not in there)
    more = parts - len(there) - len(gone)
    named = [f"part {number} of {parts} ({_name_of(pattern, files[0].named, number)})" for number in gone]
    return tuple([*named, f"and {more} more parts"] if more > 0 else named)


def _first(numbers: Iterable[int]) -> list[int]:
    return [number for number, _ in zip(numbers, range(PARTS_NAMED), strict=False)]


def _name_of(pattern: NamePattern, sibling: Named, part: int) -> str:
    """The name of another part, by the name of one that is there; padded alike."""
    fields = dict(sibling.fields)
    width = len(fields["part"]) if fields["part"].startswith("0") else 1
    return pattern.spelled({**fields, "part": str(part).zfill(width)})


def _restless(stats: Iterable[ObjectStat], seconds: float, now: datetime, *, by_parts: bool) -> Iterable[str]:
    """The files that may be changing still; the words are the same at every look, so that one receipt tells it (M20).

    Where parts are numbered, objects that appear whole need no rest; otherwise one more may come beside the ones that are here.
    """
    for stat in stats:
        at = stat.modified_at
        if at is None or (by_parts and stat.stable) or now - at >= timedelta(seconds=seconds):
            continue
        if at > now + timedelta(seconds=seconds):
            yield f"{stat.path} (its time stamp lies in the future)"
        else:
            yield f"{stat.path} (it changed less than {seconds:g} s ago)"


def _statement(feed: Feed, manifest: Manifest, stats: Sequence[ObjectStat]) -> bytes:
    """What was grouped, as canonical JSON: kept, named by receipts and the seal record; our words, not a producer's (M9)."""
    return json.dumps(
        {
            "grouped_by_name": {"version": GROUPING_VERSION, "pattern": feed.pattern.text if feed.pattern else None},
            "source": manifest.source,
            "dataset": manifest.dataset,
            "kind": manifest.kind.value,
            "sequence": manifest.key.text,
            "revision": manifest.revision,
            "files": [
                {"path": stat.path, "bytes": stat.bytes, "stamp": stat.stamp, "role": entry.role}
                for stat, entry in zip(stats, manifest.entries, strict=True)
            ],
        },
        sort_keys=True,
        separators=(",", ":"),
    ).encode()
