"""How sequence order meets Dagster's partitions: which ranges may be asked for at once, and the automation condition.

Dagster's own partition graph cannot be the gate (FACTS: dynamic keys have insertion order, a range follows it, and a
backfill passes over predecessors outside its selection). The gate is ``core.continuity.PredecessorRule``, asked in the run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import dagster as dg

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.deployment import open_deployment


def unregistered(registered: Sequence[str], observed: Sequence[SequenceKey], limit: int) -> list[str]:
    """The observed keys that Dagster does not know yet, in the sequence's order, at most ``limit`` of them."""
    known = set(registered)
    return [key.text for key in sorted(observed, key=lambda key: key.ordinal) if key.text not in known][:limit]


def ranges(registered: Sequence[str], wanted: Sequence[SequenceKey]) -> list[tuple[SequenceKey, ...]]:
    """Cut the wanted keys, in their own order, into runs that are neighbours in the registered order too.

    Args:
        registered: Dagster's keys in the order of registration, new ones included.
        wanted: keys to process.
    """
    place = {text: index for index, text in enumerate(registered)}
    cut: list[list[SequenceKey]] = []
    for key in sorted(wanted, key=lambda key: key.ordinal):
        if key.text not in place:
            continue
        if cut and place[key.text] == place[cut[-1][-1].text] + 1:
            cut[-1].append(key)
        else:
            cut.append([key])
    return [tuple(keys) for keys in cut]


def range_tags(keys: Sequence[SequenceKey]) -> dict[str, str]:
    """The run tags that ask for a range of partitions; none for a single key, which has its own field."""
    if len(keys) == 1:
        return {}
    return {
        "dagster/asset_partition_range_start": keys[0].text,
        "dagster/asset_partition_range_end": keys[-1].text,
    }


class PredecessorSucceeded(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions of a feed that the predecessor rule allows to be processed now (C21).

    For automation of the user's own, in a sensor with ``use_user_code_server=True``. It asks the same plan as the
    completeness sensor, and like all automation conditions it cannot register partitions.

    Args:
        deployment: folder of the deployment.
        feed: ``source/dataset``.
    """

    def __init__(self, deployment: str, feed: str) -> None:
        super().__init__()
        self.deployment = deployment
        self.feed = feed

    @property
    def name(self) -> str:
        """How the UI names it."""
        return "predecessor_succeeded"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """The candidate partitions that are claimable."""
        opened = open_deployment(self.deployment, os.environ)
        claimable = {key.text for key in opened.plan(opened.feed(self.feed)).claimable}
        asked = context.candidate_subset.expensively_compute_partition_keys()
        subset = context.candidate_subset.compute_intersection_with_partition_keys(asked & claimable)
        return dg.AutomationResult(context, true_subset=subset)
