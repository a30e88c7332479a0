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
    Identity,
    Valid,
    Verdict,
)
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import MeasuredRows
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    Publication,
    Receipt,
    SeenObject,
    SliceEvent,
)
from valuestream_dagster.publication.facts import Facts, decide_with, opens_epoch
from valuestream_dagster.publication.means import Means
from valuestream_dagster.publication.outcomes import (
    ArrivalOutcome,
    PreparedArrival,
    RunName,
)
from valuestream_dagster.publication.receipts import Told, receipt_of, tell


class Recorder:
    """Writes one ledger run's arrivals down, each within a transaction that the caller opens.

    Args:
        means: the feed and the clock.
        facts: what the run knows; what is written here is remembered there.
        name: the ledger run's name.
    """

    def __init__(self, means: Means, facts: Facts, name: RunName) -> None:
        self._means = means
        self._feed = means.feed
        self._facts = facts
        self._name = name

    def record(self, session: LedgerSession, one: PreparedArrival) -> tuple[ArrivalOutcome, Publication | None]:
        """Decide one arrival again and write down what comes of it; inside the caller's transaction."""
        manifest, at = one.arrival.manifest, self._means.now()
        if one.failure is not None:
            return self._record_failure(session, one, one.failure, at), None
        decision = (
            one.provisional
            if isinstance(one.provisional, Blocked)
            else decide_with(self._feed, self._facts, one.arrival, one.observation)
        )
        if isinstance(decision, Accept) and decision.reuses is None and one.file is None:
            return self._changed_meanwhile(one), None
        publication: Publication | None = None
        if isinstance(one.observation, Valid):
            publication = self._record_valid(session, one, one.observation, decision, at)
        told = tell(manifest, decision)
        warnings = (*manifest.warnings, *_warnings(one))
        if told.verdict is not None and not self._repeats(session, one, told):
            session.write.receipts([self._receipt(one, told, told.verdict, warnings, at)])
        if told.verdict not in (None, Verdict.WAITING):
            seen = [SeenObject(path, stamp, one.arrival.stat.path) for path, stamp in one.arrival.touched]
            session.write.objects_seen(self._feed.name, seen, at)
        outcome = ArrivalOutcome(one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told, warnings)
        return outcome, publication

    def _changed_meanwhile(self, one: PreparedArrival) -> ArrivalOutcome:
        """It may be applied by now and could not when it was prepared: it stays news, and the next pass takes it."""
        manifest = one.arrival.manifest
        told = Told(
            None, "changed_meanwhile", f"{manifest.name}: the ledger changed while it was prepared.", "apply again."
        )
        return ArrivalOutcome(one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told)

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
                        revision=manifest.revision, run_id=self._name.run_id, why=failure,
                    )
                ]
            )  # fmt: skip
            history = self._facts.history(manifest.kind, manifest.key)
            self._facts.remember(manifest.kind, manifest.key, history, SliceState.FAILED)
        told = Told(
            None, "failed", f"{manifest.name}: {failure}", "mend the cause, then run `valuestream apply` again."
        )
        return ArrivalOutcome(one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told, failed=True)

    def _record_valid(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, decision: Decision, at: datetime
    ) -> Publication | None:
        """Bind the identity; then what the decision asks for: a publication, a conflict, or nothing more."""
        identity, name = valid.identity, self._feed.name
        history = self._facts.history(identity.kind, identity.key)
        bound = Bound(identity.revision, valid.digest)
        if isinstance(decision, Blocked):
            return None
        if bound not in history.bound:
            session.write.delivery(
                name, identity, valid.digest, manifest=one.arrival.stat.path, manifest_sha256=one.arrival.sha256, at=at
            )
            history = replace(history, bound=(*history.bound, bound))
        state: SliceState | None = None
        publication: Publication | None = None
        if isinstance(decision, Accept):
            publication = self._record_publication(session, one, valid, decision.reuses, at)
            applied = Applied(identity.revision, valid.digest, publication.publication_id, publication.computation_hash)
            open_conflicts = tuple(c for c in history.conflicts if c.revision >= identity.revision)
            history = replace(history, applied=applied, conflicts=open_conflicts)
            state = SliceState.CONFLICT if open_conflicts else SliceState.SUCCEEDED
        elif isinstance(decision, Conflict):
            if bound not in history.conflicts:
                self._record_conflict(session, valid, at)
                history = replace(history, conflicts=(*history.conflicts, bound))
            state = SliceState.CONFLICT
        self._facts.remember(identity.kind, identity.key, history, state)
        return publication

    def _record_conflict(self, session: LedgerSession, valid: Valid, at: datetime) -> None:
        identity = valid.identity
        event = SliceEvent(
            self._feed.name, self._epoch_number, identity.kind, identity.key, SliceState.CONFLICT, at,
            revision=identity.revision, digest=valid.digest.hex, run_id=self._name.run_id,
        )  # fmt: skip
        session.write.slice_events([event])

    def _record_publication(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, reuses: str | None, at: datetime
    ) -> Publication:
        identity = valid.identity
        applied = self._facts.history(identity.kind, identity.key).applied
        replaced = session.read.publication(applied.publication_id) if applied else None
        before = self._facts.position
        opens = opens_epoch(self._feed, identity, self._facts.epoch)
        epoch = self._open_epoch(session, identity, at, replaced)
        reused = replaced if reuses else None
        file = one.file
        files = reused.files if reused else ((file,) if file else ())
        measured = one.measured or MeasuredRows(0, ())
        publication_id = self._name.next_publication()
        requirement = self._feed.rule.requirement(identity.kind, identity.key, self._facts.epoch)
        event = SliceEvent(
            self._feed.name, epoch, identity.kind, identity.key, SliceState.SUCCEEDED, at,
            requires=requirement.key if isinstance(requirement, Needs) else None, revision=identity.revision,
            digest=valid.digest.hex, run_id=self._name.run_id, publication_id=publication_id,
        )  # fmt: skip
        session.write.slice_events([event])
        if opens:
            self._link_deltas(session, identity.key, epoch, at)
        self._facts.position = self._position_after(session, identity)
        publication = Publication(
            publication_id=publication_id,
            feed=self._feed.name,
            kind=identity.kind,
            key=identity.key,
            revision=identity.revision,
            digest=valid.digest,
            computation_hash=self._feed.computation_hash,
            run_id=self._name.run_id,
            rows=measured.rows,
            bytes=sum(file.bytes for file in files),
            published_at=at,
            epoch=epoch,
            # A correction builds on what its key built on (C29), not on what came later.
            previous_key=replaced.previous_key if replaced else (before.text if before else None),
            position=self._facts.position.text if self._facts.position else None,
            totals=tuple((column, str(total)) for column, total in measured.totals),
            files=files,
            lineage=one.sealed.files if one.sealed else (),
        )
        session.write.publication(publication)
        return publication

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
        session.write.epoch(name, opened, anchor=identity.key.text, run_id=self._name.run_id, at=at)
        self._facts.epoch = self._facts.recorded = opened
        return opened.number

    def _link_deltas(self, session: LedgerSession, baseline: SequenceKey, epoch: int, at: datetime) -> None:
        """Record as succeeded in the new epoch the applied deltas that follow its full without a gap (ruling 9)."""
        before = baseline
        events: list[SliceEvent] = []
        for key, revision, digest, publication_id in session.read.deltas_after(self._feed.name, baseline.ordinal):
            if self._feed.rule.required and self._feed.sequence.successor(before) != key:
                break
            events.append(
                SliceEvent(
                    self._feed.name, epoch, Kind.DELTA, key, SliceState.SUCCEEDED, at, requires=before,
                    revision=revision, digest=digest, run_id=self._name.run_id, publication_id=publication_id,
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
        return receipt_of(
            self._feed.name, one.arrival, told, verdict, at, digest=digest, warnings=warnings, run_id=self._name.run_id
        )


def _warnings(one: PreparedArrival) -> tuple[str, ...]:
    completeness = one.arrival.completeness
    return completeness.warnings if isinstance(completeness, Resolved) else ()
