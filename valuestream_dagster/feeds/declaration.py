"""The feed file as a model: what a feed may declare, and every rule that such a declaration must keep.

The same model is the ``attributes`` of the Dagster component, so it knows no files and no lines. It says nothing of how
a feed is worked: ``feed.to_feed`` turns it into core values. Fields of the design that this version does not build are
refused by name, never ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    WithJsonSchema,
)

from valuestream_dagster.core.calendar import LONG_CADENCES, DueOnDay, parse_due
from valuestream_dagster.core.continuity import Mode
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.pattern import NamePattern
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, KeyProblem, Sequence
from valuestream_dagster.feeds.closed_model import ClosedModel, Fault
from valuestream_dagster.feeds.column_types import adds_up_exactly
from valuestream_dagster.feeds.field_values import (
    Character,
    Condition,
    DatasetName,
    DueText,
    Encoding,
    Globs,
    Landing,
    NotificationUrls,
    NullText,
    OptionalCharacter,
    Owner,
    SourceName,
    TagKey,
    Timezone,
)
from valuestream_dagster.feeds.naming import (
    EVERY_FILE,
    QUIET_SECONDS,
    Completion,
    naming_faults,
    pattern_faults,
    pattern_of,
)
from valuestream_dagster.feeds.versions import Columns, Version, key_text, version_faults

VERSIONS_LIMIT = 100
ColumnNames = tuple[str, ...]


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


_PLAIN, _DATED = "[plain]", "[dated]"


class SequenceDeclaration(ClosedModel):
    """How the feed's keys are named and ordered, and whether none may be missing."""

    not_built_fields: ClassVar[frozenset[str]] = frozenset(
        {"anchor", "calendar", "series", "predecessor_from", "window", "upstream"}
    )
    not_built_values: ClassVar[Mapping[str, frozenset[str]]] = {"kind": frozenset({"linked", "label"})}

    kind: Literal["date", "integer"] = Field(default="date", description="Keys are dates (periods) or integers.")
    cadence: Cadence | None = Field(default=None, description="How often a dated feed has a key (daily).")
    timezone: Timezone = Field(default="UTC", description="IANA zone of dated keys.")
    step: Annotated[StrictInt, Field(ge=1, le=10**9)] = Field(default=1, description="Distance between integer keys.")
    continuity: Literal["required", "none"] = Field(
        default="none", description="Whether a key waits for its predecessor."
    )
    baseline: Annotated[str, BeforeValidator(key_text), WithJsonSchema({"type": ["string", "integer"]})] | None = (
        Field(
            default=None,
            description="From where continuity is judged: a key, `first` (lowest seen) or, in a chain, `full`.",
        )
    )
    key_from: Literal["manifest", "name"] | None = Field(
        default=None, alias="from", description="Where the key is read: `manifest` (where there is one), or `name` by `pattern`."
    )
    pattern: str | None = Field(
        default=None, description="What names say, over the path below `landing`: e.g. orders-{date:YYYYMMDD}-r{revision}.csv."
    )

    @property
    def sequence(self) -> Sequence:
        """The order of the keys."""
        return IntegerSequence(self.step) if self.kind == "integer" else DatedSequence(self.cadence or Cadence.DAILY)

    @property
    def names(self) -> NamePattern | None:
        """The compiled pattern, where there is a usable one."""
        return pattern_of(self.pattern, self.sequence)

    def faults(self) -> Iterator[Fault]:
        """Rules over the fields together."""
        given = self.model_fields_set
        if self.kind == "integer":
            for name in sorted({"cadence", "timezone"} & given):
                yield Fault((name,), f"`{name}` says nothing of integer keys; remove it", reads=("kind", name))
        elif "step" in given and self.step != 1:
            yield Fault(("step",), "`step` is for integer keys; a dated feed has a cadence", reads=("kind", "step"))
        if self.continuity == "required" and self.baseline is None:
            yield Fault(
                ("continuity",),
                "continuity is required, but nothing says from which key on: without a baseline no gap can be proven",
                "baseline: KEY (the first expected key), first (the lowest seen) or, in a chain, full",
                ("continuity", "baseline"),
            )
        if self.baseline is not None and self.baseline not in ("first", "full"):
            key = self.sequence.parse(self.baseline)
            if isinstance(key, KeyProblem):
                yield Fault(
                    ("baseline",),
                    f"the baseline is no key of this sequence: {key.detail}",
                    f"{key.expected}, first or full",
                    ("baseline", "kind", "cadence"),
                )
        yield from pattern_faults(self.pattern, self.sequence, from_name=self.key_from == "name")


class ExpectDeclaration(ClosedModel):
    """Until when a key should be here."""

    due: DueText = Field(
        description='Relative to the key\'s own date: "04:00", "+1d 01:00", or "day 3 12:00" of the month after it.'
    )
    grace_minutes: Annotated[StrictInt, Field(ge=0, le=525_600)] = Field(
        default=0, description="Minutes until overdue."
    )
    timezone: Timezone | None = Field(default=None, description="IANA zone of the due time (the sequence's).")


class PayloadDeclaration(ClosedModel):
    """How the data files are read."""

    not_built_fields: ClassVar[frozenset[str]] = frozenset(
        {"member", "deletes", "digest_of", "rows_include_header", "records"}
    )
    not_built_values: ClassVar[Mapping[str, frozenset[str]]] = {
        "format": frozenset({"jsonl", "parquet", "fixed", "opaque"}),
        "compression": frozenset({"zstd", "zip", "bzip2", "xz", "snappy", "lz4"}),
    }

    format: Literal["csv"] = Field(default="csv", description="Format of the data files.")
    delimiter: Character = Field(default=",", description="Character between values.")
    quote: OptionalCharacter = Field(default='"', description="Quoting character, or empty.")
    escape: OptionalCharacter = Field(default='"', description="Character before a quote.")
    header: StrictBool = Field(default=True, description="Whether the first line names the columns.")
    encoding: Encoding = Field(default="utf-8", description="utf-8, latin-1 or utf-16.")
    columns: Columns | None = Field(
        default=None, description="The columns of the files, where a `transform` makes others of them."
    )
    null: Annotated[
        tuple[NullText, ...],
        BeforeValidator(_texts),
        Field(min_length=1, max_length=50),
    ] = Field(default=("",), description="Unquoted text, or list of texts, that means NULL.")
    compression: Literal["auto", "none", "gzip"] = Field(default="auto", description="By name (`.gz`), none or gzip.")

    def faults(self) -> Iterator[Fault]:
        """Rules over the fields together."""
        if self.delimiter in (self.quote, self.escape):
            yield Fault(
                ("delimiter",), "the delimiter is the quoting or escaping character too", 'delimiter: ","',
                ("delimiter", "quote", "escape"),
            )  # fmt: skip


class IndependentDeclaration(ClosedModel):
    """Counts and totals from another source than the delivery's own export."""

    file: str = Field(min_length=1, description="CSV of the deployment with the columns key, rows and those of `totals`.")
    rows: StrictBool = Field(default=True, description="Whether rows are compared.")
    totals: ColumnNames = Field(default=(), description="Columns of `controls.totals` whose totals are compared.")
    obtained: str = Field(default="", description="How, or from whom, they came, in words: it is told with the result.")


class ControlsDeclaration(ClosedModel):
    """What is added up and compared."""

    not_built_fields: ClassVar[frozenset[str]] = frozenset({"rows"})

    totals: ColumnNames = Field(
        default=(), description="Columns whose exact total is computed, and compared where declared."
    )
    independent: IndependentDeclaration | None = Field(default=None, description="Controls from another source.")

    def faults(self) -> Iterator[Fault]:
        """Rules over the fields together."""
        for index, name in enumerate(self.independent.totals if self.independent else ()):
            if name not in self.totals:
                yield Fault(
                    ("independent", "totals", index), f"`{name}` is not among `controls.totals`, so it is not added up",
                    "a column of `controls.totals`", ("independent", "totals"),
                )  # fmt: skip


class PolicyDeclaration(ClosedModel):
    """What happens where the rules leave a choice."""

    max_shrink: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="The greatest part of its rows (0 to 1) that a full may lose, against what was before, without being held.",
    )
    recompute: Literal["ask", "auto"] = Field(
        default="ask", description="Whether published deliveries that an edit made stale are redone at once."
    )
    allow_empty: StrictBool = Field(default=False, description="Whether a delivery without rows is valid.")
    extra_files: Literal["report", "reject"] = Field(
        default="report", description="What files outside the manifest do."
    )
    conflict: Literal["stop", "continue"] = Field(
        default="stop", description="Whether a conflict stops the keys after it."
    )


class FeedDeclaration(ClosedModel):
    """One feed: who delivers what, where it lands, how it is ordered, read and checked."""

    not_built_fields: ClassVar[frozenset[str]] = frozenset(
        {"retired", "formerly", "after", "ack", "destinations"}
    )
    not_built_values: ClassVar[Mapping[str, frozenset[str]]] = {
        "manifest": frozenset(
            ("bagit", "frictionless", "redshift", "s3_inventory", "checksums", "osm_state", "cur")
        ),
        "revision": frozenset({"arrival"}),
    }

    source: SourceName = Field(description="Who delivers.")
    dataset: DatasetName = Field(description="What kind of thing is delivered.")
    description: str = Field(default="", description="What the data is, in words.")
    owners: tuple[Owner, ...] = Field(default=(), description="Emails or `team:NAME`.")
    tags: dict[TagKey, str] = Field(default={}, description="Tags of the Dagster asset.")
    mode: Mode = Field(
        default=Mode.PERIODS,
        description="`periods`: each key stands by itself; `chain`: newest full and the deltas after it.",
    )
    kind: Kind = Field(default=Kind.FULL, description="Kind of deliveries whose manifest does not say.")
    landing: Landing = Field(
        description="Folder (relative to the deployment) or s3://bucket/prefix where deliveries arrive."
    )
    include: Annotated[Globs, Field(min_length=1)] = Field(
        default=("**/*.manifest.json",),
        description="Globs below `landing` for manifests (every file where there are none); `**/` for any depth.",
    )
    exclude: Globs = Field(default=(), description="Globs below `landing` for what is left out all the same.")
    manifest: Literal["native", "none"] = Field(
        default="native", description="Format of the manifests, or `none`: files are grouped by their names."
    )
    completion: Completion | None = Field(
        default=None,
        description="The agreed sign that a delivery is whole: `manifest`; without one `parts` or `quiet`, by the pattern.",
    )
    sequence: SequenceDeclaration = Field(default=SequenceDeclaration(), description="Keys, their order, continuity.")
    expect: ExpectDeclaration | None = Field(default=None, description="Until when a key should be here.")
    payload: PayloadDeclaration = Field(default=PayloadDeclaration(), description="How data files are read.")
    revision: Literal["manifest", "name"] | None = Field(
        default=None,
        description="Where the revision is read: `manifest`, or `name` by {revision} in the pattern; 1 where none says.",
    )
    columns: Annotated[
        Annotated[Columns, Tag(_PLAIN)]
        | Annotated[tuple[Version, ...], Field(min_length=1, max_length=VERSIONS_LIMIT), Tag(_DATED)],
        Discriminator(lambda value: _DATED if isinstance(value, list | tuple) else _PLAIN),
    ] = Field(description="DuckDB type of each column by name; or a list of versions, each `since` a key.")
    key: Annotated[ColumnNames, BeforeValidator(_texts)] = Field(default=(), description="Columns that identify a row.")
    delete_when: Condition | None = Field(
        default=None, description="SQL condition for rows of a chain that remove their key."
    )
    transform: str | None = Field(
        default=None,
        description="SQL file of the deployment (`SELECT ... FROM delivery`), or `package.module:function` on a DuckDB relation.",
    )
    paused: StrictBool = Field(default=False, description="No runs while true.")
    alerts: NotificationUrls = Field(
        default=(), description="Notification URLs for this feed, beside the deployment's."
    )
    controls: ControlsDeclaration = Field(default=ControlsDeclaration(), description="What is added up and compared.")
    policy: PolicyDeclaration = Field(
        default=PolicyDeclaration(), description="What happens where the rules leave a choice."
    )

    @property
    def versions(self) -> tuple[Version, ...]:
        """The columns' versions, the newest last; one where they are not dated."""
        return (Version(columns=self.columns),) if isinstance(self.columns, dict) else self.columns

    @property
    def newest_columns(self) -> Mapping[str, str]:
        """The columns that readers see."""
        return self.versions[-1].columns

    @property
    def without_manifest(self) -> bool:
        """Whether only names say which delivery a file belongs to."""
        return self.manifest == "none"

    @property
    def selected(self) -> Globs:
        """The globs that hold: without manifests every file is one to be grouped, unless `include` says otherwise."""
        return EVERY_FILE if self.without_manifest and "include" not in self.model_fields_set else self.include

    @property
    def quiet_seconds(self) -> int | None:
        """For how long files without a manifest must rest; None where a manifest or the parts say when they are whole."""
        names = self.sequence.names
        by_parts = names is not None and names.asks("parts")
        if not self.without_manifest or by_parts:
            return None
        return (self.completion.seconds if self.completion else None) or QUIET_SECONDS

    @classmethod
    def stand_ins(cls) -> Mapping[str, object]:
        """Values that break no rule by themselves."""
        return {"source": "s", "dataset": "d", "landing": "l", "columns": {"c": "VARCHAR"}}

    def faults(self) -> Iterable[Fault]:
        """Rules over the fields together."""
        yield from self._faults_of_mode()
        yield from self._faults_of_columns()
        yield from version_faults(self.versions, self.sequence.sequence, self.key)
        yield from self._faults_of_expectation()
        yield from self._faults_of_transform()
        yield from naming_faults(
            without_manifest=self.without_manifest,
            pattern=self.sequence.names,
            pattern_given=self.sequence.pattern is not None,
            key_from=self.sequence.key_from,
            revision=self.revision,
            completion=self.completion,
        )

    def _faults_of_transform(self) -> Iterator[Fault]:
        if self.transform is None:
            if self.payload.columns is not None:
                yield Fault(
                    ("payload", "columns"), "files have other columns than are published only where a transform makes them",
                    "transform: transforms/NAME.sql, or no `payload.columns`", ("payload", "transform"),
                )  # fmt: skip
        elif len(self.versions) > 1:
            yield Fault(
                ("transform",), "a transform beside dated columns is not built in this version",
                "columns without dates, or no transform", ("transform", "columns"),
            )  # fmt: skip

    @property
    def delivered_columns(self) -> Mapping[str, str]:
        """The columns of the files."""
        return self.payload.columns or self.newest_columns

    def _faults_of_mode(self) -> Iterator[Fault]:
        if self.mode is Mode.CHAIN:
            if not self.key:
                yield Fault(
                    ("mode",), "a chain needs `key`: its current rows are the newest of each key", "key: [COLUMN, ...]",
                    ("mode", "key"),
                )  # fmt: skip
            return
        if self.kind is Kind.DELTA:
            yield Fault(("kind",), "only a chain has deltas", "mode: chain, or kind: full", ("mode", "kind"))
        if self.delete_when is not None:
            yield Fault(
                ("delete_when",), "only rows of a chain can remove others", "mode: chain, or no delete_when",
                ("mode", "delete_when"),
            )  # fmt: skip
        if self.sequence.baseline == "full":
            yield Fault(
                ("sequence", "baseline"), "only a chain begins with a full; here each key stands by itself",
                "the first expected key, or first", ("mode", "sequence"),
            )  # fmt: skip

    def _faults_of_columns(self) -> Iterator[Fault]:
        for index, version in enumerate(self.versions):
            place = ("columns",) if isinstance(self.columns, dict) else ("columns", index, "columns")
            spelled: dict[str, str] = {}
            for name in version.columns:
                first = spelled.setdefault(name.lower(), name)
                if first != name:
                    yield Fault(
                        (*place, name), f"the columns `{first}` and `{name}` are equal but for case",
                        "names that differ otherwise", ("columns",),
                    )  # fmt: skip
        yield from self._undeclared(("key",), self.key, "key", self.newest_columns)
        yield from self._undeclared(("controls", "totals"), self.controls.totals, "controls", self.delivered_columns)
        for index, name in enumerate(self.controls.totals):
            columns = self.delivered_columns
            if name in columns and not adds_up_exactly(columns[name]):
                yield Fault(
                    ("controls", "totals", index), f"`{name}` is {columns[name]}, which has no exact total",
                    "an integer or DECIMAL column", ("controls", "columns"),
                )  # fmt: skip

    def _undeclared(
        self, place: tuple[str, ...], names: tuple[str, ...], field: str, columns: Mapping[str, str]
    ) -> Iterator[Fault]:
        counts = Counter(names)
        for index, name in enumerate(names):
            if name not in columns:
                near = get_close_matches(name, columns, 1, 0.6)
                yield Fault(
                    (*place, index), f"`{name}` is no declared column", near[0] if near else "a name from `columns`",
                    (field, "columns"),
                )  # fmt: skip
            elif counts[name] > 1 and names.index(name) != index:
                yield Fault((*place, index), f"`{name}` stands twice", "it once", (field,))

    def _faults_of_expectation(self) -> Iterator[Fault]:
        if self.expect is None:
            return
        sequence = self.sequence.sequence
        if isinstance(sequence, IntegerSequence):
            yield Fault(
                ("expect",), "integer keys have no date from which a due time could be counted", "no `expect`",
                ("expect", "sequence"),
            )  # fmt: skip
        elif isinstance(parse_due(self.expect.due), DueOnDay) and sequence.cadence not in LONG_CADENCES:
            yield Fault(
                ("expect", "due"), f"`day N` is for keys of a month or longer; these are {sequence.cadence}",
                '"04:00" or "+1d 01:00"', ("expect", "sequence"),
            )  # fmt: skip
