"""How a feed stands, in the words of ``status``: position, what is expected, what is missing and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from valuestream_dagster.core.continuity import BeforeBaseline, Reason, SliceState
from valuestream_dagster.core.sequence import SequenceKey, keys_between
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.grouping import Refusal
from valuestream_dagster.ledger.rows import FeedSummary, OpenRejection
from valuestream_dagster.publication.plan import FeedPlan, PlannedSlice


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """One row of ``status``; the fields are those of ``status --json``."""

    feed: str
    status: str
    position: str | None
    expected: str | None
    observed: bool
    next_observed: str | None
    reason: Reason | None
    overdue: bool
    epoch: int
    baseline: str | None
    applied: int
    missing: tuple[str, ...]
    correction_pending: tuple[str, ...]
    conflicts: tuple[str, ...]
    held: tuple[str, ...]
    failed: tuple[str, ...]
    waiting: tuple[str, ...]
    rejected: tuple[str, ...]
    notes: tuple[str, ...]
    paused: bool
    refusals: tuple[Refusal, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing of it needs a person (ruling 17); overdue alone does not."""
        trouble = self.conflicts or self.held or self.failed or self.rejected
        return self.status in {"idle", "waiting_for_next"} and not trouble

    def as_dict(self) -> dict[str, object]:
        """As ``status --json`` prints it."""
        return {
            "feed": self.feed,
            "status": self.status,
            "position": self.position,
            "expected": self.expected,
            "observed": self.observed,
            "next_observed": self.next_observed,
            "reason": self.reason,
            "overdue": self.overdue,
            "epoch": self.epoch,
            "baseline": self.baseline,
            "applied": self.applied,
            "missing": list(self.missing),
            "correction_pending": list(self.correction_pending),
            "conflicts": list(self.conflicts),
            "held": list(self.held),
            "failed": list(self.failed),
            "waiting": list(self.waiting),
            "rejected": list(self.rejected),
            "refusals": [
                {"code": one.code, "uri": one.path, "expected_pattern": one.expected_pattern, "detail": one.detail}
                for one in self.refusals
            ],
            "notes": list(self.notes),
            "paused": self.paused,
        }


def status_of(
    plan: FeedPlan, summary: FeedSummary, gaps: Sequence[tuple[int, int]], *, now: datetime, listed: int
) -> FeedStatus:
    """How a feed stands.

    Args:
        plan: its arrivals, judged.
        summary: what the ledger knows of it.
        gaps: neighbouring applied places with a hole between them, where continuity is not required.
        now: the clock's reading.
        listed: most missing keys to name.
    """
    feed = plan.feed
    expected = _expected(plan, summary)
    blocked = [planned for planned in plan.slices if planned.state is SliceState.BLOCKED]
    seen = plan.observed or summary.applied or summary.rejections or plan.look.unusable
    open_rejections = _still_open(plan, summary.rejections)
    later = [key for key in _proof(plan, open_rejections) if expected is None or key.ordinal > expected.ordinal]
    missing = _missing(plan, open_rejections, expected, gaps, listed)
    observed = expected is not None and any(_is_here(planned, expected) for planned in plan.slices)
    held_up = bool(blocked) or (feed.rule.required and bool(missing))
    status = "blocked" if held_up else ("waiting_for_next" if seen else "idle")
    reason = blocked[0].reason if blocked else (Reason.SEQUENCE_GAP if held_up else None)
    if plan.refusals:
        status, reason = "refused", Reason.REFUSED
    return FeedStatus(
        feed=feed.name,
        status=status,
        position=summary.position.text if summary.position else None,
        expected=expected.text if expected and seen else None,
        observed=observed,
        next_observed=later[0].text if later else None,
        reason=reason,
        overdue=not observed and _overdue(feed, expected, now),
        epoch=plan.epoch.number if plan.epoch else 0,
        baseline=plan.epoch.baseline.text if plan.epoch else None,
        applied=summary.applied,
        missing=missing,
        correction_pending=tuple(planned.key.text for planned in plan.slices if planned.correction),
        conflicts=summary.conflicts,
        held=summary.held,
        failed=summary.failed,
        waiting=tuple(planned.key.text for planned in plan.slices if planned.state is SliceState.WAITING)
        + tuple(unusable.stat.path for unusable in plan.look.unusable if not unusable.settled),
        rejected=_rejected(plan, open_rejections),
        notes=((plan.look.absent,) if plan.look.absent else ())
        + ((plan.stale.told(feed),) if plan.stale.deliveries else ()),
        paused=feed.paused,
        refusals=plan.refusals,
    )


def refused_status(feed: Feed, known: FeedSummary) -> FeedStatus:
    """How a feed stands whose landing place does not answer: what the ledger alone knows of it."""
    return FeedStatus(
        feed=feed.name,
        status="refused",
        position=known.position.text if known.position else None,
        expected=feed.sequence.successor(known.position).text if known.position else None,
        observed=False,
        next_observed=None,
        reason=Reason.REFUSED,
        overdue=False,
        epoch=0,
        baseline=None,
        applied=known.applied,
        missing=(),
        correction_pending=(),
        conflicts=known.conflicts,
        held=known.held,
        failed=known.failed,
        waiting=(),
        rejected=tuple(one.key.text if one.key else one.manifest for one in known.rejections),
        notes=(),
        paused=feed.paused,
    )


def _expected(plan: FeedPlan, summary: FeedSummary) -> SequenceKey | None:
    if summary.position is not None:
        return plan.feed.sequence.successor(summary.position)
    if plan.epoch is not None:
        return plan.epoch.baseline
    return plan.observed[0] if plan.observed else None


def _is_here(planned: PlannedSlice, expected: SequenceKey) -> bool:
    return planned.key == expected and planned.state is not SliceState.WAITING


def _overdue(feed: Feed, expected: SequenceKey | None, now: datetime) -> bool:
    """Freshness of the head: another question than a gap (C30)."""
    if feed.expectation is None or expected is None:
        return False
    return feed.expectation.overdue(now, expected, feed.sequence)


def _still_open(plan: FeedPlan, rejections: Sequence[OpenRejection]) -> tuple[OpenRejection, ...]:
    """Without those of links that a later full has covered (C15), and of unreadable manifests that are gone."""
    kinds = {rejection: rejection.kind or plan.feed.default_kind for rejection in rejections}
    return tuple(
        rejection
        for rejection, kind in kinds.items()
        if (
            not isinstance(plan.feed.rule.requirement(kind, rejection.key, plan.epoch), BeforeBaseline)
            if rejection.key
            else rejection.manifest in plan.look.present
        )
    )


def _proof(plan: FeedPlan, rejections: Sequence[OpenRejection]) -> list[SequenceKey]:
    """Every key of which something is here and not applied, rejected or not, in order: each proves those before it."""
    rejected = [rejection.key for rejection in rejections] + [unusable.key for unusable in plan.look.unusable]
    keys = {key.text: key for key in (*plan.observed, *rejected) if key is not None}
    return sorted(keys.values(), key=lambda key: key.ordinal)


def _missing(
    plan: FeedPlan,
    rejections: Sequence[OpenRejection],
    expected: SequenceKey | None,
    gaps: Sequence[tuple[int, int]],
    listed: int,
) -> tuple[str, ...]:
    """Keys that a later one proves missing (C6, C31); a head that is not here yet is never among them (C33)."""
    proof = _proof(plan, rejections)
    here = {key.text for key in proof}
    sequence = plan.feed.sequence
    missing: list[str] = []
    if not plan.feed.rule.required:
        for before, after in gaps:
            between = keys_between(sequence, sequence.at(before), sequence.at(after), listed - len(missing))
            missing += [key.text for key in between if key.text not in here]
    if expected is not None and proof:
        highest = proof[-1]
        head = (expected,) if expected.ordinal < highest.ordinal else ()
        between = head + keys_between(sequence, expected, highest, listed)
        missing += [key.text for key in between if key.text not in here]
    return tuple(missing[:listed])


def _rejected(plan: FeedPlan, rejections: Sequence[OpenRejection]) -> tuple[str, ...]:
    """Keys whose newest arrival was rejected, and manifests that could not be read, by path, while they are there."""
    known = [rejection.key.text if rejection.key else rejection.manifest for rejection in rejections]
    new = [
        unusable.key.text if unusable.key else unusable.stat.path
        for unusable in plan.look.unusable
        if unusable.settled
    ]
    return tuple(dict.fromkeys([*known, *new]))
