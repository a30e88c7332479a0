"""Deliveries arrive while UI, daemon and code server run as `valuestream ui` starts them. Nothing here is simulated."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_tests.orchestration.places import damaged, deliver, json_lines, producer, rows_of, version_of
from valuestream_tests.orchestration.server import Server, wait_for
from valuestream_tests.producer import Delivery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def wait_versions(server: Server, dataset: str, deliveries: list[Delivery]) -> None:
    expected = [(delivery.key, version_of(delivery)) for delivery in deliveries]
    wait_for(f"{expected} of {dataset}", lambda: len(server.versions(dataset)) >= len(expected))
    assert server.versions(dataset) == expected


def alerts(server: Server, dataset: str) -> list[dict[str, Any]]:
    return [one for one in json_lines(server.opened.path / "alerts.jsonl") if one["feed"] == f"acme/{dataset}"]


def accepted(server: Server, dataset: str) -> list[str]:
    receipts = server.opened.receipts(f"acme/{dataset}")
    return [str(receipt.key) for receipt in receipts if receipt.verdict is Verdict.ACCEPTED]


def test_deliveries_are_applied_in_order_by_runs_that_the_sensor_requests(server: Server) -> None:
    # C16, S16, S17: the file comes after its manifest, 3 and 4 come before 2.
    first = producer(server.opened, "ordered").make(1, rows_of(1))
    server_landing = producer(server.opened, "ordered").put
    server_landing(first.manifest_path, first.manifest)
    server.wait_ticks("ordered")
    assert server.runs("ordered") == []  # S1
    for path, data in first.files.items():
        server_landing(path, data)
    wait_versions(server, "ordered", [first])

    later = deliver(server.opened, "ordered", 4, 3)
    server.wait_ticks("ordered")
    assert server.finished("ordered") == server.runs("ordered")
    assert len(server.runs("ordered")) == 1
    assert alerts(server, "ordered") == []

    filled = deliver(server.opened, "ordered", 2)
    wait_versions(server, "ordered", [first, *filled, *reversed(later)])
    server.wait_ticks("ordered", 3)
    runs = server.finished("ordered")
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * len(runs)
    # Registered in order of arrival of knowledge: 1, then 3 and 4, then 2; so 2 is one run and 3..4 a range.
    assert server.instance.get_dynamic_partitions("acme/ordered") == ["1", "3", "4", "2"]
    asked = [run.tags.get("dagster/partition") or run.tags["dagster/asset_partition_range_start"] for run in runs]
    assert asked == ["1", "2", "3"]
    assert accepted(server, "ordered") == ["1", "2", "3", "4"]
    assert len({run.tags["valuestream/request"] for run in runs}) == 3


def test_a_prefix_that_is_here_at_once_is_one_range(server: Server) -> None:
    before = len(server.runs("ordered"))
    prefix = deliver(server.opened, "ordered", 5, 6, 7)
    wait_for("5 to 7", lambda: len(server.versions("ordered")) >= 7)
    assert server.versions("ordered")[-3:] == [(one.key, version_of(one)) for one in prefix]
    server.wait_ticks("ordered")
    (run,) = server.finished("ordered")[before:]
    assert run.tags["dagster/asset_partition_range_start"] == "5"
    assert run.tags["dagster/asset_partition_range_end"] == "7"


def test_a_resend_with_other_names_asks_for_one_run_and_changes_nothing(server: Server) -> None:
    # S4: what readers see stays; the run that looked at it materializes nothing new.
    before = len(server.runs("ordered"))
    again = producer(server.opened, "ordered").make(7, rows_of(7)).named("resent-7")
    producer(server.opened, "ordered").hand_over(again)
    wait_for("a run for the resend", lambda: len(server.finished("ordered")) > before)
    server.wait_ticks("ordered", 2)
    (run,) = server.finished("ordered")[before:]
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert accepted(server, "ordered") == ["1", "2", "3", "4", "5", "6", "7"]
    assert server.versions("ordered")[-1] == ("7", version_of(again))
    assert server.versions("ordered")[-2] == ("7", version_of(again))


def test_a_backfill_from_the_ui_applies_its_keys_in_order(server: Server) -> None:
    server.switch_sensor("acme__backfilled__deliveries", on=False)
    deliveries = deliver(server.opened, "backfilled", *range(1, 11))
    keys = [delivery.key for delivery in deliveries]
    server.instance.add_dynamic_partitions("acme/backfilled", keys)
    backfill = server.backfill("backfilled", ["10", *reversed(keys[:-1])])
    assert server.wait_backfill(backfill) == "COMPLETED_SUCCESS"
    wait_versions(server, "backfilled", deliveries)
    assert accepted(server, "backfilled") == keys  # 10 after 9, where texts are sorted otherwise
    assert len(server.runs("backfilled")) == 1


def test_a_hand_launched_key_without_its_predecessor_is_refused(server: Server) -> None:
    # FACTS 3: red, not retried, the reason where people look; nothing is written (S27).
    (first,) = deliver(server.opened, "gapped", 1)
    wait_versions(server, "gapped", [first])
    deliver(server.opened, "gapped", 3, 4, 5)
    wait_for("partitions", lambda: len(server.instance.get_dynamic_partitions("acme/gapped")) == 4)
    run = server.wait_run(server.launch("gapped", "3"))
    assert run.status is dg.DagsterRunStatus.FAILURE
    failure = server.failure(run)
    assert failure["reason"] == "sequence_gap"
    assert "2" in failure["detail"]
    assert failure["next_step"]
    assert failure["refused_keys"] == "3"
    server.wait_ticks("gapped")
    assert len(server.runs("gapped")) == 2
    assert [key for key, _ in server.versions("gapped")] == ["1"]
    assert accepted(server, "gapped") == ["1"]
    told = wait_for("the alert", lambda: alerts(server, "gapped"))
    assert [(one["what"], one["run_id"]) for one in told] == [("run", run.run_id)]
    assert told[0]["message"] == failure["description"]


def test_a_backfill_over_a_gap_refuses_every_step_and_says_why(server: Server) -> None:
    before = len(server.runs("gapped"))
    files = sorted(path.name for path in (server.opened.settings.store).rglob("*.parquet"))
    backfill = server.backfill("gapped", ["3", "4", "5"])
    assert server.wait_backfill(backfill) == "COMPLETED_FAILED"
    (run,) = server.finished("gapped")[before:]
    failure = server.failure(run)
    assert failure["refused_keys"] == "3, 4, 5"
    assert failure["reason"] == "sequence_gap"
    for key in ("3", "4", "5"):
        assert f"{key}" in failure["refused"]
    assert [key for key, _ in server.versions("gapped")] == ["1"]
    assert sorted(path.name for path in (server.opened.settings.store).rglob("*.parquet")) == files
    wait_for("the second alert", lambda: len(alerts(server, "gapped")) > 1)
    server.wait_ticks("gapped", 2)
    assert [one["what"] for one in alerts(server, "gapped")] == ["run", "run"]


def test_a_failed_check_sends_one_alert_however_often_the_sensors_look(server: Server) -> None:
    producer(server.opened, "damaged").hand_over(damaged(server.opened, "damaged", 1))
    told = wait_for("the alert", lambda: alerts(server, "damaged"))
    server.wait_ticks("damaged", 3)
    (run,) = server.finished("damaged")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert alerts(server, "damaged") == told
    (alert,) = told
    assert (alert["what"], alert["run_id"]) == ("fixity", run.run_id)
    assert alert["title"] == "valuestream: acme/damaged fixity failed"
    assert alert["message"]


def test_a_manifest_that_states_nothing_is_a_failed_check_and_one_alert(server: Server) -> None:
    before = len(alerts(server, "damaged"))
    producer(server.opened, "damaged").put("broken.manifest.json", b"this is no JSON")
    wait_for("the alert", lambda: len(alerts(server, "damaged")) > before)
    server.wait_ticks("damaged", 2)
    (alert,) = alerts(server, "damaged")[before:]
    assert alert["what"] == "complete"
    assert "broken.manifest.json" in alert["message"]
    history = server.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey(["acme", "damaged"]), "complete"), limit=10
    )
    evaluated = [r.event.dagster_event.asset_check_evaluation_data for r in history if r.event and r.event.dagster_event]
    assert [one.passed for one in evaluated if one.metadata.get("manifest")] == [False]
