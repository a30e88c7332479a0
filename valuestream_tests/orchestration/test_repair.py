"""A run died after its ledger run was closed and before Dagster was told: Dagster is told later, once, by equal versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.apply import apply_feed
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.sensors import build_sensor
from valuestream_tests.orchestration import places


@pytest.fixture
def died(tmp_path: Path) -> tuple[Deployment, list[tuple[str, str]]]:
    """A deployment with three keys that readers see and of which Dagster knows one; and what it should know."""
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})
    deliveries = places.deliver(opened, "a", 1, 2, 3)
    command = [sys.executable, "-m", "valuestream_tests.orchestration.dying", str(tmp_path), "acme/a", "1"]
    assert subprocess.run(command, check=False, capture_output=True, timeout=240).returncode == 9
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
