"""The single values of a feed file: what a name, a glob, a type, a condition may be. How they go together is not here.

Each is an annotated type whose refusal says what to write instead.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator

from valuestream_dagster.core.calendar import DUE_FORMS, parse_due
from valuestream_dagster.core.globs import glob_fault
from valuestream_dagster.feeds.closed_model import refuse
from valuestream_dagster.feeds.column_types import canonical_type

CONDITION_LIMIT = 2000
RESERVED_SOURCES = frozenset({"valuestream", "information_schema", "pg_catalog", "system", "temp"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TAG_KEY = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_OWNER = re.compile(r"team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ENCODINGS = {
    "utf-8": "utf-8", "utf8": "utf-8", "latin-1": "latin-1", "latin1": "latin-1", "iso-8859-1": "latin-1",
    "utf-16": "utf-16", "utf16": "utf-16",
}  # fmt: skip


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        refuse(
            f"`{text[:80]}` is no name: at most 64 letters, digits, `_`, `.` and `-`, beginning with a letter or digit",
            "e.g. acme_orders",
        )
    return text


def _source(text: str) -> str:
    if text.lower() in RESERVED_SOURCES:
        refuse(f"the source `{text}` is a schema of the catalogue's own", f"another name, e.g. {text}_data")
    return _name(text)


def _dataset(text: str) -> str:
    if text.lower().endswith("__all"):
        refuse(
            f"the dataset `{text}` ends with `__all`, which names the catalogue's view of all rows", text[:-5] or "data"
        )
    return _name(text)


def _owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        refuse(f"the owner `{text[:80]}` is neither an email address nor a team", "e.g. team:data or ann@example.org")
    return text


def _tag_key(text: str) -> str:
    if not _TAG_KEY.fullmatch(text):
        refuse(f"`{text[:80]}` is no tag: letters, digits, `_`, `.` and `-`, at most 63", "e.g. domain")
    return text


def _landing(text: str) -> str:
    scheme, found, rest = text.partition("://")
    if not found:
        if not text.strip() or "\x00" in text:
            refuse("the landing place is empty", "landing: landing/acme/orders")
        return text
    if scheme != "s3":
        refuse(f"the landing place's scheme `{scheme}://` is not built", "a folder, or s3://bucket/prefix")
    if not _BUCKET.fullmatch(rest.partition("/")[0]):
        refuse("the landing place names no bucket", "s3://bucket/prefix")
    return text


def _glob(text: str) -> str:
    fault = glob_fault(text)
    if fault:
        refuse(f"`{text[:80]}`: {fault}", '"**/*.manifest.json"')
    return text


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError):
        near = get_close_matches(text, available_timezones(), 1, 0.6)
        refuse(f"there is no time zone `{text[:80]}`", near[0] if near else "e.g. Europe/Brussels or UTC")
    return text


def _due(text: str) -> str:
    if parse_due(text) is None:
        refuse(f"`{text[:80]}` is no due time", DUE_FORMS)
    return text


def _character(text: str) -> str:
    if len(text) != 1 or text in "\r\n\x00":
        refuse(f"{text[:20]!r} is not one character", 'one character, e.g. ";"')
    return text


def _optional_character(text: str) -> str:
    return _character(text) if text else text


def _encoding(text: str) -> str:
    known = _ENCODINGS.get(text.lower().replace("_", "-"))
    if known is None:
        refuse(f"the encoding `{text[:80]}` is not built in this version", "utf-8, latin-1 or utf-16")
    return known


def _null_text(text: str) -> str:
    if "\n" in text or "\r" in text:
        refuse("a text that means NULL has no line breaks", 'null: ["", "NA"]')
    return text


def _column_name(text: str) -> str:
    if text.startswith("_"):
        refuse(
            f"the column `{text[:80]}` begins with `_`, as the columns that valuestream adds do", "a name without it"
        )
    if not text.strip() or len(text) > 255 or not text.isprintable():
        refuse(f"{text[:80]!r} is no column name", "1 to 255 printable characters")
    return text


def _column_type(text: str) -> str:
    try:
        return canonical_type(text)
    except ValueError as error:
        refuse(str(error))


def _condition(text: str) -> str:
    """Only what cannot be one boolean expression; whether it is one, the reader of rows finds out."""
    if not text.strip() or len(text) > CONDITION_LIMIT:
        refuse(f"a condition has 1 to {CONDITION_LIMIT} characters", "delete_when: \"op = 'D'\"")
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", " ", text)
    if "'" in bare or '"' in bare:
        refuse("the condition has an unbalanced quote", "delete_when: \"op = 'D'\"")
    if ";" in bare or "--" in bare or "/*" in bare or "\x00" in text or "$" in bare:
        refuse("the condition is one SQL expression, without `;`, comments and `$`", "delete_when: \"op = 'D'\"")
    if not _balanced(bare):
        refuse("the condition has unbalanced brackets", "delete_when: \"op = 'D'\"")
    if re.match(r"\s*(select|with|insert|update|delete|drop|copy|attach|create)\b", bare, re.IGNORECASE):
        refuse("the condition is an expression, not a statement", "delete_when: \"op = 'D'\"")
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _url(text: str) -> str:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://\S", text):
        refuse("a notification place is a URL", "e.g. json://localhost:8080/hook or ${ALERT_URL}")
    return text


SourceName = Annotated[str, AfterValidator(_source)]
DatasetName = Annotated[str, AfterValidator(_dataset)]
Owner = Annotated[str, AfterValidator(_owner)]
TagKey = Annotated[str, AfterValidator(_tag_key)]
Landing = Annotated[str, AfterValidator(_landing)]
Globs = tuple[Annotated[str, AfterValidator(_glob)], ...]
Timezone = Annotated[str, AfterValidator(_timezone)]
DueText = Annotated[str, AfterValidator(_due)]
Character = Annotated[str, AfterValidator(_character)]
OptionalCharacter = Annotated[str, AfterValidator(_optional_character)]
Encoding = Annotated[str, AfterValidator(_encoding)]
NullText = Annotated[str, AfterValidator(_null_text)]
ColumnName = Annotated[str, AfterValidator(_column_name)]
ColumnType = Annotated[str, AfterValidator(_column_type)]
Condition = Annotated[str, AfterValidator(_condition)]
NotificationUrls = tuple[Annotated[str, AfterValidator(_url)], ...]
