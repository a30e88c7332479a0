"""What becomes of an arrival: identity before order, the highest validly accepted revision wins (M10-M20, S4-S7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from valuestream_dagster.core.continuity import (
    Baseline,
    Blocked,
    Covered,
    Epoch,
    Mode,
    PredecessorRule,
    Reason,
    SliceState,
)
from valuestream_dagster.core.decision import (
    Accept,
    Applied,
    Bound,
    Conflict,
    Decision,
    Duplicate,
    Identity,
    Incomplete,
    Invalid,
    KeyHistory,
    Observation,
    Reject,
    Superseded,
    Valid,
    Wait,
    decide,
)
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import IntegerSequence, SequenceKey
from valuestream_tests.builders import digest

SEQUENCE = IntegerSequence()
FREE = PredecessorRule(SEQUENCE, Mode.PERIODS, required=False, baseline=None)
STRICT = PredecessorRule(SEQUENCE, Mode.PERIODS, required=True, baseline=Baseline("key", SEQUENCE.at(1)))
FIRST = Epoch(1, SEQUENCE.at(1), full=False)
X, Y, Z = digest("X"), digest("Y"), digest("Z")

Story = list[tuple[int, Digest]]


def nothing_known(_: SequenceKey) -> SliceState:
    return SliceState.MISSING


def arrived(revision: int, found: Digest, number: int = 1) -> Valid:
    return Valid(Identity(Kind.FULL, SEQUENCE.at(number), revision), found)


def history(*bound: tuple[int, Digest], applied: tuple[int, Digest] | None = None) -> KeyHistory:
    newest = Applied(applied[0], applied[1], f"p{applied[0]}", "hash") if applied else None
    return KeyHistory(tuple(Bound(revision, found) for revision, found in bound), newest)


def decided(
    observation: Observation,
    known: KeyHistory,
    order: PredecessorRule = FREE,
    epoch: Epoch | None = None,
    state_of: Callable[[SequenceKey], SliceState] = nothing_known,
) -> Decision:
    return decide(order, observation, known, epoch, state_of)


def test_a_revision_never_seen_is_accepted() -> None:
    """M12"""
    assert decided(arrived(1, X), history()) == Accept()


def test_a_revision_newer_than_the_applied_one_is_accepted() -> None:
    """M12"""
    assert decided(arrived(3, Y), history((1, X), applied=(1, X))) == Accept()


def test_a_late_revision_is_recorded_and_never_applied() -> None:
    """M13, S6"""
    outcome = decided(arrived(1, Y), history((2, X), applied=(2, X)))
    assert isinstance(outcome, Superseded)
    assert (outcome.code, outcome.by_revision) == ("late_revision", 2)


def test_a_resend_of_the_applied_revision_is_acknowledged_with_its_publication() -> None:
    """M14, S4"""
    assert decided(arrived(2, X), history((2, X), applied=(2, X))) == Duplicate("p2")


def test_other_bytes_for_the_applied_revision_are_a_conflict() -> None:
    """M15, S5"""
    outcome = decided(arrived(2, Y), history((2, X), applied=(2, X)))
    assert isinstance(outcome, Conflict)
    assert outcome.bound_digest == X
    assert X.short in outcome.detail
    assert Y.short in outcome.detail


def test_the_conflicting_bytes_sent_again_are_a_conflict_again() -> None:
    """M15"""
    outcome = decided(arrived(2, Y), history((2, X), (2, Y), applied=(2, X)))
    assert isinstance(outcome, Conflict)
    assert "again" in outcome.detail


def test_the_applied_bytes_sent_again_after_a_conflict_are_a_duplicate() -> None:
    """M14, ruling 4"""
    assert decided(arrived(2, X), history((2, X), (2, Y), applied=(2, X))) == Duplicate("p2")


def test_other_bytes_for_a_revision_that_is_bound_and_not_applied_are_a_conflict() -> None:
    """M15, ruling 1: sealed valid bytes bind an identity whether they were applied or not"""
    outcome = decided(arrived(3, Y), history((2, X), (3, X), applied=(2, X)))
    assert isinstance(outcome, Conflict)
    assert outcome.bound_digest == X
    assert isinstance(decided(arrived(1, Y), history((1, X))), Conflict)


def test_the_bound_bytes_of_a_revision_that_is_not_applied_yet_are_accepted() -> None:
    """M12, ruling 1"""
    assert decided(arrived(1, X), history((1, X))) == Accept()


def test_a_conflict_is_settled_by_a_higher_revision() -> None:
    """ruling 4"""
    known = history((2, X), (2, Y), applied=(2, X))
    assert decided(arrived(3, Z), known) == Accept()
    assert decided(arrived(3, Y), known) == Accept(), "also where it brings the bytes that were refused"


@pytest.mark.parametrize("found", [X, Y, Z])
def test_after_the_settlement_neither_side_of_the_conflict_stops_anything(found: Digest) -> None:
    """M16, ruling 4"""
    outcome = decided(arrived(2, found), history((2, X), (2, Y), (3, Z), applied=(3, Z)))
    assert isinstance(outcome, Superseded)
    assert outcome.by_revision == 3


def test_a_repeat_of_a_superseded_revision_is_told_apart_from_other_bytes_under_its_number() -> None:
    """M13, M20, ruling 4: other bytes for a superseded revision are recorded and stop nothing"""
    known = history((1, X), (2, Y), applied=(2, Y))
    codes = [outcome.code for found in (X, Z) if isinstance(outcome := decided(arrived(1, found), known), Superseded)]
    assert codes == ["late_repeat", "late_other_bytes"]


def test_a_higher_revision_with_the_same_bytes_reuses_the_published_files() -> None:
    """ruling 2"""
    assert decided(arrived(2, X), history((1, X), applied=(1, X))) == Accept(reuses="p1")


def test_files_of_an_older_revision_than_the_applied_one_are_not_reused() -> None:
    """ruling 2: 1 had X, 2 has Y, 3 has X again"""
    assert decided(arrived(3, X), history((1, X), (2, Y), applied=(2, Y))) == Accept()


def test_what_is_incomplete_waits_and_names_what_is_missing() -> None:
    """M3, S1"""
    assert decided(Incomplete(("b.csv",)), history((1, X), applied=(1, X))) == Wait(("b.csv",))


def test_what_is_wrong_is_rejected_with_every_finding_even_on_a_resend() -> None:
    """M5, ruling 2"""
    findings = (Finding("checksum_mismatch", "a"), Finding("size_mismatch", "b"))
    assert decided(Invalid(findings), history((1, X), applied=(1, X))) == Reject(findings)


def test_identity_is_asked_before_order_so_that_a_repeat_never_waits() -> None:
    """M14, M15: a duplicate and a conflict of an applied key say so although its predecessor is not there"""
    known = history((1, X), applied=(1, X))
    assert decided(arrived(1, X, 5), known, STRICT, FIRST) == Duplicate("p1")
    assert isinstance(decided(arrived(1, Y, 5), known, STRICT, FIRST), Conflict)


def test_a_correction_does_not_wait_for_its_predecessor() -> None:
    """ruling 7"""
    assert decided(arrived(2, Y, 5), history((1, X), applied=(1, X)), STRICT, FIRST) == Accept()


def test_a_first_arrival_is_judged_by_the_predecessor_rule() -> None:
    """C21"""
    outcome = decided(arrived(1, X, 3), history(), STRICT, FIRST)
    assert isinstance(outcome, Blocked)
    assert (outcome.reason, outcome.needs) == (Reason.SEQUENCE_GAP, SEQUENCE.at(2))
    assert isinstance(decided(arrived(1, X, 0), history(), STRICT, FIRST), Covered)


def test_a_conflict_comes_before_the_predecessor_rule() -> None:
    """M15: bytes that contradict what is bound are never merely waiting"""
    assert isinstance(decided(arrived(1, Y, 3), history((1, X)), STRICT, FIRST), Conflict)


# --- random histories against a plain model --------------------------------------------------------------------------


class Period:
    """One period kept the way the publication keeps it: bound on arrival, applied on Accept."""

    def __init__(self) -> None:
        self.known = KeyHistory()

    def deliver(self, revision: int, found: Digest) -> Decision:
        outcome = decided(arrived(revision, found), self.known)
        bound, applied = Bound(revision, found), self.known.applied
        if isinstance(outcome, Accept):
            applied = Applied(revision, found, f"p{revision}", "hash")
        kept = self.known.bound if bound in self.known.bound else (*self.known.bound, bound)
        self.known = KeyHistory(kept, applied)
        return outcome


_DELIVERIES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([X, Y, Z])), max_size=25)


@given(_DELIVERIES)
def test_a_period_ends_at_its_highest_revision_with_the_bytes_first_bound_to_it(story: Story) -> None:
    """M16, S7"""
    period = Period()
    for revision, found in story:
        period.deliver(revision, found)
    applied = period.known.applied
    if not story:
        assert applied is None
        return
    highest = max(revision for revision, _ in story)
    first = next(found for revision, found in story if revision == highest)
    assert applied is not None
    assert (applied.revision, applied.digest) == (highest, first)


@given(st.integers(1, 6), st.data())
def test_any_order_with_repeats_of_clean_revisions_ends_at_the_last_without_a_conflict(
    n: int, data: st.DataObject
) -> None:
    """M16, S7: 1(100), 2(80), then 1 again ends at 80"""
    repeats = data.draw(st.lists(st.integers(1, n), max_size=10))
    order = data.draw(st.permutations([*range(1, n + 1), *repeats]))
    period = Period()
    outcomes = [period.deliver(revision, digest(f"bytes of {revision}")) for revision in order]
    assert period.known.applied is not None
    assert period.known.applied.revision == n
    assert not any(isinstance(outcome, Conflict) for outcome in outcomes)


class RevisionsOfOnePeriod(RuleBasedStateMachine):
    """Deliveries, sealings without application, and damage of any kind, in any order, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.period = Period()
        self.first: dict[int, Digest] = {}
        self.model: tuple[int, Digest] | None = None
        self.highest_ever = 0

    @rule(revision=st.integers(1, 4), found=st.sampled_from([X, Y, Z]))
    def deliver(self, revision: int, found: Digest) -> None:
        outcome = self.period.deliver(revision, found)
        bound = self.first.setdefault(revision, found)
        if self.model is not None and revision < self.model[0]:
            assert isinstance(outcome, Superseded)
        elif bound != found:
            assert isinstance(outcome, Conflict)
            assert outcome.bound_digest == bound
        elif self.model == (revision, found):
            assert isinstance(outcome, Duplicate)
        else:
            assert isinstance(outcome, Accept)
            assert (outcome.reuses is not None) == (self.model is not None and self.model[1] == found)
            self.model = (revision, found)

    @rule(revision=st.integers(1, 4), found=st.sampled_from([X, Y, Z]))
    def seal_without_applying(self, revision: int, found: Digest) -> None:
        known = self.period.known
        self.period.known = KeyHistory((*known.bound, Bound(revision, found)), known.applied)
        self.first.setdefault(revision, found)

    @rule(observation=st.sampled_from([Incomplete(("a",)), Invalid((Finding("x", "y"),))]))
    def deliver_something_useless(self, observation: Incomplete | Invalid) -> None:
        assert isinstance(decided(observation, self.period.known), Wait | Reject)

    @invariant()
    def the_period_is_where_the_model_is(self) -> None:
        applied = self.period.known.applied
        assert (None if applied is None else (applied.revision, applied.digest)) == self.model

    @invariant()
    def what_is_applied_never_goes_down(self) -> None:
        now = self.period.known.applied.revision if self.period.known.applied else 0
        assert now >= self.highest_ever
        self.highest_ever = now

    @invariant()
    def a_bound_digest_never_changes(self) -> None:
        for revision, found in self.first.items():
            assert self.period.known.first_bound(revision) == found


TestRevisionsOfOnePeriod = RevisionsOfOnePeriod.TestCase
