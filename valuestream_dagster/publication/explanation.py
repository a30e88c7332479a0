"""Why a key is or is not there: one sentence, the rule behind it, the ledger's rows that it rests on, and what to do. Pure.

It says again what was decided elsewhere, and decides nothing: the state comes from the plan and the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from valuestream_dagster.core.continuity import SliceState
from valuestream_dagster.core.decision import Bound, KeyHistory, RulingWord, Verdict
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import BoundDelivery, KeyRecord, Publication, Receipt, Ruling
from valuestream_dagster.publication.dossier import Dossier
from valuestream_dagster.publication.plan import PlannedSlice
from valuestream_dagster.publication.status import FeedStatus


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of one key.

    Args:
        feed: the feed.
        key: the key.
        record: state, bindings, applied revisions and rulings, by the ledger.
        planned: what of it is new at the landing place or waits in the store, judged.
        status: how the feed stands.
        deliveries: bytes that were found valid, oldest first.
        receipts: verdicts, oldest first.
        publications: each with when it was replaced, oldest first.
        rulings: oldest first.
        dossiers: of open conflicts.
        unseen: why the landing place could not be looked at, or None.
    """

    feed: Feed
    key: SequenceKey
    record: KeyRecord
    planned: tuple[PlannedSlice, ...]
    status: FeedStatus
    deliveries: tuple[BoundDelivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    publications: tuple[tuple[Publication, datetime | None], ...] = ()
    rulings: tuple[Ruling, ...] = ()
    dossiers: tuple[Dossier, ...] = ()
    unseen: str | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a key stands as it does.

    Args:
        what: in words.
        rule: which rule decided, in words.
        relies_on: the rows that it was decided by, as ``table: which``.
        next_steps: what to do; empty where nothing is to be done.
    """

    what: str
    rule: str
    relies_on: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``explain`` tells of one key."""

    known: Known
    readers: str
    causes: tuple[Cause, ...]

    @property
    def settled(self) -> bool:
        """Whether nothing is left for a person to do about it."""
        return not any(cause.next_steps for cause in self.causes)

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        known = self.known
        return {
            "feed": known.feed.name,
            "key": known.key.text,
            "state": known.record.state,
            "readers": self.readers,
            "causes": [
                {"what": c.what, "rule": c.rule, "relies_on": list(c.relies_on), "next": list(c.next_steps)} for c in self.causes
            ],
            "deliveries": [
                {
                    "kind": one.kind, "revision": one.revision, "digest": one.digest.hex, "manifest": one.manifest,
                    "sealed_at": one.sealed_at,
                }
                for one in known.deliveries
            ],
            "rulings": [
                {
                    "ruling": one.ruled.ruling, "kind": one.kind, "revision": one.ruled.revision,
                    "digest": one.ruled.digest.hex if one.ruled.digest else None,
                    "settles": [digest.hex for digest in one.ruled.settles], "by": one.by, "why": one.why, "ruled_at": one.ruled_at,
                }
                for one in known.rulings
            ],
            "conflicts": [dossier.as_dict() for dossier in known.dossiers],
        }  # fmt: skip


def explain(known: Known) -> Explanation:
    """Why the key stands as it does; the most pressing cause first."""
    causes = [*_people_needed(known), *_here_and_not_applied(known), *_refused(known)]
    if not causes:
        causes = [*_applied(known)] or [_absent(known)]
    return Explanation(known, _readers(known), tuple(causes))


def _readers(known: Known) -> str:
    visible = [publication for publication, until in known.publications if until is None]
    if not visible:
        return "readers see nothing of it"
    return "readers see " + " and ".join(
        f"revision {one.revision} ({one.kind}, {one.rows} {'row' if one.rows == 1 else 'rows'}, digest {one.digest.short}) "
        f"since {one.published_at:%Y-%m-%d %H:%M:%S}"
        for one in visible
    )


def _people_needed(known: Known) -> Iterator[Cause]:
    for kind, history in known.record.histories.items():
        for revision in dict.fromkeys(bound.revision for bound in history.conflicts):
            yield _conflict(known, kind, history, revision)
        for bound in history.held:
            yield _held(known, kind, history, bound)


def _conflict(known: Known, kind: Kind, history: KeyHistory, revision: int) -> Cause:
    digests = list(dict.fromkeys(bound.digest for bound in history.bound if bound.revision == revision))
    applied = history.applied.digest if history.applied is not None and history.applied.revision == revision else None
    kept = applied or digests[0]
    others = [digest for digest in digests if digest != kept]
    stays = "which is applied and stays" if applied else "which came first; none of them is applied"
    names = " and ".join(digest.short for digest in others)
    command = f"valuestream rule {known.feed.name} {known.key}"
    which = f"--kind {kind} --revision {revision}"
    signed = '--by YOU --why "..."'
    return Cause(
        f"revision {revision} ({kind}) arrived with different contents: {kept.short}, {stays}, and {names}",
        "an identity is bound to the bytes that were first found valid for it; other bytes are a conflict (M15, ruling 4)",
        _rows_of(known, kind, revision),
        (
            f"ask {known.feed.source} which is right and for a higher revision; the conflict is settled when that is accepted",
            f"or stay with {kept.short}: {command} keep {which} {_sides(kept, others)} {signed}",
            *(
                f"or take {digest.short}: {command} release {which} {_sides(digest, digests)} {signed}"
                for digest in others
            ),
            f"or show readers nothing of it until a higher revision comes: {command} retract {which} {signed}",
        ),
    )


def _sides(chosen: Digest, others: Iterable[Digest]) -> str:
    """The options that say for which bytes and against which ones."""
    return " ".join([f"--digest {chosen.short}", *(f"--against {other.short}" for other in others if other != chosen)])


def _held(known: Known, kind: Kind, history: KeyHistory, bound: Bound) -> Cause:
    why = next((r.detail for r in reversed(known.receipts) if r.verdict is Verdict.HELD and r.digest == bound.digest.hex), "")
    command = f"valuestream rule {known.feed.name} {known.key}"
    which = f'--kind {kind} --revision {bound.revision} --digest {bound.digest.short} --by YOU --why "..."'
    kept = which.replace(f"--digest {bound.digest.short}", f"--against {bound.digest.short}")
    now = f"; revision {history.applied.revision} stays" if history.applied is not None else ""
    return Cause(
        f"revision {bound.revision} ({kind}, digest {bound.digest.short}) is held{now}" + (f": {why}" if why else ""),
        "what shrinks past `policy.max_shrink`, or an independent control contradicts, waits for a person (ruling 13, M8)",
        _rows_of(known, kind, bound.revision),
        (
            f"if it is right, let it go: {command} release {which}",
            f"if it is wrong, leave it out: {command} keep {kept}",
            f"or ask {known.feed.source} for a higher revision",
        ),
    )


_HERE = {
    SliceState.BLOCKED: "a key is applied once what it builds on has succeeded (the predecessor rule, C4)",
    SliceState.WAITING: "nothing is taken in before every file that the manifest names is there (M3)",
    SliceState.FAILED: "our own work on it failed; nothing is tried again by itself (C40)",
    SliceState.READY: "complete, and its turn: the next run takes it",
}


def _here_and_not_applied(known: Known) -> Iterator[Cause]:
    for planned in known.planned:
        rule = _HERE.get(planned.state)
        if rule is None:
            continue
        yield Cause(
            f"revision {planned.revision} ({planned.kind}) is {planned.state}: {planned.why}",
            rule,
            (f"manifest {planned.manifest}", *((f"slices: {planned.requires}",) if planned.requires else ())),
            tuple(_steps(known, planned)),
        )


def _steps(known: Known, planned: PlannedSlice) -> Iterator[str]:
    name, source = known.feed.name, known.feed.source
    match planned.state:
        case SliceState.READY:
            yield f"run `valuestream apply {name}`"
        case SliceState.FAILED:
            yield f"mend what failed, then run `valuestream apply {name}`"
        case SliceState.WAITING:
            yield f"nothing, if it is still on its way; else ask {source} for what is missing"
        case SliceState.BLOCKED if planned.requires is not None:
            yield f"see why {planned.requires} is not there: `valuestream explain {name} {planned.requires}`"
        case _:
            yield f"ask {source} for a full delivery"


def _refused(known: Known) -> Iterator[Cause]:
    """The newest rejection, where nothing came after it that was found good."""
    if known.key.text not in known.status.rejected:
        return
    newest = next((receipt for receipt in reversed(known.receipts) if receipt.verdict is Verdict.REJECTED), None)
    if newest is None:
        return
    yield Cause(
        newest.detail.rstrip("."),
        f"what is complete and does not agree with its own statement or the declaration is rejected ({newest.code}, M5)",
        (f"receipts: {newest.receipt_id}",),
        (newest.next_step.rstrip("."),),
    )


def _applied(known: Known) -> Iterator[Cause]:
    for kind, history in known.record.histories.items():
        if history.applied is None:
            continue
        ruled = history.ruled(history.applied.revision)
        ruling = next((one for one in reversed(known.rulings) if one.ruled == ruled and one.kind is kind), None)
        said = f", by a ruling of {ruling.by}: {ruling.why}" if ruling is not None else ""
        gone = ruled is not None and ruled.ruling is RulingWord.RETRACT
        what = "was retracted; no rows of it are shown until a higher revision comes" if gone else "is applied"
        yield Cause(
            f"revision {history.applied.revision} ({kind}) {what}{said}",
            "readers see the newest accepted revision of every key (M13)",
            (f"publications: {history.applied.publication_id}", *_rows_of(known, kind, history.applied.revision)),
        )


def _absent(known: Known) -> Cause:
    source, status, key = known.feed.source, known.status, known.key
    if known.unseen is not None:
        return Cause("nothing of it is known, and the landing place could not be looked at", known.unseen, (), ("bring it back",))
    if key.text in status.missing:
        what = f"it is missing: {status.next_observed or 'a later key'} is here, and nothing of {key} has arrived"
        return Cause(what, "a later key proves that one before it is missing (C6)", (), (f"ask {source} for it",))
    if (covered := next((r for r in reversed(known.receipts) if r.verdict is Verdict.COVERED), None)) is not None:
        rows = (f"receipts: {covered.receipt_id}",)
        return Cause(covered.detail.rstrip("."), "a full includes what was before it (ruling 9)", rows)
    if status.expected == key.text:
        return Cause("it is the next one, and nothing of it has arrived", "a head that is not here yet is no gap (C33)")
    if known.receipts:
        last = known.receipts[-1]
        return Cause(last.detail.rstrip("."), f"the newest verdict is `{last.verdict}`", (f"receipts: {last.receipt_id}",))
    return Cause("nothing of it has ever arrived, and nothing proves that it should have", "only what arrived is known")


def _rows_of(known: Known, kind: Kind, revision: int) -> tuple[str, ...]:
    """The ledger's rows about one revision, as a person can find them in the catalogue."""
    rows: Sequence[str] = [
        *(
            f"deliveries: {one.digest.short} by {one.manifest}, sealed {one.sealed_at:%Y-%m-%d %H:%M:%S}"
            for one in known.deliveries
            if (one.kind, one.revision) == (kind, revision)
        ),
        *(
            f"receipts: {one.receipt_id} ({one.verdict}, {one.code})"
            for one in known.receipts
            if (one.kind, one.revision) == (kind, revision)
        ),
    ]
    return tuple(rows[:20])
