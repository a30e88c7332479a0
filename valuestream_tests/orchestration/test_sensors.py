"""The completeness sensor, tick by tick: what it registers, what it asks for, and that looking twice changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.orchestration.component import shared_resources
from valuestream_dagster.orchestration.names import REQUEST_TAG, asset_key
from valuestream_dagster.orchestration.sensors import build_sensor
from valuestream_dagster.orchestration.side_jobs import build_recomputing_job, build_sealing_job
from valuestream_dagster.publication.locks import run_lock
from valuestream_tests.builders import NOON
from valuestream_tests.orchestration import places


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def opened(tmp_path: Path) -> Deployment:
    return places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})


def tick(opened: Deployment, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """One look, with its partitions registered as the daemon does; a skip is a result without requests."""
    sensor = build_sensor(opened.feed("acme/a"), opened, extra_feeds=())
    answer = sensor(dg.build_sensor_context(instance, cursor))
    if isinstance(answer, dg.SkipReason):
        return dg.SensorResult(skip_reason=answer)
    assert isinstance(answer, dg.SensorResult)
    for request in answer.dynamic_partitions_requests or ():
        assert isinstance(request, dg.AddDynamicPartitionsRequest)
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return answer


def asked(answer: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    """First and last key of each requested run."""
    return [
        (
            run.partition_key or run.tags.get("dagster/asset_partition_range_start"),
            run.partition_key or run.tags.get("dagster/asset_partition_range_end"),
        )
        for run in answer.run_requests or ()
        if run.job_name == "acme__a__applying"
    ]


def why(answer: dg.SensorResult) -> str:
    assert answer.skip_reason is not None
    return str(answer.skip_reason.skip_message)


def test_nothing_there_is_said(opened: Deployment, instance: dg.DagsterInstance) -> None:
    assert why(tick(opened, instance)) == "nothing new among 0 objects."


def test_partitions_are_registered_in_the_order_of_the_sequence(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 10, 9, 2, 1, 3)
    answer = tick(opened, instance)
    assert instance.get_dynamic_partitions("acme/a") == ["1", "2", "3", "9", "10"]
    assert asked(answer) == [("1", "3")]
    run, sealing = answer.run_requests or ()
    assert sealing.job_name == "acme__a__sealing"
    assert run.asset_selection == [asset_key(opened.feed("acme/a"))]


def test_looking_twice_asks_for_the_same_run_under_the_same_key(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 1, 2)
    first, second = tick(opened, instance), tick(opened, instance)
    assert [run.run_key for run in first.run_requests or ()] == [run.run_key for run in second.run_requests or ()]
    assert not second.dynamic_partitions_requests


def test_new_bytes_and_interrupted_attempts_have_keys_of_their_own_and_the_third_attempt_is_the_last(
    opened: Deployment, instance: dg.DagsterInstance
) -> None:
    places.deliver(opened, "a", 1)
    keys = []
    for number in range(3):
        (run,) = tick(opened, instance).run_requests or ()
        keys.append(run.run_key)
        tags = {REQUEST_TAG: run.tags[REQUEST_TAG]}
        instance.add_run(dg.DagsterRun("job", f"{number:08}", status=dg.DagsterRunStatus.FAILURE, tags=tags))
    assert len(set(keys)) == 3
    assert "3 runs were interrupted" in why(tick(opened, instance))
    places.deliver(opened, "a", 1, revision=2)
    (run,) = tick(opened, instance).run_requests or ()
    assert run.run_key not in keys


def test_an_unfinished_run_of_anybody_is_waited_for(opened: Deployment, instance: dg.DagsterInstance) -> None:
    # A backfill or a person asked for it: no tag of ours, but the asset is in its selection.
    places.deliver(opened, "a", 1)
    selection = frozenset({asset_key(opened.feed("acme/a"))})
    status = dg.DagsterRunStatus.STARTED
    instance.add_run(dg.DagsterRun("job", "abcdefgh", status=status, asset_selection=selection))
    answer = tick(opened, instance)
    assert asked(answer) == []
    assert instance.get_dynamic_partitions("acme/a") == ["1"]
    assert why(tick(opened, instance)) == "run abcdefgh of acme/a is not finished."


def test_a_run_of_another_process_is_waited_for(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 1)
    publisher = opened.publisher(opened.feed("acme/a"))
    with run_lock(publisher.locks, "acme/a", since=NOON):
        assert asked(tick(opened, instance)) == []
        assert why(tick(opened, instance)) == "acme/a is being run by another process."
    assert asked(tick(opened, instance)) == [("1", "1")]


def test_what_is_blocked_is_registered_and_not_asked_for(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 3)
    assert asked(tick(opened, instance)) == []
    assert instance.get_dynamic_partitions("acme/a") == ["3"]


def test_what_is_blocked_is_sealed_by_a_job_that_publishes_nothing(opened: Deployment, instance: dg.DagsterInstance) -> None:
    """Early sealing: asked for once, done once, and then the tick says only what it waits for."""
    places.deliver(opened, "a", 3)
    (request,) = tick(opened, instance).run_requests or ()
    (again,) = tick(opened, instance).run_requests or ()
    assert (request.job_name, request.run_key) == ("acme__a__sealing", again.run_key)
    job = build_sealing_job(opened.feed("acme/a"), ())
    ran = job.execute_in_process(instance=instance, resources=shared_resources(opened), tags=request.tags)
    assert ran.success
    assert [receipt.code for receipt in opened.receipts("acme/a")] == ["sequence_gap"]
    assert not list(opened.settings.store.glob("published/**/*.parquet"))
    assert "acme/a 3: " in why(tick(opened, instance))


def test_only_so_many_partitions_are_registered_in_one_tick(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = "limits: {partitions_per_tick: 2}\n"
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)}, settings)
    places.deliver(opened, "a", 1, 2, 3, 4, 5)
    assert asked(tick(opened, instance)) == [("1", "2")]
    assert asked(tick(opened, instance)) == [("1", "4")]
    assert asked(tick(opened, instance)) == [("1", "5")]


def test_a_paused_or_vanished_feed_is_left_alone(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 1)
    sensor = build_sensor(opened.feed("acme/a"), opened, extra_feeds=())
    file = opened.path / "feeds" / "a.yaml"
    file.write_text(places.feed_text("a", places.CHAINED, "paused: true\n"), "utf-8")
    answer = sensor(dg.build_sensor_context(instance))
    assert isinstance(answer, dg.SkipReason) and answer.skip_message == "acme/a is paused in feeds/a.yaml."
    file.unlink()
    answer = sensor(dg.build_sensor_context(instance))
    assert isinstance(answer, dg.SkipReason) and "declared no more" in str(answer.skip_message)
    assert instance.get_dynamic_partitions("acme/a") == []


def test_a_landing_place_that_does_not_answer_makes_the_tick_red(opened: Deployment, instance: dg.DagsterInstance) -> None:
    # Never a skip: a sensor that swallows its trouble looks healthy.
    shutil.rmtree(opened.path / "landing" / "a")
    (opened.path / "landing" / "a").write_text("no folder")
    with pytest.raises(StoreFailure):
        tick(opened, instance)


def test_a_manifest_that_states_nothing_is_reported_once(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.producer(opened, "a").put("broken.manifest.json", b"{")
    (event,) = tick(opened, instance).asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert (event.check_name, event.passed, event.partition) == ("complete", False, None)
    assert event.metadata["manifest"].value == "broken.manifest.json"
    assert "Next: " in str(event.description)
    assert tick(opened, instance).asset_events == []


def test_a_refused_feed_fails_its_check_once_until_it_is_mended(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """C26: no run can fail of a feed of which nothing is run, so the sensor tells of it, and an alert follows the check."""
    by_name = places.feed_text("a", "{kind: date, pattern: 'orders-{date:YYYYMMDD}.csv'}", "manifest: none\n")
    opened = places.make_deployment(tmp_path, {"a": by_name.replace("controls: {totals: [amount]}\n", "")})
    bad = opened.path / "landing/a/orders-2026O901.csv"
    bad.write_text("id,amount,op\n1,1.00,\n")
    first = tick(opened, instance)
    (event,) = first.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert (event.check_name, event.passed, event.severity) == ("complete", False, dg.AssetCheckSeverity.ERROR)
    assert "acme/a is refused: " in str(event.description) and bad.name in str(event.description)
    assert why(first if first.skip_reason else tick(opened, instance, first.cursor)).startswith("acme/a is refused: ")
    assert tick(opened, instance, first.cursor).asset_events == []
    assert len(tick(opened, instance, "set by hand").asset_events) == 1
    bad.unlink()
    mended = tick(opened, instance, first.cursor)
    (event,) = mended.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation) and (event.check_name, event.passed) == ("complete", True)
    assert tick(opened, instance, mended.cursor).asset_events == []


def test_a_lost_file_fails_its_check_once(opened: Deployment, instance: dg.DagsterInstance) -> None:
    places.deliver(opened, "a", 1)
    feed = opened.feed("acme/a")
    with opened.publisher(feed).open_run(opened.plan(feed).claimable) as run:
        list(run.publish(opened.plan(feed).claimable))
    (lost,) = (opened.settings.store / "published").rglob("*.parquet")
    lost.unlink()
    opened.settings.catalog.unlink()
    first = tick(opened, instance)
    (event,) = [one for one in first.asset_events if isinstance(one, dg.AssetCheckEvaluation)]
    assert (event.check_name, event.passed) == ("fixity", False)
    assert "a published file cannot be read" in str(event.description)
    again = tick(opened, instance, first.cursor).asset_events
    assert not any(isinstance(one, dg.AssetCheckEvaluation) for one in again)


def test_what_an_edit_made_stale_is_made_again_by_a_job_only_where_the_feed_says_so(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """L20, ruling 12: `recompute: ask` waits for a person; `auto` does not, and a second look asks for nothing more."""
    auto = "policy: {recompute: auto}\n"
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})
    places.deliver(opened, "a", 1, 2)
    feed = opened.feed("acme/a")
    with opened.publisher(feed).open_run(opened.plan(feed).claimable) as run:
        list(run.publish(opened.plan(feed).claimable))
    edited = places.feed_text("a", places.CHAINED).replace("DECIMAL(18,2)", "DECIMAL(18,3)")
    opened = places.make_deployment(tmp_path, {"a": edited})
    assert not tick(opened, instance).run_requests
    opened = places.make_deployment(tmp_path, {"a": edited + auto})
    (request,) = tick(opened, instance).run_requests or ()
    assert request.job_name == "acme__a__recomputing"
    job = build_recomputing_job(opened.feed("acme/a"), ())
    assert job.execute_in_process(instance=instance, resources=shared_resources(opened), tags=request.tags).success
    assert not opened.plan(opened.feed("acme/a")).stale.deliveries
    after = tick(opened, instance)
    assert not after.run_requests
    materialized = [event for event in after.asset_events if isinstance(event, dg.AssetMaterialization)]
    told = {(event.tags or {})["dagster/code_version"] for event in materialized}
    assert told == {opened.feed("acme/a").computation_hash}, "Dagster hears of the new files"
