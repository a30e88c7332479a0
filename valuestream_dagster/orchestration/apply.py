"""Carrying out, from the command line, what is claimable: real Dagster runs in this process, in the deployment's own instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import dagster as dg

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.deployment import Deployment
from valuestream_dagster.errors import NotApplied, is_interrupt
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.orchestration.assets import build_asset
from valuestream_dagster.orchestration.component import shared_resources
from valuestream_dagster.orchestration.event_log import kept_open
from valuestream_dagster.orchestration.failures import why_failed
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.io_manager import on_progress
from valuestream_dagster.orchestration.names import FEED_TAG, asset_key, partitions_name
from valuestream_dagster.orchestration.partition_rule import range_tags, ranges, unregistered
from valuestream_dagster.orchestration.repair import report_missing, tell_again, unbacked
from valuestream_dagster.orchestration.sensors import rejection_events
from valuestream_dagster.publication.locks import is_busy
from valuestream_dagster.publication.plan import FeedPlan

PASSES_LIMIT = 1_000


@dataclass(slots=True)
class Applied:
    """What an apply did: Dagster run ids with whether they ended green, why runs were red, and whether Ctrl-C ended it."""

    runs: list[tuple[str, bool]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    repaired: int = 0
    interrupted: bool = False


def apply_feed(
    opened: Deployment, feed: Feed, *, only: str | None, progress: Callable[[str, int, int], None] | None
) -> Applied:
    """Run everything of a feed that is claimable, until nothing is; a no-op where nothing is new.

    Args:
        opened: the deployment.
        feed: which feed.
        only: one key to run, whether or not it is claimable (the gate answers); None for all that is.
        progress: told (feed, keys done, keys in all) while a range runs.

    Raises:
        FeedBusy: another process runs the feed.
        NotApplied: the feed is paused.
    """
    applied = Applied()
    publisher = opened.publisher(feed)
    if is_busy(publisher.locks, feed.name):
        with publisher.open_run(()):
            pass  # it has ended meanwhile; otherwise this raises FeedBusy, which names the holder
    seen = opened.settled(opened.glance(feed))
    plan = seen.plan(retry_failed=True)
    noted = opened.note(plan)
    keys = (opened.key(feed, only),) if only else plan.claimable
    if keys or noted.receipts or seen.told.unreported:
        if feed.paused:
            raise NotApplied(f"{feed.name} is paused.", next_step=f"remove `paused` from {feed.file}, then apply again.")
        with instance_of(opened) as instance, kept_open():
            applied.repaired = report_missing(instance, publisher)
            _report(instance, feed, noted.rejected)
            on_progress(progress)
            plan = _passes(instance, opened, plan, keys, applied, once=only is not None)
            on_progress(None)
            report_missing(instance, publisher)
    if not (only or applied.interrupted or feed.paused):
        opened.take_in_early(plan)
    return applied


def tell_dagster(opened: Deployment, feed: Feed) -> None:
    """Report every visible publication that Dagster does not have, however many."""
    publisher = opened.publisher(feed)
    with instance_of(opened) as instance, kept_open():
        while publisher.unreported(1):
            report_missing(instance, publisher)


def compare_with_dagster(opened: Deployment, feed: Feed) -> tuple[int, tuple[str, ...]]:
    """Report what Dagster lacks; how many that were, and which of its materialized partitions the ledger has no publication of.

    Asked of Dagster itself, not of what the ledger remembers to have told it: its storage may have been lost, or put back older.
    """
    publisher = opened.publisher(feed)
    with instance_of(opened) as instance, kept_open():
        reported = 0
        while publisher.unreported(1):
            reported += report_missing(instance, publisher)
        green = instance.get_materialized_partitions(asset_key(feed))
        return reported + tell_again(instance, publisher, green), unbacked(publisher, green)


def _passes(
    instance: dg.DagsterInstance,
    opened: Deployment,
    plan: FeedPlan,
    keys: Sequence[SequenceKey],
    applied: Applied,
    *,
    once: bool,
) -> FeedPlan:
    """Run these keys, and then what became claimable by that, until nothing is; returns the last plan."""
    feed = plan.feed
    job = _job(opened, feed)
    done: set[str] = set()
    for _ in range(PASSES_LIMIT):
        todo = [key for key in keys if key.text not in done]
        if not todo:
            break
        new = unregistered(
            instance.get_dynamic_partitions(partitions_name(feed)), _known(plan.observed, keys), 1_000_000
        )
        if new:
            instance.add_dynamic_partitions(partitions_name(feed), new)
        registered = instance.get_dynamic_partitions(partitions_name(feed))
        for piece in ranges(registered, todo):
            _run(instance, job, feed, piece, applied)
            done |= {key.text for key in piece}
            if applied.interrupted:
                break
        if once or applied.interrupted:
            break
        plan = opened.plan(feed)
        keys = plan.claimable
    return plan


def _known(observed: Iterable[SequenceKey], keys: Iterable[SequenceKey]) -> list[SequenceKey]:
    return list({key.text: key for key in (*observed, *keys)}.values())


def _report(instance: dg.DagsterInstance, feed: Feed, rejected: Sequence[Receipt]) -> None:
    for event in rejection_events(feed, rejected):
        instance.report_runless_asset_event(event)


def _job(opened: Deployment, feed: Feed) -> dg.JobDefinition:
    definitions = dg.Definitions(
        assets=[build_asset(feed)], resources=shared_resources(opened), executor=dg.in_process_executor
    )
    return definitions.resolve_implicit_global_asset_job_def()


def _run(
    instance: dg.DagsterInstance, job: dg.JobDefinition, feed: Feed, keys: Sequence[SequenceKey], applied: Applied
) -> None:
    """One Dagster run over a range; its log goes to the instance, not to this terminal."""
    result = job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        partition_key=keys[0].text if len(keys) == 1 else None,
        asset_selection=[asset_key(feed)],
        tags={FEED_TAG: feed.name, **range_tags(keys)},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    applied.runs.append((result.run_id, result.success))
    for event in result.all_events:
        # Ctrl-C inside a step ends Dagster's run as a failed one and goes no further by itself.
        if event.is_step_failure and _was_interrupted(event):
            applied.interrupted = True
        elif event.is_step_failure:
            applied.failures.append(why_failed(event))


def _was_interrupted(event: dg.DagsterEvent) -> bool:
    error = event.step_failure_data.error
    while error is not None and not is_interrupt(error.cls_name or "", error.message):
        error = error.cause
    return error is not None
