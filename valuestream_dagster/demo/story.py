"""What happens in the two months: eleven steps, each of them something that producers do, with what valuestream made of it.

No step remembers anything: what is done is what the ledger has receipts of, so that an interrupted story goes on where it
stopped and a finished one has nothing left to do. Verdicts and numbers that are told are read from ledger and catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from valuestream_dagster.cli.applying import FeedApplied, apply_one
from valuestream_dagster.cli.progress import Progress
from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.demo.producer import (
    AGAIN,
    CONFLICT_DAY,
    CORRECTED_DAY,
    DAYS,
    LACKING_ROWS,
    LAST_DAY,
    RESENT_DAY,
    Parcel,
    aircraft_parcels,
    flights_of,
    hand_over,
)
from valuestream_dagster.deployment import RECEIPTS_SHOWN, Deployment
from valuestream_dagster.errors import NotApplied, WrongUse
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.publication.status import FeedStatus

FLIGHTS, AIRCRAFT = "bts/flights", "bts/aircraft"
LATE_FILE_DAY, MISSING_DAY = date(2013, 2, 15), date(2013, 2, 20)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is there after a step: the last receipt of each of its manifests, the feed's standing, the runs it took."""

    opened: Deployment
    feed: Feed
    receipts: tuple[Receipt, ...]
    status: FeedStatus
    runs: int
    waiting: int

    @property
    def verdict(self) -> str:
        """The verdict of the step's newest receipt."""
        return self.receipts[-1].verdict.value

    @property
    def accepted(self) -> int:
        """How many of the step's deliveries were accepted."""
        return sum(receipt.verdict is Verdict.ACCEPTED for receipt in self.receipts)

    def rows(self) -> list[int]:
        """Rows of each published revision of the step's last key, oldest first."""
        key = self.receipts[-1].key
        return [one.rows for one, _ in self.opened.history(self.feed, key.text)] if key else []


Telling = Callable[[Outcome], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the producer does.

    Args:
        did: it in words.
        feed: the feed that it concerns.
        parcels: what is handed over.
        told: the word for what became of it, and a phrase, from the facts.
        payload: whether the files come with the manifests.
        settled: the parcels that have a receipt once the step is over, where those are not all.
    """

    did: str
    feed: str
    parcels: tuple[Parcel, ...]
    told: Telling
    payload: bool = True
    settled: tuple[Parcel, ...] = ()

    @property
    def manifests(self) -> tuple[str, ...]:
        """Names of the manifests of which the step's outcome is read."""
        return tuple(parcel.landed for parcel in self.settled or self.parcels)

    def is_done(self, receipts: Iterable[Receipt]) -> bool:
        """Whether the ledger has what this step leads to; a half-way delivery is over once it was seen to wait."""
        mine = [one for one in receipts if one.feed == self.feed]
        known = {one.manifest for one in mine if one.verdict is not Verdict.WAITING or not self.payload}
        return known.issuperset(self.manifests)


# --- what is told, from the facts ------------------------------------------------------------------------------------


def _caught_up(outcome: Outcome) -> tuple[str, str]:
    runs = f", in {_count(outcome.runs, 'Dagster run')}" if outcome.runs else ""
    return outcome.verdict, f"{outcome.accepted} deliveries in order{runs}"


def _waits(outcome: Outcome) -> tuple[str, str]:
    missing = outcome.receipts[-1].detail.partition("missing: ")[2].rstrip(".")
    return outcome.verdict, f"missing: {missing}" if missing else "it is whole already"


def _applied(outcome: Outcome) -> tuple[str, str]:
    return outcome.verdict, f"{outcome.rows()[-1]} flights"


def _known(outcome: Outcome) -> tuple[str, str]:
    return outcome.verdict, f"these bytes are known: nothing changes, still {_count(len(outcome.rows()), 'revision')}"


def _corrected(outcome: Outcome) -> tuple[str, str]:
    *before, now = outcome.rows()
    return outcome.verdict, f"r2 replaces r1: {now} flights, were {before[-1]}" if before else f"{now} flights"


def _late(outcome: Outcome) -> tuple[str, str]:
    return outcome.verdict, f"recorded, not applied: readers keep {outcome.rows()[-1]} flights"


def _in_conflict(outcome: Outcome) -> tuple[str, str]:
    state = "the run is red, " if outcome.status.conflicts else ""
    return outcome.verdict, f"{state}readers keep {outcome.rows()[-1]} flights"


def _settled(outcome: Outcome) -> tuple[str, str]:
    conflicts = ", ".join(outcome.status.conflicts) or "none"
    return outcome.verdict, f"{outcome.rows()[-1]} flights; open conflicts: {conflicts}"


def _blocked(outcome: Outcome) -> tuple[str, str]:
    status = outcome.status
    if status.reason is None:
        return outcome.verdict, f"{outcome.accepted} deliveries, up to {status.position}"
    missing = ", ".join(status.missing)
    return status.status, f"{status.reason}: {missing}; {outcome.accepted} applied, {outcome.waiting} wait"


def _count(number: int, noun: str) -> str:
    return f"one {noun}" if number == 1 else f"{number} {noun}s"


# --- the steps -------------------------------------------------------------------------------------------------------


def _days(first: date, last: date) -> tuple[Parcel, ...]:
    """The flights of some days as they are first handed over."""
    lacking = {CORRECTED_DAY, CONFLICT_DAY}
    return tuple(flights_of(day, folder="short" if day in lacking else "days") for day in DAYS if first <= day <= last)


def _later_days() -> tuple[Step, Step]:
    """The days after the late file, handed over without one of them; then that one."""
    later = _days(LATE_FILE_DAY + timedelta(days=1), LAST_DAY)
    missing = flights_of(MISSING_DAY)
    place = later.index(missing)
    before, after = later[:place], later[place + 1 :]
    given = (*before, *after)
    return (
        Step(f"the next {len(given)} days, all but {MISSING_DAY}", FLIGHTS, given, _blocked, settled=before),
        Step(f"{MISSING_DAY}, for which the others wait", FLIGHTS, (missing,), _caught_up, settled=(missing, *after)),
    )


def steps() -> tuple[Step, ...]:
    """The story, in order."""
    first = _days(DAYS[0], LATE_FILE_DAY - timedelta(days=1))
    late = (flights_of(LATE_FILE_DAY),)
    corrected = (flights_of(CORRECTED_DAY, folder="right", revision=2),)
    settling = (flights_of(CONFLICT_DAY, folder="right", revision=2),)
    resent, old, other = (
        (flights_of(day, folder="again", prefix=AGAIN),) for day in (RESENT_DAY, CORRECTED_DAY, CONFLICT_DAY)
    )
    return (
        Step(f"the first {len(first)} days at once", FLIGHTS, first, _caught_up),
        Step(f"the manifest of {LATE_FILE_DAY}, its file not yet", FLIGHTS, late, _waits, payload=False),
        Step("that file", FLIGHTS, late, _applied),
        Step(f"{RESENT_DAY} once more, under other names", FLIGHTS, resent, _known),
        Step(f"{CORRECTED_DAY} r2: r1 lacked {LACKING_ROWS} flights", FLIGHTS, corrected, _corrected),
        Step(f"{CORRECTED_DAY} r1 after its correction", FLIGHTS, old, _late),
        Step(f"{CONFLICT_DAY} again as r1, with other bytes", FLIGHTS, other, _in_conflict),
        Step(f"{CONFLICT_DAY} r2, which says what is right", FLIGHTS, settling, _settled),
        *_later_days(),
        Step(f"aircraft: the registry, {len(DAYS)} days of changes", AIRCRAFT, aircraft_parcels(), _caught_up),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One step told."""

    number: int
    did: str
    verdict: str
    words: str


def tell(
    opened: Deployment, todo: Iterable[tuple[int, Step]], outbox: Path, progress: Progress | None
) -> Iterator[Line]:
    """Carry out steps one after the other; each is told when it is over.

    Args:
        opened: the deployment.
        todo: steps with their numbers.
        outbox: what the producer packed.
        progress: told (feed, keys done, keys in all).

    Raises:
        ValueStreamError: something other than a delivery went wrong; the next demo goes on from there.
    """
    for number, step in todo:
        feed = opened.feed(step.feed)
        hand_over(step.parcels, outbox, landing_folder(feed), payload=step.payload)
        verdict, words = step.told(_outcome(opened, step, apply_one(opened, feed, None, progress)))
        yield Line(number, step.did, verdict, words)


def _outcome(opened: Deployment, step: Step, done: FeedApplied) -> Outcome:
    if done.interrupted:
        raise KeyboardInterrupt
    if done.error is not None:
        raise done.error
    last = {one.manifest: one for one in opened.receipts(done.feed.name, RECEIPTS_SHOWN)}
    lacking = [name for name in step.manifests if name not in last]
    if lacking or done.standing is None:
        why = [*done.failures, *(f"{name} was neither applied nor refused" for name in lacking)]
        raise NotApplied(
            f"{done.feed.name}: {why[0]}", next_step="mend that, then run the demo again; it goes on from there."
        )
    receipts = tuple(last[name] for name in step.manifests)
    return Outcome(opened, done.feed, receipts, done.standing.status, len(done.runs), len(done.open_ends))


def landing_folder(feed: Feed) -> Path:
    """Where the producer hands over.

    Raises:
        WrongUse: the feed's landing place is no folder.
    """
    if "://" in str(feed.landing):
        message = f"{feed.name} lands at {feed.landing}, and the demo hands over to a folder."
        raise WrongUse(message, next_step=f"correct `landing` in {feed.file}.")
    return Path(feed.landing)
