"""What the ledger hands out and takes in: frozen rows, named as in the catalogue. No SQL, no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from valuestream_dagster.core.continuity import SliceState
from valuestream_dagster.core.decision import Identity, KeyHistory, Ruled, Verdict
from valuestream_dagster.core.manifest import Digest, Kind, SealedFile
from valuestream_dagster.core.sequence import SequenceKey


@dataclass(frozen=True, slots=True)
class Receipt:
    """One arrival and its verdict; ``None`` where the manifest did not say."""

    receipt_id: str
    received_at: datetime
    feed: str
    verdict: Verdict
    code: str
    detail: str
    next_step: str
    manifest: str
    kind: Kind | None = None
    key: SequenceKey | None = None
    revision: int | None = None
    digest: str | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[dict[str, str | int | None], ...] = ()
    run_id: str | None = None
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class SeenObject:
    """The stamp under which an object was looked at on behalf of a manifest."""

    path: str
    stamp: str
    manifest: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run: its fencing number, who holds it, and how it ended (``status`` is ``running`` until then).

    ``purpose`` is None where deliveries are taken in, ``recompute`` where published ones are redone.
    """

    run_id: str
    feed: str
    fence: int
    holder: str
    started_at: datetime
    status: str = "running"
    dagster_run_id: str | None = None
    purpose: str | None = None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that was begun and never ended, and by which computation it worked."""

    run_id: str
    computation_hash: str


@dataclass(frozen=True, slots=True)
class StaleDelivery:
    """A visible publication that another computation made, or that a person wants made again.

    ``sealed_bytes`` is what making it again has to read.
    """

    kind: Kind
    key: SequenceKey
    revision: int
    digest: Digest
    publication_id: str
    computation_hash: str
    sealed_bytes: int


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One immutable file of a publication; ``path`` is relative to the store."""

    path: str
    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Publication:
    """One recorded revision: its files and where its bytes came from."""

    publication_id: str
    feed: str
    kind: Kind
    key: SequenceKey
    revision: int
    digest: Digest
    computation_hash: str
    run_id: str
    rows: int
    bytes: int
    published_at: datetime
    epoch: int
    previous_key: str | None = None
    position: str | None = None
    totals: tuple[tuple[str, str], ...] = ()
    files: tuple[PublishedFile, ...] = ()
    lineage: tuple[SealedFile, ...] = ()

    @property
    def data_version(self) -> str:
        """Dagster's data version of the partition: equal bytes of one revision have one version."""
        return f"r{self.revision}-{self.digest.short}"


@dataclass(frozen=True, slots=True)
class SliceEvent:
    """Something that happened to a slice."""

    feed: str
    epoch: int
    kind: Kind
    key: SequenceKey
    state: SliceState
    happened_at: datetime
    requires: SequenceKey | None = None
    revision: int | None = None
    digest: str | None = None
    run_id: str | None = None
    publication_id: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """All that is known of one key: its state in the current epoch and its history per kind."""

    state: SliceState = SliceState.MISSING
    why: str = ""
    histories: dict[Kind, KeyHistory] = field(default_factory=dict)

    def history(self, kind: Kind) -> KeyHistory:
        """What is known of one kind; empty when nothing is."""
        return self.histories.get(kind, KeyHistory())


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """Sealed and valid, and not applied yet: how it is named, and by which manifest its bytes were bound.

    ``stopped`` says that it waits for a person: ``conflict`` or ``held``; None where only its turn is to come.
    """

    kind: Kind
    key: SequenceKey
    revision: int
    digest: Digest
    manifest: str
    manifest_sha256: str
    stopped: SliceState | None = None

    @property
    def identity(self) -> Identity:
        """Who the delivery is within its feed."""
        return Identity(self.kind, self.key, self.revision)


@dataclass(frozen=True, slots=True)
class BoundDelivery:
    """Bytes that were found valid for an identity, and by which manifest they came."""

    kind: Kind
    key: SequenceKey
    revision: int
    digest: Digest
    manifest: str
    manifest_sha256: str
    sealed_at: datetime

    @property
    def identity(self) -> Identity:
        """Who the delivery is within its feed."""
        return Identity(self.kind, self.key, self.revision)


@dataclass(frozen=True, slots=True)
class Ruling:
    """A person's recorded decision; ``by`` is who, as claimed."""

    feed: str
    key: SequenceKey
    kind: Kind
    ruled: Ruled
    by: str
    why: str
    ruled_at: datetime


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file of the store that vacuum took away, or would; ``path`` is relative to the store."""

    path: str
    bytes: int
    why: str
    publication_id: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file as it was recorded: a published one, or (``sealed``) an input."""

    feed: str
    key: str
    path: str
    sha256: str
    bytes: int
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class OpenRejection:
    """A key (or an unreadable manifest) whose newest arrival was rejected and not made good since."""

    manifest: str
    key: SequenceKey | None
    kind: Kind | None
    revision: int | None
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class FeedSummary:
    """What ``status`` needs of one feed; every list is bounded by what is open, not by history."""

    applied: int
    position: SequenceKey | None
    highest_seen: SequenceKey | None
    lowest_seen: SequenceKey | None
    conflicts: tuple[str, ...]
    held: tuple[str, ...]
    failed: tuple[str, ...]
    rejections: tuple[OpenRejection, ...]
