"""Due and overdue: relative to the key's own date, in the feed's zone, and never a proof of a gap (C11, C23, C30)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.calendar import DueAfter, DueOnDay, Expectation, last_day, parse_due
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence, SequenceKey

DAILY = DatedSequence(Cadence.DAILY)


def _key(sequence: Sequence, text: str) -> SequenceKey:
    key = sequence.parse(text)
    assert isinstance(key, SequenceKey)
    return key


def _expect(due: str, grace_minutes: int = 0, timezone: str = "UTC") -> Expectation:
    parsed = parse_due(due)
    assert parsed is not None
    return Expectation(parsed, grace_minutes, timezone)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("04:00", DueAfter(0, time(4))),
        ("+1d 01:00", DueAfter(1, time(1))),
        ("+10d 23:59", DueAfter(10, time(23, 59))),
        ("day 3 12:00", DueOnDay(3, time(12))),
    ],
)
def test_the_three_forms_of_a_due_time(text: str, due: DueAfter | DueOnDay) -> None:
    assert parse_due(text) == due


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4:00",
        "24:00",
        "04:60",
        "04:00 ",
        "day 0 12:00",
        "day 32 12:00",
        "-1d 01:00",
        "+1 01:00",
        "1d 01:00",
        "٠٤:٠٠",
    ],
)
def test_what_is_no_due_time_is_none(text: str) -> None:
    assert parse_due(text) is None


@given(st.text(max_size=20))
def test_parsing_a_due_time_is_total(text: str) -> None:
    parse_due(text)


@pytest.mark.parametrize(
    ("cadence", "text", "day"),
    [
        (Cadence.HOURLY, "2026-11-30T05", date(2026, 11, 30)),
        (Cadence.HOURLY, "1969-12-31T23", date(1969, 12, 31)),
        (Cadence.DAILY, "2026-11-30", date(2026, 11, 30)),
        (Cadence.WEEKLY, "2026-W53", date(2027, 1, 3)),
        (Cadence.MONTHLY, "2028-02", date(2028, 2, 29)),
        (Cadence.MONTHLY, "2026-12", date(2026, 12, 31)),
        (Cadence.QUARTERLY, "2026-Q4", date(2026, 12, 31)),
        (Cadence.QUARTERLY, "2026-Q2", date(2026, 6, 30)),
        (Cadence.YEARLY, "2026", date(2026, 12, 31)),
        (Cadence.YEARLY, "9998", date(9998, 12, 31)),
    ],
)
def test_a_keys_own_date_is_the_last_day_of_its_period(cadence: Cadence, text: str, day: date) -> None:
    sequence = DatedSequence(cadence)
    assert last_day(_key(sequence, text), sequence) == day


def test_a_plain_time_is_on_the_keys_own_date_in_the_feeds_zone() -> None:
    expect = _expect("04:00", timezone="Europe/Brussels")
    assert expect.due_at(_key(DAILY, "2026-09-01"), DAILY) == datetime(2026, 9, 1, 2, tzinfo=UTC)
    assert expect.due_at(_key(DAILY, "2026-12-01"), DAILY) == datetime(2026, 12, 1, 3, tzinfo=UTC)


def test_days_are_added_before_the_clock_is_read() -> None:
    # The night of 2026-10-25 has 25 hours in Brussels; 01:00 stays 01:00.
    expect = _expect("+1d 01:00", timezone="Europe/Brussels")
    before, after = (expect.due_at(_key(DAILY, text), DAILY) for text in ("2026-10-24", "2026-10-25"))
    assert before is not None and after is not None
    assert after - before == timedelta(hours=25)


def test_day_n_is_in_the_month_after_the_period() -> None:
    monthly, quarterly = DatedSequence(Cadence.MONTHLY), DatedSequence(Cadence.QUARTERLY)
    expect = _expect("day 3 12:00")
    assert expect.due_at(_key(monthly, "2026-11"), monthly) == datetime(2026, 12, 3, 12, tzinfo=UTC)
    assert expect.due_at(_key(monthly, "2026-12"), monthly) == datetime(2027, 1, 3, 12, tzinfo=UTC)
    assert expect.due_at(_key(quarterly, "2026-Q4"), quarterly) == datetime(2027, 1, 3, 12, tzinfo=UTC)


def test_day_31_is_the_last_day_of_a_shorter_month() -> None:
    monthly = DatedSequence(Cadence.MONTHLY)
    assert _expect("day 31 00:00").due_at(_key(monthly, "2027-01"), monthly) == datetime(2027, 2, 28, tzinfo=UTC)


def test_a_time_that_the_clock_skips_takes_the_old_offset() -> None:
    # 02:30 does not exist in Brussels on 2026-03-29.
    due = _expect("02:30", timezone="Europe/Brussels").due_at(_key(DAILY, "2026-03-29"), DAILY)
    assert due == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def test_a_time_that_the_clock_repeats_is_the_first_of_the_two() -> None:
    due = _expect("02:30", timezone="Europe/Brussels").due_at(_key(DAILY, "2026-10-25"), DAILY)
    assert due == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_overdue_begins_after_the_grace_and_not_at_its_end() -> None:
    expect, key = _expect("04:00", grace_minutes=240), _key(DAILY, "2026-09-02")
    end = datetime(2026, 9, 2, 8, tzinfo=UTC)
    assert not expect.overdue(end - timedelta(seconds=1), key, DAILY)
    assert not expect.overdue(end, key, DAILY)
    assert expect.overdue(end + timedelta(seconds=1), key, DAILY)


def test_integers_are_never_due() -> None:
    sequence = IntegerSequence()
    expect = _expect("04:00")
    assert expect.due_at(_key(sequence, "27"), sequence) is None
    assert not expect.overdue(datetime(9999, 1, 1, tzinfo=UTC), _key(sequence, "27"), sequence)


def test_the_end_of_the_calendar_is_never_due() -> None:
    after_all = SequenceKey("9999-12-31", date(9999, 12, 31).toordinal())
    assert _expect("+1d 01:00").due_at(after_all, DAILY) is None
    assert last_day(SequenceKey("impossible", 10**12), DAILY) is None


@given(st.integers(date(1900, 1, 1).toordinal(), date(2200, 1, 1).toordinal()), st.integers(0, 23), st.integers(0, 5))
def test_a_later_key_is_never_due_earlier(ordinal: int, hour: int, days: int) -> None:
    expect = Expectation(DueAfter(days, time(hour)), 0, "Europe/Brussels")
    key = DAILY.at(ordinal)
    first, second = expect.due_at(key, DAILY), expect.due_at(DAILY.successor(key), DAILY)
    assert first is not None and second is not None
    assert timedelta(hours=22) <= second - first <= timedelta(hours=26)
