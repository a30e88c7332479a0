"""The alert sensor: one notification per failed check, and per failed run that no failed check told of already.

A cursor per check over Dagster's execution history, because event cursors fail on sharded SQLite (FACTS). Sending is apprise's
work; ``file:///path`` appends a JSON line, for tests and log shippers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg

from valuestream_dagster.deployment import open_deployment
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.names import asset_key

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that a person should know; ``what`` is the check's name or ``run``."""

    feed: str
    what: str
    message: str
    run_id: str
    happened_at: str

    @property
    def title(self) -> str:
        """The subject line."""
        return f"valuestream: {self.feed} {self.what} failed"


@dataclass(slots=True)
class _Cursor:
    """Newest evaluation told of per check, and the time up to which failed runs were told of."""

    checks: dict[str, int]
    runs_until: float

    @classmethod
    def parse(cls, text: str | None, now: datetime) -> _Cursor:
        known = json.loads(text) if text else {}
        return cls(dict(known.get("checks", {})), float(known.get("runs_until", now.timestamp())))

    def text(self) -> str:
        return json.dumps(asdict(self))


def build_alert_sensor(feeds: Sequence[Feed], deployment: str, *, tick_seconds: float) -> dg.SensorDefinition:
    """The sensor ``valuestream_alerts`` over all feeds of a deployment."""

    @dg.sensor(
        name="valuestream_alerts",
        minimum_interval_seconds=max(1, int(tick_seconds)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends one notification per failed check and failed run to the URLs under `alerts`.",
    )
    def valuestream_alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        opened = open_deployment(deployment, os.environ, extra_feeds=feeds)
        cursor = _Cursor.parse(context.cursor, datetime.now(UTC))
        alerts = collect(context.instance, tuple(opened.feeds.values()), cursor)
        unsent = 0
        for alert in alerts:
            feed = opened.feeds[alert.feed]
            unsent += not send(alert, (*opened.settings.alerts, *feed.alerts))
        context.update_cursor(cursor.text())
        failed = f", {unsent} could not be sent everywhere (see the code server's log)" if unsent else ""
        return dg.SkipReason(f"{len(alerts)} alerts{failed}.")

    return valuestream_alerts


def collect(instance: dg.DagsterInstance, feeds: Iterable[Feed], cursor: _Cursor) -> list[Alert]:
    """What failed since the cursor, which is moved on."""
    alerts: list[Alert] = []
    told_runs: set[str] = set()
    by_asset = {asset_key(feed): feed for feed in feeds}
    for feed in by_asset.values():
        for alert in _failed_checks(instance, feed, cursor):
            alerts.append(alert)
            told_runs.add(alert.run_id)
    since = datetime.fromtimestamp(cursor.runs_until, UTC)
    records = instance.get_run_records(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=since), limit=_PAGE, ascending=True
    )
    for record in records:
        cursor.runs_until = max(cursor.runs_until, record.update_timestamp.timestamp())
        run = record.dagster_run
        mine = [by_asset[key] for key in run.asset_selection or () if key in by_asset]
        if not mine or run.run_id in told_runs or _has_failed_check(instance, run.run_id):
            continue
        alerts.append(
            Alert(mine[0].name, "run", _why_failed(instance, run.run_id), run.run_id, record.update_timestamp.isoformat())
        )
    return alerts


def _failed_checks(instance: dg.DagsterInstance, feed: Feed, cursor: _Cursor) -> list[Alert]:
    from valuestream_dagster.orchestration.checks import check_specs

    alerts: list[Alert] = []
    for spec in check_specs(feed):
        name = f"{feed.name}:{spec.name}"
        last = cursor.checks.get(name, 0)
        for record in _newer(instance, spec.key, last):
            cursor.checks[name] = max(cursor.checks.get(name, 0), record.id)
            event = record.event.dagster_event if record.event else None
            if event is None:
                continue
            evaluation = event.asset_check_evaluation_data
            if not evaluation.passed:
                when = datetime.fromtimestamp(record.event.timestamp, UTC).isoformat() if record.event else ""
                alerts.append(Alert(feed.name, spec.name, evaluation.description or "", record.run_id, when))
    return alerts


def _newer(instance: dg.DagsterInstance, key: dg.AssetCheckKey, last: int) -> list[Any]:
    """Evaluations of one check with an id above ``last``, oldest first; planned ones that are not over yet stay for later."""
    found: list[Any] = []
    page_cursor: int | None = None
    while True:
        page = instance.event_log_storage.get_asset_check_execution_history(key, limit=_PAGE, cursor=page_cursor)
        found += [record for record in page if record.id > last]
        if len(page) < _PAGE or page[-1].id <= last:
            break
        page_cursor = page[-1].id
    pending = [record.id for record in found if record.event is None or record.event.dagster_event is None]
    done = [record for record in found if not pending or record.id < min(pending)]
    return sorted((r for r in done if r.event and r.event.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION), key=lambda r: r.id)


def _has_failed_check(instance: dg.DagsterInstance, run_id: str) -> bool:
    return any(
        not entry.dagster_event.asset_check_evaluation_data.passed
        for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        if entry.dagster_event
    )


def _why_failed(instance: dg.DagsterInstance, run_id: str) -> str:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        failure = entry.dagster_event.step_failure_data.user_failure_data if entry.dagster_event else None
        if failure is not None and failure.description:
            return failure.description
    return "the run ended without saying why; it was killed or could not start. Its log in the UI tells more."


def send(alert: Alert, urls: Iterable[str]) -> bool:
    """Notify every URL; whether all took it. The URLs may hold secrets and are never logged."""
    import apprise  # heavy, and needed only when there is something to say

    sent = True
    remote = apprise.Apprise()
    for url in urls:
        if url.startswith("file:"):
            path = Path(unquote(urlsplit(url).path))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"title": alert.title, **asdict(alert)}) + "\n")
        else:
            sent = bool(remote.add(url)) and sent
    return (bool(remote.notify(title=alert.title, body=alert.message)) if len(remote) else True) and sent
