"""How a feed stands: its word, what is expected, what is proven missing, what needs a person (C6, C11, C23-C33, S16-S26)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from valuestream_dagster.core.continuity import Epoch, Reason, SliceState, effective_epoch
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.observe import Arrival, UnusableArrival
from valuestream_dagster.ledger.rows import FeedSummary, KeyRecord, OpenRejection
from valuestream_dagster.publication.plan import plan_feed
from valuestream_dagster.publication.status import FeedStatus, status_of
from valuestream_tests.builders import NOON, a_feed, a_look, applied_record, arrival, key, unusable

DAILY = "{kind: date, cadence: daily, continuity: required, baseline: '2026-09-01'}"
DUE = 'expect: {due: "04:00", grace_minutes: 240, timezone: UTC}'
STRICT = a_feed(sequence=DAILY)
NOTHING = FeedSummary(0, None, None, None, (), (), (), ())


def standing(
    feed: Feed,
    arrivals: Sequence[Arrival] = (),
    summary: FeedSummary = NOTHING,
    records: Mapping[str, KeyRecord] | None = None,
    *,
    unusable_ones: Sequence[UnusableArrival] = (),
    gaps: Sequence[tuple[int, int]] = (),
    epoch: Epoch | None = None,
    now: datetime = NOON,
    listed: int = 10,
) -> FeedStatus:
    judged_from = effective_epoch(feed.rule, epoch, None)
    look = a_look(arrivals, unusable_ones)
    plan = plan_feed(feed, look, records or {}, judged_from, retry_failed=False)
    return status_of(plan, summary, gaps, now=now, listed=listed)


def at(feed: Feed, text: str, applied: int = 1) -> FeedSummary:
    position = key(feed, text)
    return FeedSummary(applied, position, position, position, (), (), (), ())


def test_a_feed_of_which_nothing_was_ever_seen_is_idle_and_healthy() -> None:
    """C29, ruling 6"""
    status = standing(STRICT)
    assert (status.status, status.expected, status.observed, status.healthy) == ("idle", None, False, True)


def test_the_open_head_is_waiting_for_next_with_the_expected_key_not_observed() -> None:
    """C29, C33, S23"""
    status = standing(STRICT, summary=at(STRICT, "2026-09-01"))
    assert (status.status, status.position, status.expected) == ("waiting_for_next", "2026-09-01", "2026-09-02")
    assert (status.observed, status.next_observed, status.reason, status.missing) == (False, None, None, ())
    assert status.healthy


def test_the_expected_key_that_is_here_and_not_applied_is_observed() -> None:
    """C29, S24"""
    status = standing(
        STRICT, [arrival(STRICT, "2026-09-02")], at(STRICT, "2026-09-01"), {"2026-09-01": applied_record()}
    )
    assert (status.status, status.expected, status.observed) == ("waiting_for_next", "2026-09-02", True)


def test_a_proven_gap_blocks_at_once_and_names_expected_next_and_missing() -> None:
    """C6, S16"""
    status = standing(
        STRICT, [arrival(STRICT, "2026-09-04")], at(STRICT, "2026-09-01"), {"2026-09-01": applied_record()}
    )
    assert (status.status, status.reason) == ("blocked", Reason.SEQUENCE_GAP)
    assert (status.position, status.expected, status.next_observed) == ("2026-09-01", "2026-09-02", "2026-09-04")
    assert status.missing == ("2026-09-02", "2026-09-03")
    assert not status.observed
    assert not status.healthy


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SliceState.FAILED, Reason.PREDECESSOR_FAILED),
        (SliceState.REJECTED, Reason.PREDECESSOR_REJECTED),
        (SliceState.CONFLICT, Reason.CONFLICT),
    ],
)
def test_a_predecessor_that_is_known_and_no_success_blocks_with_its_own_reason(
    state: SliceState, reason: Reason
) -> None:
    """C8, S18, ruling 6"""
    summary = replace(at(STRICT, "2026-09-01"), failed=("2026-09-02",) if state is SliceState.FAILED else ())
    status = standing(STRICT, [arrival(STRICT, "2026-09-03")], summary, {"2026-09-02": KeyRecord(state, "x")})
    assert (status.status, status.reason, status.next_observed) == ("blocked", reason, "2026-09-03")


def test_an_incomplete_predecessor_blocks_as_waiting_and_is_not_missing() -> None:
    """C11, ruling 6"""
    here = [arrival(STRICT, "2026-09-02", missing=["b.csv"]), arrival(STRICT, "2026-09-03")]
    status = standing(STRICT, here, at(STRICT, "2026-09-01"), {"2026-09-01": applied_record()})
    assert (status.status, status.reason) == ("blocked", Reason.PREDECESSOR_WAITING)
    assert (status.waiting, status.missing) == (("2026-09-02",), ())


def test_waiting_alone_is_healthy() -> None:
    """ruling 17"""
    here = [arrival(STRICT, "2026-09-02", missing=["b.csv"])]
    status = standing(STRICT, here, at(STRICT, "2026-09-01"), {"2026-09-01": applied_record()})
    assert (status.status, status.healthy) == ("waiting_for_next", True)


def test_a_conflict_needs_a_person_although_nothing_is_blocked() -> None:
    """M15, ruling 17"""
    status = standing(STRICT, summary=replace(at(STRICT, "2026-09-02"), conflicts=("2026-09-02",)))
    assert (status.status, status.conflicts, status.healthy) == ("waiting_for_next", ("2026-09-02",), False)


def test_a_failure_and_a_rejection_need_a_person() -> None:
    """ruling 17"""
    rejection = OpenRejection("x.manifest.json", key(STRICT, "2026-09-02"), None, 1, "size_mismatch", "short")
    failed = standing(STRICT, summary=replace(at(STRICT, "2026-09-01"), failed=("2026-09-02",)))
    rejected = standing(STRICT, summary=replace(at(STRICT, "2026-09-01"), rejections=(rejection,)))
    assert (failed.failed, failed.healthy) == (("2026-09-02",), False)
    assert (rejected.rejected, rejected.healthy) == (("2026-09-02",), False)


def test_an_unusable_manifest_is_rejected_by_its_path_once_settled_and_waits_before() -> None:
    """ruling 11"""
    settled = standing(STRICT, unusable_ones=[unusable(STRICT, "x.manifest.json")])
    fresh = standing(STRICT, unusable_ones=[unusable(STRICT, "x.manifest.json", settled=False)])
    assert (settled.rejected, settled.waiting, settled.healthy) == (("x.manifest.json",), (), False)
    assert (fresh.rejected, fresh.waiting, fresh.healthy) == ((), ("x.manifest.json",), True)


def test_overdue_is_a_signal_of_its_own_beside_a_healthy_head() -> None:
    """C11, C30, S23: due 04:00 with four hours of grace; at noon it is late and still no gap"""
    feed = a_feed(sequence=DAILY, more=DUE)
    summary = at(feed, "2026-09-09")
    early = standing(feed, summary=summary, now=datetime(2026, 9, 10, 8, tzinfo=UTC))
    late = standing(feed, summary=summary, now=NOON)
    assert (early.status, early.overdue, early.missing) == ("waiting_for_next", False, ())
    assert (late.status, late.overdue, late.missing, late.reason, late.healthy) == (
        "waiting_for_next", True, (), None, True,
    )  # fmt: skip


def test_grace_never_delays_a_proven_gap() -> None:
    """C11: before its due time, a missing key is a gap all the same once a later one is here"""
    feed = a_feed(sequence=DAILY, more=DUE)
    status = standing(
        feed, [arrival(feed, "2026-09-11")], at(feed, "2026-09-09"), now=datetime(2026, 9, 10, 1, tzinfo=UTC)
    )
    assert (status.status, status.reason, status.overdue) == ("blocked", Reason.SEQUENCE_GAP, False)


def test_without_an_expectation_nothing_is_ever_overdue() -> None:
    """C31"""
    assert not standing(STRICT, summary=at(STRICT, "2026-09-01"), now=datetime(2036, 1, 1, tzinfo=UTC)).overdue


def test_without_continuity_gaps_are_reported_and_block_nothing() -> None:
    """C23, S26"""
    feed = a_feed(sequence="{kind: integer}")
    status = standing(feed, [arrival(feed, 12)], at(feed, "9", applied=5), gaps=[(2, 5), (6, 8)])
    assert status.status == "waiting_for_next"
    assert status.missing == ("3", "4", "7", "10", "11")
    assert status.healthy


def test_missing_keys_are_listed_up_to_a_limit() -> None:
    """C45: a limit on everything"""
    feed = a_feed(sequence="{kind: integer}")
    assert standing(feed, summary=at(feed, "900"), gaps=[(1, 500), (500, 900)], listed=3).missing == ("2", "3", "4")
    strict = a_feed(sequence="{kind: integer, continuity: required, baseline: '1'}")
    assert standing(strict, [arrival(strict, 10**9)], at(strict, "1"), listed=3).missing == ("2", "3", "4")


def test_a_key_that_was_rejected_is_here_and_not_missing() -> None:
    """ruling 6"""
    rejection = OpenRejection("x", key(STRICT, "2026-09-02"), None, 1, "size_mismatch", "short")
    summary = replace(at(STRICT, "2026-09-01"), rejections=(rejection,))
    records = {"2026-09-02": KeyRecord(SliceState.REJECTED, "size_mismatch")}
    status = standing(STRICT, [arrival(STRICT, "2026-09-03")], summary, records)
    assert (status.reason, status.missing, status.rejected) == (Reason.PREDECESSOR_REJECTED, (), ("2026-09-02",))


def test_the_epoch_and_its_baseline_are_shown() -> None:
    """C34"""
    feed = a_feed("chain", "{kind: integer, continuity: required, baseline: full}")
    status = standing(feed, summary=at(feed, "8"), epoch=Epoch(3, key(feed, 7)))
    assert (status.epoch, status.baseline, status.expected) == (3, "7", "9")


def test_a_correction_that_is_here_is_pending() -> None:
    """ruling 7"""
    status = standing(
        STRICT, [arrival(STRICT, "2026-09-01", 2)], at(STRICT, "2026-09-03"), {"2026-09-01": applied_record(1)}
    )
    assert (status.correction_pending, status.status) == (("2026-09-01",), "waiting_for_next")


def test_the_document_names_every_field_that_the_surface_promises() -> None:
    """C44"""
    document = standing(STRICT).as_dict()
    assert set(document) >= {
        "feed", "status", "position", "expected", "observed", "next_observed", "reason", "overdue", "epoch", "baseline",
        "applied", "missing", "correction_pending", "conflicts", "held", "refusals", "waiting", "rejected",
    }  # fmt: skip
