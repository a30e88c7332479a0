"""The predecessor rule: what each key requires, and what is said where that is not there (C6-C37, S16-S29)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.continuity import (
    Baseline,
    BeforeBaseline,
    Blocked,
    Claimable,
    Covered,
    Epoch,
    Judgement,
    Mode,
    Needs,
    Nothing,
    PredecessorRule,
    Reason,
    SliceState,
    effective_epoch,
)
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, SequenceKey

NUMBERS = IntegerSequence()
FULL_CHAIN = PredecessorRule(NUMBERS, Mode.CHAIN, required=True, baseline=Baseline("full"))
LOOSE_CHAIN = PredecessorRule(NUMBERS, Mode.CHAIN, required=False, baseline=None)
STRICT_PERIODS = PredecessorRule(NUMBERS, Mode.PERIODS, required=True, baseline=Baseline("key", NUMBERS.at(1)))
FREE_PERIODS = PredecessorRule(NUMBERS, Mode.PERIODS, required=False, baseline=None)
FROM_FULL_1 = Epoch(1, NUMBERS.at(1))
FROM_KEY_1 = Epoch(1, NUMBERS.at(1), full=False)


def k(number: int) -> SequenceKey:
    return NUMBERS.at(number)


def knowing(**states: SliceState) -> Callable[[SequenceKey], SliceState]:
    """States by key, written ``d2=FAILED``."""
    return lambda key: states.get(f"d{key}", SliceState.MISSING)


def judged(
    rule: PredecessorRule, number: int, epoch: Epoch | None, kind: Kind = Kind.DELTA, **states: SliceState
) -> Judgement:
    return rule.judge(kind, k(number), epoch, knowing(**states))


def test_a_key_after_a_missing_one_is_blocked_by_a_proven_gap_at_once() -> None:
    """C6, C31, S16: D01 ok, D02 missing, D03 seen; no clock and no schedule is asked"""
    outcome = judged(FULL_CHAIN, 3, FROM_FULL_1, d1=SliceState.SUCCEEDED)
    assert outcome == Blocked(Reason.SEQUENCE_GAP, k(2), "its predecessor 2 is missing")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SliceState.FAILED, Reason.PREDECESSOR_FAILED),
        (SliceState.INTERRUPTED, Reason.PREDECESSOR_FAILED),
        (SliceState.WAITING, Reason.PREDECESSOR_WAITING),
        (SliceState.READY, Reason.PREDECESSOR_WAITING),
        (SliceState.RUNNING, Reason.PREDECESSOR_WAITING),
        (SliceState.BLOCKED, Reason.PREDECESSOR_WAITING),
        (SliceState.REJECTED, Reason.PREDECESSOR_REJECTED),
        (SliceState.CONFLICT, Reason.CONFLICT),
        (SliceState.HELD, Reason.HELD),
        (SliceState.MISSING, Reason.SEQUENCE_GAP),
    ],
)
def test_each_state_of_the_predecessor_that_is_no_success_blocks_with_its_own_reason(
    state: SliceState, reason: Reason
) -> None:
    """C8, C11, S18, ruling 6"""
    for rule, epoch in ((FULL_CHAIN, FROM_FULL_1), (STRICT_PERIODS, FROM_KEY_1)):
        outcome = judged(rule, 3, epoch, d2=state)
        assert isinstance(outcome, Blocked)
        assert (outcome.reason, outcome.needs) == (reason, k(2))


@pytest.mark.parametrize("state", [SliceState.SUCCEEDED, SliceState.STALE, SliceState.WAIVED, SliceState.COVERED])
def test_success_of_the_predecessor_makes_a_key_claimable(state: SliceState) -> None:
    """C9, C21, S17, ruling 10"""
    assert judged(FULL_CHAIN, 3, FROM_FULL_1, d2=state) == Claimable()


def test_every_state_is_either_a_success_or_has_a_reason() -> None:
    """C21: no state of a predecessor is forgotten"""
    for state in SliceState:
        assert isinstance(judged(STRICT_PERIODS, 3, FROM_KEY_1, d2=state), Claimable | Blocked)


def test_the_requirement_stands_on_the_successor_and_names_a_key_that_may_not_exist() -> None:
    """C20"""
    assert FULL_CHAIN.requirement(Kind.DELTA, k(9), FROM_FULL_1) == Needs(k(8))


def test_the_first_link_after_the_baseline_needs_the_full() -> None:
    """C14, C21"""
    assert FULL_CHAIN.requirement(Kind.DELTA, k(2), FROM_FULL_1) == Needs(k(1))
    assert judged(FULL_CHAIN, 2, FROM_FULL_1, d1=SliceState.SUCCEEDED) == Claimable()


def test_a_declared_first_key_requires_nothing() -> None:
    """C13, C32, S29: the first link of a fresh plan is claimable and never failed"""
    assert judged(STRICT_PERIODS, 1, effective_epoch(STRICT_PERIODS, None, None), Kind.FULL) == Claimable()


def test_a_full_requires_nothing_and_may_run_while_its_old_chain_is_blocked() -> None:
    """C37, S25"""
    assert judged(FULL_CHAIN, 4, FROM_FULL_1, Kind.FULL, d2=SliceState.FAILED, d3=SliceState.BLOCKED) == Claimable()


def test_after_a_new_full_only_later_deltas_are_required_and_the_old_chain_blocks_nothing() -> None:
    """C14, C15, S25"""
    second = Epoch(2, k(4))
    assert judged(FULL_CHAIN, 5, second, d2=SliceState.FAILED, d4=SliceState.SUCCEEDED) == Claimable()
    for number in (2, 3, 4):
        assert isinstance(judged(FULL_CHAIN, number, second, d2=SliceState.FAILED), Covered)


def test_a_full_that_is_listed_and_not_applied_changes_nothing() -> None:
    """C36, S25: the epoch is what has succeeded, not what is here"""
    outcome = judged(FULL_CHAIN, 3, FROM_FULL_1, d2=SliceState.FAILED, d4=SliceState.READY)
    assert isinstance(outcome, Blocked)
    assert outcome.reason is Reason.PREDECESSOR_FAILED


def test_a_full_older_than_the_baseline_is_covered_and_the_baselines_own_is_not() -> None:
    """ruling 9"""
    assert FULL_CHAIN.requirement(Kind.FULL, k(3), Epoch(2, k(4))) == BeforeBaseline(k(4))
    assert FULL_CHAIN.requirement(Kind.FULL, k(4), Epoch(2, k(4))) == Nothing()


def test_before_the_first_full_a_required_chain_waits_for_one() -> None:
    """C13: no baseline, so no delta may start"""
    outcome = judged(FULL_CHAIN, 3, None)
    assert isinstance(outcome, Blocked)
    assert outcome.needs is None
    assert "full" in outcome.why


def test_a_chain_that_began_at_a_declared_key_takes_the_delta_of_that_key() -> None:
    """C13, C21: the baseline is the first expected key itself, unless a full stands there"""
    rule = PredecessorRule(NUMBERS, Mode.CHAIN, required=True, baseline=Baseline("key", k(5)))
    assert judged(rule, 5, effective_epoch(rule, None, None)) == Claimable()
    assert isinstance(judged(rule, 4, effective_epoch(rule, None, None)), Covered)
    assert isinstance(judged(rule, 5, Epoch(1, k(5))), Covered), "ruling 9: the full at 5 includes delta 5"
    assert isinstance(judged(rule, 9, Epoch(2, k(9))), Covered), "ruling 9, in a later epoch"


def test_keys_below_a_required_baseline_are_covered() -> None:
    """C13, ruling 9"""
    assert isinstance(judged(STRICT_PERIODS, 0, FROM_KEY_1), Covered)


def test_without_continuity_nothing_is_ever_blocked() -> None:
    """C1, C23, S26"""
    for number in range(1, 9):
        assert judged(FREE_PERIODS, number, None) == Claimable()
        assert judged(FREE_PERIODS, number, Epoch(1, k(4), full=False)) == Claimable()
        assert judged(LOOSE_CHAIN, number, None) == Claimable()


def test_a_loose_chain_that_began_with_a_delta_takes_an_earlier_one_that_comes_late() -> None:
    """C16, S26: a delta includes nothing but itself, so nothing before it is covered"""
    began_with_delta = Epoch(1, k(5), full=False)
    assert judged(LOOSE_CHAIN, 4, began_with_delta) == Claimable()
    assert judged(LOOSE_CHAIN, 3, began_with_delta, Kind.FULL) == Claimable()


def test_a_loose_chain_covers_what_an_accepted_full_includes() -> None:
    """ruling 9"""
    assert isinstance(judged(LOOSE_CHAIN, 4, Epoch(1, k(4))), Covered)
    assert isinstance(judged(LOOSE_CHAIN, 3, Epoch(1, k(4)), Kind.FULL), Covered)
    assert judged(LOOSE_CHAIN, 9, Epoch(1, k(4))) == Claimable()


def test_the_epoch_is_the_recorded_one_else_what_the_declared_baseline_implies() -> None:
    """C13, C34"""
    first = PredecessorRule(NUMBERS, Mode.PERIODS, required=True, baseline=Baseline("first"))
    assert effective_epoch(first, None, None) is None
    assert effective_epoch(first, None, k(7)) == Epoch(1, k(7), full=False)
    assert effective_epoch(first, Epoch(1, k(3), full=False), k(1)) == Epoch(1, k(3), full=False)
    assert effective_epoch(STRICT_PERIODS, None, k(7)) == FROM_KEY_1
    assert effective_epoch(FULL_CHAIN, None, k(7)) is None
    assert effective_epoch(FREE_PERIODS, None, k(7)) is None


def test_predecessors_follow_the_sequences_own_order() -> None:
    """C12, C18: numbers by their step, days over the end of a month"""
    tens = PredecessorRule(IntegerSequence(10), Mode.PERIODS, required=True, baseline=Baseline("key", k(990)))
    assert tens.requirement(Kind.FULL, k(1000), Epoch(1, k(990), full=False)) == Needs(k(990))
    days = DatedSequence(Cadence.DAILY)
    rule = PredecessorRule(days, Mode.PERIODS, required=True, baseline=Baseline("first"))
    march, february, january = (days.parse(text) for text in ("2028-03-01", "2028-02-29", "2028-01-01"))
    assert isinstance(march, SequenceKey)
    assert isinstance(january, SequenceKey)
    assert rule.requirement(Kind.FULL, march, Epoch(1, january, full=False)) == Needs(february)  # type: ignore[arg-type]


@given(st.sets(st.integers(1, 12)), st.sampled_from(["chain", "periods"]))
def test_applying_what_is_claimable_until_nothing_is_ends_at_the_contiguous_prefix(here: set[int], mode: str) -> None:
    """C16, C19, C22, S22: whatever is here and in whatever order, exactly the prefix from the baseline can be applied"""
    chain = mode == "chain"
    rule, epoch = (FULL_CHAIN, Epoch(1, k(0))) if chain else (STRICT_PERIODS, FROM_KEY_1)
    done = {0} if chain else set[int]()

    def state(key: SequenceKey) -> SliceState:
        return SliceState.SUCCEEDED if key.ordinal in done else SliceState.MISSING

    order: list[int] = []
    while claimable := [n for n in here - done if rule.judge(Kind.DELTA, k(n), epoch, state) == Claimable()]:
        order += sorted(claimable)
        done |= set(claimable)
    prefix = next(n for n in range(1, 14) if n not in here) - 1
    assert order == list(range(1, prefix + 1))


@pytest.mark.parametrize("stops", [True, False])
def test_a_conflict_stops_the_keys_after_it_only_where_the_feed_says_so(stops: bool) -> None:
    """ruling 4, ``policy: {conflict: continue}``"""
    sequence = DatedSequence(Cadence.DAILY)
    first, second = sequence.parse("2026-09-01"), sequence.parse("2026-09-02")
    assert isinstance(first, SequenceKey)
    assert isinstance(second, SequenceKey)
    rule = PredecessorRule(sequence, Mode.PERIODS, True, Baseline("key", first), conflict_stops=stops)
    judged = rule.judge(Kind.FULL, second, Epoch(1, first), lambda _: SliceState.CONFLICT)
    assert isinstance(judged, Blocked) is stops
