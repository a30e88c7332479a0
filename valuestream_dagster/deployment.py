"""One deployment, opened: its feeds, ledger, store and clock together.

What ``cli`` and ``orchestration`` call; nothing is decided here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from uuid import uuid4

import duckdb

from valuestream_dagster.core.decision import Incomplete, Verdict, Wait
from valuestream_dagster.core.sequence import KeyProblem, SequenceKey
from valuestream_dagster.errors import FeedBusy, StoreFailure, WrongUse
from valuestream_dagster.feeds.feed import Feed, shape_json
from valuestream_dagster.feeds.loading import load_deployment_files
from valuestream_dagster.feeds.settings import Settings
from valuestream_dagster.intake.observe import Look, UnusableArrival
from valuestream_dagster.intake.seal import keep_manifest, sealed_name
from valuestream_dagster.ledger.duck import DuckLedger
from valuestream_dagster.ledger.rows import (
    FeedSummary,
    Publication,
    Receipt,
    RecordedFile,
    Ruling,
    SeenObject,
)
from valuestream_dagster.publication.catalogue import known_state, record_feed_version
from valuestream_dagster.publication.dossier import Dossier, compare
from valuestream_dagster.publication.explanation import Explanation, Known, explain
from valuestream_dagster.publication.glance import Glance, glance
from valuestream_dagster.publication.outcomes import ArrivalOutcome
from valuestream_dagster.publication.plan import FeedPlan, PlannedSlice
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.receipts import receipt_of, tell
from valuestream_dagster.publication.recompute import Recomputed, recompute
from valuestream_dagster.publication.rulings import RulingAsked, rule
from valuestream_dagster.publication.status import FeedStatus, refused_status
from valuestream_dagster.publication.vacuum import Sweep, vacuum
from valuestream_dagster.publication.verify import Verified, verify
from valuestream_dagster.stores.landing import open_landing
from valuestream_dagster.stores.local import LocalStore

DEPLOYMENT_VARIABLE = "VALUESTREAM_DEPLOYMENT"
NOW_VARIABLE = "VALUESTREAM_NOW"
DEFAULT_DEPLOYMENT = "deployments/local"
RECEIPTS_SHOWN = 1_000


def clock_from(environ: Mapping[str, str]) -> Callable[[], datetime]:
    """The clock: the system's, or the fixed reading that ``VALUESTREAM_NOW`` states, for rehearsals and tests.

    Raises:
        WrongUse: the variable holds no ISO time.
    """
    fixed = environ.get(NOW_VARIABLE)
    if not fixed:
        return lambda: datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(fixed)
    except ValueError:
        raise WrongUse(f"{NOW_VARIABLE}={fixed} is no ISO time.", next_step="write e.g. 2026-11-30T06:00:00Z.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return lambda: moment.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Noted:
    """What a look alone had to be recorded for: manifests rejected unread, and deliveries that wait."""

    receipts: tuple[Receipt, ...]

    @property
    def rejected(self) -> tuple[Receipt, ...]:
        """The manifests that state no delivery."""
        return tuple(receipt for receipt in self.receipts if receipt.verdict is Verdict.REJECTED)


class Deployment:
    """A deployment folder with everything behind it. Opening it touches no file but its YAML.

    Args:
        path: the folder.
        settings: what ``valuestream.yaml`` says.
        feeds: the declared feeds.
        now: the clock.
    """

    def __init__(
        self, path: Path, settings: Settings, feeds: Iterable[Feed], *, now: Callable[[], datetime]
    ) -> None:
        self.path = path
        self.settings = settings
        self.feeds = {feed.name: feed for feed in feeds}
        self.now = now
        self.ledger = DuckLedger(settings.ledger, now=now)
        self.store = LocalStore(settings.store)

    def feed(self, name: str) -> Feed:
        """The feed of that name (``source/dataset``).

        Raises:
            WrongUse: there is none; names the nearest.
        """
        if name in self.feeds:
            return self.feeds[name]
        near = get_close_matches(name, self.feeds, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the feeds are: {', '.join(self.feeds) or 'none'}."
        raise WrongUse(f"there is no feed {name} in {self.path}.", next_step=hint)

    def selected(self, name: str | None) -> tuple[Feed, ...]:
        """The named feed, or all of them in order of name."""
        return (self.feed(name),) if name else tuple(self.feeds.values())

    def key(self, feed: Feed, text: str) -> SequenceKey:
        """The feed's key of that text.

        Raises:
            WrongUse: it is no key of this feed.
        """
        key = feed.sequence.parse(text)
        if isinstance(key, KeyProblem):
            raise WrongUse(f"{feed.name}: {key.detail}.", next_step=f"write a key as {key.expected}.")
        return key

    def publisher(self, feed: Feed) -> Publisher:
        """What publishing the feed needs."""
        return Publisher(
            feed=feed,
            settings=self.settings,
            ledger=self.ledger,
            landing=open_landing(feed.landing, self.settings.s3),
            store=self.store,
            other_feeds=self._others(feed),
            now=self.now,
        )

    def _others(self, feed: Feed) -> frozenset[tuple[str, str]]:
        return frozenset((other.source, other.dataset) for other in self.feeds.values() if other.name != feed.name)

    # --- looking -----------------------------------------------------------------------------------------------------

    def glance(self, feed: Feed) -> Glance:
        """Look at the landing place, the ledger and the catalogue once; writes nothing.

        Costs one listing and one opening of the ledger; another and one small read each where there are new manifests.
        """
        return glance(self.publisher(feed))

    def settled(self, seen: Glance) -> Glance:
        """The same glance; or, where a run that died left something, another one after settling and showing that.

        Also a catalogue that is missing, or was built where the deployment no longer is, is made anew by that.
        """
        if not seen.left_behind:
            return seen
        self.recover(seen.feed)
        return self.glance(seen.feed)

    def plan(self, feed: Feed, *, retry_failed: bool = False) -> FeedPlan:
        """Judge what is new at the landing place."""
        return self.glance(feed).plan(retry_failed=retry_failed)

    def status(self, feed: Feed) -> FeedStatus:
        """How the feed stands now."""
        return self.status_by(self.glance(feed))

    def status_by(self, seen: Glance) -> FeedStatus:
        """How a feed stood when it was looked at."""
        return seen.status(self.now(), listed=self.settings.limits.gap_keys_listed)

    def summary(self, feed: Feed) -> FeedSummary:
        """What the ledger alone knows of a feed: there also when its landing place does not answer."""
        with self.ledger.session() as session:
            return session.read.summary(feed.name, required=feed.rule.required)

    def receipts(self, feed: str | None, limit: int = RECEIPTS_SHOWN) -> tuple[Receipt, ...]:
        """The newest receipts, oldest first."""
        with self.ledger.session() as session:
            return session.read.receipts(feed, limit)

    def history(self, feed: Feed, key: str | None) -> tuple[tuple[Publication, datetime | None], ...]:
        """Publications of a feed or key with the time when a newer one replaced them."""
        with self.ledger.session() as session:
            return session.read.history(feed.name, key)

    def explain(self, feed: Feed, key: SequenceKey) -> Explanation:
        """Why a key is or is not there, and what to do; reads two contents again where they are in conflict, and writes nothing."""
        unseen: str | None = None
        planned: tuple[PlannedSlice, ...] = ()
        try:
            seen = self.glance(feed)
            status = self.status_by(seen)
            planned = tuple(one for one in seen.plan(retry_failed=False).slices if one.key.text == key.text)
        except StoreFailure as error:
            unseen, status = error.message, refused_status(feed, self.summary(feed))
        with self.ledger.session() as session:
            record = session.read.records(feed.name, [key.text])[key.text]
            known = Known(
                feed,
                key,
                record,
                planned,
                status,
                session.read.deliveries(feed.name, key.text),
                session.read.receipts(feed.name, RECEIPTS_SHOWN, key.text),
                session.read.history(feed.name, key.text),
                session.read.rulings(feed.name, key.text),
                unseen=unseen,
            )
        return explain(replace(known, dossiers=tuple(self._dossiers(known))))

    def _dossiers(self, known: Known) -> Iterator[Dossier]:
        """The contents in conflict, each beside the one that is applied or came first."""
        for kind, history in known.record.histories.items():
            for other in dict.fromkeys(history.conflicts):
                of_it = [one for one in known.deliveries if (one.kind, one.revision) == (kind, other.revision)]
                applied = history.applied.digest if history.applied and history.applied.revision == other.revision else None
                first = next((one for one in of_it if one.digest == applied), of_it[0])
                second = next(one for one in of_it if one.digest == other.digest)
                yield compare(known.feed, self.store, first, second, applied=applied)

    def rule(self, feed: Feed, ruling: RulingAsked) -> Ruling:
        """Record what a person ruled, if it fits what is known now."""
        return rule(self.publisher(feed), ruling)

    # --- recording what a look alone shows ---------------------------------------------------------------------------

    def note(self, plan: FeedPlan) -> Noted:
        """Record what needs no run: manifests that state no delivery, deliveries that wait, foreign manifests.

        Writes nothing where there is nothing new, so that a tick is idempotent, also beside another process that noted the same.
        """
        seen, feed = plan.look, plan.feed
        settled = [unusable for unusable in seen.unusable if unusable.settled]
        notes = self._notes(feed, seen)
        if not (notes or seen.foreign):
            return Noted(())
        for unusable in settled:
            keep_manifest(self.store, unusable.data)
        looked_at = [*(unusable.stat for unusable in settled), *seen.foreign]
        with self.ledger.session() as session:
            last = session.read.last_receipts(feed.name, [receipt.manifest for receipt in notes])
            news, _ = session.read.news(feed.name, [(stat.path, stat.stamp) for stat in looked_at])
            receipts = [receipt for receipt in notes if _is_new(receipt, last.get(receipt.manifest), news)]
            touched = [SeenObject(stat.path, stat.stamp, stat.path) for stat in looked_at if stat.path in news]
            if receipts or touched:
                with session.transaction():
                    record_feed_version(session, feed, self.now())
                    session.write.receipts(receipts)
                    session.write.objects_seen(feed.name, touched, self.now())
            if receipts:
                self.publisher(feed).publish_catalogue(session)
        return Noted(tuple(receipts))

    def take_in_early(self, plan: FeedPlan) -> tuple[ArrivalOutcome, ...]:
        """Seal and check what is here and may not be applied yet, so that it cannot be taken away or overwritten any more."""
        waiting = plan.to_seal
        return self.publisher(plan.feed).take_in_early(waiting) if waiting else ()

    def recompute(
        self, feed: Feed, *, key: str | None = None, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Recomputed:
        """Make published deliveries again from their sealed bytes: what an edit made stale, or with ``force`` all."""
        return recompute(self.publisher(feed), key=key, force=force, on_progress=progress)

    def vacuum(self, *, carry_out: bool) -> Sweep:
        """What of the store nothing needs any more; taken away if told to, each file recorded before it goes."""
        sweep = vacuum(self.ledger, self.store, self.settings, self.now(), carry_out=carry_out)
        if sweep.done and sweep.removals:
            with self.ledger.session() as session:
                self._any_publisher()[0].publish_catalogue(session)
        return sweep

    def verify(
        self, feed: Feed | None, *, inputs: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Verified:
        """Read again every file that readers see, and with ``inputs`` the sealed bytes behind them; compare with the ledger."""
        name = feed.name if feed else None
        with self.ledger.session() as session:
            files = list(session.read.visible_files(name))
            sealed = session.read.visible_inputs(name) if inputs else ()
        files += [RecordedFile(of, key, sealed_name(sha), sha, size, sealed=True) for of, key, sha, size in sealed]
        return verify(self.store, files, on_progress=progress)

    def recover(self, feed: Feed) -> bool:
        """Settle and show what a run that died left, where nobody runs the feed; whether there was something to settle.

        Without it, the last keys of a run that died would stay out of sight until the next delivery.
        """
        publisher = self.publisher(feed)
        if not publisher.left_behind():
            return False
        try:
            publisher.settle()
        except FeedBusy:
            return False  # it has not died
        return True

    def _notes(self, feed: Feed, seen: Look) -> list[Receipt]:
        notes = [self._unusable_receipt(feed, unusable) for unusable in seen.unusable]
        for arrival in seen.arrivals:
            if isinstance(arrival.completeness, Incomplete):
                told = tell(arrival.manifest, Wait(arrival.completeness.missing))
                notes.append(receipt_of(feed.name, arrival, told, Verdict.WAITING, self.now()))
        return notes

    def _unusable_receipt(self, feed: Feed, unusable: UnusableArrival) -> Receipt:
        first = unusable.findings[0]
        more = f" ({len(unusable.findings)} findings in all)" if len(unusable.findings) > 1 else ""
        return Receipt(
            receipt_id=uuid4().hex,
            received_at=self.now(),
            feed=feed.name,
            verdict=Verdict.REJECTED if unusable.settled else Verdict.WAITING,
            code=first.code if unusable.settled else "manifest_unsettled",
            detail=f"{feed.name}: manifest {unusable.stat.path}: {first.detail}{more}",
            next_step=first.next_step or f"ask {feed.source} for a corrected manifest.",
            manifest=unusable.stat.path,
            kind=unusable.kind,
            key=unusable.key,
            revision=unusable.revision,
            findings=tuple(finding.as_dict() for finding in unusable.findings),
            manifest_sha256=hashlib.sha256(unusable.data).hexdigest() if unusable.data else None,
        )

    # --- the catalogue -----------------------------------------------------------------------------------------------

    def refresh_catalogue(self) -> None:
        """Publish the catalogue anew where it is missing, older than the ledger, or of a folder that was moved."""
        with self.ledger.session() as session:
            known = session.read.feed_shapes()
            changed = [
                feed
                for feed in self.feeds.values()
                if known.get(feed.name) != (feed.computation_hash, shape_json(feed))
            ]
            with session.transaction():
                for feed in changed:
                    record_feed_version(session, feed, self.now())
            state = known_state(session, path=self.settings.catalog, store=self.settings.store)
            if changed or state is None or not state.shows_all(session.read.generation(), self.settings.store):
                next(iter(self._any_publisher())).publish_catalogue(session)

    def _any_publisher(self) -> Sequence[Publisher]:
        if not self.feeds:
            raise WrongUse(
                f"{self.path} declares no feed.", next_step="add a file to its feeds/ folder; README shows ten lines."
            )
        return [self.publisher(next(iter(self.feeds.values())))]

    def open_catalogue(self) -> duckdb.DuckDBPyConnection:
        """A connection whose default database is the catalogue, read-only and up to date."""
        self.refresh_catalogue()
        return attach_catalogue(self.settings.catalog)


def _is_new(receipt: Receipt, last: tuple[Verdict, str] | None, news: Collection[str]) -> bool:
    """Whether a note says something that the ledger does not have: a manifest rejected once, a wait once per change."""
    if receipt.verdict is Verdict.WAITING:
        return last != (Verdict.WAITING, receipt.detail)
    return receipt.manifest in news


def attach_catalogue(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a published catalogue as readers should: attached read-only to a connection of its own."""
    connection = duckdb.connect()
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS catalog (READ_ONLY)")
    connection.execute("USE catalog")
    return connection


def open_deployment(
    path: str | os.PathLike[str],
    environ: Mapping[str, str],
    *,
    extra_feeds: Iterable[Feed] = (),
) -> Deployment:
    """Read a deployment's YAML.

    Args:
        path: the folder.
        environ: where ``${NAME}`` and ``VALUESTREAM_NOW`` are looked up.
        extra_feeds: feeds declared elsewhere (as Dagster components) that belong to this deployment.

    Raises:
        WrongUse: the folder is no deployment.
        ConfigurationInvalid: with every finding of every file.
    """
    settings, feeds = load_deployment_files(Path(path), environ)
    extra = tuple(extra_feeds)
    mine = [feed for feed in feeds if feed.name not in {other.name for other in extra}]
    return Deployment(Path(path).absolute(), settings, (*mine, *extra), now=clock_from(environ))
