"""What a name says of a delivery: ``sequence.pattern`` over the path below ``landing``, matched and written. Names only.

Reading is total (C24): every name is a ``Named`` or a ``NameProblem`` with a code of C25, never an exception. Producers choose
names, so matching must not depend on their luck: a place in the name is tried once for each piece of the pattern, and never again.
What a pattern may be is said in ``pattern_text``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from valuestream_dagster.core.manifest import Kind, path_fault
from valuestream_dagster.core.pattern_text import (
    COUNTS,
    DATE_WIDTHS,
    DAY,
    DIGITS,
    KIND_WORDS,
    Field,
    PatternFault,
    Piece,
    Text,
    Wildcard,
    pieces_of,
)
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, KeyProblem, Sequence, SequenceKey

# A look reads every name of a feed without manifests, and most looks find the names of the look before.
NAMES_REMEMBERED = 32_768
PATTERNS_REMEMBERED = 256

_ROLE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


@dataclass(frozen=True, slots=True)
class Named:
    """What one name says; None where the pattern does not ask.

    Args:
        key: the sequence key.
        revision: from 1.
        kind: full or delta.
        part: number of the file within its delivery.
        parts: how many parts there are.
        role: what the file is within its delivery.
        fields: every field as it is spelled in the name.
    """

    key: SequenceKey
    revision: int | None = None
    kind: Kind | None = None
    part: int | None = None
    parts: int | None = None
    role: str | None = None
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NameProblem:
    """A name that states no delivery (C25): ``pattern_mismatch``, ``invalid_date`` or ``invalid_integer``, and why."""

    code: str
    expected: str
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class NamePattern:
    """A compiled pattern; the same text is one object, so that a name is read once however often it is listed.

    Args:
        text: as it is declared.
        pieces: what it is made of, in order.
        sequence: the feed's keys.
    """

    text: str
    pieces: tuple[Piece, ...]
    sequence: Sequence

    def asks(self, name: str) -> bool:
        """Whether the pattern has a field of that name."""
        return any(isinstance(piece, Field) and piece.name == name for piece in self.pieces)

    def read(self, path: str) -> Named | NameProblem:
        """What a path below the landing place says, or why it says nothing (C24, C25).

        Args:
            path: with forward slashes; NFC and NFD spellings are one name (ruling 14).
        """
        return _read(self, path)

    def _read(self, path: str) -> Named | NameProblem:
        if (unsafe := path_fault(path)) is not None:
            return self._problem("pattern_mismatch", f"the name cannot be used: {unsafe}")
        name = unicodedata.normalize("NFC", path)
        spelled = _matched(self.pieces, name, loose=False)
        if spelled is None:
            return self._unmatched(name)
        fields = dict(spelled)
        for field, text in spelled:
            # One field in several places (a folder per month, say) must say one thing.
            if not _same(field, fields[field], text):
                return self._problem(_code(field), f"it says {field} twice, as {text} and as {fields[field]}")
        if (fault := _impossible(fields)) is not None:
            return self._problem(fault[0], fault[1])
        key = self.sequence.parse(self._key_text(fields))
        if isinstance(key, KeyProblem):
            return self._problem(key.code, key.detail)
        return Named(
            key,
            revision=_number(fields, "revision"),
            kind=KIND_WORDS[fields["kind"].lower()] if "kind" in fields else None,
            part=_number(fields, "part"),
            parts=_number(fields, "parts"),
            role=fields.get("role"),
            fields=spelled,
        )

    def spelled(self, fields: Mapping[str, str]) -> str:
        """The name that says these fields; numbers are padded to the pattern's width, ``{*}`` is shown as ``*``.

        Args:
            fields: the text of every field that the pattern asks for; ``seq`` as one number.
        """
        digits = _groups(fields.get("seq", "").lstrip("0"), self._seq_widths())
        name = ""
        for piece in self.pieces:
            match piece:
                case Text(text):
                    name += text
                case Wildcard():
                    name += "*"
                case Field(field, least, _):
                    text = next(digits) if field == "seq" else fields[field]
                    name += text.zfill(least) if field not in {"role", "kind"} else text
        return name

    def _seq_widths(self) -> list[int]:
        return [piece.least for piece in self.pieces if isinstance(piece, Field) and piece.name == "seq"]

    def _problem(self, code: str, detail: str) -> NameProblem:
        return NameProblem(code, self.text, detail)

    def _unmatched(self, name: str) -> NameProblem:
        """A name that would fit but for letters where digits belong says which; S20, C27."""
        for field, text in _matched(self.pieces, name, loose=True) or ():
            if field not in {"role", "kind"} and not DIGITS.issuperset(text):
                return self._problem(_code(field), f"{text!r} stands where the digits of {field} belong")
        return self._problem("pattern_mismatch", "the name is not of this form")

    def _key_text(self, fields: Mapping[str, str]) -> str:
        match self.sequence:
            case IntegerSequence():
                return fields["seq"]
            case DatedSequence(cadence):
                return _period(cadence, fields)


@lru_cache(NAMES_REMEMBERED)
def _read(pattern: NamePattern, path: str) -> Named | NameProblem:
    return pattern._read(path)  # noqa: SLF001 - the memory beside the method


@lru_cache(PATTERNS_REMEMBERED)
def compile_pattern(text: str, sequence: Sequence) -> NamePattern | PatternFault:
    """The pattern that a text states, or why it is none.

    Args:
        text: ``sequence.pattern`` of the feed file.
        sequence: the feed's keys; the pattern must say one.
    """
    pieces = pieces_of(text, sequence)
    return pieces if isinstance(pieces, PatternFault) else NamePattern(text, pieces, sequence)


_Trail = tuple[str, int, int, "_Trail | None"]


def _matched(pieces: tuple[Piece, ...], name: str, *, loose: bool) -> tuple[tuple[str, str], ...] | None:
    """Every field with its text, in the pattern's order, or None. Each (piece, place) is looked at once: linear in the name.

    ``loose``: other characters may stand where digits belong, to say what is wrong with a name.
    """
    todo: list[tuple[int, int, _Trail | None]] = [(0, 0, None)]
    seen: set[tuple[int, int]] = set()
    while todo:
        number, place, trail = todo.pop()
        if number == len(pieces):
            if place == len(name):
                return _texts(name, trail)
            continue
        if (number, place) in seen:
            continue
        seen.add((number, place))
        match pieces[number]:
            case Text(text):
                if name.startswith(text, place):
                    todo.append((number + 1, place + len(text), trail))
            case Wildcard():
                if place < len(name) and name[place] != "/":
                    todo.append((number, place + 1, trail))
                todo.append((number + 1, place, trail))  # on top: the shortest is tried first
            case Field() as field:  # the longest is tried first
                todo += [(number + 1, end, (field.name, place, end, trail)) for end in _ends(field, name, place, loose=loose)]
    return None


def _ends(field: Field, name: str, place: int, *, loose: bool) -> Iterator[int]:
    """Where a field that begins at a place may end, the nearest first."""
    if field.name == "kind":
        yield from (place + len(word) for word in KIND_WORDS if name[place : place + len(word)].lower() == word)
        return
    allowed = _ROLE if field.name == "role" else DIGITS
    for end in range(place + 1, min(place + field.most, len(name)) + 1):
        if name[end - 1] == "/" or not (loose or name[end - 1] in allowed):
            return
        if end - place >= field.least:
            yield end


def _texts(name: str, trail: _Trail | None) -> tuple[tuple[str, str], ...]:
    """The fields on the way of a match; the groups of a number as one."""
    found: list[tuple[str, str]] = []
    while trail is not None:
        field, start, end, trail = trail
        found.append((field, name[start:end]))
    found.reverse()
    number = "".join(text for field, text in found if field == "seq")
    rest = [(field, text) for field, text in found if field != "seq"]
    return tuple([("seq", number), *rest] if number else rest)


def _groups(number: str, widths: list[int]) -> Iterator[str]:
    """A number cut into groups from its end; the first takes what is left."""
    cut = len(number)
    groups: list[str] = []
    for width in widths[:0:-1]:
        groups.append(number[max(0, cut - width) : cut])
        cut = max(0, cut - width)
    return iter([number[:cut], *groups[::-1]])


def _code(field: str) -> str:
    if field in DATE_WIDTHS:
        return "invalid_date"
    return "invalid_integer" if field == "seq" or field in COUNTS else "pattern_mismatch"


def _same(field: str, one: str, two: str) -> bool:
    if field in DATE_WIDTHS or field in COUNTS:
        return int(one) == int(two)
    return one.lower() == two.lower() if field == "kind" else one == two


def _number(fields: Mapping[str, str], name: str) -> int | None:
    return int(fields[name]) if name in fields else None


def _impossible(fields: Mapping[str, str]) -> tuple[str, str] | None:
    """Code and sentence of what no calendar and no count has, whether or not the key needs it."""
    for name, most in (("MM", 12), ("HH", 23), ("mm", 59), ("Q", 4)):
        least = 1 if name in {"MM", "Q"} else 0
        if name in fields and not least <= int(fields[name]) <= most:
            return "invalid_date", f"{fields[name]} is no {name} of a date"
    try:
        day = date(*(int(fields[name]) for name in ("YYYY", "MM", "DD"))) if fields.keys() >= DAY else None
        week = date.fromisocalendar(int(fields["GGGG"]), int(fields["WW"]), 1) if "WW" in fields else None
    except ValueError as error:
        said = "-".join(text for field, text in fields.items() if field in DATE_WIDTHS)
        return "invalid_date", f"{said} does not exist: {error}"
    if day and week and day.isocalendar()[:2] != week.isocalendar()[:2]:
        return "invalid_date", f"{day} does not lie in the week that it says"
    if "Q" in fields and "MM" in fields and (int(fields["MM"]) + 2) // 3 != int(fields["Q"]):
        return "invalid_date", f"month {fields['MM']} does not lie in quarter {fields['Q']}"
    revision, part, parts = (_number(fields, name) for name in ("revision", "part", "parts"))
    if revision == 0:
        return "invalid_integer", "revisions count from 1"
    if part is not None and parts is not None and not 1 <= part <= parts:
        return "invalid_integer", f"there is no part {part} of {parts}; parts count from 1"
    return None


def _period(cadence: Cadence, fields: Mapping[str, str]) -> str:
    """The text of the key: the period of the cadence in which the named date lies."""
    year = fields.get("YYYY", "")
    match cadence:
        case Cadence.HOURLY:
            return f"{year}-{fields['MM']}-{fields['DD']}T{fields['HH']}"
        case Cadence.DAILY:
            return f"{year}-{fields['MM']}-{fields['DD']}"
        case Cadence.WEEKLY if "WW" in fields:
            return f"{fields['GGGG']}-W{fields['WW']}"
        case Cadence.WEEKLY:
            iso = date(int(year), int(fields["MM"]), int(fields["DD"])).isocalendar()
            return f"{iso.year:04d}-W{iso.week:02d}"
        case Cadence.MONTHLY:
            return f"{year}-{fields['MM']}"
        case Cadence.QUARTERLY:
            return f"{year}-Q{fields.get('Q') or (int(fields['MM']) + 2) // 3}"
        case Cadence.YEARLY:
            return year
