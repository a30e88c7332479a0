"""Sequence keys: text, order, successor. What a delivery is called and which one comes next; nothing about its state.

A key has one canonical text (the Dagster partition key) and an ``ordinal`` in its sequence's own order, so that 998, 999,
1000 sort as numbers and ISO weeks as weeks (C12, C18). Parsing is total: a key or a ``KeyProblem``, never an exception (C24).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import assert_never


class Cadence(StrEnum):
    """How often a dated feed has a key."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    YEARLY = "yearly"


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The ordered name of a delivery in its feed.

    Args:
        text: canonical text, for people and as the partition key.
        ordinal: place in the sequence's order; neighbours differ by the sequence's step.
    """

    text: str
    ordinal: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """A text that is no key of the sequence (C25): code, the text, what was expected and why it is not that."""

    code: str
    text: str
    expected: str
    detail: str


# Keys have neighbours, so the calendar's own ends are left out; earlier years are before our calendar.
FIRST_YEAR, LAST_YEAR = 1600, 9998
_EPOCH_HOUR = datetime(1970, 1, 1)
_PATTERNS: dict[Cadence, tuple[re.Pattern[str], str]] = {
    Cadence.HOURLY: (re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2})"), "YYYY-MM-DDTHH"),
    Cadence.DAILY: (re.compile(r"(\d{4})-(\d{2})-(\d{2})"), "YYYY-MM-DD"),
    Cadence.WEEKLY: (re.compile(r"(\d{4})-W(\d{2})"), "GGGG-Www (ISO week)"),
    Cadence.MONTHLY: (re.compile(r"(\d{4})-(\d{2})"), "YYYY-MM"),
    Cadence.QUARTERLY: (re.compile(r"(\d{4})-Q([1-4])"), "YYYY-Qn"),
    Cadence.YEARLY: (re.compile(r"(\d{4})"), "YYYY"),
}


def _ordinal_of(cadence: Cadence, parts: tuple[int, ...]) -> int:
    """The place of the period; raises ValueError where the calendar has no such period."""
    match cadence:
        case Cadence.HOURLY:
            year, month, day, hour = parts
            return int((datetime(year, month, day, hour) - _EPOCH_HOUR).total_seconds()) // 3600
        case Cadence.DAILY:
            return date(*parts).toordinal()
        case Cadence.WEEKLY:
            return (date.fromisocalendar(parts[0], parts[1], 1).toordinal() - 1) // 7
        case Cadence.MONTHLY:
            return date(parts[0], parts[1], 1).year * 12 + parts[1] - 1
        case Cadence.QUARTERLY:
            return date(parts[0], 1, 1).year * 4 + parts[1] - 1
        case Cadence.YEARLY:
            return date(parts[0], 1, 1).year
        case _:
            assert_never(cadence)


def _text_of(cadence: Cadence, ordinal: int) -> str:
    match cadence:
        case Cadence.HOURLY:
            return (_EPOCH_HOUR + timedelta(hours=ordinal)).strftime("%Y-%m-%dT%H")
        case Cadence.DAILY:
            return date.fromordinal(ordinal).isoformat()
        case Cadence.WEEKLY:
            year, week, _ = date.fromordinal(ordinal * 7 + 1).isocalendar()
            return f"{year:04d}-W{week:02d}"
        case Cadence.MONTHLY:
            return f"{ordinal // 12:04d}-{ordinal % 12 + 1:02d}"
        case Cadence.QUARTERLY:
            return f"{ordinal // 4:04d}-Q{ordinal % 4 + 1}"
        case Cadence.YEARLY:
            return f"{ordinal:04d}"
        case _:
            assert_never(cadence)


@dataclass(frozen=True, slots=True)
class DatedSequence:
    """Keys that are periods of one cadence, without holes."""

    cadence: Cadence

    @property
    def expected(self) -> str:
        """The form of a key, for messages."""
        return _PATTERNS[self.cadence][1]

    def parse(self, text: str) -> SequenceKey | KeyProblem:
        """The key that ``text`` names, or why it names none (``pattern_mismatch``, ``invalid_date``)."""
        found = _PATTERNS[self.cadence][0].fullmatch(text) if text.isascii() else None
        if found is None:
            return KeyProblem("pattern_mismatch", text, self.expected, f"{text!r} is not of the form {self.expected}")
        parts = tuple(int(group) for group in found.groups())
        if not FIRST_YEAR <= parts[0] <= LAST_YEAR:
            why = f"{text!r} lies outside the years {FIRST_YEAR} to {LAST_YEAR}"
            return KeyProblem("invalid_date", text, self.expected, why)
        try:
            ordinal = _ordinal_of(self.cadence, parts)
        except ValueError as error:
            return KeyProblem("invalid_date", text, self.expected, f"{text!r} does not exist: {error}")
        return SequenceKey(text, ordinal)

    def at(self, ordinal: int) -> SequenceKey:
        """The key at a place in the order."""
        return SequenceKey(_text_of(self.cadence, ordinal), ordinal)

    def successor(self, key: SequenceKey) -> SequenceKey:
        """The key that must follow ``key``."""
        return self.at(key.ordinal + 1)

    def predecessor(self, key: SequenceKey) -> SequenceKey:
        """The key that ``key`` must follow."""
        return self.at(key.ordinal - 1)


@dataclass(frozen=True, slots=True)
class IntegerSequence:
    """Keys that are integers, ``step`` apart; text is decimal without padding."""

    step: int = 1

    @property
    def expected(self) -> str:
        """The form of a key, for messages."""
        return "an integer" if self.step == 1 else f"an integer, {self.step} apart"

    def parse(self, text: str) -> SequenceKey | KeyProblem:
        """The key that ``text`` names, or ``invalid_integer``; padding is accepted and dropped (998, 0999, 1000)."""
        if not (text.isascii() and re.fullmatch(r"\d{1,18}", text)):
            return KeyProblem("invalid_integer", text, self.expected, f"{text!r} is not {self.expected}")
        return SequenceKey(str(int(text)), int(text))

    def at(self, ordinal: int) -> SequenceKey:
        """The key at a place in the order."""
        return SequenceKey(str(ordinal), ordinal)

    def successor(self, key: SequenceKey) -> SequenceKey:
        """The key that must follow ``key``."""
        return self.at(key.ordinal + self.step)

    def predecessor(self, key: SequenceKey) -> SequenceKey:
        """The key that ``key`` must follow."""
        return self.at(key.ordinal - self.step)


# A calendar with holes, labels and links join this union when their issue comes; nothing else computes with ordinals.
Sequence = DatedSequence | IntegerSequence


def keys_between(sequence: Sequence, after: SequenceKey, before: SequenceKey, limit: int) -> tuple[SequenceKey, ...]:
    """The keys strictly between two keys, in order, at most ``limit`` of them."""
    keys: list[SequenceKey] = []
    key = sequence.successor(after)
    while key.ordinal < before.ordinal and len(keys) < limit:
        keys.append(key)
        key = sequence.successor(key)
    return tuple(keys)
