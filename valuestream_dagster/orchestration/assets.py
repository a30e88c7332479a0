"""A feed as a partitioned asset: partitions are sequence keys, the body is the gate. What is published is the IO manager's work."""

# No `from __future__ import annotations` here: Dagster inspects the body's annotations as they are.
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from valuestream_dagster.core.continuity import Blocked
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import NotApplied
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.checks import check_results, check_specs
from valuestream_dagster.orchestration.event_log import make_durable
from valuestream_dagster.orchestration.failures import refusal, told_as_failure
from valuestream_dagster.orchestration.io_manager import Release, ValueStreamIOManager
from valuestream_dagster.orchestration.names import BYTES_ONLY, IO_MANAGER, asset_key, identifier, partitions_of
from valuestream_dagster.publication.outcomes import KeyOutcome
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.run import FeedRun


def build_asset(feed: Feed, extra_feeds: Sequence[Feed] = ()) -> dg.AssetsDefinition:
    """The asset ``[source, dataset]`` of a feed.

    Args:
        feed: which feed.
        extra_feeds: feeds of the same deployment that its folder does not declare.
    """
    with warnings.catch_warnings():
        # `backfill_policy` is beta upstream; the pinned-facts tests say so if it changes.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _asset(feed, extra_feeds)


def _asset(feed: Feed, extra_feeds: Sequence[Feed]) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(feed),
        partitions_def=partitions_of(feed),
        description=_description(feed),
        owners=list(feed.owners) or None,
        tags=dict(feed.tags),
        kinds={"duckdb", "parquet"},
        group_name=identifier(feed).split("__")[0],
        code_version=feed.computation_hash,
        pool=identifier(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),  # one process in ledger order; one run per feed
        output_required=False,
        io_manager_key=IO_MANAGER,
        required_resource_keys={IO_MANAGER},
        check_specs=check_specs(feed),
        metadata={"mode": feed.mode.value, "computation_hash": feed.computation_hash, "declared_in": feed.file},
        op_tags={"valuestream/feed": feed.name},
    )
    def feed_asset(context: dg.AssetExecutionContext) -> Iterator[Any]:
        io_manager: ValueStreamIOManager = getattr(context.resources, IO_MANAGER)
        with told_as_failure():
            opened = io_manager.opened_with(extra_feeds)
            declared = opened.feed(feed.name)
            if declared.paused:
                raise NotApplied(f"{feed.name} is paused.", next_step=f"remove `paused` from {declared.file}, then run it again.")
            keys = sorted((opened.key(declared, text) for text in context.partition_keys), key=lambda key: key.ordinal)
            yield from _publish(context, io_manager, opened.publisher(declared), keys)

    return feed_asset


def _publish(
    context: dg.AssetExecutionContext, io_manager: ValueStreamIOManager, publisher: Publisher, keys: Sequence[SequenceKey]
) -> Iterator[Any]:
    feed = publisher.feed
    with publisher.open_run(keys, dagster_run_id=context.run.run_id) as run:
        if len(keys) == 1:
            release = Release(run, publisher, run.prepare(keys[0]))
            yield from _release_one(release)
            outcomes = [release.outcome] if release.outcome else []
            make_durable(context.instance, context.run.run_id)
            publisher.mark_reported([o.publication for o in outcomes if o.publication is not None and o.changed])
        else:
            outcomes = list(io_manager.publish_range(context, publisher, run, keys))
        yield from check_results(feed, outcomes)
        fault = _fault(run, publisher, outcomes)
    if fault is not None:
        raise fault


def _release_one(release: Release) -> Iterator[dg.Output[Release]]:
    """Hand a key on as Output if it will be published; otherwise record what became of it and hand on nothing."""
    version = release.prepared.data_version
    if version is not None and release.prepared.worth_an_output:
        yield _output(release, version)
        return
    release.outcome = release.run.record([release.prepared])[0]
    release.run.close()


def _output(release: Release, version: str) -> dg.Output[Release]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # `data_version` is beta upstream
        return dg.Output(release, data_version=dg.DataVersion(version))


def _fault(run: FeedRun, publisher: Publisher, outcomes: Sequence[KeyOutcome]) -> dg.Failure | None:
    """Why the run may not be green, or None: the first trouble in words, all of it in the metadata."""
    trouble = [outcome for key in outcomes for outcome in key.trouble]
    if trouble:
        first = trouble[0].told
        return refusal(
            first.detail,
            first.next_step,
            code=first.code,
            more={
                "refused": dg.MetadataValue.md("\n\n".join(f"- {outcome.told}" for outcome in trouble[:50])),
                "refused_keys": ", ".join(dict.fromkeys(outcome.key.text for outcome in trouble)),
            },
        )
    absent = [outcome.key for outcome in outcomes if outcome.publication is None and not outcome.outcomes]
    if absent:
        return _absent(run, publisher, absent)
    return None


def _absent(run: FeedRun, publisher: Publisher, keys: Sequence[SequenceKey]) -> dg.Failure:
    """Keys were asked for of which nothing is here: say so, and whether they would be their turn."""
    judged = run.judge(keys[0])
    turn = f" It would wait all the same: {judged.why}." if isinstance(judged, Blocked) else ""
    return refusal(
        f"{publisher.feed.name} {keys[0]}: no complete delivery of it is at the landing place.{turn}",
        f"ask {publisher.feed.source} for it, or look with `valuestream plan {publisher.feed.name}` at what is there.",
        code="nothing_delivered",
        more={"refused_keys": ", ".join(key.text for key in keys)},
    )


def _description(feed: Feed) -> str:
    columns = "\n".join(f"- `{column.name}` {column.type}" for column in feed.contract.columns)
    words = feed.description or f"Deliveries of {feed.name}."
    return f"{words}\n\nMode `{feed.mode}`; partitions are sequence keys ({feed.sequence.expected}).\n\n{columns}\n\n{BYTES_ONLY}"
