"""A run died after its ledger run was closed and before Dagster was told: Dagster is told later, once, by equal versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.apply import apply_feed
from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.sensors import build_sensor
from valuestream_tests.orchestration import places


def die(opened: Deployment, events: int) -> None:
    """Apply in a process that dies after so many events."""
    command = [sys.executable, "-m", "valuestream_tests.orchestration.dying", str(opened.path), "acme/a", str(events)]
    assert subprocess.run(command, check=False, capture_output=True, timeout=240).returncode == 9


@pytest.fixture
def died(tmp_path: Path) -> tuple[Deployment, list[tuple[str, str]]]:
    """A deployment with three keys that readers see and of which Dagster knows one; and what it should know."""
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})
    deliveries = places.deliver(opened, "a", 1, 2, 3)
    die(opened, 1)
    expected = [(one.key, places.version_of(one)) for one in deliveries]
    assert places.versions_seen(opened, "a") == expected[:1]
    with opened.open_catalogue() as catalogue:
        assert catalogue.sql("SELECT count(*) FROM acme.a").fetchall() == [(6,)]
    return opened, expected


def test_apply_tells_dagster_what_it_lacks(died: tuple[Deployment, list[tuple[str, str]]]) -> None:
    opened, expected = died
    feed = opened.feed("acme/a")
    applied = apply_feed(opened, feed, only=None, progress=None)
    assert (applied.repaired, applied.runs) == (2, [])
    assert places.versions_seen(opened, "a") == expected
    assert apply_feed(opened, feed, only=None, progress=None).repaired == 0
    assert places.versions_seen(opened, "a") == expected


def test_the_sensor_tells_dagster_what_it_lacks(died: tuple[Deployment, list[tuple[str, str]]]) -> None:
    opened, expected = died
    feed = opened.feed("acme/a")
    with instance_of(opened) as instance:
        # The killed run stays `started` until run monitoring ends it; so does the sensor's respect for it.
        for run in instance.get_runs():
            instance.report_run_failed(run)
        sensor = build_sensor(feed, opened, extra_feeds=())
        answer = sensor(dg.build_sensor_context(instance))
        assert isinstance(answer, dg.SensorResult)
        assert not answer.run_requests
        for event in answer.asset_events:
            instance.report_runless_asset_event(event)
        assert places.versions(instance, feed) == expected
        again = sensor(dg.build_sensor_context(instance))
        assert isinstance(again, dg.SkipReason)
        assert places.versions(instance, feed) == expected
        assert opened.publisher(feed).unreported(10) == ()


def test_a_revision_that_was_replaced_meanwhile_is_not_told_of_after_its_successor(tmp_path: Path) -> None:
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})
    feed = opened.feed("acme/a")
    (first, second) = places.deliver(opened, "a", 1, 2)
    die(opened, 0)
    (corrected,) = places.deliver(opened, "a", 1, revision=2)
    with instance_of(opened) as instance:  # started by hand: nobody repairs before it
        job = deployment_definitions(opened).resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, partition_key="1").success
        assert places.versions(instance, feed) == [("1", places.version_of(corrected))]
    assert apply_feed(opened, feed, only=None, progress=None).repaired == 1
    told = [("1", places.version_of(corrected)), ("2", places.version_of(second))]
    assert places.versions_seen(opened, "a") == told
    assert first.statement["revision"] == 1 and opened.publisher(feed).unreported(10) == ()
