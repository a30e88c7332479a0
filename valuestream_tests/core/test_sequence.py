"""Keys and their order: total parsing, round trips, ISO weeks, numbers (C12, C18, C24, C25)."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.sequence import (
    Cadence,
    DatedSequence,
    IntegerSequence,
    KeyProblem,
    Sequence,
    SequenceKey,
    keys_between,
)

# The first and last place of each cadence that has both neighbours inside years 1600 to 9998.
_PLACES: dict[Cadence, tuple[int, int]] = {
    Cadence.HOURLY: (
        int((datetime(1600, 1, 2) - datetime(1970, 1, 1)).total_seconds()) // 3600,
        int((datetime(9998, 12, 30) - datetime(1970, 1, 1)).total_seconds()) // 3600,
    ),
    Cadence.DAILY: (date(1600, 1, 2).toordinal(), date(9998, 12, 30).toordinal()),
    Cadence.WEEKLY: (date(1600, 2, 1).toordinal() // 7, date(9998, 12, 1).toordinal() // 7),
    Cadence.MONTHLY: (1600 * 12 + 1, 9998 * 12 + 10),
    Cadence.QUARTERLY: (1600 * 4 + 1, 9998 * 4 + 2),
    Cadence.YEARLY: (1601, 9997),
}


def _key(sequence: Sequence, text: str) -> SequenceKey:
    key = sequence.parse(text)
    assert isinstance(key, SequenceKey), key
    return key


def _problem(sequence: Sequence, text: str) -> KeyProblem:
    problem = sequence.parse(text)
    assert isinstance(problem, KeyProblem), problem
    return problem


@pytest.mark.parametrize("cadence", list(Cadence))
@given(data=st.data())
def test_a_place_and_its_text_name_the_same_key_and_neighbours_are_one_apart(
    cadence: Cadence, data: st.DataObject
) -> None:
    sequence = DatedSequence(cadence)
    key = sequence.at(data.draw(st.integers(*_PLACES[cadence])))
    assert sequence.parse(key.text) == key
    assert sequence.predecessor(sequence.successor(key)) == key
    assert sequence.successor(key).ordinal == key.ordinal + 1
    assert sequence.predecessor(key).text < key.text < sequence.successor(key).text


@given(st.integers(0, 10**17), st.integers(1, 1000))
def test_an_integer_and_its_text_name_the_same_key(number: int, step: int) -> None:
    sequence = IntegerSequence(step)
    key = sequence.at(number)
    assert sequence.parse(key.text) == key
    assert sequence.predecessor(sequence.successor(key)) == key


@given(st.sampled_from(list(Cadence)), st.text(max_size=20))
def test_parsing_a_dated_key_is_total(cadence: Cadence, text: str) -> None:
    result = DatedSequence(cadence).parse(text)
    assert isinstance(result, SequenceKey | KeyProblem)
    if isinstance(result, SequenceKey):
        assert result.text == text


@given(st.text(max_size=25))
def test_parsing_an_integer_key_is_total(text: str) -> None:
    assert isinstance(IntegerSequence().parse(text), SequenceKey | KeyProblem)


@pytest.mark.parametrize(
    ("cadence", "text", "following"),
    [
        (Cadence.HOURLY, "2026-12-31T23", "2027-01-01T00"),
        (Cadence.DAILY, "2028-02-28", "2028-02-29"),
        (Cadence.DAILY, "2026-12-31", "2027-01-01"),
        (Cadence.WEEKLY, "2026-W52", "2026-W53"),
        (Cadence.WEEKLY, "2026-W53", "2027-W01"),
        (Cadence.WEEKLY, "2027-W52", "2028-W01"),
        (Cadence.MONTHLY, "2026-12", "2027-01"),
        (Cadence.QUARTERLY, "2026-Q4", "2027-Q1"),
        (Cadence.YEARLY, "2026", "2027"),
    ],
)
def test_the_successor_crosses_the_calendars_edges(cadence: Cadence, text: str, following: str) -> None:
    sequence = DatedSequence(cadence)
    assert sequence.successor(_key(sequence, text)) == _key(sequence, following)
    assert sequence.predecessor(_key(sequence, following)) == _key(sequence, text)


@pytest.mark.parametrize(
    ("cadence", "text"),
    [
        (Cadence.DAILY, "2027-02-29"),
        (Cadence.DAILY, "2026-13-01"),
        (Cadence.DAILY, "0000-01-01"),
        (Cadence.HOURLY, "2026-09-01T24"),
        (Cadence.WEEKLY, "2027-W53"),
        (Cadence.WEEKLY, "2026-W00"),
        (Cadence.MONTHLY, "2026-00"),
        (Cadence.MONTHLY, "2026-13"),
        (Cadence.YEARLY, "0000"),
    ],
)
def test_a_period_that_the_calendar_lacks_is_an_invalid_date(cadence: Cadence, text: str) -> None:
    problem = _problem(DatedSequence(cadence), text)
    assert problem.code == "invalid_date"
    assert text in problem.detail


@pytest.mark.parametrize(
    ("cadence", "text"),
    [
        (Cadence.DAILY, "20260901"),
        (Cadence.DAILY, "2026-9-1"),
        (Cadence.DAILY, "2026-09-01 "),
        (Cadence.DAILY, "2026-09-01\n"),
        (Cadence.DAILY, "٢٠٢٦-٠٩-٠١"),
        (Cadence.QUARTERLY, "2026-Q5"),
        (Cadence.WEEKLY, "2026-53"),
        (Cadence.HOURLY, "2026-09-01"),
    ],
)
def test_a_text_of_another_form_is_a_pattern_mismatch_that_says_the_form(cadence: Cadence, text: str) -> None:
    problem = _problem(DatedSequence(cadence), text)
    assert problem.code == "pattern_mismatch"
    assert problem.expected == DatedSequence(cadence).expected


def test_integers_order_as_numbers_and_padding_is_dropped() -> None:
    sequence = IntegerSequence()
    keys = [_key(sequence, text) for text in ("1000", "0999", "998")]
    assert [key.text for key in sorted(keys, key=lambda key: key.ordinal)] == ["998", "999", "1000"]
    assert sequence.successor(_key(sequence, "999")).text == "1000"


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "0x1F", "1_000", "٣", "1" * 19])
def test_what_is_no_decimal_integer_is_refused(text: str) -> None:
    assert _problem(IntegerSequence(), text).code == "invalid_integer"


def test_a_step_is_the_distance_of_neighbours() -> None:
    sequence = IntegerSequence(10)
    assert sequence.successor(_key(sequence, "990")).text == "1000"
    assert [str(key) for key in keys_between(sequence, _key(sequence, "970"), _key(sequence, "1000"), 10)] == [
        "980",
        "990",
    ]


def test_the_keys_between_two_are_in_order_and_bounded() -> None:
    sequence = DatedSequence(Cadence.WEEKLY)
    after, before = _key(sequence, "2026-W51"), _key(sequence, "2027-W02")
    assert [str(key) for key in keys_between(sequence, after, before, 10)] == ["2026-W52", "2026-W53", "2027-W01"]
    assert len(keys_between(sequence, after, before, 2)) == 2
    assert keys_between(sequence, before, after, 10) == ()


@pytest.mark.parametrize("text", ["9999-12-31", "1599-12-31", "0001-01-01"])
def test_keys_at_the_ends_of_the_calendar_are_refused_because_they_lack_a_neighbour(text: str) -> None:
    """C25: an impossible key is a problem with a code, never an overflow later on."""
    problem = DatedSequence(Cadence.DAILY).parse(text)
    assert isinstance(problem, KeyProblem)
    assert problem.code == "invalid_date"
