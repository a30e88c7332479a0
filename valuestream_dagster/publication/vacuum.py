"""Vacuum: take away files of the store that nothing needs any more, and say of each why (rulings 15 and 16; L21, L27).

What may go is decided purely, from the ledger's rows and one listing of the store: superseded publications past their retention,
files that no row names, sealed inputs of deliveries that readers do not see. Never what readers see or may still be reading, never
anything of a run that has not ended, never what waits for its turn or for a person, never the sealed bytes of what is visible: a
recomputation reads them. Each removal is recorded before its file goes; a crash between the two leaves the file, which the next
vacuum takes and records again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from valuestream_dagster.errors import NotApplied
from valuestream_dagster.feeds.settings import Retention, Settings
from valuestream_dagster.intake.records import RECORDS, read_record, record_name
from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.ledger.rows import RemovedFile
from valuestream_dagster.publication.locks import sweeping
from valuestream_dagster.publication.owner import MARK
from valuestream_dagster.publication.quarantine import FOLDER as QUARANTINE
from valuestream_dagster.stores.local import LocalStore, StoredFile

# What is written aside, or has its name and no row yet, belongs to somebody who may be at work.
UNNAMED_MINUTES = 15
TEMPORARY_HOURS = 24
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """How many files stay for one reason, and their bytes."""

    why: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What goes and what stays.

    Args:
        removals: each file with the reason, by name.
        kept: why the others stay.
        done: whether it was carried out.
    """

    removals: tuple[RemovedFile, ...] = ()
    kept: tuple[Kept, ...] = ()
    done: bool = False

    @property
    def bytes(self) -> int:
        """What the removals free."""
        return sum(one.bytes for one in self.removals)


@dataclass(frozen=True, slots=True)
class StoreNames:
    """What the ledger says of the store's files; all paths are relative to it.

    Args:
        visible: published files that readers see.
        unfinished: published files of runs that have not ended.
        replaced: published files that readers saw, with their publication and since when none of them sees it.
        voided: published files that were found damaged, with their publication.
        needed_inputs: sha256 of the sealed bytes and manifests of what is visible, unfinished, or waits.
        needed_records: seal records of the same deliveries.
        heard_of: feed and first digits of the digest of every manifest that the ledger ever heard of.
        failed: feed and name (key, kind, revision, as in a record's name) of deliveries that our own work failed on.
    """

    visible: frozenset[str] = frozenset()
    unfinished: frozenset[str] = frozenset()
    replaced: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)
    voided: Mapping[str, str] = field(default_factory=dict)
    needed_inputs: frozenset[str] = frozenset()
    needed_records: frozenset[str] = frozenset()
    heard_of: frozenset[tuple[str, str]] = frozenset()
    failed: frozenset[tuple[str, str]] = frozenset()

    def knows(self, record: str) -> bool:
        """Whether the ledger heard of the delivery of a seal record, by the record's path."""
        folder, _, name = record.removeprefix(f"{RECORDS}/").rpartition("/")
        what, _, manifest = name.removesuffix(".json").rpartition("-")
        return (folder, manifest) in self.heard_of or (folder, what.rpartition("-")[0]) in self.failed


@dataclass(slots=True)
class _Tally:
    removals: list[RemovedFile] = field(default_factory=list)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)

    def keep(self, file: StoredFile, why: str) -> None:
        files, size = self.kept.get(why, (0, 0))
        self.kept[why] = (files + 1, size + file.bytes)

    def remove(self, file: StoredFile, why: str, publication_id: str | None = None) -> None:
        self.removals.append(RemovedFile(file.path, file.bytes, why, publication_id))


def plan_sweep(stored: Iterable[StoredFile], names: StoreNames, retention: Retention, now: datetime) -> Sweep:
    """Which files may go.

    Args:
        stored: every file of the store.
        names: what the ledger says of them.
        retention: for how long what is not visible is kept.
        now: the clock's reading.
    """
    tally = _Tally()
    for file in sorted(stored, key=lambda file: file.path):
        room = file.path.partition("/")[0]
        if room == "published":
            _published(tally, file, names, retention, now)
        elif file.path.startswith(f"{RECORDS}/"):
            _input(tally, file, retention, now, needed=file.path in names.needed_records)
        elif room == "sealed":
            _input(tally, file, retention, now, needed=file.path.rpartition("/")[2] in names.needed_inputs)
        elif room == QUARANTINE:
            _input(tally, file, retention, now, needed=False)
        elif room == "tmp":
            if now - file.modified > timedelta(hours=TEMPORARY_HOURS):
                tally.remove(file, f"written aside and left there for {TEMPORARY_HOURS} hours")
            else:
                tally.keep(file, "being written")
        else:
            tally.keep(file, "the store's owner mark" if file.path == MARK else "not ours to judge")
    kept = tuple(Kept(why, files, size) for why, (files, size) in sorted(tally.kept.items()))
    return Sweep(tuple(tally.removals), kept)


def _published(tally: _Tally, file: StoredFile, names: StoreNames, retention: Retention, now: datetime) -> None:
    grace = timedelta(minutes=retention.reader_grace_minutes)
    if file.path in names.visible:
        tally.keep(file, "readers see it")
    elif file.path in names.unfinished:
        tally.keep(file, "of a run that has not ended")
    elif file.path in names.replaced:
        publication_id, since = names.replaced[file.path]
        if retention.superseded_days is None:
            tally.keep(file, "superseded, and kept for ever (`retention.superseded_days` is not set)")
        elif now - since < max(timedelta(days=retention.superseded_days), grace):
            tally.keep(file, "superseded, and within its retention or the readers' grace")
        else:
            tally.remove(file, f"superseded since {since:%Y-%m-%d %H:%M}", publication_id)
    elif now - file.modified <= max(timedelta(minutes=UNNAMED_MINUTES), grace):
        tally.keep(file, "named by nothing, and too young to be left over")
    else:
        damaged = names.voided.get(file.path)
        tally.remove(file, "found damaged after a run died" if damaged else "left by a run that died; no row names it", damaged)


def _input(tally: _Tally, file: StoredFile, retention: Retention, now: datetime, *, needed: bool) -> None:
    if needed:
        tally.keep(file, "sealed input of what readers see, or of what waits")
    elif retention.input_days is None:
        tally.keep(file, "other sealed input and evidence, kept for ever (`retention.input_days` is not set)")
    elif now - file.modified <= max(timedelta(days=retention.input_days), timedelta(minutes=UNNAMED_MINUTES)):
        tally.keep(file, "other sealed input and evidence, within its retention")
    else:
        tally.remove(file, f"sealed input or evidence of nothing visible, older than {retention.input_days} days")


def unknown_records(stored: Iterable[StoredFile], names: StoreNames, now: datetime) -> tuple[str, ...]:
    """Seal records of deliveries that the ledger never heard of, old enough not to be somebody's work at hand (ruling 16)."""
    young = timedelta(minutes=UNNAMED_MINUTES)
    return tuple(
        file.path
        for file in stored
        if file.path.startswith(f"{RECORDS}/") and not names.knows(file.path) and now - file.modified > young
    )


def vacuum(ledger: DuckLedger, store: LocalStore, settings: Settings, now: datetime, *, carry_out: bool) -> Sweep:
    """Plan a sweep, and carry it out if told to.

    Costs one listing of the store and the ledger's rows of what is published and sealed. The ledger is held for the question and
    for each five hundred removals, never while files are taken away.

    Raises:
        FeedBusy: deliveries are being taken in.
        NotApplied: the store holds deliveries that this ledger never heard of: it is older than the store.
        StoreFailure, LedgerFailure: one of them did not answer.
    """
    with sweeping(settings.ledger.parent / "locks"):
        with ledger.session() as session:
            names = store_names(session, store)
        stored = tuple(store.files())
        _require_known(unknown_records(stored, names, now))
        sweep = plan_sweep(stored, names, settings.retention, now)
        if not carry_out:
            return sweep
        for start in range(0, len(sweep.removals), _AT_ONCE):
            piece = sweep.removals[start : start + _AT_ONCE]
            with ledger.session() as session, session.transaction():
                session.write.removals(piece, now)
            for one in piece:
                store.delete(one.path)
        return Sweep(sweep.removals, sweep.kept, done=True)


def store_names(session: LedgerSession, store: LocalStore) -> StoreNames:
    """The ledger's word on every file; of what waits, the store's own records say which bytes it is."""
    read = session.read
    inputs, records = set(read.needed_lineage()), set[str]()
    for feed, one in read.needed_deliveries():
        source, dataset = feed.split("/")
        name = record_name(source, dataset, one.identity, one.digest, one.manifest_sha256)
        records.add(name)
        inputs.add(one.manifest_sha256)
        if (record := read_record(store, name)) is not None:
            inputs |= {file.sha256 for file in record.files}
    return StoreNames(
        visible=frozenset(one.path for one in read.visible_files()),
        unfinished=read.unfinished_files(),
        replaced=read.replaced_files(),
        voided=read.voided_files(),
        needed_inputs=frozenset(inputs),
        needed_records=frozenset(records),
        heard_of=frozenset((feed, sha256[:12]) for feed, sha256 in read.manifests_heard_of()),
        failed=frozenset((feed, f"{key}-{kind}-r{revision}") for feed, kind, key, revision in read.slices_failed()),
    )


def _require_known(unknown: Collection[str]) -> None:
    if unknown:
        raise NotApplied(
            f"the store holds {len(unknown)} sealed deliveries that the ledger never heard of (as {min(unknown)}): "
            "an older ledger was put back, or a run died; nothing is cleared away before they are taken up.",
            next_step="run `valuestream recover`, which offers them again; then vacuum.",
        )


def by_reason(removals: Iterable[RemovedFile]) -> Mapping[str, tuple[int, int]]:
    """Files and bytes by the kind of reason, for people."""
    found: dict[str, tuple[int, int]] = {}
    for one in removals:
        why = "superseded" if one.why.startswith("superseded") else one.why
        files, size = found.get(why, (0, 0))
        found[why] = (files + 1, size + one.bytes)
    return found
