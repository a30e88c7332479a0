"""The alert sensor: one notification per failed check, and per failed run that no failed check told of already.

A cursor per check over Dagster's execution history, because event cursors fail on sharded SQLite (FACTS). A sensor that
looks for the first time tells of the checks that fail now, not of all that ever failed. Who could not be reached is tried
again at later ticks. Sending is apprise's work; ``file:///path`` appends a JSON line, for tests and log shippers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg

from valuestream_dagster.deployment import Deployment, open_deployment
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.checks import check_specs
from valuestream_dagster.orchestration.failures import why_failed
from valuestream_dagster.orchestration.names import asset_key

PATIENCE = timedelta(hours=24)
UNSENT_LIMIT = 200
# Failed runs are looked for this far back again, because a run's row may be written after a later one was seen.
OVERLAP_SECONDS = 60
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


@dataclass(frozen=True, slots=True)
class _Unsent:
    """An alert that some places (named by hash, because their URLs hold secrets) have not taken yet."""

    alert: Alert
    places: tuple[str, ...]


@dataclass(slots=True)
class Cursor:
    """Newest evaluation told of per check, until when failed runs were told of, and what is still to be sent."""

    checks: dict[str, int]
    runs_until: float
    told_runs: list[str] = field(default_factory=list)
    unsent: list[_Unsent] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str | None, now: datetime) -> Cursor:
        """The cursor that ``text`` stored; a sensor without one begins now."""
        if not text:
            return cls({}, now.timestamp())
        known = json.loads(text)
        unsent = [_Unsent(Alert(**one["alert"]), tuple(one["places"])) for one in known["unsent"]]
        return cls(dict(known["checks"]), float(known["runs_until"]), list(known["told_runs"]), unsent)

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def build_alert_sensor(
    feeds: Sequence[Feed], opened: Deployment, *, name: str, extra_feeds: Sequence[Feed]
) -> dg.SensorDefinition:
    """A sensor that tells of some feeds of a deployment.

    Args:
        feeds: which.
        opened: the deployment; each tick reads its folder anew, so that URLs may change.
        name: the sensor's.
        extra_feeds: feeds of the deployment that its folder does not declare.
    """
    folder, names = opened.path, [feed.name for feed in feeds]

    @dg.sensor(
        name=name,
        minimum_interval_seconds=max(1, int(opened.settings.limits.tick_seconds)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends one notification per failed check and failed run to the URLs under `alerts`.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        current = open_deployment(folder, os.environ, extra_feeds=extra_feeds)
        mine = {name: current.feeds[name] for name in names if name in current.feeds}
        now = datetime.now(UTC)
        cursor = Cursor.parse(context.cursor, now)
        found = collect(context.instance, mine.values(), cursor)
        places = {name: (*current.settings.alerts, *feed.alerts) for name, feed in mine.items()}
        for lost in deliver(found, places, cursor, now):
            context.log.error("Given up after a day, not everybody could be told: %s: %s", lost.title, lost.message)
        context.update_cursor(cursor.text())
        waiting = f", {len(cursor.unsent)} to be sent again" if cursor.unsent else ""
        return dg.SkipReason(f"{len(found)} alerts{waiting}.")

    return alerts


# --- what failed -----------------------------------------------------------------------------------------------------


def collect(instance: dg.DagsterInstance, feeds: Iterable[Feed], cursor: Cursor) -> list[Alert]:
    """What failed since the cursor, which is moved on."""
    by_asset = {asset_key(feed): feed for feed in feeds}
    alerts = [alert for feed in by_asset.values() for alert in _failed_checks(instance, feed, cursor)]
    return alerts + _failed_runs(instance, by_asset, cursor)


def _failed_runs(instance: dg.DagsterInstance, by_asset: dict[dg.AssetKey, Feed], cursor: Cursor) -> list[Alert]:
    since = cursor.runs_until - OVERLAP_SECONDS
    records = instance.get_run_records(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=datetime.fromtimestamp(since, UTC))
    )
    ended = [(record.end_time or record.update_timestamp.timestamp(), record.dagster_run) for record in records]
    recent = sorted(((when, run) for when, run in ended if when >= since), key=lambda pair: pair[0])
    alerts: list[Alert] = []
    for when, run in recent:
        if run.run_id in cursor.told_runs:
            continue
        feed = next((by_asset[key] for key in _assets_of(instance, run) if key in by_asset), None)
        if feed is not None and not _has_failed_check(instance, run.run_id):
            at = datetime.fromtimestamp(when, UTC).isoformat()
            alerts.append(Alert(feed.name, "run", _why_failed(instance, run.run_id), run.run_id, at))
    cursor.told_runs = [run.run_id for _, run in recent]
    cursor.runs_until = max([cursor.runs_until, *(when for when, _ in recent)])
    return alerts


def _assets_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[dg.AssetKey]:
    """What a run was to make; a job of the user's own names no selection, so its plan is asked."""
    if run.asset_selection:
        return sorted(run.asset_selection)
    planned = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    return [event.asset_key for entry in planned if (event := entry.dagster_event) is not None and event.asset_key]


def _failed_checks(instance: dg.DagsterInstance, feed: Feed, cursor: Cursor) -> list[Alert]:
    alerts: list[Alert] = []
    for spec in check_specs(feed):
        name = f"{feed.name}:{spec.name}"
        first_look = name not in cursor.checks
        evaluations = _newer(instance, spec.key, cursor.checks.get(name, 0))
        cursor.checks[name] = max([cursor.checks.get(name, 0), *(record.id for record in evaluations)])
        for record in evaluations[-1:] if first_look else evaluations:
            evaluation = record.event.dagster_event.asset_check_evaluation_data
            if not evaluation.passed:
                when = datetime.fromtimestamp(record.event.timestamp, UTC).isoformat()
                alerts.append(Alert(feed.name, spec.name, evaluation.description or "", record.run_id, when))
    return alerts


def _newer(instance: dg.DagsterInstance, key: dg.AssetCheckKey, last: int) -> list[Any]:
    """Evaluations of one check with an id above ``last``, oldest first, up to the first that is still to come."""
    found: list[Any] = []
    page_cursor: int | None = None
    while True:
        page = instance.event_log_storage.get_asset_check_execution_history(key, limit=_PAGE, cursor=page_cursor)
        found += [record for record in page if record.id > last]
        # A first look reads one page: it tells of the newest only.
        if len(page) < _PAGE or page[-1].id <= last or not last:
            break
        page_cursor = page[-1].id
    done: list[Any] = []
    for record in sorted(found, key=lambda record: record.id):
        if record.event is not None and record.event.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            done.append(record)
        elif not _abandoned(instance, record.run_id):
            break
    return done


def _abandoned(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether the run that planned an evaluation ended long ago, or is gone: then none will come any more."""
    record = instance.get_run_record_by_id(run_id)
    if record is None:
        return True
    ended = record.end_time if record.dagster_run.is_finished else None
    return ended is not None and ended + OVERLAP_SECONDS < datetime.now(UTC).timestamp()


def _has_failed_check(instance: dg.DagsterInstance, run_id: str) -> bool:
    return any(
        not entry.dagster_event.asset_check_evaluation_data.passed
        for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        if entry.dagster_event
    )


def _why_failed(instance: dg.DagsterInstance, run_id: str) -> str:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        if entry.dagster_event is not None:
            return why_failed(entry.dagster_event)
    return "the run ended without saying why; it was killed or could not start. Its log in the UI tells more."


# --- telling people --------------------------------------------------------------------------------------------------


def deliver(
    found: Iterable[Alert], places: Mapping[str, Sequence[str]], cursor: Cursor, now: datetime
) -> list[Alert]:
    """Send new alerts, and again those that not everybody took; what stays unsent is kept in the cursor.

    Args:
        found: new alerts.
        places: notification URLs by feed.
        cursor: changed in place.
        now: the clock's reading.

    Returns:
        The alerts that were given up.
    """
    new = [_Unsent(alert, tuple(_hash(url) for url in places.get(alert.feed, ()))) for alert in found]
    silent: set[str] = set()  # places that did not answer just now, and are not asked again in this tick
    still: list[_Unsent] = []
    for one in (*cursor.unsent, *new):
        urls = [url for url in dict.fromkeys(places.get(one.alert.feed, ())) if _hash(url) in one.places]
        silent |= {url for url in urls if url not in silent and not send(one.alert, url)}
        if refused := tuple(_hash(url) for url in urls if url in silent):
            still.append(_Unsent(one.alert, refused))
    young = [one for one in still if now - datetime.fromisoformat(one.alert.happened_at) < PATIENCE]
    cursor.unsent = young[-UNSENT_LIMIT:]
    return [one.alert for one in still if one not in cursor.unsent]


def send(alert: Alert, url: str) -> bool:
    """Notify one place; whether it took it. The URL may hold secrets and is never logged."""
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": alert.title, **asdict(alert)}) + "\n")
        return True
    import apprise  # heavy, and needed only when there is something to say

    place = apprise.Apprise()
    return bool(place.add(url)) and bool(place.notify(title=alert.title, body=alert.message))


def _hash(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:12]
