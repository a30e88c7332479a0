"""Complete or waiting, found or wrong: from one listing alone (M2, M3, M5, S1; cases 02, 30, 31, 34)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.manifest import Entry, Kind, Manifest
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.intake.completion import Listing, Resolved, resolve
from valuestream_dagster.stores.base import ObjectStat

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
JUST_NOW = NOW - timedelta(seconds=1)
NFC, NFD = "caf\u00e9.csv", "cafe\u0301.csv"


def stat(path: str, size: int = 20, modified: datetime = LONG_AGO, **fields: Any) -> ObjectStat:
    return ObjectStat(path, size, "stamp", int(modified.timestamp() * 1e9), **fields)


def manifest(*entries: Entry) -> Manifest:
    return Manifest("acme", "orders", Kind.FULL, SequenceKey("2026-11-30", 739950), 1, entries)


def look(
    stats: list[ObjectStat], *entries: Entry, at: str = "m.json", manifests: tuple[str, ...] = ()
) -> Resolved | Incomplete | Invalid:
    listing = Listing([stat(at), *stats], manifests)
    return resolve(manifest(*entries), listing[at], listing, now=NOW, settle_seconds=60)


def codes(outcome: Resolved | Incomplete | Invalid) -> list[str]:
    assert isinstance(outcome, Invalid), outcome
    return [finding.code for finding in outcome.findings]


ABC = (Entry("a.csv", 20), Entry("b.csv", 20), Entry("c.csv", 20))


@pytest.mark.parametrize("present", [(), ("a.csv",), ("a.csv", "c.csv")])
def test_a_delivery_waits_and_names_each_missing_file(present: tuple[str, ...]) -> None:
    missing = tuple(entry.path for entry in ABC if entry.path not in present)
    assert look([stat(path) for path in present], *ABC) == Incomplete(missing)


def test_a_delivery_is_complete_when_its_last_file_is_there_without_the_manifest_being_sent_again() -> None:
    outcome = look([stat(entry.path) for entry in ABC], *ABC)
    assert isinstance(outcome, Resolved)
    assert [(entry.path, found.path) for entry, found in outcome.entries] == [(e.path, e.path) for e in ABC]
    assert outcome.warnings == ()


def test_paths_are_relative_to_the_manifests_folder() -> None:
    outcome = look([stat("in/x/data/a.csv"), stat("a.csv")], Entry("data/a.csv"), at="in/x/m.json")
    assert isinstance(outcome, Resolved)
    assert outcome.entries[0][1].path == "in/x/data/a.csv"
    assert look([stat("a.csv")], Entry("a.csv"), at="in/m.json") == Incomplete(("a.csv",))


def test_an_empty_delivery_is_complete_with_its_manifest() -> None:
    assert look([]) == Resolved((), source="acme")


@pytest.mark.parametrize(
    ("size", "modified", "stable", "expected"),
    [
        (10, JUST_NOW, False, "waiting"),
        (0, JUST_NOW, False, "waiting"),
        (10, NOW + timedelta(hours=9), False, "waiting"),
        (10, LONG_AGO, False, "size_mismatch"),
        (10, NOW - timedelta(seconds=60), False, "size_mismatch"),
        (10, JUST_NOW, True, "size_mismatch"),
        (21, JUST_NOW, False, "size_mismatch"),
    ],
)
def test_a_short_file_is_arriving_while_it_is_fresh_and_wrong_afterwards(
    size: int, modified: datetime, stable: bool, expected: str
) -> None:
    outcome = look([stat("a.csv", size, modified, stable=stable)], Entry("a.csv", 20))
    if expected == "waiting":
        assert outcome == Incomplete((f"a.csv ({size} of 20 bytes)",))
        return
    assert codes(outcome) == ["size_mismatch"]
    assert isinstance(outcome, Invalid)
    (finding,) = outcome.findings
    assert (finding.file, finding.expected, finding.found) == ("a.csv", "20", str(size))
    assert "ask acme for a resend" in finding.next_step


def test_a_file_of_undeclared_size_is_taken_as_it_is() -> None:
    assert isinstance(look([stat("a.csv", 3)], Entry("a.csv")), Resolved)


@pytest.mark.parametrize(("declared", "there"), [(NFC, NFD), (NFD, NFC)])
def test_another_unicode_form_of_the_name_matches_with_a_warning(declared: str, there: str) -> None:
    outcome = look([stat(there)], Entry(declared))
    assert isinstance(outcome, Resolved)
    assert outcome.entries[0][1].path == there
    assert len(outcome.warnings) == 1


@pytest.mark.parametrize("declared", [NFC, NFD])
def test_two_files_told_apart_by_unicode_form_alone_are_never_chosen_between(declared: str) -> None:
    assert codes(look([stat(NFC), stat(NFD)], Entry(declared))) == ["name_ambiguous"]


def test_a_name_in_another_case_is_missing_and_the_message_points_to_it() -> None:
    assert look([stat("in/rates.csv")], Entry("Rates.csv"), at="in/m.json") == Incomplete(
        ("Rates.csv (there is rates.csv)",)
    )


@pytest.mark.parametrize(
    ("there", "path", "code"),
    [
        (stat("a.csv", is_link=True), "a.csv", "symlink_refused"),
        (stat("d", is_link=True), "d/a.csv", "symlink_refused"),
        (stat("d", is_link=True), "d/e/a.csv", "symlink_refused"),
        (stat("a.csv", is_special=True), "a.csv", "special_file_refused"),
    ],
)
def test_what_is_no_plain_file_is_refused_even_when_its_size_agrees(there: ObjectStat, path: str, code: str) -> None:
    assert codes(look([there], Entry(path, 20))) == [code]


def test_an_object_version_other_than_the_manifests_is_refused() -> None:
    listed = [stat("a.csv", version="v2", stable=True)]
    assert codes(look(listed, Entry("a.csv", 20, version_id="v1"))) == ["version_mismatch"]
    assert isinstance(look(listed, Entry("a.csv", 20, version_id="v2")), Resolved)


def test_every_fault_is_told_and_a_fault_outweighs_a_missing_file() -> None:
    stats = [stat("a.csv", 21), stat("b.csv", is_link=True)]
    assert codes(look(stats, *ABC)) == ["size_mismatch", "symlink_refused"]


@pytest.mark.parametrize(
    ("at", "manifests", "extra"),
    [
        ("in/1/m.json", ("in/1/m.json",), ("in/1/notes.txt", "in/1/sub/x.csv")),
        ("in/1/m.json", ("in/1/m.json", "in/1/sub/m.json"), ()),
        ("in/1/m.json", ("in/1/m.json", "in/2/m.json"), ("in/1/notes.txt", "in/1/sub/x.csv")),
        ("in/1/m.json", (), ()),
    ],
)
def test_extra_files_are_reported_where_the_folder_is_the_deliverys_alone(
    at: str, manifests: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    stats = [stat("in/1/a.csv"), stat("in/1/notes.txt"), stat("in/1/sub/x.csv"), stat("in/2/y.csv")]
    outcome = look(stats, Entry("a.csv"), at=at, manifests=manifests)
    assert isinstance(outcome, Resolved)
    assert outcome.extra == extra


def test_a_plain_mapping_serves_as_well_as_a_listing() -> None:
    by_path = {"m.json": stat("m.json"), "a.csv": stat("a.csv")}
    outcome = resolve(manifest(Entry("a.csv")), by_path["m.json"], by_path, now=NOW, settle_seconds=60)
    assert isinstance(outcome, Resolved)
