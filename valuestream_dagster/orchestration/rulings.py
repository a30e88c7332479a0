"""Showing a ruling in Dagster's UI: who decided what and why, at the partition that it is about, and the check that it settles."""

from __future__ import annotations

import dagster as dg

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Ruling
from valuestream_dagster.orchestration.checks import NO_CONFLICT
from valuestream_dagster.orchestration.event_log import kept_open
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.names import asset_key


def show_ruling(opened: Deployment, feed: Feed, made: Ruling) -> None:
    """Log a ruling as an observation of its partition; where no conflict is open any more, the check says so too.

    The ledger has it already: this is the mirror, and nothing is lost where Dagster cannot be told.
    """
    settled = not opened.summary(feed).conflicts
    with instance_of(opened) as instance, kept_open():
        instance.report_runless_asset_event(_observation(feed, made))
        if settled:
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=asset_key(feed),
                    check_name=NO_CONFLICT,
                    passed=True,
                    description=f"no conflict is open: {made.key} was settled by {made.by} (as claimed): {made.why}",
                )
            )


def _observation(feed: Feed, made: Ruling) -> dg.AssetObservation:
    ruled = made.ruled
    return dg.AssetObservation(
        asset_key(feed),
        partition=made.key.text,
        description=f"{made.by} (as claimed) ruled {ruled.ruling} on revision {ruled.revision}: {made.why}",
        metadata={
            "ruling": ruled.ruling.value,
            "kind": made.kind.value,
            "revision": ruled.revision,
            "digest": ruled.digest.hex if ruled.digest else "none",
            "decided_against": ", ".join(digest.hex for digest in ruled.settles) or "nothing",
            "by": made.by,
            "why": made.why,
            "ruled_at": made.ruled_at.isoformat(),
        },
    )
