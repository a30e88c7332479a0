"""What passes between the steps of publishing: prepared arrivals, what became of them, and how a ledger run is named. No work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from valuestream_dagster.core.continuity import (
    Covered,
)
from valuestream_dagster.core.decision import (
    Accept,
    Decision,
    Duplicate,
    Observation,
    Superseded,
    Valid,
)
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import MeasuredRows
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import ValueStreamError
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.intake.seal import Sealed
from valuestream_dagster.ledger.rows import (
    Publication,
    PublishedFile,
)
from valuestream_dagster.publication.receipts import Told

# Decisions after which a run may be green.
_CALM = (Accept, Duplicate, Superseded, Covered)


@dataclass(frozen=True, slots=True)
class PreparedArrival:
    """One arrival, taken in: what it turned out to be, and its file if it was worth writing one.

    ``provisional`` is what will become of it unless the ledger says otherwise; ``failure`` says what of our own went wrong.
    """

    arrival: Arrival
    observation: Observation
    provisional: Decision | None
    sealed: Sealed | None = None
    file: PublishedFile | None = None
    measured: MeasuredRows | None = None
    failure: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedKey:
    """All that arrived for one key, taken in, newest revision first; ``failure`` where our own work went wrong."""

    key: SequenceKey
    arrivals: tuple[PreparedArrival, ...]
    existing: Publication | None

    @property
    def worth_an_output(self) -> bool:
        """Whether, as decided now, the key has a publication afterwards and no trouble alone made it run."""
        accepted = any(isinstance(one.provisional, Accept) for one in self.arrivals)
        calm = all(one.failure is None and isinstance(one.provisional, _CALM) for one in self.arrivals)
        return accepted or (calm and self.existing is not None)

    @property
    def data_version(self) -> str | None:
        """The data version that the key will have if all goes as decided now."""
        for prepared in self.arrivals:
            if isinstance(prepared.provisional, Accept) and isinstance(prepared.observation, Valid):
                return f"r{prepared.observation.identity.revision}-{prepared.observation.digest.short}"
        return self.existing.data_version if self.existing else None


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """What became of one arrival."""

    manifest: str
    key: SequenceKey
    kind: Kind
    revision: int
    told: Told
    warnings: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    """What became of one key: each arrival's outcome, and the publication that the key has now (None: it has none)."""

    key: SequenceKey
    outcomes: tuple[ArrivalOutcome, ...]
    publication: Publication | None
    changed: bool
    run_id: str | None

    @property
    def trouble(self) -> tuple[ArrivalOutcome, ...]:
        """The outcomes that a person must know of."""
        return tuple(outcome for outcome in self.outcomes if not outcome.told.ok)


@dataclass(slots=True)
class RunName:
    """How one ledger run names itself, its files and its publications: one id, and a count of each.

    Args:
        run_id: time and chance; never used twice.
        files: files that were given a name.
        publications: publications that were recorded.
    """

    run_id: str
    files: int = 0
    publications: int = 0

    @classmethod
    def fresh(cls, at: datetime) -> RunName:
        """A new run's name."""
        return cls(f"{at:%Y%m%dT%H%M%S}-{uuid4().hex[:10]}")

    def next_file(self) -> str:
        """Tells the run's files apart."""
        self.files += 1
        return f"{self.run_id}.{self.files:05d}"

    def next_publication(self) -> str:
        """The id of the run's next publication."""
        self.publications += 1
        return f"{self.run_id}.{self.publications:05d}"


def in_words(error: BaseException) -> str:
    """An error of our own surroundings as a sentence, never a traceback."""
    if not isinstance(error, ValueStreamError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message} To mend it: {error.next_step}" if error.next_step else error.message
