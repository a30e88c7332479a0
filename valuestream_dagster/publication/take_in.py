"""Taking one arrival in, with nothing that anybody can see: seal, check, write Parquet aside, name it, read it back."""

from __future__ import annotations

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
from valuestream_dagster.core.manifest import Digest
from valuestream_dagster.core.rows import MeasuredRows, RowsRefused, RowStamp
from valuestream_dagster.errors import Broken, ObjectChanged, ObjectMissing, ValueStreamError
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.seal import Sealed, keep_manifest, seal
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
        """One arrival, whatever goes wrong with it."""
        try:
            return self._try(arrival, name)
        except (ObjectChanged, ObjectMissing) as error:
            return self._provisional(arrival, Incomplete((error.message,)))
        except duckdb.InterruptException:
            raise  # Ctrl-C is nobody's failure
        except (ValueStreamError, OSError, MemoryError, duckdb.Error) as error:
            return PreparedArrival(arrival, Incomplete(()), None, failure=in_words(error))

    def _try(self, arrival: Arrival, name: RunName) -> PreparedArrival:
        """Seal and check one arrival, and write its file if it looks as if it will be applied (M5, M6)."""
        if isinstance(arrival.completeness, Incomplete):
            return self._provisional(arrival, arrival.completeness)
        if not isinstance(arrival.completeness, Invalid):
            early = self._blocked(arrival)
            if early is not None:
                return PreparedArrival(arrival, Incomplete(()), early)
        keep_manifest(self._means.store, arrival.data)
        if isinstance(arrival.completeness, Invalid):
            return self._provisional(arrival, arrival.completeness)
        sealed = seal(self._means.landing, arrival.completeness, self._means.store)
        if isinstance(sealed, Incomplete | Invalid):
            return self._provisional(arrival, sealed)
        return self._check(arrival, sealed, name)

    def _blocked(self, arrival: Arrival) -> Blocked | None:
        """Whether the predecessor rule alone says no, whatever the bytes are; then they are not even read (S27)."""
        manifest = arrival.manifest
        if self._facts.history(manifest.kind, manifest.key).applied is not None:
            return None
        judged = self._feed.rule.judge(manifest.kind, manifest.key, self._facts.epoch_ahead, self._facts.state_of)
        return judged if isinstance(judged, Blocked) else None

    def _check(self, arrival: Arrival, sealed: Sealed, name: RunName) -> PreparedArrival:
        manifest = arrival.manifest
        observation = Valid(Identity(manifest.kind, manifest.key, manifest.revision), sealed.digest)
        provisional = decide_with(self._feed, self._facts, arrival, observation)
        files = [
            PayloadFile(path, entry.path, entry.rows)
            for (entry, _), path in zip(_resolved(arrival).entries, sealed.paths, strict=True)
        ]
        scratch = self._means.store.path("tmp")
        scratch.mkdir(parents=True, exist_ok=True)
        if isinstance(provisional, Accept) and provisional.reuses is None:
            staged = stage(
                files,
                self._feed.contract,
                stamp=RowStamp(manifest.key.text, manifest.kind.value, manifest.key.ordinal),
                controls=manifest.controls,
                provenance=self._provenance(arrival, sealed.digest, name.run_id),
                directory=scratch,
                scratch=scratch,
                max_ratio=self._means.settings.limits.max_ratio,
            )
            if isinstance(staged, RowsRefused):
                return self._provisional(arrival, Invalid(staged.findings))
            if empty := self._empty_fault(arrival, staged.measured):
                staged.path.unlink(missing_ok=True)
                return self._provisional(arrival, Invalid((empty,)))
            file = self._give_name(arrival, sealed.digest, staged, name)
            return PreparedArrival(arrival, observation, provisional, sealed, file, staged.measured)
        measured = check_only(
            files,
            self._feed.contract,
            controls=manifest.controls,
            scratch=scratch,
            max_ratio=self._means.settings.limits.max_ratio,
        )
        if isinstance(measured, RowsRefused):
            return self._provisional(arrival, Invalid(measured.findings))
        if empty := self._empty_fault(arrival, measured):
            return self._provisional(arrival, Invalid((empty,)))
        return PreparedArrival(arrival, observation, provisional, sealed, None, measured)

    def _provisional(self, arrival: Arrival, observation: Observation) -> PreparedArrival:
        return PreparedArrival(arrival, observation, decide_with(self._feed, self._facts, arrival, observation))

    def _empty_fault(self, arrival: Arrival, measured: MeasuredRows) -> Finding | None:
        """A delivery without rows is valid only where the feed or the manifest says so (ruling 13)."""
        if measured.rows or self._feed.allow_empty or arrival.manifest.empty:
            return None
        return Finding(
            "empty_not_allowed",
            "the delivery holds no rows",
            "ask the producer; if that is right, let the manifest say `empty: true` or the feed `policy: {allow_empty: true}`.",
        )

    def _provenance(self, arrival: Arrival, digest: Digest, run_id: str) -> dict[str, str]:
        manifest = arrival.manifest
        return {
            "valuestream.source": manifest.source,
            "valuestream.dataset": manifest.dataset,
            "valuestream.kind": manifest.kind.value,
            "valuestream.key": manifest.key.text,
            "valuestream.revision": str(manifest.revision),
            "valuestream.digest": digest.hex,
            "valuestream.computation_hash": self._feed.computation_hash,
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
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            publish_file(staged, final)
        finally:
            staged.path.unlink(missing_ok=True)
        self.loose.add(relative)
        read_back(final, staged)
        return PublishedFile(relative, staged.sha256, staged.bytes, staged.measured.rows)


def _resolved(arrival: Arrival) -> Resolved:
    if not isinstance(arrival.completeness, Resolved):
        raise Broken(f"{arrival.manifest.name} was sealed without being complete")
    return arrival.completeness
