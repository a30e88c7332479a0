"""The text of ``sequence.pattern`` taken apart: its pieces, or why it is no usable pattern. No names are read here.

Fields: ``{date:YYYYMMDD}`` (YYYY MM DD HH mm Q, GGGG WW, letters in square brackets), ``{seq}``, ``{seq:000}`` (at least so many
digits), ``{seq:000/000}`` (groups), ``{revision}``, ``{kind}``, ``{part}``, ``{parts}``, ``{role}``; ``{*}``: anything in a folder.
What could be read in two ways is refused, so that a name has one meaning (L2).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence

PATTERN_LIMIT = 256
WILDCARDS_LIMIT = 8
FIELDS = ("date:YYYYMMDD", "seq", "seq:000", "revision", "kind", "part", "parts", "role", "*")
KIND_WORDS = {"full": Kind.FULL, "delta": Kind.DELTA, "update": Kind.DELTA}
DATE_WIDTHS = {"YYYY": 4, "GGGG": 4, "MM": 2, "DD": 2, "HH": 2, "mm": 2, "WW": 2, "Q": 1}
COUNTS = {"revision": (1, 9), "part": (1, 9), "parts": (1, 9)}
DIGITS = frozenset("0123456789")
DAY = frozenset({"YYYY", "MM", "DD"})

_DATE_TOKEN = re.compile(r"\[([^\]]*)\]|YYYY|GGGG|MM|DD|HH|mm|WW|Q|[^A-Za-z\[\]{}]+")
_WORDS = frozenset({"role", "kind"})
# What a name must say for a key of the cadence; one of the sets is enough.
_NEEDS: Mapping[Cadence, tuple[frozenset[str], ...]] = {
    Cadence.HOURLY: (DAY | {"HH"},),
    Cadence.DAILY: (DAY,),
    Cadence.WEEKLY: (frozenset({"GGGG", "WW"}), DAY),
    Cadence.MONTHLY: (frozenset({"YYYY", "MM"}),),
    Cadence.QUARTERLY: (frozenset({"YYYY", "Q"}), frozenset({"YYYY", "MM"})),
    Cadence.YEARLY: (frozenset({"YYYY"}),),
}


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text of a pattern."""

    text: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """``{*}``: any text within one folder, none included."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field, or one of its parts: digits, ``role`` or ``kind``. ``least`` and ``most``: how many characters it has."""

    name: str
    least: int
    most: int


Piece = Text | Wildcard | Field


@dataclass(frozen=True, slots=True)
class PatternFault:
    """Why a text is no usable pattern, and what to write instead."""

    detail: str
    instead: str


def pieces_of(text: str, sequence: Sequence) -> tuple[Piece, ...] | PatternFault:
    """What a pattern is made of, in order, or why it is none.

    Args:
        text: ``sequence.pattern`` of the feed file.
        sequence: the feed's keys; the pattern must say one.
    """
    if not text or len(text) > PATTERN_LIMIT:
        return PatternFault(f"a pattern has 1 to {PATTERN_LIMIT} characters", '"orders-{date:YYYYMMDD}.csv"')
    if text.startswith("/") or "\\" in text or ".." in text.split("/"):
        return PatternFault("a pattern is relative to the landing place and uses forward slashes", text.strip("/"))
    if len(re.findall(r"\{seq[:}]", text)) > 1:
        return PatternFault("`{seq}` stands twice", "{seq} once, and {*} for what repeats it")
    pieces: list[Piece] = []
    for token in re.findall(r"\{[^{}]*\}|[^{}]+|[{}]", unicodedata.normalize("NFC", text)):
        found = _field(token) if token.startswith("{") or token == "}" else [Text(token)]
        if isinstance(found, PatternFault):
            return found
        pieces += found
    joined = tuple(_joined(pieces))
    return _fault_of(joined, sequence) or _ambiguity(joined) or joined


def _field(token: str) -> list[Piece] | PatternFault:
    """The pieces of one ``{...}``."""
    name, colon, form = token.strip("{}").partition(":")
    if token in {"{", "}"} or (colon and name not in {"date", "seq"}) or (name == "date" and not form):
        return PatternFault(f"`{token}` is no field", "one of " + ", ".join(f"{{{field}}}" for field in FIELDS))
    if name == "*":
        return [Wildcard()]
    if name == "date":
        return _date_pieces(form)
    if name == "seq":
        return _seq_pieces(form) if colon else [Field("seq", 1, 18)]
    if name == "kind":
        return [Field(name, 1, max(map(len, KIND_WORDS)))]
    if name == "role":
        return [Field(name, 1, 64)]
    if name in COUNTS:
        return [Field(name, *COUNTS[name])]
    if name == "series":
        return PatternFault("`{series}` is part of the design and not built in this version", "a pattern without it")
    near = get_close_matches(name, [field.partition(":")[0] for field in FIELDS], 1, 0.6)
    return PatternFault(f"`{token[:80]}` is no field", f"{{{near[0]}}}" if near else "one of " + ", ".join(FIELDS))


def _date_pieces(form: str) -> list[Piece] | PatternFault:
    pieces: list[Piece] = []
    place = 0
    while place < len(form):
        found = _DATE_TOKEN.match(form, place)
        if found is None:
            what = f"`{form[place:]}` in `{{date:{form}}}` is no part of a date"
            return PatternFault(what, "YYYY MM DD HH mm Q, GGGG WW, and other letters in square brackets, as [W]")
        width = DATE_WIDTHS.get(found[0])
        text = found[0] if found[1] is None else found[1]
        pieces.append(Field(found[0], width, width) if width else Text(text))
        place = found.end()
    return pieces


def _seq_pieces(form: str) -> list[Piece] | PatternFault:
    """Groups of digits: the first may grow (998, 999, 1000), the others have the width that they are written with."""
    groups = re.split(r"([^0])", form)
    digits = sum(map(len, groups[::2]))
    if not all(groups[::2]) or digits > 18:
        what = f"`{{seq:{form}}}` is no number: zeros, or groups of zeros, 18 at most"
        return PatternFault(what, "{seq:000} or {seq:000/000/000}")
    pieces: list[Piece] = [Field("seq", len(groups[0]), 18 - digits + len(groups[0]))]
    for between, group in zip(groups[1::2], groups[2::2], strict=True):
        pieces += [Text(between), Field("seq", len(group), len(group))]
    return pieces


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """Neighbouring texts as one, empty ones left out, wildcards beside each other as one."""
    text = ""
    last: Piece | None = None
    for piece in pieces:
        if isinstance(piece, Text):
            text += piece.text
            continue
        if text:
            yield Text(text)
            last, text = None, ""
        if not (isinstance(piece, Wildcard) and isinstance(last, Wildcard)):
            yield piece
        last = piece
    if text:
        yield Text(text)


def _fault_of(pieces: tuple[Piece, ...], sequence: Sequence) -> PatternFault | None:
    """What the pieces do wrong together: no key, or a name that could be read in two ways."""
    fields = {piece.name for piece in pieces if isinstance(piece, Field)}
    if sum(isinstance(piece, Wildcard) for piece in pieces) > WILDCARDS_LIMIT:
        return PatternFault(f"more than {WILDCARDS_LIMIT} times `{{*}}`", "the text itself")
    if "WW" in fields and "GGGG" not in fields:
        return PatternFault("an ISO week has a year of its own, which is not always the calendar's", "{date:GGGG-[W]WW}")
    match sequence:
        case IntegerSequence() if "seq" not in fields:
            return PatternFault("it names no integer key", "{seq} where the number stands")
        case DatedSequence(cadence) if not any(need <= fields for need in _NEEDS[cadence]):
            forms = " or ".join(" ".join(sorted(need, key=list(DATE_WIDTHS).index)) for need in _NEEDS[cadence])
            return PatternFault(f"it does not name a {cadence} key: that needs {forms}", "{date:...} with them")
        case DatedSequence() if "seq" in fields:
            return PatternFault("`{seq}` is for integer keys", "{part}, {revision} or {*}")
        case _:
            return None


def _ambiguity(pieces: tuple[Piece, ...]) -> PatternFault | None:
    """Two neighbours of which nobody can say where one ends; digits of a fixed width are always clear."""
    for one, two in pairwise(pieces):
        if not isinstance(one, Field) or one.least == one.most:
            continue
        match two:
            case Field(after):
                pass
            case Text(after) if after[0] in DIGITS and one.name not in _WORDS:
                pass
            case _:
                continue
        return PatternFault(f"where {one.name} ends and {after} begins cannot be told", "a `-` between them")
    return None
