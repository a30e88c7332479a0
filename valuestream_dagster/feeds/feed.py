"""A feed as the program works with it: the declaration resolved into core values, with defaults and paths filled in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from valuestream_dagster.core.calendar import Expectation, parse_due
from valuestream_dagster.core.continuity import Baseline, Mode, PredecessorRule
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.pattern import NamePattern
from valuestream_dagster.core.rows import Column, CsvFormat, IndependentControl, RowContract, Transform
from valuestream_dagster.core.sequence import Sequence, SequenceKey
from valuestream_dagster.errors import Broken
from valuestream_dagster.feeds.column_types import canonical_type, holds_every
from valuestream_dagster.feeds.computation import Computation, OlderColumns, computation_hash
from valuestream_dagster.feeds.declaration import ExpectDeclaration, FeedDeclaration, SequenceDeclaration
from valuestream_dagster.feeds.transforms import load_transform
from valuestream_dagster.feeds.versions import Shown, Version, name_in, shown_of

# Version 2 has columns that are dated; a feed without them is written in the form of version 1.
SHAPE_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One declared feed.

    Args:
        source: who delivers.
        dataset: what kind of thing.
        description: what the data is, in words.
        owners: emails or ``team:NAME``.
        tags: the Dagster asset's tags.
        mode: whether keys stand by themselves or build a chain.
        default_kind: kind of deliveries whose manifest does not say.
        landing: absolute folder, or ``s3://bucket/prefix`` without a final slash.
        include: globs over the path below ``landing``.
        exclude: globs of what is left out all the same.
        rule: the feed's rule of order.
        contract: how payload becomes rows, of the newest columns where they are dated.
        expectation: until when a key should be here, or None.
        allow_empty: whether a delivery without rows is valid.
        max_shrink: the greatest part of its rows (0 to 1) that a full may lose without being held, or None.
        extra_files: what files outside the manifest do.
        recompute: whether published deliveries that an edit made stale are redone at once, or when a person asks.
        paused: no runs while true.
        alerts: notification URLs of this feed alone.
        computation_hash: digest of all that decides the output, of the newest columns where they are dated.
        file: the file that declares it, relative to the deployment.
        older: computations of the versions before the newest columns, oldest first.
        since: ordinal of the first key of the newest columns; None where they are not dated.
        independent: counts and totals from another source, or None.
        without_manifest: files are grouped into deliveries by what their names say.
        pattern: what the names of manifests, or of files without them, say; None where nothing is read from names.
        quiet_seconds: for how long files without a manifest must rest; None where a manifest or the parts complete a delivery.
    """

    source: str
    dataset: str
    description: str
    owners: tuple[str, ...]
    tags: tuple[tuple[str, str], ...]
    mode: Mode
    default_kind: Kind
    landing: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    rule: PredecessorRule
    contract: RowContract
    expectation: Expectation | None
    allow_empty: bool
    max_shrink: float | None
    extra_files: Literal["report", "reject"]
    recompute: Literal["ask", "auto"]
    paused: bool
    alerts: tuple[str, ...]
    computation_hash: str
    file: str
    older: tuple[OlderColumns, ...] = ()
    since: int | None = None
    independent: IndependentControl | None = None
    without_manifest: bool = False
    pattern: NamePattern | None = None
    quiet_seconds: int | None = None

    def computation_for(self, key: SequenceKey) -> Computation:
        """What makes rows of the deliveries of a key: the newest version of the columns that holds for it (ruling 12)."""
        if self.since is None or key.ordinal >= self.since:
            return Computation(self.contract, self.computation_hash)
        held = [one for one in self.older if one.since is None or one.since <= key.ordinal][-1]
        return Computation(held.contract, held.hash)

    @property
    def computations(self) -> tuple[tuple[int | None, str], ...]:
        """From which ordinal on each computation hash holds, in order; None from the beginning."""
        return (*((one.since, one.hash) for one in self.older), (self.since, self.computation_hash))

    @property
    def work_hash(self) -> str:
        """Names all computations together: what an unfinished recomputation was made by."""
        if not self.older:
            return self.computation_hash
        return hashlib.sha256(json.dumps(self.computations).encode()).hexdigest()

    @property
    def name(self) -> str:
        """How people and tables name it: ``source/dataset``."""
        return f"{self.source}/{self.dataset}"

    @property
    def sequence(self) -> Sequence:
        """The feed's keys and their order."""
        return self.rule.sequence


@dataclass(frozen=True, slots=True)
class Shape:
    """What the catalogue needs for a feed's views after its file has gone: no places, no secrets."""

    source: str
    dataset: str
    mode: Mode
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    # How rows of older versions of the columns fill the newest, by the computation hash of their files.
    older: tuple[tuple[str, tuple[Shown, ...]], ...] = ()

    def hides_any(self, published: Iterable[tuple[str, Shape]]) -> str | None:
        """What rows of any of these shapes would lose, each with its files' computation hash; the versions' own lose nothing."""
        mapped = {of for of, _ in self.older}
        return next((fault for of, one in published if of not in mapped and (fault := self.hides_of(one)) is not None), None)

    def hides_of(self, published: Shape) -> str | None:
        """What rows of an older shape would lose if they were shown in this one, or None (L5).

        A column that only this shape has is NULL in them, and one that only they have is not shown; both at once is a column
        that was given another name, whose values would seem to have gone.
        """
        then = {column.name: canonical_type(column.type) for column in published.columns}
        now = {column.name: canonical_type(column.type) for column in self.columns}
        for name in then.keys() & now.keys():
            if not holds_every(then[name], now[name]):
                return f"`{name}` was published as {then[name]}, which {now[name]} cannot show without loss"
        gone, new = [name for name in then if name not in now], [name for name in now if name not in then]
        return f"`{gone[0]}` was published and `{new[0]}` is declared instead" if gone and new else None


def to_feed(declaration: FeedDeclaration, *, deployment: Path, file: str) -> Feed:
    """The feed that a valid declaration states.

    Args:
        declaration: as the model accepted it.
        deployment: folder from which a relative landing place is counted.
        file: the name of the declaring file.

    Raises:
        TransformUnusable: what it declares as its transform cannot be one.
    """
    versions = declaration.versions
    transform = load_transform(declaration.transform, deployment) if declaration.transform is not None else None
    contracts = [_contract(declaration, versions, index, transform) for index in range(len(versions))]
    since = [_ordinal(declaration.sequence, version.since) for version in versions]
    contract = contracts[-1]
    return Feed(
        source=declaration.source,
        dataset=declaration.dataset,
        description=declaration.description,
        owners=declaration.owners,
        tags=tuple(sorted(declaration.tags.items())),
        mode=declaration.mode,
        default_kind=declaration.kind,
        landing=_place(declaration.landing, deployment),
        include=declaration.selected,
        exclude=declaration.exclude,
        rule=_rule(
            declaration.sequence, declaration.mode, conflict_stops=declaration.policy.conflict == "stop"
        ),
        contract=contract,
        expectation=_expectation(declaration.expect, declaration.sequence),
        allow_empty=declaration.policy.allow_empty,
        max_shrink=declaration.policy.max_shrink,
        extra_files=declaration.policy.extra_files,
        recompute=declaration.policy.recompute,
        paused=declaration.paused,
        alerts=declaration.alerts,
        computation_hash=computation_hash(contract),
        file=file,
        older=tuple(
            OlderColumns(since[index], older, computation_hash(older), shown_of(versions, index))
            for index, older in enumerate(contracts[:-1])
        ),
        since=since[-1],
        independent=_independent(declaration, deployment),
        without_manifest=declaration.without_manifest,
        pattern=declaration.sequence.names,
        quiet_seconds=declaration.quiet_seconds,
    )


def _ordinal(sequence: SequenceDeclaration, since: str | None) -> int | None:
    if since is None:
        return None
    key = sequence.sequence.parse(since)
    if not isinstance(key, SequenceKey):
        raise Broken(f"the key {since!r} was accepted and is none")
    return key.ordinal


def _contract(
    declaration: FeedDeclaration, versions: Sequence_[Version], index: int, transform: Transform | None
) -> RowContract:
    """How payload of one version of the columns becomes rows; key and totals are declared in the newest names."""
    payload = declaration.payload

    def names(newest: Iterable[str]) -> tuple[str, ...]:
        return tuple(old for name in newest if (old := name_in(versions, index, name)[0]) is not None)

    return RowContract(
        columns=tuple(Column(name, type_) for name, type_ in versions[index].columns.items()),
        csv=CsvFormat(
            delimiter=payload.delimiter,
            quote=payload.quote,
            escape=payload.escape,
            header=payload.header,
            encoding=payload.encoding,
            null=payload.null,
            compression=payload.compression,
        ),
        key=names(declaration.key),
        totals=declaration.controls.totals if transform is not None else names(declaration.controls.totals),
        delete_when=declaration.delete_when,
        transform=transform,
        delivered=_delivered(declaration) if transform is not None else (),
    )


def _independent(declaration: FeedDeclaration, deployment: Path) -> IndependentControl | None:
    declared = declaration.controls.independent
    if declared is None:
        return None
    return IndependentControl(_place(declared.file, deployment), declared.rows, declared.totals, declared.obtained)


def _delivered(declaration: FeedDeclaration) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in declaration.delivered_columns.items())


def _rule(declared: SequenceDeclaration, mode: Mode, *, conflict_stops: bool) -> PredecessorRule:
    return PredecessorRule(
        declared.sequence, mode, declared.continuity == "required", _baseline(declared), conflict_stops=conflict_stops
    )


def _baseline(declared: SequenceDeclaration) -> Baseline | None:
    match declared.baseline:
        case None:
            return None
        case "first":
            return Baseline("first")
        case "full":
            return Baseline("full")
        case text:
            key = declared.sequence.parse(text)
            if not isinstance(key, SequenceKey):
                raise Broken(f"the baseline {text!r} was accepted and is no key")
            return Baseline("key", key)


def _expectation(declared: ExpectDeclaration | None, sequence: SequenceDeclaration) -> Expectation | None:
    if declared is None:
        return None
    due = parse_due(declared.due)
    if due is None:
        raise Broken(f"the due time {declared.due!r} was accepted and is none")
    return Expectation(due, declared.grace_minutes, declared.timezone or sequence.timezone)


def _place(landing: str, deployment: Path) -> str:
    if landing.startswith("s3://"):
        return landing.rstrip("/")
    return os.path.abspath(deployment / landing)


def shape_json(feed: Feed) -> str:
    """The feed's shape as canonical JSON, to be kept in the ledger."""
    shape: dict[str, object] = {
        "version": 1,
        "source": feed.source,
        "dataset": feed.dataset,
        "mode": feed.mode.value,
        "columns": [[column.name, column.type] for column in feed.contract.columns],
        "key": list(feed.contract.key),
    }
    if feed.older:
        older = {one.hash: [[shown.name, shown.old, shown.default] for shown in one.shown] for one in feed.older}
        shape |= {"version": SHAPE_VERSION, "older": older}
    return json.dumps(shape, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def shape_from_json(text: str) -> Shape:
    """The shape that ``shape_json`` wrote.

    Raises:
        Broken: the text is none of ours.
    """
    try:
        raw = json.loads(text)
        if raw["version"] not in (1, SHAPE_VERSION):
            raise Broken(f"the ledger holds a feed shape of version {raw['version']}", next_step="upgrade valuestream.")
        return Shape(
            str(raw["source"]),
            str(raw["dataset"]),
            Mode(raw["mode"]),
            tuple(Column(str(name), str(type_)) for name, type_ in raw["columns"]),
            tuple(str(name) for name in raw["key"]),
            tuple((str(of), tuple(Shown(*shown) for shown in columns)) for of, columns in raw.get("older", {}).items()),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"a feed shape in the ledger cannot be read: {error}") from error
