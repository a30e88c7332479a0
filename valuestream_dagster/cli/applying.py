"""What ``apply`` does with one feed after another, and what is told of it afterwards. Dagster is loaded only if it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from valuestream_dagster.cli.documents import Document, error_document
from valuestream_dagster.cli.progress import Progress
from valuestream_dagster.cli.standing import Standing, standing_by, standing_of
from valuestream_dagster.core.continuity import SliceState
from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.deployment import RECEIPTS_SHOWN, Deployment
from valuestream_dagster.errors import NotApplied, ValueStreamError
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.publication.glance import Glance
from valuestream_dagster.publication.locks import is_busy
from valuestream_dagster.publication.recompute import Recomputed

_RECEIPTS_LIMIT = 10_000_000


@dataclass(frozen=True, slots=True)
class Redo:
    """Whether published deliveries are made again: those that are stale where a person ``asked``, all of them by ``force``."""

    asked: bool = False
    force: bool = False


@dataclass(slots=True)
class FeedApplied:
    """What became of one feed: the receipts written, the Dagster runs, and what went wrong."""

    feed: Feed
    receipts: tuple[Receipt, ...] = ()
    runs: list[tuple[str, bool]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False
    error: ValueStreamError | None = None
    standing: Standing | None = None
    open_ends: list[Document] = field(default_factory=list)
    recomputed: Recomputed | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing failed and the feed is healthy afterwards."""
        healthy = self.standing is not None and self.standing.status.healthy
        refused = self.recomputed is not None and self.recomputed.refused
        return healthy and self.error is None and all(ok for _, ok in self.runs) and not refused

    @property
    def recomputed_in_words(self) -> str:
        """What was made again, and what readers see."""
        done = self.recomputed
        if done is None or not (done.keys or done.earlier or done.refused):
            return "nothing to make again."
        made = f"{done.keys + done.earlier} made again from sealed bytes"
        if done.switched:
            return f"{made}; readers see the new files."
        first = f"{len(done.refused)} cannot be made again as it is declared now, the first: {done.refused[0]}"
        return f"{made}, {first} Readers see what they saw; correct the feed file, or undo the edit, and run it again."

    def of(self, *verdicts: Verdict) -> list[Receipt]:
        """The receipts of these verdicts."""
        return [receipt for receipt in self.receipts if receipt.verdict in verdicts]

    @property
    def not_applied(self) -> list[Document]:
        """What arrived and is not applied, and why."""
        calm = (Verdict.ACCEPTED, Verdict.DUPLICATE)
        told = [_not_applied(receipt) for receipt in self.receipts if receipt.verdict not in calm]
        known = {(one["key"], one["revision"], one["kind"]) for one in told}
        return told + [one for one in self.open_ends if (one["key"], one["revision"], one["kind"]) not in known]


def apply_one(
    opened: Deployment, feed: Feed, only: str | None, progress: Progress | None, redo: Redo | None = None
) -> FeedApplied:
    """Apply what can be applied of one feed; its errors are kept in the answer, so that the next feed goes on."""
    done = FeedApplied(feed)
    try:
        seen = opened.glance(feed)
        try:
            if only is not None or not _needs_no_run(opened, seen, done):
                _run(opened, feed, only, progress, done)
            _redo(opened, feed, only, progress, redo or Redo(), done)
        finally:
            if done.standing is None:
                done.receipts = _since(opened, feed, seen.told.last_receipt)
    except ValueStreamError as error:
        done.error = error
    done.standing = done.standing or standing_of(opened, feed)
    if done.standing.status.status == "blocked" or done.standing.status.waiting:
        done.open_ends = _open_ends(done.standing)
    return done


def _needs_no_run(opened: Deployment, seen: Glance, done: FeedApplied) -> bool:
    """Record what needs no run; whether that is all, and nothing is left that only Dagster can do or be told of.

    Where nothing is new it is, by what that glance saw, and nothing more is asked of anything.
    """
    feed = seen.feed
    if is_busy(opened.publisher(feed).locks, feed.name):
        return False
    seen = opened.settled(seen)
    plan = seen.plan(retry_failed=True)
    told_to_dagster = any(unusable.settled for unusable in plan.look.unusable)
    if plan.claimable or told_to_dagster or seen.told.open_run or seen.told.unreported:
        return False
    noted, sealed = opened.note(plan).receipts, () if feed.paused else opened.take_in_early(plan)
    if not (noted or sealed):
        done.standing = standing_by(opened, seen)  # nothing has changed since that look
    return True


def _run(opened: Deployment, feed: Feed, only: str | None, progress: Progress | None, done: FeedApplied) -> None:
    import dagster as dg  # here: it costs two seconds, and most invocations find nothing to do

    from valuestream_dagster.orchestration.apply import apply_feed

    try:
        applied = apply_feed(opened, feed, only=only, progress=progress)
    except dg.DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    done.runs, done.failures, done.interrupted = applied.runs, applied.failures, applied.interrupted


def _redo(
    opened: Deployment, feed: Feed, only: str | None, progress: Progress | None, redo: Redo, done: FeedApplied
) -> None:
    """Make published deliveries again where that is wanted, and tell Dagster of the new files."""
    auto = feed.recompute == "auto" and only is None
    if done.interrupted or not (redo.asked or redo.force or auto):
        return
    if feed.paused:
        raise NotApplied(f"{feed.name} is paused.", next_step=f"remove `paused` from {feed.file}, then apply again.")
    told = (lambda made, of: progress(feed.name, made, of)) if progress else None
    recomputed = opened.recompute(feed, key=only, force=redo.force, progress=told)
    made = recomputed.keys or recomputed.earlier or recomputed.refused
    if made or redo.asked or redo.force:
        done.recomputed = recomputed
    if made:
        done.standing = None
    if recomputed.switched:
        from valuestream_dagster.orchestration.apply import tell_dagster

        tell_dagster(opened, feed)


def _since(opened: Deployment, feed: Feed, last: str | None) -> tuple[Receipt, ...]:
    """The receipts written after the one with that id, however many."""
    limit = RECEIPTS_SHOWN
    while True:
        found = opened.receipts(feed.name, limit)
        place = next((place for place, receipt in enumerate(found) if receipt.receipt_id == last), None)
        if place is not None:
            return found[place + 1 :]
        if len(found) < limit or limit >= _RECEIPTS_LIMIT:
            return found
        limit *= 10


def _not_applied(receipt: Receipt) -> Document:
    return {
        "feed": receipt.feed,
        "key": receipt.key.text if receipt.key else None,
        "kind": receipt.kind,
        "revision": receipt.revision,
        "verdict": receipt.verdict,
        "code": receipt.code,
        "detail": receipt.detail,
        "next": receipt.next_step,
    }


def _open_ends(standing: Standing) -> list[Document]:
    """Deliveries that are here and wait: blocked by another one (which is no verdict on them), or not complete."""
    return [
        {
            "feed": planned.feed,
            "key": planned.key.text,
            "kind": planned.kind,
            "revision": planned.revision,
            "verdict": Verdict.WAITING if planned.state is SliceState.WAITING else None,
            "code": planned.reason or "incomplete",
            "detail": f"{planned.feed} {planned.key} r{planned.revision} waits: {planned.why}.",
            "next": "",
        }
        for planned in standing.slices
        if planned.state in (SliceState.BLOCKED, SliceState.WAITING)
    ]


def applied_document(results: Sequence[FeedApplied]) -> Document:
    """What ``apply --json`` prints."""
    return {
        "applied": [_identity(receipt) for one in results for receipt in one.of(Verdict.ACCEPTED)],
        "duplicates": [_identity(receipt) for one in results for receipt in one.of(Verdict.DUPLICATE)],
        "not_applied": [document for one in results for document in one.not_applied],
        "runs": [{"feed": one.feed.name, "run_id": run_id, "ok": ok} for one in results for run_id, ok in one.runs],
        "recomputed": [
            {
                "feed": one.feed.name, "keys": one.recomputed.keys + one.recomputed.earlier, "switched": one.recomputed.switched,
                "refused": one.recomputed.refused,
            }
            for one in results
            if one.recomputed is not None
        ],
        "refusals": [dict(refusal) for one in results if one.standing for refusal in one.standing.refusals],
        "failures": [{"feed": one.feed.name, "detail": detail} for one in results for detail in one.failures],
        "errors": [error_document(one.feed, one.error) for one in results if one.error is not None],
    }  # fmt: skip


def _identity(receipt: Receipt) -> Document:
    return {
        "feed": receipt.feed,
        "key": receipt.key.text if receipt.key else None,
        "kind": receipt.kind,
        "revision": receipt.revision,
    }
