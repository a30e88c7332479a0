"""The plan: a look's arrivals judged in order, a whole claimable prefix at once (C3, C6, C8, C14-C16, C40, S16-S29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.continuity import Epoch, Reason, SliceState, effective_epoch
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.ledger.rows import KeyRecord
from valuestream_dagster.publication.plan import FeedPlan, PlannedSlice, plan_feed
from valuestream_tests.builders import a_feed, a_look, applied_record, arrival, key, unusable

STRICT = a_feed(sequence="{kind: integer, continuity: required, baseline: '1'}")
CHAIN = a_feed("chain", "{kind: integer, continuity: required, baseline: full}")
FREE = a_feed()
FAILED = KeyRecord(SliceState.FAILED, "disk full")


def planned(
    feed: Feed,
    arrivals: Sequence[Arrival],
    records: Mapping[str, KeyRecord] | None = None,
    epoch: Epoch | None = None,
    *,
    retry_failed: bool = False,
) -> FeedPlan:
    judged_from = effective_epoch(feed.rule, epoch, None)
    return plan_feed(feed, a_look(arrivals), records or {}, judged_from, retry_failed=retry_failed)


def slices(plan: FeedPlan) -> dict[str, PlannedSlice]:
    return {planned.key.text: planned for planned in plan.slices}


def claimable(plan: FeedPlan) -> list[str]:
    return [key.text for key in plan.claimable]


def full_epoch(feed: Feed, text: str | int, number: int = 1) -> Epoch:
    return Epoch(number, key(feed, text))


def test_a_whole_prefix_is_claimable_at_once_whatever_order_it_arrived_in() -> None:
    """C16, S22: 11, 9, 10 arrive; 9, 10, 11 are requested"""
    feed = a_feed(sequence="{kind: integer, continuity: required, baseline: '9'}")
    assert claimable(planned(feed, [arrival(feed, 11), arrival(feed, 9), arrival(feed, 10)])) == ["9", "10", "11"]


def test_a_gap_blocks_the_key_after_it_at_once_and_names_the_missing_one() -> None:
    """C3, C6, S16: position D01, D03 seen"""
    plan = planned(STRICT, [arrival(STRICT, 3), arrival(STRICT, 4)], {"1": applied_record()})
    third, fourth = slices(plan)["3"], slices(plan)["4"]
    assert claimable(plan) == []
    assert (third.state, third.reason, third.requires) == (SliceState.BLOCKED, Reason.SEQUENCE_GAP, key(STRICT, 2))
    assert (fourth.reason, fourth.requires) == (Reason.PREDECESSOR_WAITING, key(STRICT, 3))


def test_the_missing_key_arriving_makes_itself_and_all_after_it_claimable() -> None:
    """S17"""
    plan = planned(STRICT, [arrival(STRICT, 3), arrival(STRICT, 2)], {"1": applied_record()})
    assert claimable(plan) == ["2", "3"]


def test_a_failed_predecessor_blocks_what_is_visible_after_it() -> None:
    """C8, S18"""
    plan = planned(STRICT, [arrival(STRICT, 2), arrival(STRICT, 3)], {"1": applied_record(), "2": FAILED})
    assert claimable(plan) == []
    assert slices(plan)["2"].state is SliceState.FAILED
    assert slices(plan)["2"].why == "failed: disk full"
    assert slices(plan)["3"].reason is Reason.PREDECESSOR_FAILED


def test_a_retry_that_a_person_asks_for_takes_the_failed_key_and_those_after_it() -> None:
    """C9, C40, S18"""
    both = [arrival(STRICT, 2), arrival(STRICT, 3)]
    plan = planned(STRICT, both, {"1": applied_record(), "2": FAILED}, retry_failed=True)
    assert claimable(plan) == ["2", "3"]


def test_an_interrupted_key_is_tried_again_by_itself() -> None:
    """C41, S28: only interrupted is retried without being asked"""
    interrupted = KeyRecord(SliceState.INTERRUPTED, "a file does not hold the recorded bytes")
    assert claimable(planned(STRICT, [arrival(STRICT, 2)], {"1": applied_record(), "2": interrupted})) == ["2"]


def test_an_incomplete_predecessor_is_waiting_and_names_what_is_missing() -> None:
    """ruling 6, S1"""
    plan = planned(STRICT, [arrival(STRICT, 2, missing=["b.csv"]), arrival(STRICT, 3)], {"1": applied_record()})
    assert slices(plan)["2"].state is SliceState.WAITING
    assert not slices(plan)["2"].claimable
    assert "b.csv" in slices(plan)["2"].why
    assert slices(plan)["3"].reason is Reason.PREDECESSOR_WAITING


def test_an_unusable_manifest_that_names_its_key_blocks_as_rejected() -> None:
    """ruling 6"""
    look = a_look([arrival(STRICT, 3)], [unusable(STRICT, "2.manifest.json", 2)])
    plan = plan_feed(
        STRICT, look, {"1": applied_record()}, effective_epoch(STRICT.rule, None, None), retry_failed=False
    )
    assert slices(plan)["3"].reason is Reason.PREDECESSOR_REJECTED


def test_a_predecessor_that_is_here_and_wrong_is_run_to_be_rejected_and_counts_for_nothing() -> None:
    """C7, ruling 6"""
    plan = planned(STRICT, [arrival(STRICT, 2, fault="size_mismatch"), arrival(STRICT, 3)], {"1": applied_record()})
    assert claimable(plan) == ["2"]
    assert slices(plan)["3"].state is SliceState.BLOCKED


def test_a_predecessor_that_is_here_and_wrong_blocks_as_rejected_not_as_a_gap() -> None:
    """ruling 6"""
    plan = planned(STRICT, [arrival(STRICT, 2, fault="size_mismatch"), arrival(STRICT, 3)], {"1": applied_record()})
    assert slices(plan)["3"].reason is Reason.PREDECESSOR_REJECTED


def test_a_corrected_delivery_after_a_rejected_one_lets_the_chain_go_on() -> None:
    """C9"""
    rejected = KeyRecord(SliceState.REJECTED, "size_mismatch")
    plan = planned(STRICT, [arrival(STRICT, 2, 2), arrival(STRICT, 3)], {"1": applied_record(), "2": rejected})
    assert claimable(plan) == ["2", "3"]


def test_the_first_link_of_a_fresh_plan_is_ready_and_never_failed() -> None:
    """C32, S29"""
    plan = planned(STRICT, [arrival(STRICT, 1)])
    assert slices(plan)["1"].state is SliceState.READY
    assert claimable(plan) == ["1"]


def test_there_is_no_slice_for_a_head_that_is_not_here() -> None:
    """C33"""
    assert planned(STRICT, [], {"1": applied_record()}).slices == ()


def test_without_continuity_a_gap_blocks_nothing() -> None:
    """C1, S26"""
    assert claimable(planned(FREE, [arrival(FREE, 7), arrival(FREE, 2)])) == ["2", "7"]


def test_deltas_wait_for_the_first_full_and_follow_it_in_one_go() -> None:
    """C13, C14"""
    deltas = [arrival(CHAIN, 6), arrival(CHAIN, 7)]
    plan = planned(CHAIN, deltas)
    assert claimable(plan) == []
    assert "no full" in slices(plan)["6"].why
    assert claimable(planned(CHAIN, [*deltas, arrival(CHAIN, 5, kind=Kind.FULL)])) == ["5", "6", "7"]


def test_a_new_full_runs_although_its_old_chain_is_blocked_and_later_deltas_follow_it() -> None:
    """C14, C15, C37, S25: F1 ok, D02 failed, D03 blocked, F04 and D05 arrive"""
    here = [arrival(CHAIN, 2), arrival(CHAIN, 3), arrival(CHAIN, 4, kind=Kind.FULL), arrival(CHAIN, 5)]
    plan = planned(CHAIN, here, {"1": applied_record(), "2": FAILED}, full_epoch(CHAIN, 1))
    assert claimable(plan) == ["4", "5"]
    assert slices(plan)["3"].reason is Reason.PREDECESSOR_FAILED


def test_once_the_new_full_has_succeeded_the_old_links_block_nothing_and_are_recorded_as_covered() -> None:
    """C15, C35, S25"""
    here = [arrival(CHAIN, 3), arrival(CHAIN, 5)]
    plan = planned(CHAIN, here, {"2": FAILED, "4": applied_record()}, full_epoch(CHAIN, 4, 2))
    assert claimable(plan) == ["3", "5"]
    assert "baseline 4" in slices(plan)["3"].why
    assert slices(plan)["5"].state is SliceState.READY


def test_claimable_links_below_a_pending_full_run_before_it_and_several_fulls_run_in_order() -> None:
    """ruling 9"""
    here = [
        arrival(CHAIN, 9, kind=Kind.FULL), arrival(CHAIN, 2), arrival(CHAIN, 5, kind=Kind.FULL), arrival(CHAIN, 6),
        arrival(CHAIN, 10),
    ]  # fmt: skip
    plan = planned(CHAIN, here, {"1": applied_record()}, full_epoch(CHAIN, 1))
    assert claimable(plan) == ["2", "5", "6", "9", "10"]


def test_a_full_and_a_delta_that_share_a_key_are_one_key_with_the_full_first() -> None:
    """ruling 1, ruling 9: the full includes the delta"""
    plan = planned(CHAIN, [arrival(CHAIN, 5), arrival(CHAIN, 5, kind=Kind.FULL), arrival(CHAIN, 6)])
    assert [planned.kind for planned in plan.slices] == [Kind.FULL, Kind.DELTA, Kind.DELTA]
    assert claimable(plan) == ["5", "6"]
    assert "includes it" in plan.slices[1].why


def test_a_correction_is_claimable_at_once_and_marked_as_one() -> None:
    """ruling 7"""
    plan = planned(STRICT, [arrival(STRICT, 5, 2)], {"5": applied_record(1)})
    assert slices(plan)["5"].correction
    assert claimable(plan) == ["5"]


def test_a_resend_is_run_to_be_acknowledged_and_is_no_correction() -> None:
    """M14, M20"""
    plan = planned(STRICT, [arrival(STRICT, 5, 1)], {"5": applied_record(1)})
    assert claimable(plan) == ["5"]
    assert not slices(plan)["5"].correction


def test_a_changed_object_of_a_superseded_manifest_is_no_news() -> None:
    """M13: the manifest itself is unchanged and a newer revision is applied"""
    assert planned(STRICT, [arrival(STRICT, 5, 1, known=True)], {"5": applied_record(2)}).slices == ()


def test_a_conflict_of_the_predecessor_stops_the_keys_after_it() -> None:
    """ruling 4"""
    in_conflict = KeyRecord(SliceState.CONFLICT, "conflict")
    plan = planned(STRICT, [arrival(STRICT, 3)], {"2": in_conflict})
    assert slices(plan)["3"].reason is Reason.CONFLICT


def test_the_same_arrival_has_one_identity_and_a_changed_one_another() -> None:
    """C28: the same object listed twice is no second request"""
    first, again, other = (
        planned(FREE, [one]).slices[0].identity
        for one in (arrival(FREE, 1), arrival(FREE, 1), arrival(FREE, 1, revision=2))
    )
    assert first == again != other


@given(here=st.permutations(range(1, 11)).flatmap(lambda keys: st.integers(0, 10).map(lambda n: list(keys)[:n])))
def test_the_claimable_set_is_exactly_the_contiguous_prefix_from_the_baseline(here: list[int]) -> None:
    """C16, C19, C21, S22: for any subset, in any order"""
    prefix = next(n for n in range(1, 12) if n not in here) - 1
    expected = [str(n) for n in range(1, prefix + 1)]
    assert claimable(planned(STRICT, [arrival(STRICT, n) for n in here])) == expected
    chain = planned(CHAIN, [arrival(CHAIN, n) for n in here], {"0": applied_record()}, full_epoch(CHAIN, 0))
    assert claimable(chain) == expected
    assert sorted(claimable(planned(FREE, [arrival(FREE, n) for n in here])), key=int) == sorted(
        map(str, here), key=int
    )


@given(order=st.permutations(range(1, 8)), cuts=st.sets(st.integers(1, 6)), lost=st.sets(st.integers(1, 7), max_size=2))
def test_arriving_in_any_order_over_any_number_of_looks_applies_the_same_keys_in_order(
    order: list[int], cuts: set[int], lost: set[int]
) -> None:
    """C7, C16, S7: plan, apply what is claimable, look again"""
    edges = [0, *sorted(cuts), len(order)]
    records: dict[str, KeyRecord] = {}
    applied: list[int] = []
    here: list[int] = []
    for start, end in pairwise(edges):
        here += [n for n in order[start:end] if n not in lost]
        plan = planned(STRICT, [arrival(STRICT, n) for n in here if str(n) not in records], records)
        for claimed in plan.claimable:
            records[claimed.text] = applied_record()
            applied.append(claimed.ordinal)
    prefix = min(lost, default=8) - 1
    assert applied == list(range(1, prefix + 1))
