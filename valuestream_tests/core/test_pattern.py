"""Names and what they say: total, linear, and what is written is read back (C5, C12, C24, C25, C27)."""

from __future__ import annotations

import unicodedata
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.pattern import Named, NamePattern, NameProblem, compile_pattern
from valuestream_dagster.core.pattern_text import PatternFault
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence

DAILY = DatedSequence(Cadence.DAILY)
WEEKLY = DatedSequence(Cadence.WEEKLY)
NUMBERS = IntegerSequence()


def compiled(text: str, sequence: Sequence = DAILY) -> NamePattern:
    pattern = compile_pattern(text, sequence)
    assert isinstance(pattern, NamePattern), pattern
    return pattern


def named(text: str, name: str, sequence: Sequence = DAILY) -> Named:
    found = compiled(text, sequence).read(name)
    assert isinstance(found, Named), found
    return found


def problem(text: str, name: str, sequence: Sequence = DAILY) -> NameProblem:
    found = compiled(text, sequence).read(name)
    assert isinstance(found, NameProblem), found
    return found


@pytest.mark.parametrize(
    ("text", "cadence", "name", "key"),
    [
        ("orders-{date:YYYYMMDD}.csv", Cadence.DAILY, "orders-20261130.csv", "2026-11-30"),
        ("{date:YYYY}/{date:MM}/{date:YYYY-MM-DD}.csv", Cadence.DAILY, "2026/11/2026-11-30.csv", "2026-11-30"),
        ("{*}_{date:YYYYMMDDHHmm}.csv", Cadence.HOURLY, "eu-west_202611300559.csv", "2026-11-30T05"),
        ("w_{date:GGGG-[W]WW}.csv", Cadence.WEEKLY, "w_2026-W53.csv", "2026-W53"),
        ("w{date:YYYYMMDD}", Cadence.WEEKLY, "w20270103", "2026-W53"),
        ("m_{date:YYYYMMDD}.csv", Cadence.MONTHLY, "m_20270228.csv", "2027-02"),
        ("{date:YYYY-[Q]Q}", Cadence.QUARTERLY, "2026-Q4", "2026-Q4"),
        ("{date:YYYYMM}", Cadence.QUARTERLY, "202605", "2026-Q2"),
        ("{date:YYYY}.csv", Cadence.YEARLY, "2026.csv", "2026"),
    ],
)
def test_a_dated_name_says_the_period_in_which_its_date_lies(text: str, cadence: Cadence, name: str, key: str) -> None:
    """C5, C12: the key comes from the name, whatever the folder layout."""
    assert named(text, name, DatedSequence(cadence)).key.text == key


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("reg_{seq:000}.csv", "reg_998.csv", "998"),
        ("reg_{seq:000}.csv", "reg_0998.csv", "998"),
        ("reg_{seq:000}.csv", "reg_1000.csv", "1000"),
        ("{seq:000/000/000}.osc", "004/146/693.osc", "4146693"),
        ("{seq:000/000/000}.osc", "1004/146/693.osc", "1004146693"),
        ("n{seq}", "n7", "7"),
    ],
)
def test_an_integer_name_is_one_number_however_it_is_padded(text: str, name: str, key: str) -> None:
    """Case 53: 998, 0999 and 1000 are numbers, and a fixed width never drops the next one."""
    assert named(text, name, NUMBERS).key.text == key


def test_all_fields_of_a_name_are_told() -> None:
    found = named("{role}/{date:YYYYMMDD}_{kind}_r{revision}-{part}of{parts}.csv", "lines/20261130_FULL_r2-3of12.csv")
    assert (found.role, found.kind, found.revision, found.part, found.parts) == ("lines", Kind.FULL, 2, 3, 12)


def test_an_update_is_a_delta() -> None:
    """Case 55: identity is key and kind; a date beside the number is no key."""
    text = "Reg_{seq:0000}_{date:YYYY_MM_DD}_{kind}.zip"
    update = named(text, "Reg_0140_2026_10_05_Update.zip", NUMBERS)
    assert (update.key.text, update.kind) == ("140", Kind.DELTA)
    assert named(text, "Reg_0140_2026_10_05_Full.zip", NUMBERS).kind is Kind.FULL


@pytest.mark.parametrize(
    ("text", "name", "code", "says"),
    [
        ("orders-{date:YYYYMMDD}.csv", "orders-20270229.csv", "invalid_date", "does not exist"),
        ("orders-{date:YYYYMMDD}.csv", "orders-20261301.csv", "invalid_date", "13 is no MM"),
        ("{date:YYYYMMDDHH}", "2026113024", "invalid_date", "24 is no HH"),
        ("D{date:YYYYMMDD}.zip", "D202609O2.zip", "invalid_date", "'O2' stands where the digits of DD belong"),
        ("{date:YYYYMMDD}.csv", "99990101.csv", "invalid_date", "outside the years"),
        ("{date:YYYY}/{date:YYYYMMDD}.csv", "2025/20261130.csv", "invalid_date", "YYYY twice"),
        ("{date:YYYYMMDD}.csv", "readme.txt", "pattern_mismatch", "not of this form"),
        ("{date:YYYYMMDD}-r{revision}", "20261130-r0", "invalid_integer", "from 1"),
        ("{date:YYYYMMDD}-{part}of{parts}", "20261130-4of3", "invalid_integer", "no part 4 of 3"),
        ("{date:YYYYMMDD}-{part}of{parts}", "20261130-0of3", "invalid_integer", "no part 0 of 3"),
        ("{date:YYYYMMDD}{*}", "20261130\n.csv", "pattern_mismatch", "control character"),
        ("{date:YYYYMMDD}{*}", "20261130" + "x" * 1020, "pattern_mismatch", "longer than 1024"),
    ],
)
def test_a_name_that_states_no_key_says_why(text: str, name: str, code: str, says: str) -> None:
    """C24, C25, S20: one structured refusal with the expected pattern, never a gap (C27)."""
    sequence = DatedSequence(Cadence.HOURLY) if "HH" in text else DAILY
    found = problem(text, name, sequence)
    assert (found.code, found.expected) == (code, text)
    assert says in found.detail


def test_week_53_exists_only_in_long_years() -> None:
    """Case 44."""
    assert problem("{date:GGGG-[W]WW}", "2027-W53", WEEKLY).code == "invalid_date"
    assert named("{date:GGGG-[W]WW}", "2026-W53", WEEKLY).key.text == "2026-W53"


def test_a_letter_among_the_digits_of_a_number_is_told() -> None:
    found = problem("f{seq:000}.csv", "f00l.csv", NUMBERS)
    assert (found.code, found.detail) == ("invalid_integer", "'00l' stands where the digits of seq belong")


def test_digits_of_other_scripts_are_no_digits() -> None:
    assert problem("f{seq}.csv", "f١٢.csv", NUMBERS).code == "invalid_integer"


def test_both_unicode_forms_of_a_name_are_one_name() -> None:
    """Ruling 14."""
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "commandé-20261130.csv")
        assert named("commandé-{date:YYYYMMDD}.csv", name).key.text == "2026-11-30"


@pytest.mark.parametrize(
    ("text", "sequence", "says"),
    [
        ("", DAILY, "1 to 256"),
        ("orders.csv", DAILY, "does not name a daily key: that needs YYYY MM DD"),
        ("{date:YYYYMM}", DAILY, "daily key"),
        ("{date:YYYY-[W]WW}", WEEKLY, "a year of its own"),
        ("{date:YYYYMMDD}", NUMBERS, "names no integer key"),
        ("{date:YYYYMMDD}-{seq}", DAILY, "`{seq}` is for integer keys"),
        ("{date:YYMMDD}", DAILY, "is no part of a date"),
        ("{date}", DAILY, "is no field"),
        ("{dat:YYYY}", DAILY, "is no field"),
        ("{revison}", DAILY, "is no field"),
        ("{series}-{seq}", NUMBERS, "not built in this version"),
        ("{seq:00x}{part}", NUMBERS, "is no number"),
        ("{seq}-{seq}", NUMBERS, "stands twice"),
        ("{seq}{part}", NUMBERS, "cannot be told"),
        ("{seq}0.csv", NUMBERS, "cannot be told"),
        ("{role}{seq}", NUMBERS, "cannot be told"),
        ("/{seq}", NUMBERS, "relative to the landing place"),
        ("../{seq}", NUMBERS, "relative to the landing place"),
        ("a{seq", NUMBERS, "is no field"),
        ("{*}a" * 9 + "{seq}", NUMBERS, "more than 8 times"),
    ],
)
def test_a_pattern_that_cannot_be_used_says_why(text: str, sequence: Sequence, says: str) -> None:
    """C5: the contract declares its pattern, and a name has one meaning (L2)."""
    found = compile_pattern(text, sequence)
    assert isinstance(found, PatternFault)
    assert says in found.detail and found.instead is not None


def test_a_name_made_to_be_slow_is_read_in_few_steps() -> None:
    """No name multiplies the work: 1,024 bytes against eight wildcards are eight passes, not a thousand to the eighth."""
    pattern = compiled("{*}a" * 7 + "{*}{date:YYYYMMDD}")
    assert isinstance(pattern.read("a" * 1015 + "20261x30"), NameProblem)


@given(st.text(max_size=60))
def test_reading_is_total(name: str) -> None:
    """C24: one key or one structured refusal, whatever the name is."""
    for text, sequence in (("{*}{date:YYYYMMDD}_{role}.csv", DAILY), ("{seq:000/000}-{part}of{parts}", NUMBERS)):
        assert isinstance(compiled(text, sequence).read(name), Named | NameProblem)


DAYS = st.dates(date(1600, 1, 1), date(9998, 12, 31))
SMALL = st.integers(1, 10**9 - 1)


ROLES = st.from_regex(r"[a-z_-]{1,64}", fullmatch=True)


@given(DAYS, SMALL, st.sampled_from(["full", "delta"]), st.integers(1, 999), st.integers(0, 999), ROLES)
def test_what_is_written_for_a_date_is_read_back(day: date, revision: int, kind: str, part: int, more: int, role: str) -> None:
    pattern = compiled("{date:YYYY}/{role}/{date:YYYYMMDD}_{kind}_r{revision}_{part}of{parts}.csv.gz")
    fields = {
        "YYYY": f"{day.year:04d}", "MM": f"{day.month:02d}", "DD": f"{day.day:02d}", "revision": str(revision), "kind": kind,
        "part": str(part), "parts": str(part + more), "role": role,
    }  # fmt: skip
    found = pattern.read(pattern.spelled(fields))
    assert isinstance(found, Named)
    assert (found.key.text, found.revision, found.kind) == (day.isoformat(), revision, Kind(kind))
    assert (found.part, found.parts, found.role) == (part, part + more, role)
    assert dict(found.fields) == fields


@given(st.integers(0, 10**18 - 1), st.sampled_from(["{seq}", "{seq:000}", "{seq:000/000/000}", "x{seq:0-00}.csv"]))
def test_what_is_written_for_a_number_is_read_back(number: int, text: str) -> None:
    pattern = compiled(text, NUMBERS)
    found = pattern.read(pattern.spelled({"seq": str(number)}))
    assert isinstance(found, Named), (number, found)
    assert found.key.ordinal == number


@given(DAYS, st.integers(0, 3))
def test_weeks_are_read_back_and_follow_each_other(day: date, weeks: int) -> None:
    pattern = compiled("{date:GGGG-[W]WW}", WEEKLY)
    iso = (day + timedelta(weeks=weeks) if day.year < 9998 else day).isocalendar()
    found = pattern.read(pattern.spelled({"GGGG": f"{iso.year:04d}", "WW": f"{iso.week:02d}"}))
    if 1600 <= iso.year <= 9998:
        assert isinstance(found, Named)
        assert found.key.text == f"{iso.year:04d}-W{iso.week:02d}"
