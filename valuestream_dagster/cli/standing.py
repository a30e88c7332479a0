"""One feed's standing, also where its landing place does not answer: what ``status`` shows and ``apply`` ends with."""

from __future__ import annotations

from dataclasses import dataclass

from valuestream_dagster.cli.documents import Document, name_refusal_document, refusal_document
from valuestream_dagster.cli.words import Advice, advice, expected, there
from valuestream_dagster.deployment import Deployment
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.publication.glance import Glance
from valuestream_dagster.publication.plan import PlannedSlice
from valuestream_dagster.publication.status import FeedStatus, refused_status


@dataclass(frozen=True, slots=True)
class Standing:
    """A feed's status with the refusals that made it what it is, and what is here of it and new."""

    feed: Feed
    status: FeedStatus
    refusals: tuple[Document, ...] = ()
    slices: tuple[PlannedSlice, ...] = ()

    def as_dict(self) -> Document:
        """One row of ``status --json``."""
        return {**self.status.as_dict(), "refusals": list(self.refusals)}

    @property
    def there(self) -> str:
        """What readers have."""
        return there(self.status, required=self.feed.rule.required)

    @property
    def expected(self) -> str:
        """What comes next."""
        return expected(self.status, self.feed)

    @property
    def advice(self) -> list[Advice]:
        """What is wrong and what to do."""
        refused = [Advice(str(refusal["detail"]), str(refusal["next"])) for refusal in self.refusals]
        return [*refused, *advice(self.status, self.feed)]

    @property
    def colour(self) -> str:
        """How the word is painted."""
        return "healthy" if self.status.healthy else "refused"


def standing_by(opened: Deployment, seen: Glance) -> Standing:
    """A feed's standing when it was looked at."""
    feed, status = seen.feed, opened.status_by(seen)
    refusals = tuple(name_refusal_document(feed, refusal) for refusal in status.refusals)
    return Standing(feed, status, refusals, seen.plan(retry_failed=False).slices)


def standing_of(opened: Deployment, feed: Feed) -> Standing:
    """How a feed stands now; a landing place that does not answer refuses this feed and no other."""
    try:
        return standing_by(opened, opened.glance(feed))
    except StoreFailure as error:
        return Standing(feed, refused_status(feed, opened.summary(feed)), (refusal_document(feed, error),))
