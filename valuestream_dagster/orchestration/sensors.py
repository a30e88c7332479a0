"""The completeness sensor: one per feed. It looks, registers partitions in order, and requests what is claimable as one range.

A tick is idempotent: what it records is written once per change, and a request's key names the very objects and the attempt.
Eligibility always comes from the ledger; Dagster's run table is only asked how often something was tried.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence

import dagster as dg

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.deployment import Deployment, open_deployment
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.orchestration.checks import COMPLETE, FIXITY, check_of_code
from valuestream_dagster.orchestration.names import (
    FEED_TAG,
    RECOMPUTING_TAG,
    REQUEST_TAG,
    SEALING_TAG,
    applying_name,
    asset_key,
    identifier,
    partitions_name,
    partitions_of,
    recomputing_name,
    sealing_name,
)
from valuestream_dagster.orchestration.partition_rule import range_tags, ranges, unregistered
from valuestream_dagster.orchestration.repair import missing_materializations
from valuestream_dagster.orchestration.side_jobs import build_recomputing_job, build_sealing_job, waiting_identity
from valuestream_dagster.publication.glance import Glance
from valuestream_dagster.publication.locks import is_busy
from valuestream_dagster.publication.plan import FeedPlan

# Dagster makes a sensor of asset jobs anew when it resolves them, and then warns of a parameter that nobody here has set.
warnings.filterwarnings("ignore", message="Parameter `owners` of initializer `SensorDefinition", category=dg.BetaWarning)

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def build_sensor(feed: Feed, opened: Deployment, *, extra_feeds: Sequence[Feed]) -> dg.SensorDefinition:
    """The sensor ``<source>__<dataset>__deliveries``.

    Args:
        feed: whose landing place it looks at.
        opened: the deployment; each tick reads its folder anew.
        extra_feeds: feeds of the deployment that its folder does not declare.
    """
    folder = opened.path

    @dg.sensor(
        name=f"{identifier(feed)}__deliveries",
        jobs=[
            dg.define_asset_job(applying_name(feed), dg.AssetSelection.assets(asset_key(feed)), tags={FEED_TAG: feed.name}),
            build_sealing_job(feed, extra_feeds),
            build_recomputing_job(feed, extra_feeds),
        ],
        minimum_interval_seconds=max(1, int(opened.settings.limits.tick_seconds)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Looks for complete deliveries of {feed.name}, requests what may be applied now, and has the others sealed.",
    )
    def deliveries(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        current = open_deployment(folder, os.environ, extra_feeds=extra_feeds)
        declared = current.feeds.get(feed.name)
        if declared is None:
            return dg.SkipReason(f"{feed.name} is declared no more; reload the code location to take it off the page.")
        if declared.paused:
            return dg.SkipReason(f"{feed.name} is paused in {declared.file}.")
        return _tick(context.instance, current, declared, context.cursor)

    return deliveries


def _tick(
    instance: dg.DagsterInstance, opened: Deployment, feed: Feed, cursor: str | None
) -> dg.SensorResult | dg.SkipReason:
    seen = opened.settled(opened.glance(feed))
    plan = seen.plan(retry_failed=False)
    noted = opened.note(plan)
    registered = instance.get_dynamic_partitions(partitions_name(feed))
    new = unregistered(registered, plan.observed, opened.settings.limits.partitions_per_tick)
    busy = _busy(instance, opened, feed)
    request = busy or _request(instance, opened, plan, [*registered, *new])
    requests = [] if isinstance(request, str) else [request]
    requests += _side_requests(instance, opened, plan)
    refusals = _refusals(seen)
    events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = [
        *rejection_events(feed, noted.rejected),
        *_refusal_events(feed, _told(cursor), refusals),
        # A run at work tells Dagster itself of what it makes visible.
        *([] if busy or not seen.told.unreported else missing_materializations(instance, opened.publisher(feed))),
    ]
    if isinstance(request, str) and not (new or events or requests):
        return dg.SkipReason(request)
    return dg.SensorResult(
        dynamic_partitions_requests=[partitions_of(feed).build_add_request(new)] if new else [],
        run_requests=requests,
        asset_events=events,
        cursor=json.dumps({check: _short(why) for check, why in refusals.items()}),
    )


def _refusals(seen: Glance) -> dict[str, str]:
    """Why nothing of the feed is done, or readers are kept from it, by the check that says so."""
    why = {FIXITY: seen.told.withheld} if seen.told.withheld else {}
    if seen.look.refusals:
        first = seen.look.refusals[0]
        why[COMPLETE] = f"{seen.feed.name} is refused: {first.detail}. Next: {first.next_step}"
    return why


def _told(cursor: str | None) -> dict[str, str]:
    """What of the refusals was told already; a person may have set the cursor to anything."""
    try:
        told = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _refusal_events(feed: Feed, before: Mapping[str, str], now: Mapping[str, str]) -> list[dg.AssetCheckEvaluation]:
    """A feed that is refused has no run that could fail, so its check fails from here: once per reason, and is green again later.

    The sensor's cursor keeps what was told; a daemon that dies in between tells it once more.
    """
    failed = {check: why for check, why in now.items() if before.get(check) != _short(why)}
    mended = {check: f"{feed.name} is refused no more." for check in before if check not in now}
    return [
        dg.AssetCheckEvaluation(
            asset_key=asset_key(feed),
            check_name=check,
            passed=check in mended,
            severity=dg.AssetCheckSeverity.ERROR,
            description=why,
        )
        for check, why in (failed | mended).items()
    ]


def _busy(instance: dg.DagsterInstance, opened: Deployment, feed: Feed) -> str | None:
    """Why the feed is to be left alone for now, or None."""
    if (unfinished := _unfinished_run(instance, feed)) is not None:
        return f"run {unfinished} of {feed.name} is not finished."
    if is_busy(opened.publisher(feed).locks, feed.name):
        return f"{feed.name} is being run by another process."
    return None


def _request(
    instance: dg.DagsterInstance, opened: Deployment, plan: FeedPlan, registered: Sequence[str]
) -> dg.RunRequest | str:
    """The next run to ask for, or why there is none."""
    feed = plan.feed
    pieces = ranges(registered, plan.claimable)
    if not pieces:
        return _nothing_to_do(plan)
    keys = pieces[0]
    request = _request_id(plan, keys)
    tried = instance.get_runs_count(dg.RunsFilter(tags={REQUEST_TAG: request}))
    if tried >= opened.settings.limits.run_attempts:
        return f"{feed.name} {keys[0]}: {tried} runs were interrupted; see why, then start it by hand or `valuestream apply`."
    return dg.RunRequest(
        run_key=f"{request}#{tried}",
        job_name=applying_name(feed),
        partition_key=keys[0].text if len(keys) == 1 else None,
        asset_selection=[asset_key(feed)],
        tags={FEED_TAG: feed.name, REQUEST_TAG: request, **range_tags(keys)},
    )


def _side_requests(instance: dg.DagsterInstance, opened: Deployment, plan: FeedPlan) -> list[dg.RunRequest]:
    """Runs beside the asset's own: sealing what waits for its turn, and, where the feed says so, making again what is stale."""
    feed, wanted = plan.feed, list[tuple[str, str, str]]()
    if (waiting := waiting_identity(plan)) is not None:
        wanted.append((SEALING_TAG, sealing_name(feed), waiting))
    if feed.recompute == "auto" and plan.stale.deliveries:
        wanted.append((RECOMPUTING_TAG, recomputing_name(feed), feed.computation_hash))
    requests = [_side_request(instance, opened, feed, *one) for one in wanted]
    return [request for request in requests if request is not None]


def _side_request(
    instance: dg.DagsterInstance, opened: Deployment, feed: Feed, tag: str, job: str, what: str
) -> dg.RunRequest | None:
    """A run of a job about ``what``, unless one is on its way or it has failed too often."""
    if instance.get_runs_count(dg.RunsFilter(statuses=_UNFINISHED, tags={tag: feed.name})):
        return None
    request = f"{job}/{_short(what)}"
    tried = instance.get_runs_count(dg.RunsFilter(tags={REQUEST_TAG: request}))
    if tried >= opened.settings.limits.run_attempts:
        return None
    return dg.RunRequest(run_key=f"{request}#{tried}", job_name=job, tags={tag: feed.name, REQUEST_TAG: request})


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _unfinished_run(instance: dg.DagsterInstance, feed: Feed) -> str | None:
    """A run of the feed that is queued or running, whoever asked for it: this sensor, a backfill or a person."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED)):
        if run.tags.get(FEED_TAG) == feed.name or asset_key(feed) in (run.asset_selection or ()):
            return run.run_id
    return None


def _request_id(plan: FeedPlan, keys: Sequence[SequenceKey]) -> str:
    """Names the arrivals of these keys by the objects that they are, so that only new bytes make a new request."""
    names = {key.text for key in keys}
    parts = [planned.identity for planned in plan.slices if planned.key.text in names]
    return f"{plan.feed.name}/{keys[0]}..{keys[-1]}/{_short(chr(10).join(parts))}"


def _nothing_to_do(plan: FeedPlan) -> str:
    if plan.refusals:
        return f"{plan.feed.name} is refused: {plan.refusals[0].detail}."
    held_up = [planned for planned in plan.slices if not planned.claimable]
    if held_up:
        return f"{plan.feed.name} {held_up[0].key}: {held_up[0].why}."
    return plan.look.absent or f"nothing new among {len(plan.look.present)} objects."


def rejection_events(feed: Feed, rejected: Sequence[Receipt]) -> list[dg.AssetCheckEvaluation]:
    """Manifests that state no delivery have no partition and no run; their failed check is reported from here."""
    return [
        dg.AssetCheckEvaluation(
            asset_key=asset_key(feed),
            check_name=check_of_code(receipt.code),
            passed=False,
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"{receipt.detail} Next: {receipt.next_step}",
            metadata={"code": receipt.code, "manifest": receipt.manifest},
        )
        for receipt in rejected
    ]
