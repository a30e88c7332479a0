"""Every exception of the project on one screen, grouped by what the person or program that catches it does next.

::

    ValueStreamError            kind, retryable, exit_code; message = subject, culprit, next step
    |- WrongUse                 exit 2: the command or the call was wrong; correct it
    |- ConfigurationInvalid     exit 2: a YAML file is wrong; carries every finding with file and line
    |- NotApplied               exit 1: the rules said no; nothing was written, nothing to repair
    |  |- FeedBusy              another process runs this feed; wait for it
    |  `- FenceLost             this run was taken for dead and another took over; its work is not recorded
    |- StoreFailure             exit 1, retryable: a landing place or store did not answer
    |  |- ObjectMissing         the object is not there (any more)
    |  |- ObjectChanged         the object changed while it was read; look again
    |  `- ObjectExists          a write-once name is taken by other bytes
    |- LedgerFailure            exit 1, retryable: the ledger could not be opened or written
    |  `- LedgerTooNew          exit 2: written by a newer valuestream; upgrade
    `- Broken                   exit 3: our own invariant does not hold; report it

What a *delivery* does wrong is never an exception: it is a ``Finding`` (``core.finding``) in a receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class ValueStreamError(Exception):
    """Anything that stops an operation. ``message`` says what and whose; ``next_step`` says what to do.

    Args:
        message: one or more sentences without secrets.
        next_step: what the reader should do now, as an imperative sentence.
    """

    kind: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} Next: {self.next_step}" if self.next_step else self.message


class WrongUse(ValueStreamError):
    """The command line or the Python call cannot be carried out as given."""

    kind = "wrong_use"
    exit_code = 2


def is_interrupt(name: str, message: str) -> bool:
    """Whether an exception of this class and text is Ctrl-C: Python's, Dagster's, or DuckDB's, which is a RuntimeError."""
    return name in {"KeyboardInterrupt", "DagsterExecutionInterruptedError", "InterruptException"} or (
        name == "RuntimeError" and "Query interrupted" in message
    )


def with_instead(message: str, instead: str) -> str:
    """A refusal of configuration, and behind it what to write."""
    stop = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{stop} Write: {instead}" if instead else message


@dataclass(frozen=True, slots=True)
class ConfigurationFinding:
    """One thing wrong in one YAML file, with the line (from 1) and what to write instead."""

    file: str
    line: int
    message: str
    instead: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {with_instead(self.message, self.instead)}"


class ConfigurationInvalid(ValueStreamError):
    """One or more YAML files are wrong; every finding is carried, not only the first."""

    kind = "configuration_invalid"
    exit_code = 2

    def __init__(self, findings: Sequence[ConfigurationFinding]) -> None:
        self.findings = tuple(findings)
        super().__init__(
            "\n".join(str(finding) for finding in self.findings),
            next_step="correct the lines above, then run `valuestream check`.",
        )


class NotApplied(ValueStreamError):
    """The rules refused; nothing was written."""

    kind = "not_applied"


class FeedBusy(NotApplied):
    """Another process holds the feed's run lock (L12)."""

    kind = "feed_busy"
    retryable = True


class FenceLost(NotApplied):
    """A later run has claimed the feed, so this one may no longer record (M18)."""

    kind = "fence_lost"


class StoreFailure(ValueStreamError):
    """A landing place or store did not do what was asked."""

    kind = "store_failure"
    retryable = True


class ObjectMissing(StoreFailure):
    """The named object is not there."""

    kind = "object_missing"


class ObjectChanged(StoreFailure):
    """The object's stamp or version changed between two looks."""

    kind = "object_changed"


class ObjectExists(StoreFailure):
    """A write-once name already holds other bytes."""

    kind = "object_exists"
    retryable = False


class LedgerFailure(ValueStreamError):
    """The ledger could not be opened, read or written."""

    kind = "ledger_failure"
    retryable = True


class LedgerTooNew(LedgerFailure):
    """The ledger's schema is newer than this program."""

    kind = "ledger_too_new"
    retryable = False
    exit_code = 2


class Broken(ValueStreamError):
    """An invariant of our own does not hold; a defect, never the producer's fault."""

    kind = "broken"
    exit_code = 3
