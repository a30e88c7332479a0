"""A feed as the program works with it: the declaration resolved into core values, with defaults and paths filled in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from valuestream_dagster.core.calendar import Expectation, parse_due
from valuestream_dagster.core.continuity import Baseline, Mode, PredecessorRule
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import Column, CsvFormat, RowContract
from valuestream_dagster.core.sequence import Sequence, SequenceKey
from valuestream_dagster.errors import Broken
from valuestream_dagster.feeds.column_types import canonical_type, holds_every
from valuestream_dagster.feeds.computation import computation_hash
from valuestream_dagster.feeds.declaration import ExpectDeclaration, FeedDeclaration, SequenceDeclaration

SHAPE_VERSION = 1


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
        contract: how payload becomes rows.
        expectation: until when a key should be here, or None.
        allow_empty: whether a delivery without rows is valid.
        max_shrink: the greatest part of its rows (0 to 1) that a full may lose without being held, or None.
        extra_files: what files outside the manifest do.
        recompute: whether published deliveries that an edit made stale are redone at once, or when a person asks.
        paused: no runs while true.
        alerts: notification URLs of this feed alone.
        computation_hash: digest of all that decides the output.
        file: the file that declares it, relative to the deployment.
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
    """
    contract = _contract(declaration)
    return Feed(
        source=declaration.source,
        dataset=declaration.dataset,
        description=declaration.description,
        owners=declaration.owners,
        tags=tuple(sorted(declaration.tags.items())),
        mode=declaration.mode,
        default_kind=declaration.kind,
        landing=_place(declaration.landing, deployment),
        include=declaration.include,
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
    )


def _contract(declaration: FeedDeclaration) -> RowContract:
    payload = declaration.payload
    return RowContract(
        columns=tuple(Column(name, type_) for name, type_ in declaration.columns.items()),
        csv=CsvFormat(
            delimiter=payload.delimiter,
            quote=payload.quote,
            escape=payload.escape,
            header=payload.header,
            encoding=payload.encoding,
            null=payload.null,
            compression=payload.compression,
        ),
        key=declaration.key,
        totals=declaration.controls.totals,
        delete_when=declaration.delete_when,
    )


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
    shape = {
        "version": SHAPE_VERSION,
        "source": feed.source,
        "dataset": feed.dataset,
        "mode": feed.mode.value,
        "columns": [[column.name, column.type] for column in feed.contract.columns],
        "key": list(feed.contract.key),
    }
    return json.dumps(shape, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def shape_from_json(text: str) -> Shape:
    """The shape that ``shape_json`` wrote.

    Raises:
        Broken: the text is none of ours.
    """
    try:
        raw = json.loads(text)
        if raw["version"] != SHAPE_VERSION:
            raise Broken(f"the ledger holds a feed shape of version {raw['version']}", next_step="upgrade valuestream.")
        return Shape(
            str(raw["source"]),
            str(raw["dataset"]),
            Mode(raw["mode"]),
            tuple(Column(str(name), str(type_)) for name, type_ in raw["columns"]),
            tuple(str(name) for name in raw["key"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"a feed shape in the ledger cannot be read: {error}") from error
