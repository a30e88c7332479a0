"""One look at a feed's landing place and one at the ledger beside it: what plan, status, apply and the sensor go by.

Where nothing is new, the question what is new and all the others are put in one opening of the ledger; where manifests are to
be read meanwhile, it is opened twice, because nobody holds the ledger while a landing place answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from valuestream_dagster.core.continuity import Epoch, Reason, effective_epoch
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.feeds.computation import changed_fields
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.observe import Arrival, Look
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import FeedSummary, KeyRecord
from valuestream_dagster.publication.pending import waiting_arrival
from valuestream_dagster.publication.plan import FeedPlan, Staleness, plan_feed
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.status import FeedStatus, status_of


@dataclass(frozen=True, slots=True)
class Told:
    """What ledger and catalogue say of a feed at one moment.

    Args:
        records: what is known of the keys that are here, and of those before them.
        recorded: the epoch that the ledger has, if any.
        lowest: the lowest key that was ever seen.
        summary: the feed in numbers.
        gaps: ranges of ordinals that are missing and block nothing.
        withheld: why readers are kept from the feed's views, or None.
        stored: deliveries that were sealed before and are not applied.
        stale: what readers see that another declaration made.
        open_run: a run was begun and has not ended; where nobody holds the run lock, it was interrupted.
        shown: the catalogue shows all that the ledger has to show.
        unreported: Dagster was not told of everything that readers see.
        last_receipt: id of the newest receipt.
    """

    records: Mapping[str, KeyRecord]
    recorded: Epoch | None
    lowest: SequenceKey | None
    summary: FeedSummary
    gaps: tuple[tuple[int, int], ...]
    withheld: str | None
    stored: tuple[Arrival, ...]
    stale: Staleness
    open_run: bool
    shown: bool
    unreported: bool
    last_receipt: str | None


@dataclass(frozen=True, slots=True)
class Glance:
    """A look, and what the ledger and the catalogue say beside it."""

    feed: Feed
    look: Look
    told: Told

    @property
    def left_behind(self) -> bool:
        """Whether something is left of a run that died, unless one is at work: begun and never ended, or ended and never shown."""
        return self.told.open_run or not self.told.shown

    def plan(self, *, retry_failed: bool) -> FeedPlan:
        """The look, judged, and what lies sealed beside it; ``retry_failed`` where a person asks (C40)."""
        told = self.told
        keys = [arrival.manifest.key for arrival in (*self.look.arrivals, *told.stored)]
        first = min([*keys, *([told.lowest] if told.lowest else [])], key=lambda key: key.ordinal, default=None)
        epoch = effective_epoch(self.feed.rule, told.recorded, first)
        return plan_feed(
            self.feed, self.look, told.records, epoch, retry_failed=retry_failed, stored=told.stored, stale=told.stale
        )

    def status(self, now: datetime, *, listed: int) -> FeedStatus:
        """How the feed stands.

        Args:
            now: the clock's reading, for what is overdue.
            listed: how many missing keys are named.
        """
        plan = self.plan(retry_failed=False)
        status = status_of(plan, self.told.summary, self.told.gaps, now=now, listed=listed)
        if self.told.withheld is None:
            return status
        return replace(status, status="refused", reason=Reason.REFUSED, notes=(self.told.withheld, *status.notes))


def glance(publisher: Publisher) -> Glance:
    """Look once at everything. Costs one listing, one opening of the ledger, another and one small read each for new manifests.

    Raises:
        StoreFailure: the landing place does not answer, or is gone though deliveries came from it.
        LedgerFailure: the ledger did not answer.
    """
    feed, at_once = publisher.feed, list[Told]()

    def news(listing: Sequence[tuple[str, str]]) -> tuple[frozenset[str], frozenset[str]]:
        with publisher.ledger.session() as session:
            answer = session.read.news(feed.name, listing)
            if not any(answer):
                at_once.append(_ask(session, publisher, ()))
            return answer

    seen = publisher.look(news)
    if at_once and not seen.arrivals:
        told = at_once[0]
    else:
        with publisher.ledger.session() as session:
            told = _ask(session, publisher, seen.arrivals)
    if seen.absent and told.lowest is not None:
        raise StoreFailure(
            f"the landing place {feed.landing} has gone, and deliveries of {feed.name} came from it.",
            next_step=f"bring it back (is a share not mounted?), or correct `landing` in {feed.file}.",
        )
    return Glance(feed, seen, told)


def _ask(session: LedgerSession, publisher: Publisher, arrivals: Sequence[Arrival]) -> Told:
    read, feed, required = session.read, publisher.feed, publisher.feed.rule.required
    stored = tuple(waiting_arrival(feed, one) for one in read.pending(feed.name))
    keys = [arrival.manifest.key for arrival in (*arrivals, *stored)]
    asked = [name for key in keys for name in (key.text, feed.sequence.predecessor(key).text)]
    state, shown = publisher.shown(session)
    step = getattr(feed.sequence, "step", 1)
    newest = read.receipts(feed.name, 1)
    return Told(
        records=read.records(feed.name, asked) if asked else {},
        recorded=read.epoch(feed.name),
        lowest=read.lowest_seen(feed.name),
        summary=read.summary(feed.name, required=required),
        gaps=() if required else read.gaps(feed.name, step, publisher.settings.limits.gap_keys_listed),
        withheld=state.withheld.get(feed.name) if state else None,
        stored=stored,
        stale=_staleness(session, feed),
        open_run=bool(read.open_runs(feed.name)),
        shown=shown,
        unreported=bool(read.unreported(feed.name, 1)),
        last_receipt=newest[0].receipt_id if newest else None,
    )


def _staleness(session: LedgerSession, feed: Feed) -> Staleness:
    deliveries = session.read.stale(feed.name, feed.computations, feed.work_hash)
    if not deliveries:
        return Staleness()
    known = session.read.computations(feed.name)
    steps = dict.fromkeys((one.computation_hash, feed.computation_for(one.key).decisive) for one in deliveries)
    fields = [field for before, now in steps if before in known for field in changed_fields(known[before], now)]
    return Staleness(deliveries, tuple(dict.fromkeys(fields)))
