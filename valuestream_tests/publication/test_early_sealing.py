"""Early sealing: what is complete is sealed and checked when it arrives; from then on the landing place does not matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.intake.records import read_record, record_names
from valuestream_tests.producer import csv_text
from valuestream_tests.world import CHAIN, PERIODS, REQUIRED, World

ONE, TWO, THREE = ([(number, f"{number}.00", "U")] for number in (1, 2, 3))


def test_a_delivery_that_waits_for_its_predecessor_is_sealed_and_applied_though_the_producer_deleted_it(tmp_path: Path) -> None:
    """S3, C8: overwritten or deleted afterwards, it is still there."""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    orders.deliver(3, THREE)
    world.apply()
    assert world.verdicts()[-1] == ("3", 1, "waiting", "sequence_gap")
    for path in world.landing().glob("3-*"):
        path.unlink()
    assert world.status().status == "blocked" and world.status().missing == ("2",)

    orders.deliver(2, TWO)
    world.apply()

    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"}
    assert world.verdicts()[-1] == ("3", 1, "accepted", "accepted") and world.status().healthy


def test_what_overwrites_a_sealed_delivery_that_waits_is_a_conflict_and_nothing_is_lost(tmp_path: Path) -> None:
    """S6, M15: both contents are kept, and neither is applied before a person says which."""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    three = orders.deliver(3, THREE)
    world.apply()
    orders.hand_over(orders.make(3, [(3, "333.00", "U")], name=three.name))
    world.apply()
    orders.deliver(2, TWO)
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00"}
    assert world.status().conflicts == ("3",) and world.status().position == "2"
    assert len(world.ledger("FROM deliveries WHERE key = '3'")) == 2


def test_a_delivery_that_is_wrong_is_told_before_its_turn_comes(tmp_path: Path) -> None:
    """The producer hears of it on the day, not when the gap is closed."""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    orders.hand_over(orders.make(3, THREE).with_entry(rows=7))
    world.apply()
    assert world.last(Verdict.REJECTED).code == "row_count_mismatch"


def test_a_resend_of_what_is_sealed_and_waits_is_a_duplicate(tmp_path: Path) -> None:
    """M14"""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    orders.deliver(3, THREE)
    world.apply()
    orders.deliver(3, THREE, name="again")
    world.apply()
    assert world.verdicts()[-1] == ("3", 1, "duplicate", "duplicate")
    orders.deliver(2, TWO)
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1} and world.status().healthy
    assert [verdict for key, _, verdict, _ in world.verdicts() if key == "3"] == ["waiting", "duplicate", "accepted"]


def test_sealing_early_again_writes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    orders.deliver(3, THREE)
    world.apply()
    tables = ("receipts", "slice_events", "objects_seen", "deliveries", "runs")
    before = [world.ledger(f"SELECT count(*) FROM {table}") for table in tables]
    world.apply()
    world.apply()
    assert [world.ledger(f"SELECT count(*) FROM {table}") for table in tables] == before


def test_deltas_before_the_first_full_are_kept_until_it_comes(tmp_path: Path) -> None:
    """C15: a chain whose full is late loses none of the deltas that came before it."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    orders.deliver(2, TWO)
    orders.deliver(3, THREE)
    world.apply()
    for path in world.landing().iterdir():
        path.unlink()
    orders.deliver(1, ONE, kind="full")
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().position == "3"


def test_every_sealed_delivery_has_a_record_that_says_what_it_is(tmp_path: Path) -> None:
    """Ruling 16: what the store holds can be told from the store alone."""
    world = World(tmp_path)
    orders = world.producer()
    delivery = orders.deliver(1, ONE)
    world.apply()
    store = world.opened.store
    (name,) = record_names(store, "acme", "orders")
    record = read_record(store, name)
    assert record is not None
    assert (record.identity.key.text, record.identity.revision, record.manifest) == ("1", 1, delivery.manifest_path)
    assert [file.path for file in record.files] == list(delivery.files)


def test_a_sealed_delivery_whose_bytes_are_gone_fails_its_slice_and_says_so(tmp_path: Path) -> None:
    """Our own fault, not the producer's: no rejection, and how to go on."""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, ONE)
    three = orders.deliver(3, THREE)
    world.apply()
    for path in world.landing().glob("3-*"):
        path.unlink()
    (sealed,) = world.ledger("SELECT DISTINCT digest FROM deliveries WHERE key = '3'")
    record = next(json.loads(p.read_text()) for p in (tmp_path / "state/store/sealed/deliveries").rglob("3-*.json"))
    assert record["digest"] == sealed[0]
    sha = record["files"][0]["sha256"]
    (tmp_path / f"state/store/sealed/{sha[:2]}/{sha}").unlink()
    orders.deliver(2, TWO)
    outcomes = world.apply()
    failed = [outcome for key in outcomes for outcome in key.outcomes if outcome.failed]
    assert [outcome.key.text for outcome in failed] == ["3"] and "gone or changed" in failed[0].told.detail
    assert world.by_key() == {"1": 1, "2": 1} and world.status().failed == ("3",)
    orders.hand_over(three)
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1} and world.status().healthy


def test_rejected_bytes_are_kept_with_the_reason(tmp_path: Path) -> None:
    """M7: quarantine keeps bytes and reasons, out of readers' sight."""
    world = World(tmp_path)
    orders = world.producer()
    bad = orders.hand_over(orders.make(1, ONE).with_file(csv_text([(1, "9.00", "U")])))
    world.apply()
    (evidence,) = (tmp_path / "state/store/quarantine/acme/orders").glob("*.json")
    told = json.loads(evidence.read_text())
    assert (told["verdict"], told["code"], told["manifest"]["path"]) == ("rejected", "checksum_mismatch", bad.manifest_path)
    kept = tmp_path / "state/store" / told["files"][0]["kept_as"]
    assert kept.read_bytes() == csv_text([(1, "9.00", "U")])


# --- held ------------------------------------------------------------------------------------------------------------

SHRINK = PERIODS + "policy: {max_shrink: 0.5}\n"
TEN = [(number, "1.00", "U") for number in range(10)]


@pytest.mark.parametrize(("rows", "held"), [(10, False), (5, False), (4, True)])
def test_a_full_that_lost_more_rows_than_allowed_is_held(rows: int, held: bool, tmp_path: Path) -> None:
    """Ruling 13: against the previous key; exactly the allowed part may go."""
    world = World(tmp_path, SHRINK)
    orders = world.producer()
    orders.deliver(1, TEN)
    world.apply()
    orders.deliver(2, [(100 + row, "1.00", "U") for row in range(rows)])
    world.apply()
    assert world.status().held == (("2",) if held else ())
    assert world.by_key() == ({"1": 1} if held else {"1": 1, "2": 1})
    assert world.status().healthy is not held


def test_a_correction_that_shrinks_is_held_against_its_own_earlier_revision(tmp_path: Path) -> None:
    """Ruling 13: what is applied stays until a person lets it go."""
    world = World(tmp_path, SHRINK)
    orders = world.producer()
    orders.deliver(1, TEN)
    orders.deliver(2, [(100 + row, "1.00", "U") for row in range(8)])
    world.apply()
    orders.deliver(2, [(100, "1.00", "U")], revision=2)
    world.apply()
    assert world.verdicts()[-1] == ("2", 2, "held", "shrunk") and world.by_key()["2"] == 1
    assert world.status().held == ("2",)


def test_a_higher_revision_settles_what_is_held(tmp_path: Path) -> None:
    world = World(tmp_path, SHRINK)
    orders = world.producer()
    orders.deliver(1, TEN)
    world.apply()
    orders.deliver(2, [(100, "1.00", "U")])
    world.apply()
    orders.deliver(2, [(100 + row, "1.00", "U") for row in range(9)], revision=2)
    world.apply()
    assert world.by_key() == {"1": 1, "2": 2} and world.status().healthy and world.status().held == ()


def test_in_a_chain_the_keys_after_a_held_full_go_on_from_the_old_one(tmp_path: Path) -> None:
    """A full never stops the deltas: they build on what is applied."""
    world = World(tmp_path, CHAIN + "policy: {max_shrink: 0.5}\n")
    orders = world.producer()
    orders.deliver(1, TEN, kind="full")
    world.apply()
    orders.deliver(2, [(1, "5.00", "U")], kind="full")
    orders.deliver(2, [(2, "2.00", "U")], kind="delta")
    world.apply()
    assert world.status().held == ("2",)
    assert world.amounts()[2] == "2.00" and len(world.amounts()) == 10
