"""What a run knows of the ledger, what it assumes of the batch at hand, and what it decides by that. No effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from valuestream_dagster.core.continuity import (
    Epoch,
    Mode,
    SliceState,
    effective_epoch,
)
from valuestream_dagster.core.decision import (
    Accept,
    Applied,
    Bound,
    Decision,
    Identity,
    KeyHistory,
    Observation,
    Valid,
    decide,
    shrink_hold,
)
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import InStore
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    KeyRecord,
)


@dataclass(slots=True)
class Facts:
    """What a run knows of the ledger, brought up to date by what it records, and what it assumes of the batch at hand.

    Assumed is what preparing decided: that a key will be applied, with which revision, and that a full opens an epoch. It goes
    when the batch is recorded, where everything is decided again. ``local`` are keys that came to nothing in this run; the
    ledger's word goes before it.
    """

    records: dict[str, KeyRecord]
    epoch: Epoch | None
    position: SequenceKey | None
    # The newest epoch that the ledger really holds; `epoch` may be one that only the declared baseline implies.
    recorded: Epoch | None = None
    local: dict[str, SliceState] = field(default_factory=dict)
    assumed: dict[tuple[Kind, str], KeyHistory] = field(default_factory=dict)
    assumed_epoch: Epoch | None = None
    # Rows of the nearest applied full before each asked place in the order, and of the fulls applied in this session.
    earlier: dict[int, int] = field(default_factory=dict)
    recent: dict[int, int] = field(default_factory=dict)

    def rows_before(self, key: SequenceKey) -> int | None:
        """Rows of the nearest applied full before a key: what a delivery that shrinks is compared with (ruling 13)."""
        nearer = max((ordinal for ordinal in self.recent if ordinal < key.ordinal), default=None)
        return self.recent[nearer] if nearer is not None else self.earlier.get(key.ordinal)

    @property
    def epoch_ahead(self) -> Epoch | None:
        """The epoch from which to judge, counting what is assumed."""
        return self.assumed_epoch or self.epoch

    def state_of(self, key: SequenceKey) -> SliceState:
        """State of a key, those of the batch at hand taken as succeeded."""
        if any((kind, key.text) in self.assumed for kind in Kind):
            return SliceState.SUCCEEDED
        known = self.records.get(key.text, KeyRecord()).state
        return known if known is not SliceState.MISSING else self.local.get(key.text, SliceState.MISSING)

    def history(self, kind: Kind, key: SequenceKey) -> KeyHistory:
        """What is known of one (kind, key), counting what is assumed."""
        return self.assumed.get((kind, key.text)) or self.records.get(key.text, KeyRecord()).history(kind)

    def assume(
        self, identity: Identity, digest: Digest, computation_hash: str, opens: Epoch | None, rows: int
    ) -> None:
        """Count a delivery of the batch at hand as applied."""
        if identity.kind is Kind.FULL:
            self.recent[identity.key.ordinal] = rows
        history = self.history(identity.kind, identity.key)
        self.assumed[identity.kind, identity.key.text] = replace(
            history,
            bound=(*history.bound, Bound(identity.revision, digest)),
            applied=Applied(identity.revision, digest, "", computation_hash, rows),
        )
        self.assumed_epoch = opens or self.assumed_epoch

    def assume_nothing(self) -> None:
        """From here on only what is recorded counts."""
        self.assumed.clear()
        self.assumed_epoch = None

    def remember(self, kind: Kind, key: SequenceKey, history: KeyHistory, state: SliceState | None) -> None:
        """Take in what was just recorded."""
        before = self.records.get(key.text, KeyRecord())
        if kind is Kind.FULL and history.applied is not None:
            self.recent[key.ordinal] = history.applied.rows
        self.records[key.text] = replace(
            before, state=state or before.state, histories={**before.histories, kind: history}
        )

    def read_again(self, session: LedgerSession, feed: Feed, keys: Sequence[SequenceKey]) -> None:
        """Read all that the decisions rest on (M17).

        Nobody else can write until the session ends, so it holds for every transaction in it, and what those record is
        remembered as they go.
        """
        asked = [text for key in keys for text in (key.text, feed.sequence.predecessor(key).text)]
        self.records |= session.read.records(feed.name, asked)
        self.recorded = session.read.epoch(feed.name)
        self.epoch = effective_epoch(feed.rule, self.recorded, self.epoch.baseline if self.epoch else None)
        self.position = session.read.position(feed.name, required=feed.rule.required)
        self.recent.clear()
        self.earlier = rows_before(session, feed, keys)


def rows_before(session: LedgerSession, feed: Feed, keys: Sequence[SequenceKey]) -> dict[int, int]:
    """Rows of the nearest applied full before each key, by the key's place; not asked for where nothing is compared with them."""
    if feed.max_shrink is None:
        return {}
    return session.read.rows_before(feed.name, Kind.FULL, [key.ordinal for key in keys])


def decide_with(feed: Feed, facts: Facts, arrival: Arrival, observation: Observation, rows: int | None) -> Decision:
    """The one decision, by what is known now.

    Args:
        feed: whose arrival it is.
        facts: what is known.
        arrival: what arrived, or is taken up from the store.
        observation: what intake found out about it.
        rows: how many rows it has, where they were counted already.
    """
    history = facts.history(arrival.manifest.kind, arrival.manifest.key)
    is_full = isinstance(observation, Valid) and observation.identity.kind is Kind.FULL
    if isinstance(observation, Valid) and rows is not None and is_full and observation.hold is None:
        before = history.applied.rows if history.applied is not None else facts.rows_before(observation.identity.key)
        observation = replace(observation, hold=shrink_hold(rows, before, feed.max_shrink))
    decision = decide(feed.rule, observation, history, facts.epoch_ahead, facts.state_of, redo=is_redone(arrival))
    reusable = history.applied is not None and history.applied.computation_hash == feed.computation_for(arrival.manifest.key).hash
    # Files made by another computation hold the same bytes' rows in another form (L5).
    return decision if not isinstance(decision, Accept) or reusable else Accept()


def is_redone(arrival: Arrival) -> bool:
    """Whether it is a published delivery that is made again: no news, and no step of the chain."""
    return isinstance(arrival.completeness, InStore) and arrival.completeness.redo


def opens_epoch(feed: Feed, identity: Identity, epoch: Epoch | None) -> bool:
    """Whether an accepted delivery begins a generation: a full does, unless it corrects one that a later full replaced."""
    if feed.mode is not Mode.CHAIN or identity.kind is not Kind.FULL:
        return False
    return epoch is None or not epoch.full or identity.key.ordinal >= epoch.baseline.ordinal
