"""Deployments without manifests: files grouped by name, then sealed and published like any delivery (M2, M14, M15, ruling 11)."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.errors import NotApplied
from valuestream_tests.producer import csv_text, into_folder
from valuestream_tests.world import COLUMNS, NOW, PERIODS, World, another

BY_NAME = f"""\
source: acme
dataset: orders
landing: landing/orders
manifest: none
sequence: {{kind: date, pattern: "orders-{{date:YYYYMMDD}}.csv"}}
columns: {COLUMNS}
key: [id]
"""
IN_PARTS = BY_NAME.replace("YYYYMMDD}", "YYYYMMDD}-{part}of{parts}")
REVISED = BY_NAME.replace("YYYYMMDD}", "YYYYMMDD}-r{revision}")
ANY_PREFIX = BY_NAME.replace("orders-{", "{*}-{")
CHAIN = BY_NAME.replace("YYYYMMDD}", "YYYYMMDD}-{kind}") + "mode: chain\n"
REQUIRED = BY_NAME.replace("{kind: date,", "{kind: date, continuity: required, baseline: first,")
ONE, TWO, THREE = [(1, "1.00", "U")], [(2, "2.00", "U")], [(3, "3.00", "U")]


def put(world: World, name: str, rows: list[tuple[int, str, str]], *, ago_seconds: float = 3600) -> Path:
    """Hand one file over as it is, with the time of its last change."""
    into_folder(world.landing())(name, csv_text(rows))
    changed = datetime.fromisoformat(NOW).timestamp() - ago_seconds
    os.utime(world.landing() / name, (changed, changed))
    return world.landing() / name


def test_files_are_published_by_the_keys_in_their_names(tmp_path: Path) -> None:
    """C5, C12: the key is explicit and never the time of arrival."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260902.csv", TWO)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    assert world.by_key() == {"2026-09-01": 1, "2026-09-02": 1} and world.amounts() == {1: "1.00", 2: "2.00"}
    assert world.status().healthy and world.status().position == "2026-09-02"
    receipt = world.last(Verdict.ACCEPTED)
    assert receipt.manifest == "orders-20260902.csv" and "weak evidence" in receipt.warnings[0]


def test_a_receipt_claims_no_checksum_that_nobody_declared(tmp_path: Path) -> None:
    """M7: only what was compared is said to agree."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    detail = world.last(Verdict.ACCEPTED).detail
    assert "no manifest says what its bytes should be" in detail and "checksum" not in detail


def test_a_second_apply_changes_nothing(tmp_path: Path) -> None:
    """S10, L17."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    seen, receipts = world.seen(), world.receipts()
    assert world.apply() == [] and (world.seen(), world.receipts()) == (seen, receipts)


def test_what_was_grouped_is_kept_beside_the_bytes(tmp_path: Path) -> None:
    """M9: the receipt names a text of ours, which says which files were taken together."""
    world = World(tmp_path, IN_PARTS)
    put(world, "orders-20260901-1of2.csv", ONE)
    put(world, "orders-20260901-2of2.csv", TWO)
    world.apply()
    sha = world.last(Verdict.ACCEPTED).manifest_sha256 or ""
    kept = (tmp_path / f"state/store/sealed/{sha[:2]}/{sha}").read_text()
    assert '"path":"orders-20260901-1of2.csv"' in kept and '"path":"orders-20260901-2of2.csv"' in kept


def test_parts_wait_for_each_other_and_the_missing_one_is_named(tmp_path: Path) -> None:
    """M3, S1."""
    world = World(tmp_path, IN_PARTS)
    put(world, "orders-20260901-1of3.csv", ONE)
    put(world, "orders-20260901-3of3.csv", THREE)
    world.apply()
    waiting = world.last(Verdict.WAITING)
    assert "part 2 of 3 (orders-20260901-2of3.csv)" in waiting.detail
    assert world.status().waiting == ("2026-09-01",) and world.status().healthy and world.published() == frozenset()
    world.apply()
    assert world.receipts() == [waiting]
    put(world, "orders-20260901-2of3.csv", TWO)
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.by_key() == {"2026-09-01": 1}


def test_a_file_is_taken_once_it_was_quiet(tmp_path: Path) -> None:
    """M2: weak, and all there is; the clock decides, not a listing."""
    world = World(tmp_path, BY_NAME + "completion: {kind: quiet, seconds: 600}\n")
    put(world, "orders-20260901.csv", ONE, ago_seconds=300)
    world.apply()
    assert world.status().waiting == ("2026-09-01",)
    assert "changed less than 600 s ago" in world.last(Verdict.WAITING).detail
    world.now = "2026-09-10T12:05:00Z"
    world.apply()
    assert world.by_key() == {"2026-09-01": 1}


def test_an_unmatched_name_refuses_the_feed_until_it_is_mended(tmp_path: Path) -> None:
    """C26, C27, S20, ruling 11: nothing of the feed is planned, what is published stays, and a typing error is no gap."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    seen = world.seen()
    put(world, "orders-20260902.csv", TWO)
    bad = put(world, "orders-202609O3.csv", THREE)
    assert world.apply() == [] and world.seen() == seen
    status = world.status()
    assert (status.status, status.healthy, status.missing) == ("refused", False, ())
    (refusal,) = status.refusals
    assert (refusal.code, refusal.path) == ("invalid_date", "orders-202609O3.csv")
    assert status.as_dict()["refusals"] == [
        {
            "code": "invalid_date", "uri": "orders-202609O3.csv", "expected_pattern": "orders-{date:YYYYMMDD}.csv",
            "detail": "orders-202609O3.csv: 'O3' stands where the digits of DD belong",
        }
    ]  # fmt: skip
    bad.rename(bad.with_name("orders-20260903.csv"))
    world.apply()
    assert world.by_key() == {"2026-09-01": 1, "2026-09-02": 1, "2026-09-03": 1} and world.status().healthy


def test_a_run_by_hand_is_refused_too(tmp_path: Path) -> None:
    """C26, S27: a backfill goes round no refusal, and nothing is written."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    put(world, "notes.txt", ONE)
    opened = world.opened
    feed = opened.feed("acme/orders")
    with (
        pytest.raises(NotApplied, match=r"acme/orders is refused: notes.txt: the name is not of this form"),
        opened.publisher(feed).open_run([opened.key(feed, "2026-09-01")]),
    ):
        pass
    assert world.receipts() == [] and world.published() == frozenset()


def test_what_is_left_out_refuses_nothing(tmp_path: Path) -> None:
    """C24: unrelated files are removed by the selection, before any name is read."""
    world = World(tmp_path, BY_NAME + 'include: ["*.csv"]\nexclude: ["test-*"]\n')
    put(world, "orders-20260901.csv", ONE)
    put(world, "notes.txt", ONE)
    put(world, "test-1.csv", ONE)
    world.apply()
    assert world.by_key() == {"2026-09-01": 1} and world.status().healthy


def test_other_feeds_go_on_while_one_is_refused(tmp_path: Path) -> None:
    """Ruling 11."""
    world = World(tmp_path, {"orders.yaml": BY_NAME, "items.yaml": another(BY_NAME, "items")})
    put(world, "orders-x.csv", ONE)
    into_folder(world.landing("items"))("orders-20260901.csv", csv_text(ONE))
    world.apply("acme/items")
    assert world.by_key("acme/items") == {"2026-09-01": 1}
    assert world.status().status == "refused" and world.status("acme/items").healthy


def test_a_file_overwritten_after_it_was_accepted_is_a_conflict(tmp_path: Path) -> None:
    """M15, M5: the name says revision 1 again, the bytes are others; what is applied stays."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    put(world, "orders-20260901.csv", TWO, ago_seconds=900)
    world.apply()
    assert world.verdicts()[-1] == ("2026-09-01", 1, "conflict", "digest_conflict")
    assert world.amounts() == {1: "1.00"} and world.status().conflicts == ("2026-09-01",)


def test_a_file_touched_and_not_changed_is_a_duplicate(tmp_path: Path) -> None:
    """M14, case 65."""
    world = World(tmp_path, BY_NAME)
    put(world, "orders-20260901.csv", ONE)
    world.apply()
    seen = world.seen()
    put(world, "orders-20260901.csv", ONE, ago_seconds=900)
    world.apply()
    assert world.verdicts()[-1] == ("2026-09-01", 1, "duplicate", "duplicate") and world.seen() == seen


def test_the_same_bytes_under_another_name_are_the_same_delivery(tmp_path: Path) -> None:
    """M11: after it was accepted a second name is judged by its bytes, and refuses nothing."""
    world = World(tmp_path, ANY_PREFIX)
    put(world, "a-20260901.csv", ONE)
    world.apply()
    put(world, "b-20260901.csv", ONE)
    world.apply()
    assert world.verdicts()[-1] == ("2026-09-01", 1, "duplicate", "duplicate")
    put(world, "c-20260901.csv", TWO)
    world.apply()
    assert world.verdicts()[-1] == ("2026-09-01", 1, "conflict", "digest_conflict") and world.amounts() == {1: "1.00"}


def test_two_new_files_of_one_key_refuse_unless_they_are_alike(tmp_path: Path) -> None:
    """S21, ruling 11: the bytes are compared; taking one away mends it."""
    world = World(tmp_path, ANY_PREFIX)
    put(world, "a-20260901.csv", ONE)
    other = put(world, "b-20260901.csv", TWO)
    assert world.apply() == [] and world.status().refusals[0].code == "duplicate_sequence_key"
    other.write_bytes(csv_text(ONE))
    os.utime(other, (0, 0))
    world.apply()
    assert world.amounts() == {1: "1.00"} and world.status().healthy
    assert len(world.receipts()) == 1


def test_a_delivery_sent_anew_in_fewer_parts_is_judged_by_its_bytes_and_refuses_nothing(tmp_path: Path) -> None:
    """M15, ruling 11: files that were judged before are settled, and no tick after it finds them odd."""
    world = World(tmp_path, IN_PARTS)
    for part, rows in enumerate((ONE, TWO, THREE), 1):
        put(world, f"orders-20260901-{part}of3.csv", rows)
    world.apply()
    put(world, "orders-20260901-1of2.csv", [*ONE, *TWO])
    put(world, "orders-20260901-2of2.csv", THREE)
    world.apply()
    assert world.verdicts()[-1] == ("2026-09-01", 1, "conflict", "digest_conflict")
    assert world.apply() == [] and world.status().refusals == () and len(world.amounts()) == 3


def test_a_higher_revision_in_the_name_is_a_correction(tmp_path: Path) -> None:
    """M12, M16: 1, 2, then 1 again ends at 2."""
    world = World(tmp_path, REVISED)
    put(world, "orders-20260901-r1.csv", ONE)
    world.apply()
    put(world, "orders-20260901-r2.csv", TWO)
    world.apply()
    assert world.by_key() == {"2026-09-01": 2} and world.amounts() == {2: "2.00"}
    put(world, "orders-20260901-r1.csv", ONE, ago_seconds=900)
    world.apply()
    assert world.verdicts()[-1][2] == "superseded" and world.by_key() == {"2026-09-01": 2}


def test_a_rejected_file_is_made_good_in_place(tmp_path: Path) -> None:
    """Ruling 1, case 06: what is rejected binds nothing, and the period stays open."""
    world = World(tmp_path, BY_NAME)
    path = put(world, "orders-20260901.csv", ONE)
    path.write_bytes(b"<html>blocked</html>\n")
    os.utime(path, (1, 1))
    world.apply()
    assert world.last(Verdict.REJECTED).code == "header_mismatch" and not world.status().healthy
    put(world, "orders-20260901.csv", ONE, ago_seconds=900)
    world.apply()
    assert world.by_key() == {"2026-09-01": 1} and world.status().healthy


def test_a_gap_in_the_names_blocks_where_continuity_is_required(tmp_path: Path) -> None:
    """C6, S16, S17: names prove a gap as manifests do, and what waits is sealed before its turn."""
    world = World(tmp_path, REQUIRED)
    put(world, "orders-20260901.csv", ONE)
    third = put(world, "orders-20260903.csv", THREE)
    world.apply()
    assert (world.status().status, world.status().missing) == ("blocked", ("2026-09-02",))
    third.unlink()
    put(world, "orders-20260902.csv", TWO)
    world.apply()
    assert world.by_key() == {"2026-09-01": 1, "2026-09-02": 1, "2026-09-03": 1}


def test_a_chain_takes_its_kinds_from_the_names(tmp_path: Path) -> None:
    """C2, case 55."""
    world = World(tmp_path, CHAIN)
    put(world, "orders-20260901-Full.csv", ONE)
    put(world, "orders-20260902-Update.csv", [(1, "9.00", "U"), (2, "2.00", "U")])
    world.apply()
    assert world.amounts() == {1: "9.00", 2: "2.00"}


def test_published_deliveries_are_made_again_from_sealed_bytes_after_an_edit(tmp_path: Path) -> None:
    """Ruling 12: what was grouped once is never grouped again for that."""
    world = World(tmp_path, IN_PARTS)
    parts = [put(world, f"orders-20260901-{part}of2.csv", rows) for part, rows in ((1, ONE), (2, TWO))]
    world.apply()
    for path in parts:
        path.unlink()
    (tmp_path / "feeds/orders.yaml").write_text(IN_PARTS.replace("DECIMAL(18,2)", "DECIMAL(18,3)"))
    opened = world.opened
    opened.recompute(opened.feed("acme/orders"))
    assert world.amounts() == {1: "1.000", 2: "2.000"}


# --- manifests whose names speak too ---------------------------------------------------------------------------------

NAMED = PERIODS.replace("{kind: integer}", '{kind: integer, from: name, pattern: "{seq}-data-r{revision}.manifest.json"}')


def test_the_name_gives_the_key_that_a_manifest_leaves_out(tmp_path: Path) -> None:
    """C5: key source `name`."""
    world = World(tmp_path, NAMED)
    orders = world.producer()
    orders.hand_over(orders.make(7, ONE, revision=2).with_statement(sequence=None, revision=None))
    world.apply()
    assert world.by_key() == {"7": 2}


def test_a_manifest_and_its_name_must_agree(tmp_path: Path) -> None:
    """SURFACE, `sequence.from`: a copy under another day's name is rejected, and told by the key of its name."""
    world = World(tmp_path, NAMED)
    orders = world.producer()
    orders.hand_over(orders.make(7, ONE).with_statement(sequence="8"))
    world.apply()
    assert world.verdicts() == [("7", 1, "rejected", "key_mismatch")] and world.published() == frozenset()
    orders.hand_over(orders.make(7, ONE))
    world.apply()
    assert world.by_key() == {"7": 1} and world.status().healthy


def test_a_manifest_whose_name_says_nothing_refuses_the_feed(tmp_path: Path) -> None:
    """C26, ruling 11."""
    world = World(tmp_path, NAMED)
    orders = world.producer()
    orders.deliver(1, ONE)
    orders.hand_over(orders.make(2, TWO, name="second"))
    assert world.apply() == []
    assert [one.code for one in world.status().refusals] == ["pattern_mismatch"]
    (world.landing() / "second.manifest.json").unlink()
    world.apply()
    assert world.by_key() == {"1": 1}


def test_an_unreadable_manifest_is_told_by_the_key_of_its_name(tmp_path: Path) -> None:
    """Ruling 11."""
    world = World(tmp_path, NAMED)
    world.producer().put("3-data-r1.manifest.json", b"{")
    world.apply()
    assert world.verdicts() == [("3", 1, "rejected", "manifest_unreadable")]
