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
from valuestream_dagster.core.manifest import Digest, Kind
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


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """What the ledger knows of one (kind, key); ``bound`` in the order of sealing, one digest or more per revision."""

    bound: tuple[Bound, ...] = ()
    applied: Applied | None = None
    # Revisions in conflict and not settled by a higher accepted one.
    conflicts: tuple[Bound, ...] = ()

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
class Reject:
    """Complete and wrong."""

    findings: tuple[Finding, ...]


Decision = Accept | Duplicate | Superseded | Conflict | Blocked | Covered | Wait | Reject


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Observation: some entries are not there."""

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Observation: the bytes or the statement are wrong."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Valid:
    """Observation: complete, checked, sealed under ``digest``."""

    identity: Identity
    digest: Digest


Observation = Incomplete | Invalid | Valid


def decide(
    rule: PredecessorRule,
    observation: Observation,
    history: KeyHistory,
    epoch: Epoch | None,
    state_of: Callable[[SequenceKey], SliceState],
) -> Decision:
    """What becomes of an arrival, given all that is known (M12-M16, C21).

    Args:
        rule: the feed's predecessor rule.
        observation: what intake found out about the arrival.
        history: the ledger's knowledge of the arrival's (kind, key).
        epoch: the feed's current epoch, or None.
        state_of: state of any other key of the feed.
    """
    match observation:
        case Incomplete(missing):
            return Wait(missing)
        case Invalid(findings):
            return Reject(findings)
        case Valid(identity, digest):
            return _decide_revision(identity, digest, history) or _decide_order(
                rule, identity, digest, history, epoch, state_of
            )


def _decide_revision(identity: Identity, digest: Digest, history: KeyHistory) -> Decision | None:
    """Everything that identity and digest settle by themselves; None when the arrival is new and newest."""
    applied, bound = history.applied, history.first_bound(identity.revision)
    known_same = any(item.revision == identity.revision and item.digest == digest for item in history.bound)
    if applied is not None and identity.revision == applied.revision and digest == applied.digest:
        return Duplicate(applied.publication_id)
    if applied is not None and identity.revision < applied.revision:
        return _superseded(applied.revision, bound, digest)
    reference = applied.digest if applied is not None and applied.revision == identity.revision else bound
    if reference is not None and reference != digest:
        again = " again" if known_same else ""
        return Conflict(
            reference,
            f"revision {identity.revision} is bound to digest {reference.short}, and{again} arrived as {digest.short}",
        )
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
    identity: Identity,
    digest: Digest,
    history: KeyHistory,
    epoch: Epoch | None,
    state_of: Callable[[SequenceKey], SliceState],
) -> Decision:
    applied = history.applied
    if applied is not None:  # a correction: its requirement was met when the link was first applied (ruling 7)
        return Accept(reuses=applied.publication_id if applied.digest == digest else None)
    judgement = rule.judge(identity.kind, identity.key, epoch, state_of)
    return judgement if isinstance(judgement, Blocked | Covered) else Accept()
