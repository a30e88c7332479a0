"""Rulings 15 and 16: the ledger copied while in use, put back older over a newer store, lost and rebuilt; whose the store is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from valuestream_dagster import upkeep
from valuestream_dagster.errors import LedgerFailure, NotApplied, WrongUse
from valuestream_tests.world import CHAIN, REQUIRED, World

ONE, TWO, THREE, FOUR = ([(number, f"{number}.00", "U")] for number in (1, 2, 3, 4))
VIEWS = ("feeds", "receipts", "slices", "epochs", "publications", "files", "lineage", "runs", "rulings", "removals")


def everything(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """Every answer that the catalogue gives."""
    world.settle()
    return {view: world.query(f"FROM valuestream.{view} ORDER BY ALL") for view in VIEWS} | {"rows": world.rows()}


def published(tmp_path: Path, declared: str = REQUIRED) -> World:
    world = World(tmp_path, declared)
    kind = "full" if declared is CHAIN else None
    world.producer().deliver(1, ONE, kind=kind)
    world.producer().deliver(2, TWO)
    world.apply()
    return world


def lose_landing(world: World) -> None:
    shutil.rmtree(world.landing())
    world.landing().mkdir()


def test_an_older_ledger_put_back_over_a_newer_store_loses_nothing(tmp_path: Path) -> None:
    """Ruling 16: what was sealed since is offered again, though the producer has long deleted it."""
    world = published(tmp_path, CHAIN)
    folder, _ = upkeep.backup(world.opened, None)
    world.producer().deliver(3, THREE)
    world.producer().deliver(1, [(1, "1.50", "U")], revision=2, kind="full")
    world.apply()
    before = world.amounts()
    world.producer().deliver(4, FOUR)
    lose_landing(world)

    aside, (done,) = upkeep.restore(world.opened, folder)

    assert aside is not None and aside.exists(), "the newer ledger is kept"
    assert sorted((o.key.text, o.revision) for o in done.offered) == [("1", 2), ("3", 1)]
    world.apply()
    assert world.amounts() == before == {1: "1.50", 2: "2.00", 3: "3.00"}
    assert world.status().healthy and world.status().position == "3"
    assert upkeep.recover(world.opened, world.opened.selected(None))[0].offered == ()
    world.opened.vacuum(carry_out=True)
    assert world.amounts() == before


def test_a_ledger_copied_back_by_hand_is_refused_until_somebody_says_that_it_counts(tmp_path: Path) -> None:
    """L18: readers never silently see less."""
    world = published(tmp_path)
    ledger = tmp_path / "state/ledger.duckdb"
    old = ledger.read_bytes()
    world.producer().deliver(3, THREE)
    world.apply()
    ledger.write_bytes(old)
    with pytest.raises(LedgerFailure, match="recover --older-ledger"):
        world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"}
    (done,) = upkeep.recover(world.opened, world.opened.selected(None), older_ledger=True)
    assert [o.key.text for o in done.offered] == ["3"]
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().healthy


@pytest.mark.parametrize("declared", [REQUIRED, CHAIN], ids=["periods", "chain"])
def test_a_lost_ledger_is_rebuilt_with_equal_answers(declared: str, tmp_path: Path) -> None:
    """Ruling 15"""
    world = published(tmp_path, declared)
    orders = world.producer()
    orders.deliver(2, [(2, "2.50", "U")], revision=2)
    orders.hand_over(orders.make(3, THREE).with_entry(rows=9))
    world.apply()
    before = everything(world)
    (tmp_path / "state/ledger.duckdb").unlink()

    rows, (done,) = upkeep.rebuild_ledger(world.opened)

    assert rows["publications"] == 3 and done.offered == ()
    assert everything(world) == before
    orders.deliver(3, THREE, revision=2)
    world.apply()
    assert world.status().healthy and world.status().position == "3"
    assert {row[0] for row in world.ledger("SELECT verdict FROM receipts WHERE key = '1'")} <= {"accepted", "duplicate"}


def test_a_lost_ledger_whose_last_run_was_not_shown_yet_loses_nothing(tmp_path: Path) -> None:
    """What was sealed after the last catalogue is offered again."""
    world = published(tmp_path)
    catalogue = (tmp_path / "state/catalog.duckdb").read_bytes()
    world.producer().deliver(3, THREE)
    world.apply()
    lose_landing(world)
    shown = tmp_path / "state/catalog.duckdb"
    shown.chmod(0o644)
    shown.write_bytes(catalogue)
    (tmp_path / "state/ledger.duckdb").unlink()
    _, (done,) = upkeep.rebuild_ledger(world.opened)
    assert [o.key.text for o in done.offered] == ["3"]
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().healthy


def test_rebuilding_goes_through_segments_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were exported long ago and those of the last catalogue, each once and in order."""
    from valuestream_dagster.ledger import segments
    from valuestream_dagster.publication import catalogue

    cut = segments.export_segments
    monkeypatch.setattr(catalogue, "export_segments", lambda session, folder, now: cut(session, folder, now, segment_rows=3))
    world = World(tmp_path)
    for key in range(1, 8):
        world.producer().deliver(key, [(key, "1.00", "U")])
        world.apply()
    assert list((tmp_path / "state/segments/receipts").glob("*.parquet"))
    before = everything(world)
    (tmp_path / "state/ledger.duckdb").unlink()
    upkeep.rebuild_ledger(world.opened)
    assert everything(world) == before


def test_an_empty_ledger_that_a_question_after_the_loss_has_made_is_no_hindrance(tmp_path: Path) -> None:
    """L28"""
    world = published(tmp_path)
    before = everything(world)
    (tmp_path / "state/ledger.duckdb").unlink()
    with pytest.raises(LedgerFailure, match=r"shows more .* than the ledger knows \(0\).*run `valuestream rebuild`"):
        world.apply()
    assert (tmp_path / "state/ledger.duckdb").exists()
    upkeep.rebuild_ledger(world.opened)
    assert everything(world) == before


def test_nothing_is_rebuilt_over_a_ledger_that_is_there(tmp_path: Path) -> None:
    """L28: a guarded rebuild."""
    world = published(tmp_path)
    with pytest.raises(WrongUse, match="a ledger is there"):
        upkeep.rebuild_ledger(world.opened)


def test_with_ledger_and_catalogue_lost_a_fresh_one_begins_from_all_that_is_sealed(tmp_path: Path) -> None:
    """The last resort: receipts and rulings are gone, no delivery is."""
    world = published(tmp_path)
    lose_landing(world)
    for name in ("ledger.duckdb", "catalog.duckdb"):
        (tmp_path / "state" / name).unlink()
    world.producer().deliver(3, THREE)
    with pytest.raises(NotApplied, match="belongs to another ledger"):
        world.apply()
    (done,) = upkeep.recover(world.opened, world.opened.selected(None), older_ledger=True)
    assert [o.key.text for o in done.offered] == ["1", "2"]
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().healthy


def test_a_store_of_another_ledger_is_refused(tmp_path: Path) -> None:
    """Ruling 16: two ledgers over one store would take each other's files for garbage."""
    first = published(tmp_path / "first")
    second = World(tmp_path / "second", settings=f"store: {tmp_path / 'first/state/store'}\n")
    second.producer().deliver(1, ONE)
    with pytest.raises(NotApplied, match="belongs to another ledger"):
        second.apply()
    assert first.amounts() == {1: "1.00", 2: "2.00"}


def test_a_backup_of_another_deployment_is_refused(tmp_path: Path) -> None:
    first, second = published(tmp_path / "first"), published(tmp_path / "second")
    folder, _ = upkeep.backup(first.opened, None)
    with pytest.raises(WrongUse, match="of another ledger"):
        upkeep.restore(second.opened, folder)


def test_a_damaged_backup_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    world = published(tmp_path)
    folder, made = upkeep.backup(world.opened, tmp_path / "copy")
    assert json.loads((folder / "backup.json").read_text())["sha256"] == made.sha256
    (folder / "ledger.duckdb").write_bytes(b"half")
    with pytest.raises(WrongUse, match="not the one that was backed up"):
        upkeep.restore(world.opened, folder)
    with pytest.raises(WrongUse, match="exists already"):
        upkeep.backup(world.opened, folder)
    assert world.status().healthy


def test_the_bytes_of_a_backup_are_those_of_the_ledger_and_open_as_one(tmp_path: Path) -> None:
    world = published(tmp_path)
    folder, made = upkeep.backup(world.opened, None)
    assert made.generation > 0 and made.ledger_id
    restored, (done,) = upkeep.restore(world.opened, folder)
    assert done.offered == () and done.settled == () and restored is not None
    assert world.amounts() == {1: "1.00", 2: "2.00"} and world.status().healthy


def test_recover_tells_what_a_dead_run_left(tmp_path: Path) -> None:
    """L14, L19: kept and counted."""
    world = published(tmp_path)
    opened = world.opened
    feed = opened.feed("acme/orders")
    world.producer().deliver(3, THREE)
    with opened.publisher(feed).open_run(opened.plan(feed).claimable) as run:
        list(run.work(opened.plan(feed).claimable))
    (done,) = upkeep.recover(world.opened, [feed])
    (settled,) = done.settled
    assert (settled.kept, settled.voided) == (1, ())
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"}
