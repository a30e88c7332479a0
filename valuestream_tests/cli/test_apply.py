"""From delivery to readers by the command line: what is applied, what is not, and what people are told."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from valuestream_dagster.ledger.duck import DuckLedger
from valuestream_dagster.publication.run import FeedRun
from valuestream_dagster.stores.local import LocalLanding
from valuestream_tests.cli.shop import FEED, Shop, shop_in
from valuestream_tests.world import plain_catalogue

OTHER = FEED.replace("orders", "parcels").replace("landing/acme/orders", "landing/acme/parcels")
pytestmark = pytest.mark.slow


def test_the_way_of_two_deliveries_a_gap_a_resend_and_a_correction(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    shop.deliver("2026-09-03")

    planned = shop.json("plan", code=1)
    assert [(one["key"], one["state"], one["claimable"]) for one in planned["slices"]] == [
        ("2026-09-01", "ready", True),
        ("2026-09-03", "blocked", False),
    ]
    assert planned["slices"][1]["reason"] == "sequence_gap"
    assert planned["refusals"] == []

    applied = shop.json("apply", code=1)
    assert applied["applied"] == [{"feed": "acme/orders", "key": "2026-09-01", "kind": "full", "revision": 1}]
    assert [run["ok"] for run in applied["runs"]] == [True]
    (blocked,) = applied["not_applied"]
    assert (blocked["key"], blocked["verdict"], blocked["code"]) == ("2026-09-03", "waiting", "sequence_gap")

    (feed,) = shop.json("status", code=1)["feeds"]
    assert (feed["status"], feed["position"], feed["expected"], feed["missing"]) == (
        "blocked", "2026-09-01", "2026-09-02", ["2026-09-02"]
    )  # fmt: skip
    text = shop.run("status")
    assert "2026-09-02 is missing; 2026-09-03 is here and waits" in text.stdout
    assert "ask acme for 2026-09-02" in text.stdout
    assert text.exit_code == 1

    shop.deliver("2026-09-02")
    again = shop.json("apply")
    assert [one["key"] for one in again["applied"]] == ["2026-09-02", "2026-09-03"]

    nothing = shop.json("apply")
    assert not any(nothing[name] for name in ("applied", "duplicates", "not_applied", "runs", "failures", "errors"))

    shop.deliver("2026-09-02", "1,3.50\n", revision=2)
    corrected = shop.json("apply")
    assert corrected["applied"] == [{"feed": "acme/orders", "key": "2026-09-02", "kind": "full", "revision": 2}]

    history = shop.json("history", "acme/orders", "2026-09-02")["history"]
    assert [(one["revision"], one["superseded_at"] is None) for one in history] == [(1, False), (2, True)]
    assert history[0]["previous_key"] == "2026-09-01"
    assert {"uri", "version", "sha256", "bytes"} == set(history[0]["objects"][0])
    assert "2026-09-02" in shop.run("history", "acme/orders").stdout

    receipts = shop.json("receipts")["receipts"]
    assert [one["verdict"] for one in receipts].count("accepted") == 4
    assert [one["received_at"] for one in receipts] == sorted(one["received_at"] for one in receipts)
    assert len(shop.json("receipts", "acme/orders", "--limit", "2")["receipts"]) == 2
    assert "accepted" in shop.run("receipts").stdout

    rows = shop.json("query", "SELECT sum(amount) FROM acme.orders")["rows"]
    assert rows == [["8.50"]]


def test_what_is_rejected_fails_the_command_until_it_is_made_good(shop: Shop) -> None:
    shop.deliver("2026-09-01", "1,nothing\n")
    applied = shop.json("apply", code=1)
    (one,) = applied["not_applied"]
    assert (one["verdict"], one["code"], one["revision"]) == ("rejected", "value_does_not_fit", 1)
    assert one["next"]
    assert [run["ok"] for run in applied["runs"]] == [False]
    assert "rejected and not made good: 2026-09-01" in shop.run("status").stdout
    text = shop.run("apply")
    assert text.exit_code == 1
    assert "nothing new" in text.stdout

    shop.deliver("2026-09-01", "1,2.00\n", revision=2)
    made_good = shop.run("apply")
    assert made_good.exit_code == 0, made_good.output
    assert "acme/orders: 1 applied (2026-09-01); without a hole up to 2026-09-01" in made_good.stdout


def test_an_incomplete_delivery_waits_and_is_named_every_time(shop: Shop) -> None:
    manifest = shop.deliver("2026-09-01")
    (manifest.parent / "2026-09-01-r1.csv").unlink()
    for _ in range(2):
        (one,) = shop.json("apply")["not_applied"]
        assert one["verdict"] == "waiting"
        assert "2026-09-01-r1.csv" in one["detail"]
    assert len(shop.json("receipts")["receipts"]) == 1
    assert shop.run("status").exit_code == 0
    assert "not complete yet: 2026-09-01" in shop.run("status").stdout


def test_an_unreadable_manifest_is_named_and_reported(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.landing.mkdir(parents=True)
    (shop.landing / "orders.manifest.json").write_text("{")
    monkeypatch.setenv("VALUESTREAM_NOW", "2030-01-01T00:00:00Z")
    planned = shop.json("plan", code=1)
    assert (planned["unusable"][0]["state"], planned["unusable"][0]["code"]) == ("rejected", "manifest_unreadable")
    assert "manifest_unreadable" in shop.run("plan").stdout
    (one,) = shop.json("apply", code=1)["not_applied"]
    assert (one["key"], one["verdict"]) == (None, "rejected")


def test_one_feed_that_cannot_be_reached_does_not_hide_or_stop_the_others(tmp_path: Path) -> None:
    shop = shop_in(tmp_path, {"a.yaml": FEED, "b.yaml": OTHER})
    (shop.path / "landing/acme").mkdir(parents=True)
    (shop.path / "landing/acme/parcels").write_text("no folder")
    shop.deliver("2026-09-01")

    assert shop.json("plan", code=1)["refusals"][0]["feed"] == "acme/parcels"
    applied = shop.json("apply", code=1)
    assert [one["feed"] for one in applied["applied"]] == ["acme/orders"]
    assert [one["feed"] for one in applied["errors"]] == ["acme/parcels"]
    orders, parcels = shop.json("status", code=1)["feeds"]
    assert orders["status"] == "waiting_for_next"
    assert (parcels["status"], parcels["reason"]) == ("refused", "refused")
    assert parcels["refusals"][0]["uri"].endswith("landing/acme/parcels")
    assert "acme/parcels: refused" in shop.run("status").stdout


def test_a_feed_that_another_process_runs_is_an_error_of_that_feed(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    locks = shop.path / "state/locks"
    locks.mkdir(parents=True)
    with (locks / "acme__orders.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        applied = shop.json("apply", code=1)
    assert applied["errors"][0]["code"] == "feed_busy"
    assert shop.json("apply")["applied"]


def test_a_paused_feed_is_passed_over_unless_it_is_named(tmp_path: Path) -> None:
    shop = shop_in(tmp_path, {"a.yaml": FEED + "paused: true\n"})
    shop.deliver("2026-09-01")
    everything = shop.run("apply")
    assert everything.exit_code == 0
    assert "paused" in everything.stdout
    assert shop.json("apply", "acme/orders", code=1)["errors"][0]["code"] == "not_applied"


def test_one_key_alone_may_be_asked_for(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    shop.deliver("2026-09-02")
    applied = shop.json("apply", "acme/orders", "--key", "2026-09-01")
    assert [one["key"] for one in applied["applied"]] == ["2026-09-01"]


def test_ctrl_c_in_the_middle_keeps_what_is_done_and_stops_before_the_next_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_in(tmp_path, {"a.yaml": FEED, "b.yaml": OTHER})
    shop.deliver("2026-09-01")

    def interrupt(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(FeedRun, "prepare", interrupt)
    result = shop.run("apply")
    assert result.exit_code == 130, result.output
    assert "acme/orders: interrupted" in result.stdout
    assert "acme/parcels" not in result.stdout
    monkeypatch.undo()
    assert shop.json("apply")["applied"]


@pytest.mark.parametrize("after", [1, 12])
def test_ctrl_c_at_any_moment_is_no_error_and_no_traceback_and_the_next_apply_goes_on(shop: Shop, after: int) -> None:
    days = [f"2026-09-{day:02}" for day in range(1, 31)]
    for day in days:
        shop.deliver(day)
    program = [sys.executable, "-c", "from valuestream_dagster.cli.main import main; main()", "-d", str(shop.path), "apply"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while len(list((shop.path / "state").rglob("*.parquet"))) < after and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate()
    assert running.returncode == 130, out + errors
    assert "Traceback" not in errors
    assert "internal error" not in out + errors
    shop.json("apply")
    (feed,) = shop.json("status")["feeds"]
    assert (feed["position"], feed["applied"], feed["failed"]) == (days[-1], 30, [])


# --- nothing new --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True], ids=["all applied", "one waits for its turn"])
def test_an_apply_with_nothing_new_writes_nothing_for_one_listing_and_one_opening_of_the_ledger(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    # L17
    shop.deliver("2026-09-01")
    if waits:
        shop.deliver("2026-09-03")
    shop.json("apply", code=int(waits))
    before = {path: path.read_bytes() for path in shop.path.rglob("*") if path.is_file()}
    done: Counter[str] = Counter()

    def counted(what: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counting(self: object) -> Any:
            done[what] += 1
            return call(self)

        return counting

    monkeypatch.setattr(LocalLanding, "list", counted("listing", LocalLanding.list))
    monkeypatch.setattr(DuckLedger, "session", counted("opening", DuckLedger.session))
    told = shop.json("apply", code=int(waits))
    assert (told["applied"], told["runs"]) == ([], [])
    assert done == {"listing": 1, "opening": 1}
    assert {path: path.read_bytes() for path in shop.path.rglob("*") if path.is_file()} == before


def test_a_disk_that_is_full_for_dagster_is_said_and_the_next_apply_goes_on(shop: Shop) -> None:
    """L18"""
    shop.deliver("2026-09-01")
    shop.json("apply")
    shop.deliver("2026-09-02")
    full = subprocess.run(
        [Path(sys.executable).with_name("valuestream"), "-d", str(shop.path), "apply"],
        check=False, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert full.returncode == 1, full
    assert "Dagster's storage" in full.stderr and "next: free space" in full.stderr, full.stderr
    assert "internal error" not in full.stderr and "Traceback" not in full.stderr
    assert [one["key"] for one in shop.json("apply")["applied"]] == ["2026-09-02"]


# --- what was lost under our feet ---------------------------------------------------------------------------------------


def _ids(shop: Shop, dataset: str = "orders") -> list[tuple[int]]:
    """What a reader sees who knows nothing of us."""
    with plain_catalogue(shop.path / "state/catalog.duckdb") as connection:
        return connection.execute(f"SELECT id FROM acme.{dataset} ORDER BY id").fetchall()


def test_an_apply_with_nothing_new_remakes_a_catalogue_that_was_deleted_or_left_behind(shop: Shop, tmp_path: Path) -> None:
    shop.deliver("2026-09-01")
    shop.json("apply")
    (shop.path / "state/catalog.duckdb").unlink()
    assert "nothing new" in shop.run("apply").stdout
    assert _ids(shop) == [(1,)]
    moved = Shop(shop.path.rename(tmp_path / "moved"))
    assert "nothing new" in moved.run("apply").stdout
    assert _ids(moved) == [(1,)]


def test_a_lost_file_refuses_its_feed_says_so_in_status_and_is_made_good_by_a_correction(tmp_path: Path) -> None:
    shop = shop_in(tmp_path, {"a.yaml": FEED, "b.yaml": OTHER})
    shop.deliver("2026-09-01")
    shop.deliver("2026-09-01", dataset="parcels")
    shop.json("apply")
    (lost,) = (shop.path / "state/store/published/acme/parcels").rglob("*.parquet")
    lost.unlink()
    shop.deliver("2026-09-02", "2,1.00\n")
    assert [one["key"] for one in shop.json("apply", code=1)["applied"]] == ["2026-09-02"]
    assert _ids(shop) == [(1,), (2,)], "the other feed goes on"
    orders, parcels = shop.json("status", code=1)["feeds"]
    assert (orders["status"], parcels["status"]) == ("waiting_for_next", "refused")
    assert "a published file cannot be read" in parcels["notes"][0]
    with pytest.raises(duckdb.Error, match="a published file cannot be read"):
        _ids(shop, "parcels")
    shop.deliver("2026-09-01", "5,1.00\n", revision=2, dataset="parcels")
    shop.json("apply")
    assert _ids(shop, "parcels") == [(5,)]
    assert [feed["status"] for feed in shop.json("status")["feeds"]] == ["waiting_for_next"] * 2


def test_a_lost_ledger_is_refused_and_readers_keep_what_they_had(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    shop.json("apply")
    (shop.path / "state/ledger.duckdb").unlink()
    for verb in (["status"], ["apply"], ["plan"], ["query", "FROM acme.orders"]):
        result = shop.run(*verb)
        assert result.exit_code == 1, verb
        assert "the ledger was lost" in result.output, verb
    assert _ids(shop) == [(1,)]


def test_a_landing_place_that_has_gone_is_refused_and_not_taken_for_a_new_one(shop: Shop) -> None:
    assert shop.run("status").exit_code == 0
    shop.deliver("2026-09-01")
    shop.json("apply")
    shutil.rmtree(shop.landing)
    (feed,) = shop.json("status", code=1)["feeds"]
    assert feed["status"] == "refused"
    assert "has gone, and deliveries of acme/orders came from it" in shop.run("status").stdout
    assert shop.run("apply").exit_code == 1


def test_a_correction_builds_on_what_its_key_built_on(shop: Shop) -> None:
    """C29"""
    for day in ("01", "02", "03"):
        shop.deliver(f"2026-09-{day}")
    shop.json("apply")
    shop.deliver("2026-09-02", "1,9.00\n", revision=2)
    shop.json("apply")
    told = [(one["key"], one["revision"], one["previous_key"]) for one in shop.json("history", "acme/orders")["history"]]
    assert ("2026-09-02", 2, "2026-09-01") in told, told


def test_a_line_break_in_a_producers_file_name_forges_no_line(shop: Shop) -> None:
    shop.landing.mkdir(parents=True)
    (shop.landing / "x\nacme_orders: all is well.manifest.json").write_text("{")
    for verb in ("plan", "apply", "receipts"):
        assert not [line for line in shop.run(verb).output.splitlines() if line.startswith("acme_orders")]


def test_an_edit_is_planned_with_its_cost_and_carried_out_by_recompute(shop: Shop) -> None:
    """L20: plan names the field, apply leaves it alone, --recompute switches readers once, and Dagster hears of it."""
    shop.deliver("2026-09-01")
    shop.deliver("2026-09-02")
    assert shop.run("apply").exit_code == 0
    declared = shop.path / "feeds/orders.yaml"
    declared.write_text(declared.read_text().replace('"DECIMAL(18,2)"', '"DECIMAL(18,3)"'))

    planned = shop.json("plan")["slices"]
    assert [(one["key"], one["state"], one["claimable"]) for one in planned] == [
        ("2026-09-01", "stale", False),
        ("2026-09-02", "stale", False),
    ]
    text = shop.run("plan").stdout
    assert "2 published deliveries are stale by `columns.amount` from DECIMAL(18,2) to DECIMAL(18,3)" in text
    assert "nothing new" in shop.run("apply").stdout
    assert shop.json("query", "SELECT DISTINCT typeof(amount) FROM acme.orders")["rows"] == [["DECIMAL(18,2)"]]

    done = shop.run("apply", "--recompute")
    assert done.exit_code == 0, done.output
    assert "2 made again from sealed bytes; readers see the new files" in done.stdout
    assert shop.json("query", "SELECT DISTINCT typeof(amount) FROM acme.orders")["rows"] == [["DECIMAL(18,3)"]]
    assert shop.json("apply", "--recompute")["recomputed"] == [
        {"feed": "acme/orders", "keys": 0, "switched": False, "refused": []}
    ]
    forced = shop.json("apply", "acme/orders", "--key", "2026-09-01", "--force")
    assert forced["recomputed"] == [{"feed": "acme/orders", "keys": 1, "switched": True, "refused": []}]
    assert shop.json("plan")["slices"] == []


def test_an_edit_that_old_bytes_do_not_fit_is_refused_and_readers_go_on(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    assert shop.run("apply").exit_code == 0
    declared = shop.path / "feeds/orders.yaml"
    declared.write_text(declared.read_text().replace('"DECIMAL(18,2)"', '"DECIMAL(18,0)"'))
    done = shop.run("apply", "--recompute")
    assert done.exit_code == 1
    assert "1 cannot be made again as it is declared now" in done.stdout and "Readers see what they saw" in done.stdout
    assert shop.json("query", "FROM acme.orders")["rows"] == [[1, "2.50"]]
