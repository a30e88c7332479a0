"""A declaration as core values: defaults filled in, places absolute, and a shape that outlives the file."""

from __future__ import annotations

import json
from datetime import time

import pytest

from valuestream_dagster.core.calendar import DueAfter, Expectation
from valuestream_dagster.core.continuity import Baseline, Mode, PredecessorRule
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import Column, CsvFormat, RowContract
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, SequenceKey
from valuestream_dagster.errors import Broken
from valuestream_dagster.feeds.feed import Shape, shape_from_json, shape_json
from valuestream_tests.feeds.feed_texts import CHAIN, SMALLEST, feed


def test_the_smallest_feed_has_every_default() -> None:
    smallest = feed(SMALLEST)
    assert smallest.name == "acme/orders"
    assert smallest.mode is Mode.PERIODS
    assert smallest.default_kind is Kind.FULL
    assert smallest.landing == "/srv/deployment/landing/acme/orders"
    assert smallest.rule == PredecessorRule(DatedSequence(Cadence.DAILY), Mode.PERIODS, False, None)
    assert smallest.contract == RowContract((Column("order_id", "BIGINT"), Column("amount", "DECIMAL(18,2)")))
    assert smallest.expectation is None
    assert (smallest.allow_empty, smallest.extra_files, smallest.rule.conflict_stops) == (False, "report", True)
    assert (smallest.paused, smallest.alerts, smallest.owners, smallest.tags) == (False, (), (), ())
    assert smallest.file == "feeds/x.yaml"


def test_a_full_declaration_arrives_whole() -> None:
    chain = feed(CHAIN)
    assert chain.mode is Mode.CHAIN
    assert chain.default_kind is Kind.DELTA
    assert chain.landing == "s3://drops/acme/orders"
    assert (chain.include, chain.exclude) == (("*.manifest.json",), ("test-*",))
    assert chain.rule == PredecessorRule(
        DatedSequence(Cadence.DAILY), Mode.CHAIN, True, Baseline("full"), conflict_stops=False
    )
    assert chain.contract == RowContract(
        columns=(
            Column("order_id", "BIGINT"),
            Column("amount", "DECIMAL(18,2)"),
            Column("placed_on", "DATE"),
            Column("op", "VARCHAR"),
        ),
        csv=CsvFormat(delimiter=";", quote="'", escape="'", encoding="latin-1", null=("NA", "")),
        key=("order_id",),
        totals=("amount",),
        delete_when="op = 'D'",
    )
    assert chain.expectation == Expectation(DueAfter(0, time(4)), 240, "Europe/Brussels")
    assert (chain.allow_empty, chain.extra_files, chain.rule.conflict_stops) == (True, "reject", False)
    assert (chain.paused, chain.alerts) == (True, ("json://localhost:8080/hook",))
    assert (chain.owners, chain.tags) == (("team:shop", "ann@example.org"), (("domain", "sales"),))


def test_the_default_selects_manifests_at_any_depth() -> None:
    assert feed(SMALLEST).include == ("**/*.manifest.json",)


@pytest.mark.parametrize(
    ("declared", "absolute"),
    [
        ("landing/x/../y/", "/srv/deployment/landing/y"),
        ("../elsewhere", "/srv/elsewhere"),
        ("/data/drop", "/data/drop"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b//", "s3://bucket/a/b"),
    ],
)
def test_a_landing_place_is_absolute(declared: str, absolute: str) -> None:
    assert feed(SMALLEST.replace("landing/acme/orders", declared)).landing == absolute


def test_a_baseline_is_the_sequences_key() -> None:
    text = SMALLEST + "sequence: {kind: integer, step: 10, continuity: required, baseline: '0270'}\n"
    assert feed(text).rule == PredecessorRule(
        IntegerSequence(10), Mode.PERIODS, True, Baseline("key", SequenceKey("270", 270))
    )
    assert feed(SMALLEST + "sequence: {cadence: yearly, baseline: 2026}\n").rule.baseline == Baseline(
        "key", SequenceKey("2026", 2026)
    )
    assert feed(SMALLEST + "sequence: {baseline: first}\n").rule.baseline == Baseline("first")


def test_the_shape_comes_back_from_its_text_and_holds_no_place() -> None:
    chain = feed(CHAIN)
    text = shape_json(chain)
    assert shape_from_json(text) == Shape("acme", "orders", Mode.CHAIN, chain.contract.columns, ("order_id",))
    assert "drops" not in text and "json://" not in text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', '{"version": 1, "source": "a"}'])
def test_a_shape_that_is_not_ours_is_our_own_defect(text: str) -> None:
    with pytest.raises(Broken):
        shape_from_json(text)
