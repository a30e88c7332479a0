"""The computation hash changes with what decides the output and with nothing else (L4, L20, L29)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.rows import Column, CsvFormat, RowContract, Transform
from valuestream_dagster.feeds import computation
from valuestream_dagster.feeds.computation import computation_hash
from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_dagster.feeds.feed import Feed, to_feed
from valuestream_tests.feeds.feed_texts import CHAIN, DEPLOYMENT

_BASE: dict[str, Any] = yaml.safe_load(CHAIN)

# Every field of the feed file, with another value for it; a field that is in neither table fails a test below.
_DECISIVE: dict[str, Any] = {
    "payload.delimiter": "|",
    "payload.quote": '"',
    "payload.escape": "\\",
    "payload.header": False,
    "payload.encoding": "utf-16",
    "payload.null": ["NA"],
    "payload.compression": "none",
    "columns": {**_BASE["columns"], "amount": "DECIMAL(18,3)"},
    "key": ["order_id", "placed_on"],
    "delete_when": "op = 'X'",
}
_OTHER: dict[str, Any] = {
    "source": "other",
    "dataset": "other",
    "description": "other",
    "owners": ["team:other"],
    "tags": {"a": "b"},
    "kind": "full",
    "landing": "elsewhere",
    "include": ["**/*.json"],
    "exclude": [],
    "completion": "manifest",
    "revision": "manifest",
    "sequence.from": "manifest",
    "sequence.pattern": "{date:YYYYMMDD}.manifest.json",
    "sequence.cadence": "weekly",
    "sequence.timezone": "UTC",
    "sequence.continuity": "none",
    "sequence.baseline": "first",
    "expect": {"due": "+1d 01:00", "grace_minutes": 1},
    "paused": False,
    "alerts": [],
    "controls.totals": [],
    "controls.independent": {"file": "controls.csv"},
    "policy.allow_empty": False,
    "policy.max_shrink": 0.5,
    "policy.recompute": "auto",
    "policy.extra_files": "report",
    "policy.conflict": "stop",
}
_ONE_VALUE_ONLY = {"payload.format"}
# Changing these is a change of other fields too: a reset, or a contract of its own.
_WITH_OTHERS = {"manifest", "mode", "sequence.kind", "sequence.step"}

# Decisive too, and only together: the text of the transform, and the columns that it is given.
_BY_TRANSFORM = {"transform", "payload.columns"}


def _feed(changes: dict[str, Any]) -> Feed:
    raw = yaml.safe_load(CHAIN)
    for place, value in changes.items():
        *outer, name = place.split(".")
        target = raw
        for part in outer:
            target = target[part]
        target[name] = value
    return to_feed(FeedDeclaration.model_validate(raw), deployment=DEPLOYMENT, file="feeds/x.yaml")


@pytest.mark.parametrize("place", sorted(_DECISIVE))
def test_changing_what_decides_the_output_changes_the_hash(place: str) -> None:
    assert _feed({place: _DECISIVE[place]}).computation_hash != _feed({}).computation_hash


@pytest.mark.parametrize("place", sorted(_OTHER))
def test_changing_anything_else_leaves_the_hash_alone(place: str) -> None:
    assert _feed({place: _OTHER[place]}).computation_hash == _feed({}).computation_hash


@given(st.sets(st.sampled_from(sorted(_DECISIVE))), st.sets(st.sampled_from(sorted(_OTHER))))
def test_the_hash_tells_two_declarations_apart_exactly_by_what_decides(decisive: set[str], other: set[str]) -> None:
    changed = _feed({place: (_DECISIVE | _OTHER)[place] for place in decisive | other})
    alone = _feed({place: _DECISIVE[place] for place in decisive})
    assert changed.computation_hash == alone.computation_hash
    assert (changed.computation_hash == _feed({}).computation_hash) is (not decisive)


def test_where_deliveries_are_known_from_decides_nothing_of_their_rows() -> None:
    """L20: a feed that goes on without manifests recomputes nothing."""
    by_name = {
        "manifest": "none", "include": ["*.csv"], "completion": {"kind": "quiet", "seconds": 60}, "revision": "name",
        "sequence.from": "name", "sequence.pattern": "{date:YYYYMMDD}-r{revision}.csv",
    }  # fmt: skip
    assert _feed(by_name).computation_hash == _feed({}).computation_hash


def test_every_field_of_the_feed_file_is_on_one_side_or_the_other() -> None:
    known = {place.split(".")[0] for place in (*_DECISIVE, *_OTHER, *_ONE_VALUE_ONLY, *_WITH_OTHERS, *_BY_TRANSFORM)}
    assert known == set(FeedDeclaration.model_fields)
    for outer in ("sequence", "payload", "controls", "policy"):
        model = FeedDeclaration.model_fields[outer].annotation
        names = {info.alias or name for name, info in model.model_fields.items()}  # type: ignore[union-attr]
        places = (*_DECISIVE, *_OTHER, *_ONE_VALUE_ONLY, *_WITH_OTHERS, *_BY_TRANSFORM)
        assert names == {place.split(".")[1] for place in places if place.startswith(f"{outer}.")}


def test_a_transforms_text_and_what_it_is_given_are_in_the_hash_and_without_one_nothing_is() -> None:
    """L4: and hashes of feeds without a transform are those that they were before there were any."""
    contract = RowContract((Column("a", "DATE"),))
    assert computation_hash(replace(contract, delivered=(Column("b", "DATE"),))) == computation_hash(contract)
    by = replace(contract, transform=Transform("t.sql", "SELECT 1", is_sql=True), delivered=(Column("b", "DATE"),))
    others = [
        replace(by, transform=Transform("t.sql", "SELECT 2", is_sql=True)),
        replace(by, delivered=(Column("b", "TIMESTAMP"),)),
        contract,
    ]
    assert len({computation_hash(one) for one in (by, *others)}) == 4


def test_every_field_of_the_dialect_is_in_the_hash() -> None:
    contract = RowContract((Column("a", "DATE"),))
    other = CsvFormat(
        delimiter=";", quote="'", escape="'", header=False, encoding="utf-16", null=("x",), compression="gzip"
    )
    for field in fields(CsvFormat):
        changed = replace(contract.csv, **{field.name: getattr(other, field.name)})
        assert computation_hash(replace(contract, csv=changed)) != computation_hash(contract), field.name


def test_the_order_of_columns_decides_only_where_files_have_no_header() -> None:
    columns = (Column("a", "DATE"), Column("b", "DATE"))
    headed = RowContract(columns)
    assert computation_hash(headed) == computation_hash(replace(headed, columns=columns[::-1]))
    bare = RowContract(columns, CsvFormat(header=False))
    assert computation_hash(bare) != computation_hash(replace(bare, columns=columns[::-1]))


def test_two_spellings_of_one_type_are_one_computation() -> None:
    spelled = {**_BASE["columns"], "order_id": "BIGINT", "op": "VARCHAR"}
    assert _feed({"columns": spelled}).computation_hash == _feed({}).computation_hash


def test_the_hash_is_pinned() -> None:
    # If this fails without FORMAT_VERSION being raised, every published slice of every deployment becomes stale.
    assert computation.FORMAT_VERSION == 1
    assert computation_hash(RowContract((Column("order_id", "BIGINT"),))) == (
        "b7851db879781af0c3130b82751cc8c20b8848fbc1f2f117723cbb7051d11214"
    )
