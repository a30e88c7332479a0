"""Recording what a person rules (ruling 4): checked against what is known in the very transaction that records it.

``keep`` and ``release`` are one row; what is released is then taken up from the store by the next apply, like any delivery that
waited. ``retract`` is a ledger run of its own whose one publication holds no rows, so that it becomes visible like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from valuestream_dagster.core.continuity import Blocked, Mode, SliceState
from valuestream_dagster.core.decision import Accept, Identity, RulingWord, Valid
from valuestream_dagster.core.manifest import Kind, digest_of
from valuestream_dagster.core.ruling import Asked, RulingRefused, ruled_by
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import NotApplied, WrongUse
from valuestream_dagster.intake.observe import Look
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import KeyRecord, PendingDelivery, Ruling, SliceEvent
from valuestream_dagster.publication.catalogue import record_feed_version
from valuestream_dagster.publication.locks import run_lock
from valuestream_dagster.publication.outcomes import PreparedArrival
from valuestream_dagster.publication.pending import waiting_arrival
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.run import FeedRun

# What readers have of a retracted revision: no bytes at all, and so no rows.
NOTHING = digest_of(())


@dataclass(frozen=True, slots=True)
class RulingAsked:
    """What a person asked for, of which key, and who and why."""

    key: SequenceKey
    kind: Kind | None
    asked: Asked
    by: str
    why: str


def rule(publisher: Publisher, ruling: RulingAsked) -> Ruling:
    """Check a ruling against what is known now and record it; returns it with all that was left open filled in.

    Args:
        publisher: of the feed that it is about.
        ruling: what was asked for.

    Raises:
        FeedBusy: a run is at work on the feed, and may change what the ruling is about.
        NotApplied: it does not fit what is known now.
        WrongUse: the feed has nothing of that key, or fulls and deltas of it and none was named.
    """
    feed = publisher.feed
    with run_lock(publisher.locks, feed.name, since=publisher.now()):
        publisher.settle_held()
        with publisher.ledger.session() as session:
            record = session.read.records(feed.name, [ruling.key.text])[ruling.key.text]
            kind = _kind(publisher, ruling, record)
            ruled = ruled_by(ruling.asked, record.history(kind))
            if isinstance(ruled, RulingRefused):
                raise _refused(publisher, ruling.key, ruled)
            made = Ruling(feed.name, ruling.key, kind, ruled, ruling.by, ruling.why, publisher.now())
            if ruled.ruling is not RulingWord.RETRACT:
                _record(publisher, session, made)
                publisher.publish_catalogue(session)
                return made
        _retract(publisher, made, applied=record.history(kind).applied is not None)
    return made


def _kind(publisher: Publisher, ruling: RulingAsked, record: KeyRecord) -> Kind:
    known = [kind for kind, history in record.histories.items() if history.bound]
    if ruling.kind is not None and (ruling.kind in known or not known):
        return ruling.kind
    if len(known) == 1 and ruling.kind is None:
        return known[0]
    if known and ruling.kind is None:
        raise WrongUse(f"{publisher.feed.name} {ruling.key} has a full and a delta.", next_step="say which with --kind.")
    what = f"no {ruling.kind} of {ruling.key}" if ruling.kind else f"nothing of {ruling.key}"
    raise _refused(publisher, ruling.key, RulingRefused(f"{what} was ever found valid"))


def _refused(publisher: Publisher, key: SequenceKey, refused: RulingRefused) -> NotApplied:
    return NotApplied(f"{publisher.feed.name} {key}: {refused.detail}; nothing was ruled.", next_step=refused.next_step)


def _record(publisher: Publisher, session: LedgerSession, made: Ruling) -> None:
    """The ruling; and of released bytes that they wait to be taken up, as nothing else may keep them in mind any more."""
    ruled = made.ruled
    with session.transaction():
        record_feed_version(session, publisher.feed, made.ruled_at)
        session.write.ruling(made)
        if ruled.ruling is RulingWord.RELEASE and ruled.digest is not None:
            epoch = session.read.epoch(made.feed)
            event = SliceEvent(
                made.feed, epoch.number if epoch else 0, made.kind, made.key, SliceState.READY, made.ruled_at,
                revision=ruled.revision, digest=ruled.digest.hex, why=f"released by {made.by}: {made.why}",
            )  # fmt: skip
            session.write.slice_events([event])


def _retract(publisher: Publisher, made: Ruling, *, applied: bool) -> None:
    feed, names = publisher.feed, [made.key.text, publisher.feed.sequence.predecessor(made.key).text]
    with publisher.ledger.session() as session:
        epoch = publisher.epoch_of(session, [made.key])
        run = FeedRun(
            publisher,
            Look(frozenset()),
            None,
            records=session.read.records(feed.name, names),
            existing={},
            epoch=epoch,
            position=session.read.position(feed.name, required=feed.rule.required),
        )
    if made.kind is Kind.FULL and feed.mode is Mode.CHAIN:
        if epoch is None or not epoch.full or made.key.ordinal >= epoch.baseline.ordinal:
            raise _refused(publisher, made.key, RulingRefused("the chain starts from it", "ask for a full that replaces it."))
    elif not applied and isinstance(judged := run.judge(made.key), Blocked):
        raise _refused(publisher, made.key, RulingRefused(f"it is not its turn: {judged.why}", "retract it when its turn comes."))
    nothing = PendingDelivery(made.kind, made.key, made.ruled.revision, NOTHING, "", "")
    valid = Valid(Identity(made.kind, made.key, made.ruled.revision), NOTHING)
    run.retract(made, PreparedArrival(waiting_arrival(feed, nothing), valid, Accept()))
