"""When a key is due, and whether it is overdue. Lateness only: it proves no gap and delays none (C11, C23, C30).

Due times are counted from the *key's own date*: the last day of its period (a day is its own date, ISO week
``2026-W53`` has Sunday 2027-01-03, ``2026-11`` has 2026-11-30). ``"04:00"`` is that day at 04:00, ``"+1d 01:00"`` the
day after at 01:00. ``"day 3 12:00"`` is the third day of the month after the period, and says something only of keys
of a month or longer. Where a clock is put forward over the due time, the instant that the old offset gives counts;
where it is put back, the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import assert_never
from zoneinfo import ZoneInfo

from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence, SequenceKey

DUE_FORMS = '"04:00", "+1d 01:00" or "day 3 12:00"'
LONG_CADENCES = frozenset({Cadence.MONTHLY, Cadence.QUARTERLY, Cadence.YEARLY})

_DUE = re.compile(r"(?:\+(?P<days>\d{1,3})d |day (?P<day>\d{1,2}) )?(?P<hour>\d{2}):(?P<minute>\d{2})")
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DueAfter:
    """A wall-clock time, ``days`` after the key's own date."""

    days: int
    at: time


@dataclass(frozen=True, slots=True)
class DueOnDay:
    """A wall-clock time on a day (1 to 31; the last day where the month is shorter) of the month after the period."""

    day: int
    at: time


Due = DueAfter | DueOnDay


def parse_due(text: str) -> Due | None:
    """The due time that ``text`` states, or None where it states none (the forms are ``DUE_FORMS``)."""
    found = _DUE.fullmatch(text) if text.isascii() else None
    if found is None or int(found["hour"]) > 23 or int(found["minute"]) > 59:
        return None
    at = time(int(found["hour"]), int(found["minute"]))
    if found["day"] is None:
        return DueAfter(int(found["days"] or 0), at)
    day = int(found["day"])
    return DueOnDay(day, at) if 1 <= day <= 31 else None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Until when a feed's key should be here.

    Args:
        due: the agreed time, relative to the key's own date.
        grace_minutes: how much later is still not overdue.
        timezone: IANA name of the zone in which ``due`` is a wall-clock time; it must exist.
    """

    due: Due
    grace_minutes: int
    timezone: str

    def due_at(self, key: SequenceKey, sequence: Sequence) -> datetime | None:
        """The instant (UTC) at which ``key`` is due; None where the key has no date or year 9999 is passed."""
        last = last_day(key, sequence)
        if last is None:
            return None
        try:
            wall = datetime.combine(_due_day(self.due, last), self.due.at)
            return wall.replace(tzinfo=ZoneInfo(self.timezone)).astimezone(UTC)
        except (OverflowError, ValueError):
            return None

    def overdue(self, now: datetime, key: SequenceKey, sequence: Sequence) -> bool:
        """Whether ``key``, not being here, is past its due time and grace at ``now`` (aware)."""
        due = self.due_at(key, sequence)
        # Compared in UTC: aware datetimes of one zone would compare by wall clock, an hour wrong at a clock change.
        return due is not None and now.astimezone(UTC) - due > timedelta(minutes=self.grace_minutes)


def last_day(key: SequenceKey, sequence: Sequence) -> date | None:
    """The last day of the period that ``key`` names; None for keys that are no dates."""
    match sequence:
        case DatedSequence(cadence):
            try:
                return _last_day(cadence, key.ordinal)
            except (OverflowError, ValueError):
                return None
        case IntegerSequence():
            return None
        case _:
            assert_never(sequence)


def _last_day(cadence: Cadence, ordinal: int) -> date:
    match cadence:
        case Cadence.HOURLY:
            return _EPOCH_DAY + timedelta(days=ordinal // 24)
        case Cadence.DAILY:
            return date.fromordinal(ordinal)
        case Cadence.WEEKLY:
            return date.fromordinal(ordinal * 7 + 7)
        case Cadence.MONTHLY:
            return _last_of_month(ordinal // 12, ordinal % 12 + 1)
        case Cadence.QUARTERLY:
            return _last_of_month(ordinal // 4, ordinal % 4 * 3 + 3)
        case Cadence.YEARLY:
            return date(ordinal, 12, 31)
        case _:
            assert_never(cadence)


def _last_of_month(year: int, month: int) -> date:
    return date(year, 12, 31) if month == 12 else date(year, month + 1, 1) - timedelta(days=1)


def _due_day(due: Due, last: date) -> date:
    match due:
        case DueAfter(days):
            return last + timedelta(days=days)
        case DueOnDay(day):
            following = (last.year + 1, 1) if last.month == 12 else (last.year, last.month + 1)
            return min(date(*following, 1) + timedelta(days=day - 1), _last_of_month(*following))
        case _:
            assert_never(due)
