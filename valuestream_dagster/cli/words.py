"""How a feed stands, told to people: what is there, what is expected, what is wrong and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from valuestream_dagster.cli.output import counted
from valuestream_dagster.core.continuity import Mode, Reason
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.publication.status import FeedStatus

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that is so, and what to do about it; nothing where ``next_step`` is empty."""

    what: str
    next_step: str = ""


def standing(status: FeedStatus) -> str:
    """One word for people; programs read ``status``."""
    if status.status == "waiting_for_next" and not status.healthy:
        return "needs attention"
    return status.status.replace("_", " ")


def there(status: FeedStatus, *, required: bool) -> str:
    """What readers have; without a hole is said only where the feed requires it (``required``)."""
    if not status.applied:
        return "nothing yet"
    deliveries = counted(status.applied, "delivery", "deliveries")
    return f"{deliveries}, {up_to(status.position, required=required)}" if status.position else deliveries


def up_to(position: str, *, required: bool) -> str:
    """How far it goes, and whether nothing is missing before."""
    return f"{'without a hole ' if required else ''}up to {position}"


def expected(status: FeedStatus, feed: Feed) -> str:
    """What comes next, and whether it is late."""
    if status.expected is None:
        first = feed.rule.baseline.key if feed.rule.baseline else None
        chain = "a full delivery first" if feed.mode is Mode.CHAIN else "whatever comes first"
        return f"{first} first" if first else chain
    here = ", which is here" if status.observed else (", overdue" if status.overdue else "")
    return status.expected + here


def advice(status: FeedStatus, feed: Feed) -> list[Advice]:
    """Everything that a person should know, the most pressing first."""
    return [*_blocking(status, feed), *_troubles(status, feed), *_open_ends(status, feed)]


def _blocking(status: FeedStatus, feed: Feed) -> Iterator[Advice]:
    if status.status != "blocked":
        return
    waits = f"{status.next_observed} is here and waits" if status.next_observed else "what is here waits"
    match status.reason:
        case Reason.SEQUENCE_GAP if status.baseline is None and status.expected is None:
            yield Advice("no full delivery has been accepted to start the chain from", f"ask {feed.source} for a full.")
        case Reason.SEQUENCE_GAP:
            missing = listed(status.missing) or status.expected or "its predecessor"
            yield Advice(
                f"{missing} {_is(status.missing)} missing; {waits}",
                f"ask {feed.source} for {missing}; what waits is then applied by itself.",
            )
        case Reason.PREDECESSOR_FAILED:
            yield Advice(f"{waits} for {listed(status.failed) or status.expected}, which failed")
        case Reason.PREDECESSOR_REJECTED:
            yield Advice(f"{waits} for {listed(status.rejected) or status.expected}, which was rejected")
        case Reason.PREDECESSOR_WAITING:
            yield Advice(f"{waits} for {status.expected or 'its predecessor'}, which is here but not complete")
        case Reason.CONFLICT:
            yield Advice(f"{waits} until the conflict at {listed(status.conflicts)} is settled")
        case _:
            yield Advice(f"{waits}: {status.reason or 'blocked'}")


def _troubles(status: FeedStatus, feed: Feed) -> Iterator[Advice]:
    receipts = f"`valuestream receipts {feed.name}`"
    if status.conflicts:
        yield Advice(
            f"two different contents were sent as one revision of {listed(status.conflicts)}; what is applied stays",
            f"ask {feed.source} which is right and to send it under a higher revision.",
        )
    if status.held:
        yield Advice(f"held for a decision: {listed(status.held)}", f"see {receipts}.")
    if status.failed:
        yield Advice(
            f"failed: {listed(status.failed)}",
            f"see why with `valuestream plan {feed.name}`, then run `valuestream apply`.",
        )
    if status.rejected:
        yield Advice(
            f"rejected and not made good: {listed(status.rejected)}",
            f"see what was wrong with {receipts}, and ask {feed.source} to correct it.",
        )


def _open_ends(status: FeedStatus, feed: Feed) -> Iterator[Advice]:
    if status.status != "blocked" and status.missing:
        yield Advice(
            f"missing between what is there: {listed(status.missing)}",
            f"ask {feed.source} for {_them(status.missing)}; nothing waits for {_them(status.missing)}.",
        )
    if status.waiting:
        yield Advice(
            f"not complete yet: {listed(status.waiting)}",
            f"see what is missing with `valuestream plan {feed.name}`; nothing, if it is still on its way.",
        )
    if status.paused:
        yield Advice("paused: nothing is applied", f"remove `paused` from {feed.file} when it may go on.")
    elif status.status != "refused" and (status.correction_pending or (status.observed and status.status != "blocked")):
        ready = status.correction_pending or (status.expected or "",)
        yield Advice(f"here and not applied yet: {listed(ready)}", f"run `valuestream apply {feed.name}`.")
    if status.overdue and not status.observed:
        yield Advice(f"{status.expected} is overdue", f"ask {feed.source} when it comes.")
    for note in status.notes:
        yield Advice(note.rstrip("."))
    if status.status == "idle" and not status.notes:
        yield Advice(f"nothing has arrived yet at {feed.landing}")


def spanned(names: Sequence[str]) -> str:
    """Names in order, the middle left out where they are many."""
    return ", ".join(names) if len(names) <= _NAMED else f"{names[0]} ... {names[-1]}"


def listed(names: Sequence[str]) -> str:
    """The first few names and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"
