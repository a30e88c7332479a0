"""How verbs speak: one JSON document or people's text on stdout, everything else on stderr. No verb's words are here.

Text of producers is data: control characters in it are shown as escapes, never sent to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import click

from valuestream_dagster.errors import ConfigurationInvalid, ValueStreamError, is_interrupt

NOW_VARIABLE = "VALUESTREAM_NOW"
TRACEBACK_VARIABLE = "VALUESTREAM_TRACEBACK"
INTERNAL_ERROR = 3
INTERRUPTED = 130
_COLOURS = {
    "healthy": "green", "waiting_for_next": "green", "idle": "cyan", "ready": "green", "accepted": "green",
    "blocked": "red", "refused": "red", "rejected": "red", "conflict": "red", "failed": "red", "held": "red",
    "waiting": "yellow", "superseded": "yellow", "interrupted": "yellow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """Where one verb's words go."""

    as_json: bool

    def document(self, body: Mapping[str, object]) -> None:
        """The verb's one JSON document."""
        dated: dict[str, object] = {"generated_at": moment_text(now())}
        if os.environ.get(NOW_VARIABLE):
            dated["now_is_fixed"] = True
        sys.stdout.write(json.dumps({**dated, **body}, indent=1, default=json_value) + "\n")

    def line(self, text: str = "", *, colour: str | None = None) -> None:
        """A line for people: on stdout, or beside the document on stderr."""
        click.echo(paint(one_line(text), colour, error=self.as_json), err=self.as_json)

    def note(self, text: str) -> None:
        """A line beside the report, on stderr."""
        click.echo(shown(text), err=True)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows under heads: drawn on a terminal, aligned text elsewhere."""
        texts = [[cell_text(value) for value in row] for row in rows]
        if sys.stdout.isatty():
            _drawn(heads, texts)
        else:
            _aligned(heads, texts)


def _drawn(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(text, style=_COLOURS.get(text, "")) for text in row))
    Console(file=sys.stdout).print(table)


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    for row in [heads, *rows]:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def paint(text: str, colour: str | None, *, error: bool = False) -> str:
    """Text in colour where it goes to a terminal whose owner wants colours."""
    stream = sys.stderr if error else sys.stdout
    plain = colour is None or not stream.isatty() or os.environ.get("NO_COLOR")
    return text if plain else click.style(text, fg=_COLOURS.get(colour or ""))


def one_line(text: str) -> str:
    """Text that is safe on a terminal and stays one line: a producer's name may hold a line break, and must not forge a line."""
    return shown(text.replace("\n", "\\n"))


def shown(text: str) -> str:
    """Text that is safe on a terminal and in any encoding; line breaks stay."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cs", "Cf"}
        else escaped(character)
        for character in text
    )


def escaped(character: str) -> str:
    """A character as the escape that names it."""
    return character.encode("unicode_escape").decode("ascii")


def counted(number: int, thing: str, things: str | None = None) -> str:
    """``1 file``, ``2 files``; ``things`` where the plural is not made by an s."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def cell_text(value: object) -> str:
    """A value as one line of a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return one_line(str(json_value(value)) if isinstance(value, datetime) else str(value))


def json_value(value: Any) -> object:
    """A value that JSON has no form for: exact numbers and dates as text."""
    match value:
        case datetime():
            return moment_text(value)
        case date() | time() | Decimal():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case set() | frozenset() | tuple():
            return list(value)
        case _:
            return str(value)


def moment_text(moment: datetime) -> str:
    """An instant as ISO text in UTC; a time without a zone stays one."""
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def now() -> datetime:
    """The clock that reports are dated by; a fixed reading that is none has been refused elsewhere."""
    try:
        fixed = datetime.fromisoformat(os.environ.get(NOW_VARIABLE) or "")
    except ValueError:
        return datetime.now(UTC)
    return fixed if fixed.tzinfo else fixed.replace(tzinfo=UTC)


def report_error(
    code: str, message: str, next_step: str, *, as_json: bool, more: Mapping[str, object] | None = None
) -> None:
    """Say why a verb stopped: a sentence on stderr, and the document where one was asked for."""
    click.echo(f"valuestream: {paint(shown(message), 'failed', error=True)}", err=True)
    if next_step:
        click.echo(shown(f"next: {next_step}"), err=True)
    if as_json:
        Output(as_json=True).document({"error": {"code": code, "message": message, "next": next_step, **(more or {})}})


def report_interrupt(*, as_json: bool) -> int:
    """Say that Ctrl-C ended a verb; the exit code."""
    report_error("interrupted", "interrupted.", "run it again; what was recorded is kept.", as_json=as_json)
    return INTERRUPTED


def report_exception(error: Exception, *, as_json: bool) -> int:
    """Say what stopped a verb, whose fault it is, and what to do; returns the exit code. Never a traceback unasked."""
    if os.environ.get(TRACEBACK_VARIABLE) and not isinstance(error, click.ClickException):
        traceback.print_exception(error, file=sys.stderr)
    match error:
        case click.ClickException():
            context = error.ctx if isinstance(error, click.UsageError) else None
            hint = f"see `{context.command_path} --help`." if context else "see `valuestream --help`."
            report_error("wrong_use", error.format_message(), hint, as_json=as_json)
            return 2
        case ConfigurationInvalid():
            more = {"findings": [finding_document(finding) for finding in error.findings]}
            report_error(error.kind, error.message, error.next_step, as_json=as_json, more=more)
            return error.exit_code
        case ValueStreamError() if error.exit_code != INTERNAL_ERROR:
            report_error(error.kind, error.message, error.next_step, as_json=as_json)
            return error.exit_code
        case OSError() if error.strerror:
            where = f" ({os.fsdecode(error.filename)})" if error.filename is not None else ""
            report_error(
                "system_refused", f"{error.strerror}{where}.", "free space or correct the permissions, then try again.",
                as_json=as_json,
            )  # fmt: skip
            return 1
        case _ if is_interrupt(type(error).__name__, str(error)):
            return report_interrupt(as_json=as_json)
        case _:
            said = " ".join(str(error).split())
            report_error(
                "internal", f"internal error: {type(error).__name__}: {said}, please report",
                f"set {TRACEBACK_VARIABLE}=1 for the traceback.", as_json=as_json,
            )  # fmt: skip
            return INTERNAL_ERROR


def finding_document(finding: object) -> dict[str, object]:
    """A configuration finding as fields."""
    return {name: getattr(finding, name) for name in ("file", "line", "message", "instead")}
