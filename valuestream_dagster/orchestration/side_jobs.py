"""What the daemon does for a feed beside its asset's runs: jobs of one op, sealing what waits and making again what is stale.

Neither claims a partition: what is blocked must not make a red run, and readers switch once over all keys that are made again.
"""

# No `from __future__ import annotations` here: Dagster inspects the op's annotations as they are.
from collections.abc import Sequence

import dagster as dg

from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.failures import refusal, told_as_failure
from valuestream_dagster.orchestration.io_manager import ValueStreamIOManager
from valuestream_dagster.orchestration.names import (
    IO_MANAGER,
    RECOMPUTING_TAG,
    SEALING_TAG,
    recomputing_name,
    sealing_name,
)
from valuestream_dagster.publication.outcomes import ArrivalOutcome
from valuestream_dagster.publication.plan import FeedPlan


def build_sealing_job(feed: Feed, extra_feeds: Sequence[Feed]) -> dg.JobDefinition:
    """The job ``<source>__<dataset>__sealing``.

    Args:
        feed: whose waiting deliveries it seals.
        extra_feeds: feeds of the same deployment that its folder does not declare.
    """

    @dg.op(
        name=f"{sealing_name(feed)}_op",
        required_resource_keys={IO_MANAGER},
        description=f"Seals and checks deliveries of {feed.name} whose turn has not come; publishes nothing.",
        out=dg.Out(dg.Nothing),
    )
    def seal_waiting(context: dg.OpExecutionContext) -> None:
        io_manager: ValueStreamIOManager = getattr(context.resources, IO_MANAGER)
        with told_as_failure():
            opened = io_manager.opened_with(extra_feeds)
            outcomes = opened.take_in_early(opened.plan(opened.feed(feed.name)))
        for outcome in outcomes:
            context.log.info(str(outcome.told))
        failed = [outcome for outcome in outcomes if outcome.told.verdict is None]
        if failed:
            raise dg.Failure(description=str(failed[0].told), metadata=_named(failed), allow_retries=False)

    @dg.job(
        name=sealing_name(feed),
        tags={SEALING_TAG: feed.name},
        description=f"Takes deliveries of {feed.name} into the store before their turn, so that nothing can take them away.",
        executor_def=dg.in_process_executor,
    )
    def sealing() -> None:
        seal_waiting()

    return sealing


def build_recomputing_job(feed: Feed, extra_feeds: Sequence[Feed]) -> dg.JobDefinition:
    """The job ``<source>__<dataset>__recomputing``; started by the sensor where the feed says ``recompute: auto``, or by a person.

    Args:
        feed: whose stale deliveries it makes again.
        extra_feeds: feeds of the same deployment that its folder does not declare.
    """

    @dg.op(
        name=f"{recomputing_name(feed)}_op",
        required_resource_keys={IO_MANAGER},
        description=f"Makes again from sealed bytes what an edit of {feed.name} made stale; readers switch once.",
        out=dg.Out(dg.Nothing),
    )
    def make_again(context: dg.OpExecutionContext) -> None:
        io_manager: ValueStreamIOManager = getattr(context.resources, IO_MANAGER)
        with told_as_failure():
            opened = io_manager.opened_with(extra_feeds)
            done = opened.recompute(
                opened.feed(feed.name), progress=lambda made, of: context.log.info("%d of %d made again", made, of)
            )
        context.log.info("%d made again; readers see the new files: %s", done.keys + done.earlier, done.switched)
        if done.refused:
            raise refusal(
                f"{len(done.refused)} cannot be made again as {feed.name} is declared now: {done.refused[0]}",
                "correct the feed file, or undo the edit; readers see what they saw.",
                code="recompute_refused",
                more={"refused": dg.MetadataValue.md("\n\n".join(done.refused))},
            )

    @dg.job(
        name=recomputing_name(feed),
        tags={RECOMPUTING_TAG: feed.name},
        description=f"Makes again what an edit of {feed.name} made stale, from sealed bytes.",
        executor_def=dg.in_process_executor,
    )
    def recomputing() -> None:
        make_again()

    return recomputing


def _named(failed: Sequence[ArrivalOutcome]) -> dict[str, str]:
    return {"reason": failed[0].told.code, "keys": ", ".join(dict.fromkeys(one.key.text for one in failed))}


def waiting_identity(plan: FeedPlan) -> str | None:
    """Names what waits unsealed by the objects that it is, or None where nothing does."""
    parts = [planned.identity for planned in plan.slices if planned.to_seal]
    return "\n".join(parts) if parts else None
