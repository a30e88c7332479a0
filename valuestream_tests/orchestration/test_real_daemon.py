"""Deliveries arrive while UI, daemon and code server run as `valuestream ui` starts them. Nothing here is simulated.

The tests tell one story in their order, and what takes long (a backfill waits up to 30 s for its daemon) is begun early.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def sealed(server: Server, dataset: str) -> list[str]:
    receipts = server.opened.receipts(f"acme/{dataset}")
    return [str(receipt.key) for receipt in receipts if receipt.verdict is Verdict.WAITING and receipt.digest]


def parquet_files(server: Server) -> list[str]:
    return sorted(path.name for path in server.opened.settings.store.glob("published/acme/gapped/**/*.parquet"))


def range_of(run: dg.DagsterRun) -> tuple[str, str]:
    return run.tags["dagster/asset_partition_range_start"], run.tags["dagster/asset_partition_range_end"]


@dataclass(frozen=True, slots=True)
class Story:
    """What is under way when the first test begins."""

    ordered: Delivery
    gapped: Delivery
    backfilled: list[Delivery]
    backfill: str


@pytest.fixture(scope="module")
def story(server: Server) -> Story:
    opened = server.opened
    first = producer(opened, "ordered").make(1, rows_of(1))
    producer(opened, "ordered").put(first.manifest_path, first.manifest)
    producer(opened, "damaged").hand_over(damaged(opened, "damaged", 1))
    (gapped,) = deliver(opened, "gapped", 1)
    deliver(opened, "gapped", 3, 4, 5)
    server.stop_sensor("backfilled", beside="ordered")
    backfilled = deliver(opened, "backfilled", *range(1, 11))
    keys = [delivery.key for delivery in backfilled]
    server.instance.add_dynamic_partitions("acme/backfilled", keys)
    backfill = server.backfill("backfilled", ["10", *reversed(keys[:-1])])
    return Story(first, gapped, backfilled, backfill)


def test_a_manifest_without_its_file_asks_for_no_run(server: Server, story: Story) -> None:
    server.wait_ticks("ordered", count=1)
    assert server.runs("ordered") == []  # S1
    for path, data in story.ordered.files.items():
        producer(server.opened, "ordered").put(path, data)
    wait_versions(server, "ordered", [story.ordered])


def test_a_failed_check_sends_one_alert(server: Server, story: Story) -> None:
    told = wait_for("the alert", lambda: alerts(server, "damaged"))
    (run,) = server.finished("damaged")
    assert run.status is dg.DagsterRunStatus.FAILURE
    (alert,) = told
    assert (alert["what"], alert["run_id"]) == ("fixity", run.run_id)
    assert alert["title"] == "valuestream: acme/damaged fixity failed"
    assert alert["message"]
    producer(server.opened, "damaged").put("broken.manifest.json", b"this is no JSON")


def test_a_hand_launched_key_without_its_predecessor_is_refused(server: Server, story: Story) -> None:
    # FACTS 3: red, not retried, the reason where people look; nothing is written (S27).
    wait_versions(server, "gapped", [story.gapped])
    wait_for("partitions", lambda: len(server.instance.get_dynamic_partitions("acme/gapped")) == 4)
    assert len(server.runs("gapped")) == 1  # S16: of what is blocked nothing is asked
    files = parquet_files(server)
    # Early sealing: what waits is in our own store by now, whatever the producer does with it.
    wait_for("sealing", lambda: sealed(server, "gapped") == ["3", "4", "5"] or None)
    run_id, backfill = server.launch("gapped", "3"), server.backfill("gapped", ["3", "4", "5"])
    run = server.wait_run(run_id)
    assert run.status is dg.DagsterRunStatus.FAILURE
    failure = server.failure(run)
    assert failure["reason"] == "sequence_gap", failure
    assert "2" in failure["detail"]
    assert failure["next_step"]
    assert failure["refused_keys"] == "3"

    # S27: a backfill over a gap refuses every step.
    assert server.wait_backfill(backfill) == "COMPLETED_FAILED"
    first, refused, backfilled = server.finished("gapped")
    assert (first.status, refused.run_id) == (dg.DagsterRunStatus.SUCCESS, run_id)
    failure = server.failure(backfilled)
    assert failure["refused_keys"] == "3, 4, 5"
    assert failure["reason"] == "sequence_gap"
    assert failure["refused"].count("\n- ") == 2
    assert server.versions("gapped") == [("1", version_of(story.gapped))]
    assert accepted(server, "gapped") == ["1"]
    assert parquet_files(server) == files

    # No check failed, so each run is told of by itself.
    told = wait_for("both alerts", lambda: found if len(found := alerts(server, "gapped")) > 1 else None)
    assert sorted((one["what"], one["run_id"]) for one in told) == sorted(
        ("run", run.run_id) for run in (refused, backfilled)
    )
    assert failure["description"] in [one["message"] for one in told]


def test_a_backfill_from_the_ui_applies_its_keys_in_order(server: Server, story: Story) -> None:
    assert server.wait_backfill(story.backfill) == "COMPLETED_SUCCESS"
    wait_versions(server, "backfilled", story.backfilled)
    assert accepted(server, "backfilled") == [str(key) for key in range(1, 11)]  # 10 after 9, unlike texts
    assert len(server.runs("backfilled")) == 1


def test_a_gap_that_is_filled_lets_the_keys_after_it_go(server: Server, story: Story) -> None:
    # C16, S16, S17: 3 and 4 come before 2.
    later = deliver(server.opened, "ordered", 3, 4)  # a tick between the two registers them in the same order
    wait_for("partitions", lambda: len(server.instance.get_dynamic_partitions("acme/ordered")) == 3)
    assert len(server.runs("ordered")) == 1
    filled = deliver(server.opened, "ordered", 2)
    wait_versions(server, "ordered", [story.ordered, *filled, *later])
    assert server.instance.get_dynamic_partitions("acme/ordered") == ["1", "3", "4", "2"]
    # In the registered order 2 is no neighbour of 3, so it is a run of its own, and 3..4 a range.
    wait_for("the runs' end", lambda: len(server.finished("ordered")) == 3)
    asked = [run.tags.get("dagster/partition") or range_of(run) for run in server.finished("ordered")]
    assert asked == ["1", "2", ("3", "4")]
    assert accepted(server, "ordered") == ["1", "2", "3", "4"]


def test_a_prefix_that_is_here_at_once_is_one_range_and_a_resend_is_told_of_by_an_equal_version(
    server: Server, story: Story
) -> None:
    server.stop_sensor("ordered", beside="gapped")
    prefix = deliver(server.opened, "ordered", 5, 6, 7)
    again = producer(server.opened, "ordered").make(4, rows_of(4)).named("resent-4")
    producer(server.opened, "ordered").hand_over(again)
    server.start_sensor("ordered")
    wait_for("two more runs", lambda: len(server.finished("ordered")) == 5)
    resend, run = server.finished("ordered")[3:]
    assert (resend.tags["dagster/partition"], range_of(run)) == ("4", ("5", "7"))
    expected = [again, *prefix]
    assert server.versions("ordered")[4:] == [(one.key, version_of(one)) for one in expected]
    assert accepted(server, "ordered") == ["1", "2", "3", "4", "5", "6", "7"]  # S4: the resend is no acceptance


def test_a_manifest_that_states_nothing_is_a_failed_check_and_one_alert(server: Server, story: Story) -> None:
    told = wait_for("the alert", lambda: found if len(found := alerts(server, "damaged")) > 1 else None)
    assert told[1]["what"] == "complete"
    assert "broken.manifest.json" in told[1]["message"]
    history = server.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey(["acme", "damaged"]), "complete"), limit=10
    )
    evaluated = [r.event.dagster_event.asset_check_evaluation_data for r in history if r.event and r.event.dagster_event]
    assert [one.passed for one in evaluated if one.metadata.get("manifest")] == [False]


def test_looking_again_asks_for_nothing_and_tells_of_nothing(server: Server, story: Story) -> None:
    # S10, L17
    names = ("ordered", "gapped", "damaged")
    before = {name: (server.runs(name), server.versions(name), alerts(server, name)) for name in names}
    receipts = server.opened.receipts(None)
    server.wait_ticks(*names)
    after = {name: (server.runs(name), server.versions(name), alerts(server, name)) for name in names}
    assert after == before
    assert server.opened.receipts(None) == receipts
    assert [len(before[name][2]) for name in names] == [0, 2, 2]
    requested = [run.tags["valuestream/request"] for run in server.runs("ordered")]
    assert len(set(requested)) == len(requested)
