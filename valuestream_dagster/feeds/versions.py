"""Dated columns: what is valid from one key on, how older rows look in the newest columns, and what such a declaration must keep.

A version is written in the names of its own deliveries. Rows of earlier ones are shown under the newest names: a renamed column is
followed back, a new one shows its default, and a type may only become one that holds every value of the type before (ruling 12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, WithJsonSchema

from valuestream_dagster.core.sequence import KeyProblem, SequenceKey
from valuestream_dagster.core.sequence import Sequence as KeySequence
from valuestream_dagster.feeds.closed_model import ClosedModel, Fault
from valuestream_dagster.feeds.column_types import holds_every
from valuestream_dagster.feeds.field_values import ColumnName, ColumnType

Scalar = str | bool | int | float


COLUMNS_LIMIT = 2000
Columns = Annotated[dict[ColumnName, ColumnType], Field(min_length=1, max_length=COLUMNS_LIMIT)]


def key_text(value: Any) -> Any:
    """An integer key may be written without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Version(ClosedModel):
    """The columns of deliveries from one key on."""

    since: Annotated[str, BeforeValidator(key_text), WithJsonSchema({"type": ["string", "integer"]})] | None = Field(
        default=None, description="The first key that has these columns; the first version has none."
    )
    columns: Columns = Field(description="DuckDB type of each column by name.")
    renamed: dict[ColumnName, ColumnName] = Field(default={}, description="New name of a column, and its name before.")
    defaults: dict[ColumnName, StrictStr | StrictBool | StrictInt | StrictFloat] = Field(
        default={}, description="What rows before show in a column that is new; NULL where it is left out."
    )

    @classmethod
    def stand_ins(cls) -> Mapping[str, object]:
        """Values that break no rule by themselves."""
        return {"columns": {"c": "VARCHAR"}}


@dataclass(frozen=True, slots=True)
class Shown:
    """How older rows fill one of the newest columns: from ``old``, or with ``default``, or (neither) with NULL."""

    name: str
    old: str | None = None
    default: str | None = None


def shown_of(versions: Sequence[Version], index: int) -> tuple[Shown, ...]:
    """How rows of the version at ``index`` fill the newest columns."""
    shown: list[Shown] = []
    for newest in versions[-1].columns:
        old, default = name_in(versions, index, newest)
        shown.append(Shown(newest, old, default))
    return tuple(shown)


def name_in(versions: Sequence[Version], index: int, newest: str) -> tuple[str | None, str | None]:
    """What one of the newest columns was called in an earlier version, or the default that its rows show instead."""
    name = newest
    for version, before in zip(reversed(versions[index + 1 :]), reversed(versions[index:-1]), strict=True):
        old = version.renamed.get(name, name)
        if old not in before.columns:
            return None, as_text(version.defaults[name]) if name in version.defaults else None
        name = old
    return name, None


def as_text(value: Scalar) -> str:
    """A default as the text that is cast to the column's type."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def version_faults(versions: Sequence[Version], sequence: KeySequence, key: Iterable[str]) -> Iterator[Fault]:
    """What versions of columns do wrong together."""
    places = list(_since_faults(versions, sequence))
    yield from places
    for index, (before, version) in enumerate(pairwise(versions), 1):
        yield from _step_faults(index, before, version)
    if not places:
        yield from _reach_faults(versions, key)


def _since_faults(versions: Sequence[Version], sequence: KeySequence) -> Iterator[Fault]:
    last: SequenceKey | None = None
    for index, version in enumerate(versions):
        place = ("columns", index, "since")
        if index == 0:
            if version.since is not None:
                yield Fault(place, "the first version holds from the beginning", "no `since`", ("columns",))
            continue
        if version.since is None:
            yield Fault(("columns", index), "only the first version goes without `since`", "since: KEY", ("columns",))
            continue
        found = sequence.parse(version.since)
        if isinstance(found, KeyProblem):
            yield Fault(place, f"`since` is no key of this feed: {found.detail}", found.expected, ("columns", "sequence"))
            continue
        if last is not None and found.ordinal <= last.ordinal:
            yield Fault(place, f"`since` {found} does not come after {last}", "versions in the order of their keys", ("columns",))
        last = found


def _step_faults(index: int, before: Version, version: Version) -> Iterator[Fault]:
    """One version beside the one before it: names that are there, and types that hold what was."""
    for new, old in version.renamed.items():
        place = ("columns", index, "renamed", new)
        if new not in version.columns:
            yield Fault(place, f"`{new}` is no column of this version", "NEW: OLD", ("columns",))
        elif old not in before.columns:
            yield Fault(place, f"`{old}` is no column of the version before", "NEW: OLD", ("columns",))
        elif new in before.columns:
            yield Fault(place, f"`{new}` is a column of the version before already", "another name", ("columns",))
    for name, value in version.defaults.items():
        place = ("columns", index, "defaults", name)
        if name not in version.columns or name in before.columns or name in version.renamed:
            yield Fault(place, f"`{name}` is not new in this version", "a default for a new column", ("columns",))
        elif not fits(as_text(value), version.columns[name]):
            yield Fault(place, f"`{value}` is no {version.columns[name]}", f"a value of {version.columns[name]}", ("columns",))
    for name, type_ in version.columns.items():
        type_before = before.columns.get(version.renamed.get(name, name))
        if type_before is not None and not holds_every(type_before, type_):
            yield Fault(
                ("columns", index, "columns", name),
                f"`{name}` is {type_} from here on, which cannot show every {type_before} of the keys before",
                f"{type_before}, VARCHAR, or a column of another name", ("columns",),
            )  # fmt: skip


def _reach_faults(versions: Sequence[Version], key: Iterable[str]) -> Iterator[Fault]:
    for place, name in enumerate(key):
        for index in range(len(versions) - 1):
            if name in versions[-1].columns and name_in(versions, index, name)[0] is None:
                yield Fault(
                    ("key", place), f"`{name}` names a row, and is not in the first version of `columns`",
                    "a column that every version has", ("key", "columns"),
                )  # fmt: skip
                break


def fits(text: str, type_: str) -> bool:
    """Whether a default is a value of a (canonical) column type."""
    kind = type_.split("(", maxsplit=1)[0]
    try:
        if kind == "VARCHAR":
            return True
        if kind == "BOOLEAN":
            return text in {"true", "false"}
        if kind == "DECIMAL":
            return _is_decimal(text, type_)
        if kind.removeprefix("U") in _BITS:
            return _is_whole(int(text), kind)
        _PARSERS[kind](text)
    except (ValueError, InvalidOperation):
        return False
    return True


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_PARSERS: Mapping[str, Callable[[str], object]] = {
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "TIMESTAMP WITH TIME ZONE": datetime.fromisoformat,
    "UUID": UUID,
    "FLOAT": float,
    "DOUBLE": float,
}


def _is_decimal(text: str, type_: str) -> bool:
    digits, scale = (int(part) for part in type_.removeprefix("DECIMAL(").removesuffix(")").split(","))
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale and abs(value) < Decimal(10) ** (digits - scale)


def _is_whole(value: int, kind: str) -> bool:
    bits = _BITS[kind.removeprefix("U")]
    lowest, past = (0, 1 << bits) if kind.startswith("U") else (-(1 << (bits - 1)), 1 << (bits - 1))
    return lowest <= value < past
