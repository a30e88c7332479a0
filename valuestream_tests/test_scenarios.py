"""Scenarios as given, when, then, each over a whole deployment; and that every rule of manifests and of the ledger has its test."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_tests.publication.test_recompute import declare, recompute, retyped, stale
from valuestream_tests.publication.test_vacuum import SHORT, aged, later
from valuestream_tests.rules import WANTED, named, table
from valuestream_tests.world import World

ROWS = [(1, "1.00", "U"), (2, "2.50", "U"), (3, "3.00", "U")]


def test_every_rule_of_manifests_and_ledger_and_every_scenario_of_theirs_is_named_by_a_test() -> None:
    found = table()
    assert [rule for rule in WANTED if rule not in found] == []


def test_a_range_of_rules_names_each_of_them() -> None:
    assert list(named("M3, L14-L16 and S1; not MX5 or L100")) == ["M3", "L14", "L15", "L16", "S1"]


def test_one_wrong_byte_in_one_of_three_files_applies_nothing_and_names_both_digests(tmp_path: Path) -> None:
    """S2, M3, M5"""
    world = World(tmp_path)
    orders = world.producer()
    three = orders.make(1, ROWS, parts=3)
    wrong = three.with_file(three.files["1-data-r1-2.csv"].replace(b"2.50", b"2.51"), "1-data-r1-2.csv")
    orders.hand_over(wrong)
    world.apply()
    (finding,) = world.last(Verdict.REJECTED).findings
    assert (finding["code"], finding["file"]) == ("checksum_mismatch", "1-data-r1-2.csv")
    assert len(str(finding["expected"])) == len(str(finding["found"])) == 64 and finding["expected"] != finding["found"]
    assert world.rows() == [] and world.published() == frozenset()


def test_files_without_their_manifest_are_no_evidence_of_anything(tmp_path: Path) -> None:
    """M2, M4: a listing in which files stand, many or few, completes nothing; only the manifest, last, does."""
    world = World(tmp_path)
    orders = world.producer()
    three = orders.make(1, ROWS, parts=3)
    for path, data in three.files.items():
        orders.put(path, data)
        assert world.apply() == []
        assert world.receipts() == [] and world.status().status == "idle"
    orders.put(three.manifest_path, three.manifest)
    world.apply()
    assert len(world.rows()) == 3


@pytest.mark.parametrize("seed", range(3))
def test_the_slice_is_the_unit_and_the_same_whatever_the_order_in_which_files_came(seed: int, tmp_path: Path) -> None:
    """L1, L2: one publication, digest and set of rows for a key, however its files came; L3: with digest and hash on record."""
    world = World(tmp_path)
    orders = world.producer()
    three = orders.make(1, ROWS, parts=3)
    names = list(three.files)
    random.Random(seed).shuffle(names)
    for name in names:
        orders.put(name, three.files[name])
    orders.put(three.manifest_path, three.manifest)
    world.apply()
    ((digest, computed),) = world.query("SELECT digest, computation_hash FROM valuestream.publications")
    feed = world.opened.feed("acme/orders")
    assert computed == feed.computation_hash
    assert digest == world.ledger("SELECT digest FROM deliveries")[0][0]
    other = World(tmp_path / "other")
    other.producer().hand_over(other.producer().make(1, ROWS, parts=3))
    other.apply()
    assert other.query("SELECT digest, computation_hash FROM valuestream.publications") == [(digest, computed)]
    assert other.query("SELECT key, kind, state FROM valuestream.slices") == [("1", "full", "succeeded")]


def test_forced_work_leaves_the_old_file_until_vacuum(tmp_path: Path) -> None:
    """S12, S13: force deletes nothing; vacuum takes exactly what its rehearsal listed, and only what nobody sees."""
    world = World(tmp_path, settings=SHORT)
    world.producer().deliver(1, ROWS)
    world.apply()
    (old,) = world.published()
    assert recompute(world, force=True).keys == 1
    assert old in world.published() and old not in world.named_now()
    later(aged(world))
    rehearsed = world.opened.vacuum(carry_out=False)
    done = world.opened.vacuum(carry_out=True)
    assert rehearsed.removals == done.removals and old not in world.published()
    assert {one.path.rpartition("/")[2] for one in done.removals} == {old.rpartition("/")[2]}
    assert len(world.rows()) == 3


def test_a_configuration_that_comes_back_is_computed_under_it_again(tmp_path: Path) -> None:
    """S30, L24: A, B, then A again."""
    world = World(tmp_path)
    world.producer().deliver(1, ROWS)
    world.apply()
    first = world.named_now()
    a = (tmp_path / "feeds/orders.yaml").read_text()
    for declared in (retyped(a), a):
        declare(world, declared)
        assert len(stale(world).deliveries) == 1
        assert recompute(world).keys == 1
    assert not first & world.named_now() and len(world.published()) == 3
    assert world.amounts() == {1: "1.00", 2: "2.50", 3: "3.00"}
