"""What can be done now: the arrivals of one look, judged in order by the predecessor rule. Pure; nothing is read or written.

The same walk answers the sensor, ``plan``, ``status`` and ``apply``: a key judged claimable counts as succeeded for those
after it, so that a whole prefix is requested as one range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from valuestream_dagster.core.continuity import Blocked, Covered, Epoch, Mode, Needs, Reason, SliceState
from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import InStore, Resolved
from valuestream_dagster.intake.grouping import Refusal
from valuestream_dagster.intake.observe import Arrival, Look
from valuestream_dagster.ledger.rows import KeyRecord, StaleDelivery


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """One arrival and what can be done with it now, as ``plan --json`` shows it."""

    feed: str
    epoch: int
    kind: Kind
    key: SequenceKey
    revision: int
    state: SliceState
    requires: SequenceKey | None
    claimable: bool
    reason: Reason | None
    why: str
    manifest: str
    # What a request for it must differ by: the same arrival is requested once per attempt.
    identity: str
    correction: bool = False
    # It is here, whole, and may not be applied yet: it should be sealed before anything happens to it.
    to_seal: bool = False


@dataclass(frozen=True, slots=True)
class Staleness:
    """What readers see that an edit of the declaration has made stale (ruling 12).

    Args:
        deliveries: in order.
        fields: which fields did it, each with both values.
    """

    deliveries: tuple[StaleDelivery, ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def sealed_bytes(self) -> int:
        """What making all of it again has to read."""
        return sum(one.sealed_bytes for one in self.deliveries)

    def told(self, feed: Feed) -> str:
        """The same in words, with what to do."""
        number = len(self.deliveries)
        what = "1 published delivery is" if number == 1 else f"{number} published deliveries are"
        fields = "; ".join(self.fields) or "an edit of the declaration"
        how = "the next run makes" if feed.recompute == "auto" else f"`valuestream apply {feed.name} --recompute` makes"
        return f"{what} stale by {fields}; {how} them again from {self.sealed_bytes} sealed bytes, and readers switch once"


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """One feed's arrivals in order, judged; ``epoch`` and ``records`` are what they were judged by."""

    feed: Feed
    look: Look
    epoch: Epoch | None
    slices: tuple[PlannedSlice, ...]
    stale: Staleness = field(default_factory=Staleness)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why nothing of the feed may be done until it is mended (ruling 11)."""
        return self.look.refusals

    @property
    def claimable(self) -> tuple[SequenceKey, ...]:
        """The keys that a run can do something for now, each once, in order."""
        return tuple(dict.fromkeys(planned.key for planned in self.slices if planned.claimable))

    @property
    def to_seal(self) -> tuple[Arrival, ...]:
        """The arrivals to be sealed before their turn."""
        manifests = {planned.manifest for planned in self.slices if planned.to_seal}
        return tuple(arrival for arrival in self.look.arrivals if arrival.stat.path in manifests)

    @property
    def observed(self) -> tuple[SequenceKey, ...]:
        """Every key of which something new is here, each once, in order."""
        return tuple(dict.fromkeys(planned.key for planned in self.slices))


def plan_feed(
    feed: Feed,
    look: Look,
    records: Mapping[str, KeyRecord],
    epoch: Epoch | None,
    *,
    retry_failed: bool,
    stored: Sequence[Arrival] = (),
    stale: Staleness | None = None,
) -> FeedPlan:
    """Judge every arrival of a look.

    Args:
        feed: whose arrivals they are.
        look: what is new at the landing place.
        records: what the ledger knows of each arrival's key and of the key before it.
        epoch: the epoch from which to judge now.
        retry_failed: a person asks, so that failed slices may be tried again; nothing by itself does that (C40).
        stored: deliveries that were sealed before and are not applied yet.
        stale: what readers see that another declaration made.
    """
    walk = _Walk(feed, records, epoch, retry_failed=retry_failed)
    for unusable in look.unusable:
        if unusable.key is not None and unusable.settled:
            walk.local[unusable.key.text] = SliceState.REJECTED
    for arrival in look.arrivals:
        if isinstance(arrival.completeness, Incomplete):
            walk.local.setdefault(arrival.manifest.key.text, SliceState.WAITING)
    ordered = sorted(
        (*stored, *look.arrivals),
        key=lambda arrival: (arrival.manifest.key.ordinal, arrival.manifest.kind is not Kind.FULL, arrival.manifest.revision),
    )
    slices = tuple(planned for arrival in ordered if (planned := walk.judge(arrival)) is not None)
    if look.refusals:
        slices = tuple(_refused(planned, look.refusals) for planned in slices)
    return FeedPlan(feed, look, epoch, slices, stale or Staleness())


def _refused(planned: PlannedSlice, refusals: Sequence[Refusal]) -> PlannedSlice:
    """The same where the feed is refused: nothing of it may be done, whatever it is (C26)."""
    if not planned.claimable:
        return replace(planned, to_seal=False)
    why = f"the feed is refused until {refusals[0].path} is mended"
    return replace(planned, state=SliceState.BLOCKED, reason=Reason.REFUSED, why=why, claimable=False)


class _Walk:
    """The judging of arrivals in order; what was judged claimable counts as succeeded from there on."""

    def __init__(
        self, feed: Feed, records: Mapping[str, KeyRecord], epoch: Epoch | None, *, retry_failed: bool
    ) -> None:
        self._retry_failed = retry_failed
        self._feed = feed
        self._records = records
        self._epoch = epoch
        self._assumed: set[str] = set()
        self.local: dict[str, SliceState] = {}

    def state_of(self, key: SequenceKey) -> SliceState:
        """State of a key: assumed success, the ledger's word, or what this look shows of it."""
        if key.text in self._assumed:
            return SliceState.SUCCEEDED
        known = self._records.get(key.text, KeyRecord()).state
        return known if known is not SliceState.MISSING else self.local.get(key.text, SliceState.MISSING)

    def judge(self, arrival: Arrival) -> PlannedSlice | None:
        """One arrival; None where it is no news after all."""
        manifest = arrival.manifest
        record = self._records.get(manifest.key.text, KeyRecord())
        applied = record.history(manifest.kind).applied
        if arrival.known and applied is not None and applied.revision > manifest.revision:
            return None
        requirement = self._feed.rule.requirement(manifest.kind, manifest.key, self._epoch)
        requires = requirement.key if isinstance(requirement, Needs) else None
        correction = applied is not None and manifest.revision > applied.revision
        stopped = arrival.completeness.stopped if isinstance(arrival.completeness, InStore) else None
        if stopped is not None:
            why = "its bytes are in conflict" if stopped is SliceState.CONFLICT else "it is held for a person"
            return self._planned(arrival, stopped, requires, why=why, reason=Reason(stopped.value))
        if isinstance(arrival.completeness, Incomplete):
            missing = ", ".join(arrival.completeness.missing[:5])
            return self._planned(arrival, SliceState.WAITING, requires, why=f"not complete, missing: {missing}")
        if applied is not None:
            ruled = isinstance(arrival.completeness, InStore) and not correction  # what else lies in the store and may go?
            words = "a resend of, or an older revision than,"
            if correction or ruled:
                words = "a correction of" if correction else "released by a ruling, in place of"
            why = f"{words} revision {applied.revision}"
            return self._planned(
                arrival, SliceState.READY, requires, why=why, claimable=True, correction=correction or ruled
            )
        judged = self._feed.rule.judge(manifest.kind, manifest.key, self._epoch, self.state_of)
        if isinstance(judged, Blocked):
            self.local.setdefault(manifest.key.text, SliceState.BLOCKED)
            return self._planned(arrival, SliceState.BLOCKED, judged.needs, why=judged.why, reason=judged.reason)
        if isinstance(judged, Covered):
            return self._planned(arrival, SliceState.READY, None, why=judged.why, claimable=True)
        failed = record.state is SliceState.FAILED
        if failed and not self._retry_failed:
            return self._planned(arrival, record.state, requires, why=f"failed: {record.why}")
        if isinstance(arrival.completeness, Invalid):
            self.local[manifest.key.text] = SliceState.REJECTED
        else:
            self._assume(manifest.kind, manifest.key)
        return self._planned(
            arrival,
            record.state if failed else SliceState.READY,
            requires,
            why=record.why if failed else "complete, and its turn",
            claimable=True,
        )

    def _assume(self, kind: Kind, key: SequenceKey) -> None:
        self._assumed.add(key.text)
        if self._feed.mode is Mode.CHAIN and kind is Kind.FULL:
            self._epoch = Epoch((self._epoch.number if self._epoch else 0) + 1, key)

    def _planned(
        self,
        arrival: Arrival,
        state: SliceState,
        requires: SequenceKey | None,
        *,
        why: str,
        claimable: bool = False,
        reason: Reason | None = None,
        correction: bool = False,
    ) -> PlannedSlice:
        manifest = arrival.manifest
        return PlannedSlice(
            feed=self._feed.name,
            epoch=self._epoch.number if self._epoch else 0,
            kind=manifest.kind,
            key=manifest.key,
            revision=manifest.revision,
            state=state,
            requires=requires,
            claimable=claimable,
            reason=reason,
            why=why,
            manifest=arrival.stat.path,
            identity=_identity(arrival),
            correction=correction,
            to_seal=state is SliceState.BLOCKED and isinstance(arrival.completeness, Resolved),
        )


def _identity(arrival: Arrival) -> str:
    """The objects that an arrival is; of one from the store, its bytes."""
    if isinstance(arrival.completeness, InStore):
        return f"sealed@{arrival.manifest.kind}-r{arrival.manifest.revision}-{arrival.completeness.digest}"
    return "|".join(f"{path}@{stamp}" for path, stamp in arrival.touched)
