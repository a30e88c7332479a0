"""Taking one arrival in, with nothing that anybody can see: seal, check, write Parquet aside, name it, read it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import duckdb

from valuestream_dagster.core.continuity import (
    Blocked,
)
from valuestream_dagster.core.decision import (
    Accept,
    Identity,
    Incomplete,
    Invalid,
    Observation,
    Valid,
)
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Manifest
from valuestream_dagster.core.rows import MeasuredRows, RowsRefused, RowStamp
from valuestream_dagster.errors import Broken, ObjectChanged, ObjectMissing, ValueStreamError
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.intake.completion import InStore
from valuestream_dagster.intake.independent import compare
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.records import SealRecord, place_record
from valuestream_dagster.intake.seal import Sealed, from_store, keep_manifest, place_manifest, seal
from valuestream_dagster.ledger.rows import (
    PublishedFile,
)
from valuestream_dagster.publication.facts import Facts, decide_with
from valuestream_dagster.publication.means import Means
from valuestream_dagster.publication.outcomes import (
    PreparedArrival,
    RunName,
    in_words,
)
from valuestream_dagster.publication.parquet import StagedFile, check_only, publish_file, read_back, stage
from valuestream_dagster.publication.pending import taken_up

FORMAT_VERSION = 1


class Intake:
    """Turns arrivals into prepared ones, without touching the ledger.

    Args:
        means: the feed's landing place, store and settings.
        facts: what the run knows; what is decided here is provisional.
    """

    def __init__(self, means: Means, facts: Facts) -> None:
        self._means = means
        self._feed = means.feed
        self._facts = facts
        # Files that have their name and of which nothing was recorded yet.
        self.loose: set[str] = set()

    def take_in(self, arrival: Arrival, name: RunName) -> PreparedArrival:
        """One arrival, whatever goes wrong with it; its file is written if it looks as if it will be applied."""
        return self._guarded(arrival, lambda: self._try(arrival, name))

    def take_in_early(self, arrival: Arrival) -> PreparedArrival:
        """Seal and check one arrival whose turn it is not: no file is written, nothing is claimed (S3, ruling of early sealing)."""
        return self._guarded(arrival, lambda: self._try(arrival, None))

    def _guarded(self, arrival: Arrival, work: Callable[[], PreparedArrival]) -> PreparedArrival:
        try:
            return work()
        except (ObjectChanged, ObjectMissing) as error:
            return self._provisional(arrival, Incomplete((error.message,)))
        except duckdb.InterruptException:
            raise  # Ctrl-C is nobody's failure
        except (ValueStreamError, OSError, MemoryError, duckdb.Error) as error:
            return PreparedArrival(arrival, Incomplete(()), None, failure=in_words(error))

    def _try(self, arrival: Arrival, name: RunName | None) -> PreparedArrival:
        """Seal and check one arrival (M5, M6); without a run's name nothing but that."""
        completeness = arrival.completeness
        if isinstance(completeness, Incomplete):
            return self._provisional(arrival, completeness)
        if isinstance(completeness, Invalid):
            keep_manifest(self._means.store, arrival.data)
            return self._provisional(arrival, completeness)
        if name is not None and (blocked := self._blocked(arrival)) is not None:
            return PreparedArrival(arrival, Incomplete(()), blocked)
        if isinstance(completeness, InStore):
            stored = taken_up(self._means.store, arrival)
            return self._check(stored, from_store(self._means.store, _record_of(stored).files), name)
        sealed = seal(self._means.landing, completeness, self._means.store)
        if isinstance(sealed, Incomplete | Invalid):
            keep_manifest(self._means.store, arrival.data)
            return self._provisional(arrival, sealed)
        return self._check(arrival, self._recorded(arrival, sealed), name)

    def _recorded(self, arrival: Arrival, sealed: Sealed) -> Sealed:
        """The same, with manifest and seal record beside it, becoming durable."""
        manifest, store = arrival.manifest, self._means.store
        record = SealRecord(
            source=manifest.source,
            dataset=manifest.dataset,
            identity=Identity(manifest.kind, manifest.key, manifest.revision),
            digest=sealed.digest,
            manifest=arrival.stat.path,
            manifest_sha256=arrival.sha256,
            files=sealed.files,
            sealed_at=self._means.now(),
            controls=manifest.controls,
            empty=manifest.empty,
        )
        return sealed.made_durable(store, [place_manifest(store, arrival.data), place_record(store, record)])

    def _blocked(self, arrival: Arrival) -> Blocked | None:
        """Whether the predecessor rule alone says no, whatever the bytes are; then they are not even read (S27)."""
        manifest = arrival.manifest
        if self._facts.history(manifest.kind, manifest.key).applied is not None:
            return None
        judged = self._feed.rule.judge(manifest.kind, manifest.key, self._facts.epoch_ahead, self._facts.state_of)
        return judged if isinstance(judged, Blocked) else None

    def _check(self, arrival: Arrival, sealed: Sealed, name: RunName | None) -> PreparedArrival:
        manifest = arrival.manifest
        observation = Valid(Identity(manifest.kind, manifest.key, manifest.revision), sealed.digest)
        provisional = decide_with(self._feed, self._facts, arrival, observation, None)
        applies = name is not None and isinstance(provisional, Accept) and provisional.reuses is None
        checked = self._read(arrival, sealed, name if applies else None)
        if isinstance(checked, RowsRefused):
            return self._provisional(arrival, Invalid(checked.findings, kept=sealed.files))
        staged, measured = checked
        try:
            if empty := empty_fault(self._feed, arrival.manifest, measured):
                return self._provisional(arrival, Invalid((empty,), kept=sealed.files))
            notes: tuple[str, ...] = ()
            if self._feed.independent is not None:
                compared = compare(self._feed.independent, manifest.key, measured)
                observation, notes = replace(observation, hold=compared.hold), (compared.told,)
            provisional = decide_with(self._feed, self._facts, arrival, observation, measured.rows)
            if name is None or staged is None or not isinstance(provisional, Accept):
                return PreparedArrival(arrival, observation, provisional, sealed, None, measured, notes=notes)
            file = self._give_name(arrival, sealed.digest, staged, name)
        finally:
            if staged is not None:
                staged.path.unlink(missing_ok=True)
        return PreparedArrival(arrival, observation, provisional, sealed, file, measured, notes=notes)

    def _read(
        self, arrival: Arrival, sealed: Sealed, name: RunName | None
    ) -> tuple[StagedFile | None, MeasuredRows] | RowsRefused:
        """Every check of the rows; with a run's name also the Parquet file, which is not named yet."""
        manifest = arrival.manifest
        files = [PayloadFile(path, file.path, file.rows) for file, path in zip(sealed.files, sealed.paths, strict=True)]
        scratch = self._means.store.path("tmp")
        scratch.mkdir(parents=True, exist_ok=True)
        max_ratio = self._means.settings.limits.max_ratio
        contract = self._feed.computation_for(manifest.key).contract
        if name is None:
            measured = check_only(
                files, contract, controls=manifest.controls, scratch=scratch, max_ratio=max_ratio
            )
            return measured if isinstance(measured, RowsRefused) else (None, measured)
        staged = stage(
            files,
            contract,
            stamp=RowStamp(manifest.key.text, manifest.kind.value, manifest.key.ordinal),
            controls=manifest.controls,
            provenance=self._provenance(arrival, sealed.digest, name.run_id),
            directory=scratch,
            scratch=scratch,
            max_ratio=max_ratio,
        )
        return staged if isinstance(staged, RowsRefused) else (staged, staged.measured)

    def _provisional(self, arrival: Arrival, observation: Observation) -> PreparedArrival:
        return PreparedArrival(arrival, observation, decide_with(self._feed, self._facts, arrival, observation, None))

    def _provenance(self, arrival: Arrival, digest: Digest, run_id: str) -> dict[str, str]:
        manifest = arrival.manifest
        return {
            "valuestream.source": manifest.source,
            "valuestream.dataset": manifest.dataset,
            "valuestream.kind": manifest.kind.value,
            "valuestream.key": manifest.key.text,
            "valuestream.revision": str(manifest.revision),
            "valuestream.digest": digest.hex,
            "valuestream.computation_hash": self._feed.computation_for(manifest.key).hash,
            "valuestream.run": run_id,
            "valuestream.manifest_sha256": arrival.sha256,
            "valuestream.format": str(FORMAT_VERSION),
        }

    def _give_name(self, arrival: Arrival, digest: Digest, staged: StagedFile, name: RunName) -> PublishedFile:
        """Link the staged file to its immutable name, which carries run and digest, and read it back (L7)."""
        manifest = arrival.manifest
        relative = (
            f"published/{manifest.source}/{manifest.dataset}/{manifest.key}/"
            f"{manifest.kind}-r{manifest.revision}-{digest.short}-{name.next_file()}.parquet"
        )
        final = self._means.store.path(relative)
        final.parent.mkdir(parents=True, exist_ok=True)
        publish_file(staged, final)
        self.loose.add(relative)
        read_back(final, staged)
        return PublishedFile(relative, staged.sha256, staged.bytes, staged.measured.rows)


def empty_fault(feed: Feed, manifest: Manifest, measured: MeasuredRows) -> Finding | None:
    """A delivery without rows is valid only where the feed or the manifest says so (ruling 13)."""
    if measured.rows or feed.allow_empty or manifest.empty:
        return None
    return Finding(
        "empty_not_allowed",
        "the delivery holds no rows",
        "ask the producer; if that is right, let the manifest say `empty: true` or the feed `policy: {allow_empty: true}`.",
    )


def _record_of(arrival: Arrival) -> SealRecord:
    if not isinstance(arrival.completeness, InStore) or arrival.completeness.record is None:
        raise Broken(f"{arrival.manifest.name} was to be taken up from the store without its seal record")
    return arrival.completeness.record
