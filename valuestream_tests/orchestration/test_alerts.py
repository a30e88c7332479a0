"""Who is told what, and how often. Runs are real and happen in this process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.alerts import PATIENCE, Alert, Cursor, build_alert_sensor, collect, deliver
from valuestream_dagster.orchestration.apply import apply_feed
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.names import asset_key
from valuestream_tests.orchestration import places
from valuestream_tests.orchestration.sinks import mail_server, webhook

# Not ours: apprise still imports it on Python 3.11 and 3.12.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
ALERT = Alert("acme/a", "fixity", "three bytes are short", "run-1", NOW.isoformat())


@pytest.fixture
def opened(tmp_path: Path) -> Deployment:
    settings = f"alerts: ['file://{tmp_path}/alerts.jsonl']\n"
    return places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)}, settings)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def evaluate(instance: dg.DagsterInstance, opened: Deployment, check: str, *, passed: bool, message: str = "") -> None:
    key = asset_key(opened.feed("acme/a"))
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(key, check, passed=passed, description=message))


def told(instance: dg.DagsterInstance, opened: Deployment, cursor: Cursor) -> list[tuple[str, str]]:
    return [(alert.what, alert.message) for alert in collect(instance, opened.feeds.values(), cursor)]


def test_a_failed_check_or_else_its_failed_run_is_told_once(opened: Deployment) -> None:
    feed = opened.feed("acme/a")
    cursor = Cursor.parse(None, datetime.now(UTC))
    with instance_of(opened) as instance:
        assert told(instance, opened, cursor) == []
    places.producer(opened, "a").hand_over(places.damaged(opened, "a", 1))
    apply_feed(opened, feed, only=None, progress=None)  # red, and its check says why
    apply_feed(opened, feed, only="3", progress=None)  # red, and no check is to blame
    with instance_of(opened) as instance:
        check, run = found = told(instance, opened, cursor)
        assert check[0] == "fixity", found
        assert run[0] == "run" and "acme/a 3" in run[1]
        again = Cursor.parse(cursor.text(), datetime.now(UTC))
        assert told(instance, opened, again) == []
        sensor = build_alert_sensor([feed], opened, name="alerts", extra_feeds=())
        context = dg.build_sensor_context(instance, cursor=again.text())
        answer = sensor(context)
    assert isinstance(answer, dg.SkipReason) and answer.skip_message == "0 alerts."
    assert places.json_lines(opened.path / "alerts.jsonl") == []


def test_a_sensor_sends_to_the_deployments_places_and_to_the_feeds_own(tmp_path: Path) -> None:
    text = places.feed_text("a", more=f"alerts: ['file://{tmp_path}/own.jsonl', 'file://{tmp_path}/all.jsonl']\n")
    opened = places.make_deployment(tmp_path, {"a": text}, f"alerts: ['file://{tmp_path}/all.jsonl']\n")
    sensor = build_alert_sensor([*opened.feeds.values()], opened, name="alerts", extra_feeds=())
    with dg.DagsterInstance.ephemeral() as instance:
        evaluate(instance, opened, "complete", passed=False, message="half of it")
        context = dg.build_sensor_context(instance)
        answer = sensor(context)
        assert isinstance(answer, dg.SkipReason) and answer.skip_message == "1 alerts."
        sensor(dg.build_sensor_context(instance, cursor=context.cursor))
    for name in ("own", "all"):
        (line,) = places.json_lines(tmp_path / f"{name}.jsonl")
        assert (line["feed"], line["what"], line["message"]) == ("acme/a", "complete", "half of it")
        assert line["title"] == "valuestream: acme/a complete failed"


def test_a_first_look_tells_of_what_fails_now_and_later_looks_of_everything(
    instance: dg.DagsterInstance, opened: Deployment
) -> None:
    for check, verdicts in {"fixity": (False, True), "complete": (False, False)}.items():
        for number, passed in enumerate(verdicts):
            evaluate(instance, opened, check, passed=passed, message=f"number {number}")
    cursor = Cursor.parse(None, datetime.now(UTC))
    assert told(instance, opened, cursor) == [("complete", "number 1")]
    for message in ("again", "and again"):
        evaluate(instance, opened, "complete", passed=False, message=message)
    assert told(instance, opened, cursor) == [("complete", "again"), ("complete", "and again")]
    assert told(instance, opened, cursor) == []


def test_more_evaluations_than_a_page_holds_are_all_told(instance: dg.DagsterInstance, opened: Deployment) -> None:
    cursor = Cursor.parse(None, datetime.now(UTC))
    assert told(instance, opened, cursor) == []
    evaluate(instance, opened, "complete", passed=True)
    assert told(instance, opened, cursor) == []
    messages = [f"number {number}" for number in range(230)]
    for message in messages:
        evaluate(instance, opened, "complete", passed=False, message=message)
    assert told(instance, opened, cursor) == [("complete", message) for message in messages]


def test_an_evaluation_that_never_came_does_not_silence_those_after_it(
    instance: dg.DagsterInstance, opened: Deployment
) -> None:
    # A killed run leaves its planned evaluation behind for ever.
    cursor = Cursor.parse(None, datetime.now(UTC))
    told(instance, opened, cursor)
    instance.report_dagster_event(
        dg.DagsterEvent(
            dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
            "job",
            event_specific_data=AssetCheckEvaluationPlanned(
                asset_key=asset_key(opened.feed("acme/a")), check_name="complete"
            ),
        ),
        run_id="killed",
    )
    evaluate(instance, opened, "complete", passed=False, message="later")
    assert told(instance, opened, cursor) == [("complete", "later")]


def test_a_place_that_does_not_answer_is_tried_again_and_others_are_not_told_twice(tmp_path: Path) -> None:
    cursor = Cursor.parse(None, NOW)
    file = f"file://{tmp_path}/alerts.jsonl"
    with webhook() as (port, _):
        pass  # a port where nobody listens now
    places_of = {"acme/a": (file, f"json://user:{'pass'}word@127.0.0.1:{port}/")}
    assert deliver([ALERT], places_of, cursor, NOW) == []
    assert len(cursor.unsent) == 1
    assert "password" not in cursor.text()
    kept = Cursor.parse(cursor.text(), NOW)
    with webhook(port) as (_, taken):
        assert deliver([], places_of, kept, NOW) == []
        assert deliver([], places_of, kept, NOW) == []
    assert [(one["title"], one["message"]) for one in taken] == [(ALERT.title, ALERT.message)]
    assert len(places.json_lines(tmp_path / "alerts.jsonl")) == 1
    assert kept.unsent == []


def test_after_a_day_it_is_given_up_and_said() -> None:
    cursor = Cursor.parse(None, NOW)
    nowhere = {"acme/a": ("nosuchplace://x/",)}
    assert deliver([ALERT], nowhere, cursor, NOW + PATIENCE - timedelta(seconds=1)) == []
    assert deliver([], nowhere, cursor, NOW + PATIENCE) == [ALERT]
    assert cursor.unsent == []


def test_mail_is_sent() -> None:
    with mail_server() as (port, taken):
        url = f"mailto://127.0.0.1:{port}/?from=valuestream@example.org&to=ann@example.org&mode=insecure"
        assert deliver([ALERT], {"acme/a": (url,)}, cursor := Cursor.parse(None, NOW), NOW) == []
    assert cursor.unsent == []
    (message,) = taken
    assert f"Subject: {ALERT.title}" in message
    assert ALERT.message in message
