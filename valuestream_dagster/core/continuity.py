"""The predecessor rule: may this key be processed now? Asked by sensor, run, transaction and automation condition alike.

Discovery is another question (C4): that a later key is here is no permission to apply it (C3). Position is always derived
from succeeded slices, never stored (C19). What a delivery's *revision* means is ``core.decision``'s question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never

from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import Sequence, SequenceKey


class Mode(StrEnum):
    """``periods``: each key's data stands by itself. ``chain``: newest full and the deltas after it."""

    PERIODS = "periods"
    CHAIN = "chain"


class SliceState(StrEnum):
    """State of a slice, as ``plan`` shows it."""

    WAITING = "waiting"
    READY = "ready"
    BLOCKED = "blocked"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STALE = "stale"
    HELD = "held"
    CONFLICT = "conflict"
    COVERED = "covered"
    WAIVED = "waived"
    MISSING = "missing"
    REJECTED = "rejected"


class Reason(StrEnum):
    """Why a slice is not claimable."""

    SEQUENCE_GAP = "sequence_gap"
    PREDECESSOR_FAILED = "predecessor_failed"
    PREDECESSOR_WAITING = "predecessor_waiting"
    PREDECESSOR_REJECTED = "predecessor_rejected"
    CONFLICT = "conflict"
    HELD = "held"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Baseline:
    """From where a sequence is judged (C13): the first key that is expected, the lowest seen, or an accepted full."""

    kind: Literal["key", "first", "full"]
    key: SequenceKey | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """One generation of a chain (C34).

    Args:
        number: 1, 2, ...
        baseline: the key from which it is judged.
        full: the baseline is an accepted full, which includes the delta of its key and all before; else it is the first
            key that counts.
    """

    number: int
    baseline: SequenceKey
    full: bool = True


@dataclass(frozen=True, slots=True)
class Nothing:
    """The slice requires no other one."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The slice requires the success of ``key``; ``None`` means a baseline that is not there yet."""

    key: SequenceKey | None


@dataclass(frozen=True, slots=True)
class BeforeBaseline:
    """The key lies at or below what the baseline covers: it is recorded and never applied."""

    baseline: SequenceKey


Requirement = Nothing | Needs | BeforeBaseline


@dataclass(frozen=True, slots=True)
class Claimable:
    """The rule allows the slice to be processed now."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The rule does not allow it: why, and which key it waits for."""

    reason: Reason
    needs: SequenceKey | None
    why: str


@dataclass(frozen=True, slots=True)
class Covered:
    """Nothing is to be done for it: the baseline includes it."""

    why: str


Judgement = Claimable | Blocked | Covered

_REASONS: dict[SliceState, tuple[Reason, str]] = {
    SliceState.FAILED: (Reason.PREDECESSOR_FAILED, "failed"),
    SliceState.INTERRUPTED: (Reason.PREDECESSOR_FAILED, "was interrupted"),
    SliceState.WAITING: (Reason.PREDECESSOR_WAITING, "is here but not complete"),
    SliceState.REJECTED: (Reason.PREDECESSOR_REJECTED, "was rejected"),
    SliceState.CONFLICT: (Reason.CONFLICT, "is in conflict"),
    SliceState.HELD: (Reason.HELD, "is held for a decision"),
    SliceState.READY: (Reason.PREDECESSOR_WAITING, "is here and not applied yet"),
    SliceState.RUNNING: (Reason.PREDECESSOR_WAITING, "is being processed"),
    SliceState.BLOCKED: (Reason.PREDECESSOR_WAITING, "is itself blocked"),
}
_SATISFIED = frozenset({SliceState.SUCCEEDED, SliceState.STALE, SliceState.WAIVED, SliceState.COVERED})


@dataclass(frozen=True, slots=True)
class PredecessorRule:
    """One feed's rule of order.

    Args:
        sequence: the feed's keys and their order.
        mode: whether later keys build on earlier ones.
        required: whether continuity is required; otherwise gaps are reported and block nothing (C1, S26).
        baseline: from where it is judged; always there when ``required``.
        conflict_stops: whether the keys after a conflict wait until it is settled (ruling 4).
    """

    sequence: Sequence
    mode: Mode
    required: bool
    baseline: Baseline | None
    conflict_stops: bool = True

    def requirement(self, kind: Kind, key: SequenceKey, epoch: Epoch | None) -> Requirement:
        """What must have succeeded before ``key`` may be processed, in the given epoch (C20, C21, C37).

        ``epoch`` is None before a baseline is known.
        """
        if self.mode is Mode.CHAIN and kind is Kind.FULL:
            if epoch is not None and (epoch.full or self.required) and key.ordinal < epoch.baseline.ordinal:
                return BeforeBaseline(epoch.baseline)
            return Nothing()
        if self.mode is Mode.CHAIN and self._from_full and epoch is None:
            return Needs(None) if self.required else Nothing()
        if not self.required:
            covered = epoch is not None and self._included(key, epoch)
            return BeforeBaseline(epoch.baseline) if covered and epoch is not None else Nothing()
        if epoch is None:
            return Needs(None)
        if key.ordinal < epoch.baseline.ordinal or self._included(key, epoch):
            return BeforeBaseline(epoch.baseline)
        return Nothing() if key.ordinal == epoch.baseline.ordinal else Needs(self.sequence.predecessor(key))

    def judge(
        self, kind: Kind, key: SequenceKey, epoch: Epoch | None, state_of: Callable[[SequenceKey], SliceState]
    ) -> Judgement:
        """May ``key`` be processed now (C6, C8, C21)?

        Args:
            kind: full or delta.
            key: the key that asks.
            epoch: the current epoch, or None before a baseline is known.
            state_of: state of any other key; ``MISSING`` where nothing of it was ever seen.
        """
        requirement = self.requirement(kind, key, epoch)
        match requirement:
            case Nothing():
                return Claimable()
            case BeforeBaseline(baseline):
                return Covered(f"the baseline {baseline} includes it")
            case Needs(needed):
                if needed is None:
                    return Blocked(Reason.SEQUENCE_GAP, None, "no full has been accepted yet to start the chain from")
                return self._judge_needed(needed, state_of(needed))
            case _:
                assert_never(requirement)

    def _judge_needed(self, needed: SequenceKey, state: SliceState) -> Judgement:
        if state in _SATISFIED or (state is SliceState.CONFLICT and not self.conflict_stops):
            return Claimable()
        reason, words = _REASONS.get(state, (Reason.SEQUENCE_GAP, "is missing"))
        return Blocked(reason, needed, f"its predecessor {needed} {words}")

    def _included(self, key: SequenceKey, epoch: Epoch) -> bool:
        """Whether the full from which the epoch is judged includes the delta of ``key`` (ruling 9)."""
        return self.mode is Mode.CHAIN and epoch.full and key.ordinal <= epoch.baseline.ordinal

    @property
    def _from_full(self) -> bool:
        return self.baseline is None or self.baseline.kind == "full"


def effective_epoch(rule: PredecessorRule, recorded: Epoch | None, lowest_seen: SequenceKey | None) -> Epoch | None:
    """The epoch from which to judge now: the recorded one, else the one that the declared baseline implies.

    Args:
        rule: the feed's rule.
        recorded: the newest epoch in the ledger, or None before the first acceptance.
        lowest_seen: lowest key of which anything is known, for ``baseline: first``.
    """
    if recorded is not None or rule.baseline is None:
        return recorded
    match rule.baseline.kind:
        case "key":
            return Epoch(1, rule.baseline.key, full=False) if rule.baseline.key is not None else None
        case "first":
            return Epoch(1, lowest_seen, full=False) if lowest_seen is not None else None
        case "full":
            return None
        case _:
            assert_never(rule.baseline.kind)
