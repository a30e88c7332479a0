"""An opened deployment: what a look alone records, who may run a feed, and that the folder may move, change and lose feeds."""

from __future__ import annotations

from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.deployment import clock_from
from valuestream_dagster.errors import FeedBusy, WrongUse
from valuestream_dagster.publication.locks import is_busy
from valuestream_tests.publication.dying import die_at
from valuestream_tests.world import CHAIN, NOW, PERIODS, World, another, plain_catalogue

GOOD = [(1, "1.00", "U"), (2, "2.50", "U")]
FEEDS = 4
_server = get_context("forkserver")


# --- what a look alone records ------------------------------------------------------------------------------------------


def test_looking_records_what_waits_once_per_change_and_what_is_no_delivery_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders = world.producer()
    orders.hand_over(orders.make(1, GOOD).without_file())
    orders.put("x.manifest.json", b"no")
    opened = world.opened
    feed = opened.feed("acme/orders")
    stale = opened.plan(feed)
    assert [receipt.verdict for receipt in opened.note(stale).receipts] == [Verdict.REJECTED, Verdict.WAITING]
    assert opened.note(opened.plan(feed)).receipts == ()
    assert opened.note(stale).receipts == (), "neither does another process that looked before write it again"
    assert len(world.receipts()) == 2
    orders.put("x.manifest.json", b"no!")
    assert [receipt.code for receipt in opened.note(opened.plan(feed)).rejected] == ["manifest_unreadable"]


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    """Planning a feed with everything in it leaves no row and no file but an empty ledger."""
    world = World(tmp_path)
    orders = world.producer()
    orders.deliver(1, GOOD)
    orders.put("x.manifest.json", b"no")
    opened = world.opened
    plan = opened.plan(opened.feed("acme/orders"))
    assert [key.text for key in plan.claimable] == ["1"]
    for table in ("receipts", "objects_seen", "runs", "feed_versions", "publications"):
        assert world.ledger(f"FROM {table}") == []
    assert not (tmp_path / "state/store").exists() and not (tmp_path / "state/catalog.duckdb").exists()


def test_two_feeds_share_a_landing_place_and_each_takes_its_own(tmp_path: Path) -> None:
    feeds = {
        "orders.yaml": PERIODS.replace("landing/orders", "landing/shared"),
        "returns.yaml": another(PERIODS, "returns", "landing/shared"),
    }
    world = World(tmp_path, feeds)
    world.producer(landing="shared").deliver(1, GOOD, name="o")
    world.producer("returns", landing="shared").deliver(1, [(7, "7.00", "U")], name="r")
    world.apply()
    world.apply("acme/returns")
    assert world.amounts() == {1: "1.00", 2: "2.50"} and world.amounts("acme/returns") == {7: "7.00"}
    assert len(world.receipts(None)) == 2 and world.status().healthy and world.status("acme/returns").healthy
    assert world.apply() == [] and world.apply("acme/returns") == []


# --- one run per feed ---------------------------------------------------------------------------------------------------


def hold(world: World, ready: Any, let_go: Any) -> None:
    opened = world.opened
    with opened.publisher(opened.feed("acme/orders")).open_run(()):
        ready.set()
        let_go.wait(60)


def test_a_second_process_on_a_feed_fails_at_once_and_names_the_holder(tmp_path: Path) -> None:
    """S14, L12."""
    world = World(tmp_path)
    world.producer().deliver(1, GOOD)
    ready, let_go = _server.Event(), _server.Event()
    process = _server.Process(target=hold, args=(world, ready, let_go))
    process.start()
    assert ready.wait(60)
    opened = world.opened
    feed = opened.feed("acme/orders")
    with pytest.raises(FeedBusy, match=rf"acme/orders is being run by .*:{process.pid} since 2026-09-10") as busy:
        world.apply()
    assert busy.value.retryable and busy.value.next_step
    assert is_busy(opened.publisher(feed).locks, feed.name)
    assert not opened.recover(feed), "a run that lives is not recovered"
    assert world.status().observed, "anybody may look"
    let_go.set()
    process.join()
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50"}


def apply_one(world: World, feed: str) -> None:
    world.apply(feed)


def test_processes_on_as_many_feeds_all_finish(tmp_path: Path) -> None:
    names = [f"d{number}" for number in range(FEEDS)]
    world = World(tmp_path, {f"{name}.yaml": another(PERIODS, name) for name in names})
    for name in names:
        for key in (1, 2):
            world.producer(name).deliver(key, [(key, "1.00", "U")])
    processes = [_server.Process(target=apply_one, args=(world, f"acme/{name}")) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * FEEDS
    for name in names:
        assert world.amounts(f"acme/{name}") == {1: "1.00", 2: "1.00"}
    assert world.query("SELECT count(*), count(DISTINCT feed) FROM valuestream.publications WHERE visible") == [(2 * FEEDS, FEEDS)]


def test_what_a_dead_run_left_is_shown_by_recover_though_nothing_new_is_here(tmp_path: Path) -> None:
    """A kill after the last key's commit: no delivery will come to bring it to light."""
    world = World(tmp_path, CHAIN)
    world.producer().deliver(1, GOOD, kind="full")
    assert die_at(world, "committed", 3)  # after the ledger's name and the beginning of the run
    opened = world.opened
    feed = opened.feed("acme/orders")
    assert opened.plan(feed).claimable == ()
    assert opened.recover(feed)
    assert world.amounts() == {1: "1.00", 2: "2.50"}
    assert not opened.recover(feed), "and then there is nothing to recover"


def test_what_a_dead_run_closed_and_did_not_show_is_shown_by_recover(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, GOOD)
    assert die_at(world, "before catalogue")
    assert not (tmp_path / "state/catalog.duckdb").exists()
    opened = world.opened
    assert opened.recover(opened.feed("acme/orders"))
    assert world.amounts() == {1: "1.00", 2: "2.50"}


def test_a_dead_run_is_recovered_though_the_landing_place_does_not_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, GOOD)
    assert die_at(world, "committed", 3)  # after the ledger's name and the beginning of the run
    world.landing().rename(tmp_path / "gone")
    world.landing().write_text("no folder")
    opened = world.opened
    assert opened.recover(opened.feed("acme/orders"))
    assert world.amounts() == {1: "1.00", 2: "2.50"}


# --- the folder ---------------------------------------------------------------------------------------------------------


def test_a_moved_deployment_is_noticed_and_its_catalogue_is_read_by_plain_duckdb(tmp_path: Path) -> None:
    world = World(tmp_path / "here")
    orders = world.producer()
    orders.deliver(1, GOOD)
    world.apply()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = World(tmp_path / "there")
    moved.settle()
    path = tmp_path / "there/state/catalog.duckdb"
    with plain_catalogue(path) as connection:
        assert connection.execute("SELECT id FROM acme.orders ORDER BY id").fetchall() == [(1,), (2,)]
        ((file,),) = connection.execute("SELECT path FROM valuestream.files").fetchall()
    assert file.startswith(str(tmp_path / "there")) and Path(file).is_file()
    assert path.stat().st_mode & 0o777 == 0o444
    inode = path.stat().st_ino
    moved.settle()
    assert path.stat().st_ino == inode, "it is built once"
    assert moved.apply() == [], "objects keep their stamps"


def test_a_catalogue_that_was_deleted_is_built_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, GOOD)
    world.apply()
    (tmp_path / "state/catalog.duckdb").unlink()
    world.settle()
    assert world.amounts() == {1: "1.00", 2: "2.50"}


def test_a_declared_feed_has_an_empty_view_before_anything_has_come(tmp_path: Path) -> None:
    world = World(tmp_path, {"orders.yaml": PERIODS, "stock.yaml": another(CHAIN, "stock")})
    world.settle()
    assert world.rows() == [] and world.rows("acme/stock") == []
    assert world.query('FROM acme."stock__all"') == []


def test_the_data_of_a_feed_whose_file_was_removed_stays_in_the_catalogue(tmp_path: Path) -> None:
    world = World(tmp_path, {"orders.yaml": PERIODS, "returns.yaml": another(PERIODS, "returns")})
    world.producer("returns").deliver(1, GOOD)
    world.apply("acme/returns")
    (tmp_path / "feeds/returns.yaml").unlink()
    world.producer().deliver(1, GOOD)
    world.apply()
    world.settle()
    assert world.amounts("acme/returns") == {1: "1.00", 2: "2.50"} == world.amounts()
    with pytest.raises(WrongUse, match="there is no feed acme/returns"):
        world.opened.feed("acme/returns")


def test_a_feed_that_does_not_exist_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="did you mean acme/orders") as error:
        World(tmp_path).opened.feed("acme/order")
    assert error.value.exit_code == 2


def test_a_key_that_is_none_is_refused_with_the_form_of_one(tmp_path: Path) -> None:
    opened = World(tmp_path).opened
    with pytest.raises(WrongUse, match="an integer"):
        opened.key(opened.feed("acme/orders"), "2026-09-01")


# --- the clock ----------------------------------------------------------------------------------------------------------


def test_a_fixed_clock_stamps_all_that_is_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, GOOD)
    world.apply()
    moment = datetime.fromisoformat(NOW)
    assert {receipt.received_at for receipt in world.receipts()} == {moment}
    assert world.query("SELECT DISTINCT started_at, ended_at FROM valuestream.runs") == [
        (moment.replace(tzinfo=None), moment.replace(tzinfo=None))
    ]


def test_a_clock_is_read_from_an_iso_time_and_anything_else_is_refused() -> None:
    assert clock_from({"VALUESTREAM_NOW": "2026-11-30T07:00:00+01:00"})() == datetime(2026, 11, 30, 6, tzinfo=UTC)
    assert clock_from({"VALUESTREAM_NOW": "2026-11-30T06:00:00"})() == datetime(2026, 11, 30, 6, tzinfo=UTC)
    assert clock_from({})().tzinfo is UTC
    with pytest.raises(WrongUse, match="VALUESTREAM_NOW=noon is no ISO time"):
        clock_from({"VALUESTREAM_NOW": "noon"})
