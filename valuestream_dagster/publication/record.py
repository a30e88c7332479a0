"""The recording transaction: decide again, then lineage, files, revision, digest, slice and receipt together (M18, L10)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from valuestream_dagster.core.continuity import (
    Blocked,
    Epoch,
    Mode,
    Needs,
    SliceState,
)
from valuestream_dagster.core.decision import (
    Accept,
    Applied,
    Bound,
    Conflict,
    Decision,
    Held,
    Identity,
    KeyHistory,
    Valid,
    Verdict,
    Wait,
)
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import MeasuredRows
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import Broken
from valuestream_dagster.intake.completion import InStore, Resolved
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    Publication,
    Receipt,
    SeenObject,
    SliceEvent,
)
from valuestream_dagster.publication.facts import Facts, decide_with, is_redone, opens_epoch
from valuestream_dagster.publication.means import Means
from valuestream_dagster.publication.outcomes import (
    ArrivalOutcome,
    PreparedArrival,
    RunName,
)
from valuestream_dagster.publication.receipts import Told, receipt_of, tell, told_sealed


class Recorder:
    """Writes one ledger run's arrivals down, each within a transaction that the caller opens.

    Args:
        means: the feed and the clock.
        facts: what the run knows; what is written here is remembered there.
        name: the ledger run's name; None where deliveries are only sealed, outside of any run.
    """

    def __init__(self, means: Means, facts: Facts, name: RunName | None) -> None:
        self._means = means
        self._feed = means.feed
        self._facts = facts
        self._name = name

    def record(self, session: LedgerSession, one: PreparedArrival) -> tuple[ArrivalOutcome, Publication | None]:
        """Decide one arrival again and write down what comes of it; inside the caller's transaction."""
        if one.failure is not None:
            return self._record_failure(session, one, one.failure, self._means.now()), None
        decision = self._decide(one)
        if isinstance(decision, Accept) and decision.reuses is None and one.file is None:
            return self._changed_meanwhile(one), None
        return self._write(session, one, decision, self._told(one, decision))

    def record_early(self, session: LedgerSession, one: PreparedArrival) -> ArrivalOutcome:
        """Write down a delivery that was sealed and checked before its turn: it is bound, it waits, and nothing is published."""
        manifest = one.arrival.manifest
        if one.failure is not None:
            return self._outcome(one, Told(None, "failed", f"{manifest.name}: {one.failure}", "it is tried again."))
        decision = self._decide(one)
        told = self._told(one, decision)
        if isinstance(decision, Accept) and isinstance(one.observation, Valid):
            told = told_sealed(manifest, decision, known=self._is_bound(one.observation))
        return self._write(session, one, decision, told, publish=False)[0]

    def record_empty(self, session: LedgerSession, nothing: PreparedArrival) -> None:
        """A revision that is retracted: its publication has no rows, and counts as any other."""
        if isinstance(nothing.observation, Valid):
            self._record_publication(session, nothing, nothing.observation, None, self._means.now())

    def _told(self, one: PreparedArrival, decision: Decision) -> Told:
        """The words; bytes that are sealed and wait for their turn are told of as that."""
        if isinstance(decision, Blocked) and isinstance(one.observation, Valid):
            return told_sealed(one.arrival.manifest, decision, known=self._is_bound(one.observation))
        return tell(one.arrival.manifest, decision, declared=not self._feed.without_manifest)

    def _decide(self, one: PreparedArrival) -> Decision:
        """By what the ledger says now; whose turn it was not, and whose bytes were not looked at, just waits."""
        if isinstance(one.provisional, Blocked) and not isinstance(one.observation, Valid):
            return one.provisional
        rows = one.measured.rows if one.measured else None
        return decide_with(self._feed, self._facts, one.arrival, one.observation, rows)

    def _is_bound(self, valid: Valid) -> bool:
        history = self._facts.history(valid.identity.kind, valid.identity.key)
        return Bound(valid.identity.revision, valid.digest) in history.bound

    def _write(
        self, session: LedgerSession, one: PreparedArrival, decision: Decision, told: Told, *, publish: bool = True
    ) -> tuple[ArrivalOutcome, Publication | None]:
        at = self._means.now()
        publication: Publication | None = None
        if isinstance(one.observation, Valid):
            publication = self._record_valid(session, one, one.observation, decision, at, publish=publish)
        outcome = self._outcome(one, told)
        if is_redone(one.arrival):
            return outcome, publication  # it was received when it came, and is not received again
        if told.verdict is not None and not self._repeats(session, one, told):
            session.write.receipts([self._receipt(one, told, told.verdict, outcome.warnings, at)])
        if told.verdict is not None and not isinstance(decision, Wait):
            seen = [SeenObject(path, stamp, one.arrival.stat.path) for path, stamp in one.arrival.touched]
            session.write.objects_seen(self._feed.name, seen, at)
        return outcome, publication

    def _outcome(self, one: PreparedArrival, told: Told, *, failed: bool = False) -> ArrivalOutcome:
        manifest = one.arrival.manifest
        warnings = (*manifest.warnings, *_warnings(one), *one.notes)
        return ArrivalOutcome(
            one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told, warnings, failed
        )

    def _changed_meanwhile(self, one: PreparedArrival) -> ArrivalOutcome:
        """It may be applied by now and could not when it was prepared: it stays news, and the next pass takes it."""
        manifest = one.arrival.manifest
        told = Told(
            None, "changed_meanwhile", f"{manifest.name}: the ledger changed while it was prepared.", "apply again."
        )
        return self._outcome(one, told)

    def _repeats(self, session: LedgerSession, one: PreparedArrival, told: Told) -> bool:
        """A waiting receipt is written once per change of what is missing."""
        if told.verdict is not Verdict.WAITING:
            return False
        last = session.read.last_receipts(self._feed.name, [one.arrival.stat.path]).get(one.arrival.stat.path)
        return last == (Verdict.WAITING, told.detail)

    def _record_failure(
        self, session: LedgerSession, one: PreparedArrival, failure: str, at: datetime
    ) -> ArrivalOutcome:
        """Our own work went wrong: the slice failed, nothing else is known of the delivery, and a retry takes it again."""
        manifest = one.arrival.manifest
        if self._facts.history(manifest.kind, manifest.key).applied is None:
            session.write.slice_events(
                [
                    SliceEvent(
                        self._feed.name, self._epoch_number, manifest.kind, manifest.key, SliceState.FAILED, at,
                        revision=manifest.revision, run_id=self._name.run_id if self._name else None, why=failure,
                    )
                ]
            )  # fmt: skip
            history = self._facts.history(manifest.kind, manifest.key)
            self._facts.remember(manifest.kind, manifest.key, history, SliceState.FAILED)
        told = Told(
            None, "failed", f"{manifest.name}: {failure}", "mend the cause, then run `valuestream apply` again."
        )
        return self._outcome(one, told, failed=True)

    def _record_valid(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, decision: Decision, at: datetime, *, publish: bool
    ) -> Publication | None:
        """Bind the identity; then what the decision asks for: a publication, a slice that stops or waits, or nothing more."""
        identity, name = valid.identity, self._feed.name
        history = self._facts.history(identity.kind, identity.key)
        bound = Bound(identity.revision, valid.digest)
        # What the ledger knows to wait in the store needs no second event; a restored ledger may not know of it.
        stored = isinstance(one.arrival.completeness, InStore) and bound in history.bound
        if bound not in history.bound:
            session.write.delivery(
                name, identity, valid.digest, manifest=one.arrival.stat.path, manifest_sha256=one.arrival.sha256, at=at
            )
            history = replace(history, bound=(*history.bound, bound))
        state: SliceState | None = None
        publication: Publication | None = None
        match decision:
            case Accept(reuses) if publish:
                publication = self._record_publication(session, one, valid, reuses, at)
                applied = Applied(
                    identity.revision, valid.digest, publication.publication_id, publication.computation_hash, publication.rows
                )
                open_conflicts = tuple(
                    c for c in history.conflicts if c.revision >= identity.revision and c.digest != valid.digest
                )
                history = replace(history, applied=applied, conflicts=open_conflicts)
                state = SliceState.CONFLICT if open_conflicts else SliceState.SUCCEEDED
            case Accept() if not stored:
                state = self._record_stop(session, valid, SliceState.READY, "its turn has come", at, history)
            case Blocked(_, _, why) if not stored:
                state = self._record_stop(session, valid, SliceState.BLOCKED, why, at, history)
            case Held(_, detail):
                state = self._record_stop(session, valid, SliceState.HELD, detail, at, history)
            case Conflict(reference, detail):
                if bound not in history.conflicts and reference != valid.digest:
                    self._record_stop(session, valid, SliceState.CONFLICT, detail, at, history)
                    history = replace(history, conflicts=(*history.conflicts, bound))
                state = SliceState.CONFLICT
            case _:
                pass
        self._facts.remember(identity.kind, identity.key, history, state)
        return publication

    def _record_stop(
        self, session: LedgerSession, valid: Valid, state: SliceState, why: str, at: datetime, history: KeyHistory
    ) -> SliceState | None:
        """The delivery lies sealed and does not go on by itself; the key's state now, where nothing of it is applied."""
        identity = valid.identity
        event = SliceEvent(
            self._feed.name, self._epoch_number, identity.kind, identity.key, state, at,
            revision=identity.revision, digest=valid.digest.hex, run_id=self._name.run_id if self._name else None, why=why,
        )  # fmt: skip
        session.write.slice_events([event])
        return state if history.applied is None else None

    def _record_publication(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, reuses: str | None, at: datetime
    ) -> Publication:
        identity = valid.identity
        applied = self._facts.history(identity.kind, identity.key).applied
        replaced = session.read.publication(applied.publication_id) if applied else None
        before = self._facts.position
        redone = replaced if is_redone(one.arrival) else None
        opens = opens_epoch(self._feed, identity, self._facts.epoch) and redone is None
        epoch = redone.epoch if redone is not None else self._open_epoch(session, identity, at, replaced)
        reused = replaced if reuses else None
        file = one.file
        files = reused.files if reused else ((file,) if file else ())
        measured = one.measured or MeasuredRows(0, ())
        if self._name is None:
            raise Broken("a publication was to be recorded outside of a run")
        publication_id = self._name.next_publication()
        if redone is None:
            self._record_success(session, valid, epoch, publication_id, at)
        if opens:
            self._link_deltas(session, identity.key, epoch, at, self._name.run_id)
        if redone is None:
            self._facts.position = self._position_after(session, identity)
        publication = Publication(
            publication_id=publication_id,
            feed=self._feed.name,
            kind=identity.kind,
            key=identity.key,
            revision=identity.revision,
            digest=valid.digest,
            computation_hash=self._feed.computation_for(identity.key).hash,
            run_id=self._name.run_id,
            rows=measured.rows,
            bytes=sum(file.bytes for file in files),
            published_at=at,
            epoch=epoch,
            # A correction builds on what its key built on (C29), not on what came later.
            previous_key=replaced.previous_key if replaced else (before.text if before else None),
            position=redone.position if redone else self._facts.position.text if self._facts.position else None,
            totals=tuple((column, str(total)) for column, total in measured.totals),
            files=files,
            lineage=one.sealed.files if one.sealed else (),
        )
        session.write.publication(publication)
        return publication

    def _record_success(self, session: LedgerSession, valid: Valid, epoch: int, publication_id: str, at: datetime) -> None:
        """The slice has succeeded, on top of what it requires in this epoch (C20)."""
        identity, run_id = valid.identity, self._name.run_id if self._name else None
        requirement = self._feed.rule.requirement(identity.kind, identity.key, self._facts.epoch)
        event = SliceEvent(
            self._feed.name, epoch, identity.kind, identity.key, SliceState.SUCCEEDED, at,
            requires=requirement.key if isinstance(requirement, Needs) else None, revision=identity.revision,
            digest=valid.digest.hex, run_id=run_id, publication_id=publication_id,
        )  # fmt: skip
        session.write.slice_events([event])

    @property
    def _epoch_number(self) -> int:
        return self._facts.epoch.number if self._facts.epoch else 0

    def _open_epoch(self, session: LedgerSession, identity: Identity, at: datetime, replaced: Publication | None) -> int:
        """The epoch that a publication belongs to; a full opens the next one, any other first acceptance the first."""
        name, recorded = self._feed.name, self._facts.recorded
        if opens_epoch(self._feed, identity, recorded):
            opened = Epoch((recorded.number if recorded else 0) + 1, identity.key)
        elif recorded is not None:
            below = self._feed.mode is Mode.CHAIN and identity.key.ordinal <= recorded.baseline.ordinal
            return replaced.epoch if replaced is not None and below else recorded.number
        else:
            opened = Epoch(1, self._facts.epoch.baseline if self._facts.epoch else identity.key, full=False)
        session.write.epoch(name, opened, anchor=identity.key.text, run_id=self._name.run_id if self._name else None, at=at)
        self._facts.epoch = self._facts.recorded = opened
        return opened.number

    def _link_deltas(
        self, session: LedgerSession, baseline: SequenceKey, epoch: int, at: datetime, run_id: str
    ) -> None:
        """Record as succeeded in the new epoch the applied deltas that follow its full without a gap (ruling 9)."""
        before = baseline
        events: list[SliceEvent] = []
        for key, revision, digest, publication_id in session.read.deltas_after(self._feed.name, baseline.ordinal):
            if self._feed.rule.required and self._feed.sequence.successor(before) != key:
                break
            events.append(
                SliceEvent(
                    self._feed.name, epoch, Kind.DELTA, key, SliceState.SUCCEEDED, at, requires=before,
                    revision=revision, digest=digest, run_id=run_id, publication_id=publication_id,
                )
            )  # fmt: skip
            before = key
        if events:
            session.write.slice_events(events)

    def _position_after(self, session: LedgerSession, identity: Identity) -> SequenceKey | None:
        """The position once this slice has succeeded; asked of the ledger only where it may jump."""
        before, key = self._facts.position, identity.key
        jumps = self._feed.mode is Mode.CHAIN and identity.kind is Kind.FULL
        if jumps or before is None or key.ordinal <= before.ordinal:
            return session.read.position(self._feed.name, required=self._feed.rule.required)
        follows = not self._feed.rule.required or self._feed.sequence.successor(before) == key
        return key if follows else session.read.position(self._feed.name, required=True)

    def _receipt(
        self, one: PreparedArrival, told: Told, verdict: Verdict, warnings: tuple[str, ...], at: datetime
    ) -> Receipt:
        digest = one.observation.digest.hex if isinstance(one.observation, Valid) else None
        run_id = self._name.run_id if self._name else None
        return receipt_of(self._feed.name, one.arrival, told, verdict, at, digest=digest, warnings=warnings, run_id=run_id)


def _warnings(one: PreparedArrival) -> tuple[str, ...]:
    completeness = one.arrival.completeness
    return completeness.warnings if isinstance(completeness, Resolved) else ()
