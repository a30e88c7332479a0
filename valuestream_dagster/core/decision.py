"""The one ``decide``: what becomes of an arrival. Asked by plan, run and, again, inside the recording transaction.

The order of the questions is the safety: identity before order (a repeat of what is known never waits), conflict before
anything that writes, the predecessor rule last. Nothing here looks at names, times or files (M10, M11).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from valuestream_dagster.core.continuity import Blocked, Covered, Epoch, PredecessorRule, SliceState
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Kind, SealedFile
from valuestream_dagster.core.sequence import SequenceKey


class Verdict(StrEnum):
    """The word that a receipt bears."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    CONFLICT = "conflict"
    WAITING = "waiting"
    REJECTED = "rejected"
    HELD = "held"
    COVERED = "covered"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a delivery is within its feed (M10); the feed itself is the asker's context."""

    kind: Kind
    key: SequenceKey
    revision: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A revision whose bytes were sealed and valid: its identity is bound to this digest for ever (ruling 1)."""

    revision: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Applied:
    """The newest accepted revision of one (kind, key)."""

    revision: int
    digest: Digest
    publication_id: str
    computation_hash: str
    rows: int = 0


class RulingWord(StrEnum):
    """What a person may decide (ruling 4)."""

    KEEP = "keep"
    RELEASE = "release"
    RETRACT = "retract"
    WAIVE = "waive"


@dataclass(frozen=True, slots=True)
class Ruled:
    """A person's decision about one revision of one (kind, key).

    Args:
        ruling: the word.
        revision: which revision it is about.
        digest: the bytes that it decides for; None where it decides against all.
        settles: the bytes that it decides against.
    """

    ruling: RulingWord
    revision: int
    digest: Digest | None = None
    settles: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """What the ledger knows of one (kind, key); ``bound`` in the order of sealing, one digest or more per revision."""

    bound: tuple[Bound, ...] = ()
    applied: Applied | None = None
    # Revisions in conflict and not settled by a higher accepted one, nor by a ruling.
    conflicts: tuple[Bound, ...] = ()
    # Oldest first.
    rulings: tuple[Ruled, ...] = ()
    # Valid, and waiting for a person to let them go (ruling 13).
    held: tuple[Bound, ...] = ()

    def ruled(self, revision: int) -> Ruled | None:
        """The newest ruling about a revision, or None."""
        return next((ruled for ruled in reversed(self.rulings) if ruled.revision == revision), None)

    def first_bound(self, revision: int) -> Digest | None:
        """The digest to which the revision was bound first, or None."""
        return next((bound.digest for bound in self.bound if bound.revision == revision), None)


@dataclass(frozen=True, slots=True)
class Accept:
    """Apply it. ``reuses`` names the publication whose files hold the same bytes already."""

    reuses: str | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Known already with these bytes: acknowledge, change nothing (M14)."""

    publication_id: str | None


@dataclass(frozen=True, slots=True)
class Superseded:
    """Older than what is applied: recorded, never applied (M13, M16)."""

    by_revision: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The identity is bound to other bytes: recorded and raised loudly, the applied version stays (M15)."""

    bound_digest: Digest
    detail: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Not complete: ``missing`` names what is not there (M3)."""

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Valid, and so unlike what was before that a person must let it go (ruling 13)."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Complete and wrong."""

    findings: tuple[Finding, ...]


Decision = Accept | Duplicate | Superseded | Conflict | Blocked | Covered | Wait | Held | Reject


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Observation: some entries are not there."""

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Observation: the bytes or the statement are wrong; ``kept`` is what of its bytes lies in our store, as evidence."""

    findings: tuple[Finding, ...]
    kept: tuple[SealedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Valid:
    """Observation: complete, checked, sealed under ``digest``; ``hold`` says why a person should see it first, if so."""

    identity: Identity
    digest: Digest
    hold: Held | None = None


Observation = Incomplete | Invalid | Valid


def decide(
    rule: PredecessorRule,
    observation: Observation,
    history: KeyHistory,
    epoch: Epoch | None,
    state_of: Callable[[SequenceKey], SliceState],
    *,
    redo: bool = False,
) -> Decision:
    """What becomes of an arrival, given all that is known (M12-M16, C21).

    Args:
        rule: the feed's predecessor rule.
        observation: what intake found out about the arrival.
        history: the ledger's knowledge of the arrival's (kind, key).
        epoch: the feed's current epoch, or None.
        state_of: state of any other key of the feed.
        redo: what is applied is to be made again from the same bytes (L6, ruling 12); that overrides nothing else.
    """
    match observation:
        case Incomplete(missing):
            return Wait(missing)
        case Invalid(findings):
            return Reject(findings)
        case Valid():
            settled = _decide_revision(observation, history, redo=redo)
            return settled or _decide_order(rule, observation, history, epoch, state_of, redo=redo)


def _decide_revision(valid: Valid, history: KeyHistory, *, redo: bool) -> Decision | None:
    """Everything that identity, digest and rulings settle by themselves; None when the arrival is new and newest."""
    identity, digest = valid.identity, valid.digest
    applied, bound = history.applied, history.first_bound(identity.revision)
    ruled = history.ruled(identity.revision)
    if applied is not None and identity.revision < applied.revision:
        return _superseded(applied.revision, bound, digest)
    if ruled is not None and (against := _ruled_against(ruled, identity, digest)) is not None:
        return against
    if applied is not None and identity.revision == applied.revision and digest == applied.digest:
        return None if redo else Duplicate(applied.publication_id)
    if ruled is not None and ruled.digest == digest:
        return None
    reference = applied.digest if applied is not None and applied.revision == identity.revision else bound
    if reference is not None and reference != digest:
        known_same = any(item.revision == identity.revision and item.digest == digest for item in history.bound)
        again = " again" if known_same else ""
        return Conflict(
            reference,
            f"revision {identity.revision} is bound to digest {reference.short}, and{again} arrived as {digest.short}",
        )
    others = [item.digest for item in history.conflicts if item.revision == identity.revision]
    if others:  # nobody knows which bytes are right, and none of them is applied: a person must say
        detail = f"revision {identity.revision} is bound to digest {digest.short}, and arrived as {others[0].short} too"
        return Conflict(digest, detail)
    return None


def _ruled_against(ruled: Ruled, identity: Identity, digest: Digest) -> Superseded | None:
    """What a ruling says of bytes that it did not decide for (ruling 4); nothing of bytes that came up after it."""
    if ruled.ruling is RulingWord.RETRACT:
        detail = f"revision {identity.revision} was retracted by a ruling, until a higher revision comes"
        return Superseded(identity.revision, "retracted", detail)
    if digest in ruled.settles:
        detail = f"a ruling ({ruled.ruling}) decided against these bytes of revision {identity.revision}"
        return Superseded(identity.revision, "ruled_out", detail)
    return None


def _superseded(by_revision: int, bound: Digest | None, digest: Digest) -> Superseded:
    """Older than the applied one, whether it was here before or not (ruling 3): recorded, stops nothing."""
    detail = f"revision {by_revision} is applied already"
    if bound is None:
        return Superseded(by_revision, "late_revision", detail)
    if bound == digest:
        return Superseded(by_revision, "late_repeat", f"{detail}, and these bytes are known")
    return Superseded(by_revision, "late_other_bytes", f"{detail}, and these are other bytes than it had before")


def _decide_order(
    rule: PredecessorRule,
    valid: Valid,
    history: KeyHistory,
    epoch: Epoch | None,
    state_of: Callable[[SequenceKey], SliceState],
    *,
    redo: bool,
) -> Decision:
    identity, applied = valid.identity, history.applied
    if applied is None:  # a correction's requirement was met when the link was first applied (ruling 7)
        judgement = rule.judge(identity.kind, identity.key, epoch, state_of)
        if isinstance(judgement, Blocked | Covered):
            return judgement
    ruled = history.ruled(identity.revision)
    released = ruled is not None and ruled.ruling is RulingWord.RELEASE and ruled.digest == valid.digest
    if valid.hold is not None and not released and not redo:
        return valid.hold
    same_bytes = applied is not None and applied.digest == valid.digest and not redo
    return Accept(reuses=applied.publication_id if applied is not None and same_bytes else None)


def shrink_hold(rows: int, before: int | None, max_shrink: float | None) -> Held | None:
    """Why a full that lost too many rows is held (ruling 13), or None.

    Args:
        rows: of the delivery.
        before: rows of what it is compared with; None where there is nothing to compare with.
        max_shrink: the greatest part of the rows that may go, 0 to 1; None where nothing is compared.
    """
    if max_shrink is None or before is None or rows >= before * (1 - max_shrink):
        return None
    return Held(
        "shrunk", f"it has {rows} rows, what was before it has {before}: more than {max_shrink:.0%} of them are gone"
    )
