"""What a producer states of a delivery: its manifest as a value and as the bytes of a native manifest. Pure.

Every manifest is read back by the receiving side's own parser first, so that none is ever refused for
its form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from valuestream_dagster.core.manifest import Kind, UnusableManifest
from valuestream_dagster.core.rows import CsvFormat
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, KeyProblem, Sequence, SequenceKey
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.manifests import native

_FORMS: tuple[Sequence, ...] = (IntegerSequence(), *(DatedSequence(cadence) for cadence in Cadence))
_KEY_FORMS = "write a date with its zeros (2026-09-01, 2026-W09, 2026-09, 2026-Q3, 2026-09-01T05), or an integer."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """What is said of every delivery of one packing.

    Args:
        source: who delivers.
        dataset: what kind of thing.
        kind: full or delta.
        revision: from 1; a later one supersedes.
        predecessor: key of the delivery that this one follows, if it is to be said.
        totals: CSV columns whose exact sums are stated.
        count_rows: state the number of records of each CSV file.
        delimiter: of the CSV files.
        null: unquoted texts that stand for no value, for sums and for the key's SQL.
        name_prefix: put before the payload's names.
        created_at: what the manifest says of its making; None: nothing.
    """

    source: str
    dataset: str
    kind: Kind = Kind.FULL
    revision: int = 1
    predecessor: str | None = None
    totals: tuple[str, ...] = ()
    count_rows: bool = True
    delimiter: str = ","
    null: tuple[str, ...] = ("",)
    name_prefix: str = ""
    created_at: datetime | None = None

    @property
    def csv(self) -> CsvFormat:
        """The dialect of the CSV files."""
        return CsvFormat(delimiter=self.delimiter, null=self.null)


@dataclass(frozen=True, slots=True)
class StatedFile:
    """One payload file as the manifest states it; ``rows`` is None where they were not counted."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class KeyForm:
    """The order that some keys belong to, and each key by the text that was given for it."""

    sequence: Sequence
    keys: dict[str, SequenceKey]


def key_form(texts: Iterable[str]) -> KeyForm:
    """The first form of key that all texts have.

    Raises:
        WrongUse: they have none in common.
    """
    given = tuple(dict.fromkeys(texts))
    nearest: list[KeyProblem] = []
    for sequence in _FORMS:
        parsed = {text: sequence.parse(text) for text in given}
        keys = {text: key for text, key in parsed.items() if isinstance(key, SequenceKey)}
        if len(keys) == len(given):
            return KeyForm(sequence, keys)
        problems = [problem for problem in parsed.values() if isinstance(problem, KeyProblem)]
        # What to tell: the form that most texts have, and of those a date that does not exist.
        nearest = min(nearest or problems, problems, key=lambda faults: (len(faults), faults[0].code != "invalid_date"))
    worst = nearest[0]
    why = worst.detail if worst.code == "invalid_date" or len(given) > 1 else "it is neither a date nor an integer"
    raise WrongUse(f"{worst.text[:80]!r} is no sequence key: {why}.", next_step=_KEY_FORMS)


def file_stem(options: PackOptions, key: SequenceKey) -> str:
    """How files that belong to one delivery are called: ``orders-2026-09-02-r1``."""
    kind = "-delta" if options.kind is Kind.DELTA else ""
    return f"{options.dataset}-{key}{kind}-r{options.revision}"


def manifest_name(options: PackOptions, key: SequenceKey) -> str:
    """The manifest's file name."""
    return f"{file_stem(options, key)}.manifest.json"


def check_options(options: PackOptions) -> None:
    """Refuse what no feed could take.

    Raises:
        WrongUse: a name, revision or delimiter that is none.
    """
    for what, name in (("source", options.source), ("dataset", options.dataset)):
        if not _NAME.fullmatch(name):
            raise WrongUse(
                f"the {what} {name[:80]!r} is no name.", next_step="write letters, digits, `_`, `.` and `-`, e.g. acme."
            )
    if options.revision < 1:
        raise WrongUse(f"the revision {options.revision} is none.", next_step="write an integer from 1.")
    if len(options.delimiter) != 1 or not options.delimiter.isascii() or options.delimiter in '"\r\n':
        raise WrongUse(f"the delimiter {options.delimiter!r} is not one character.", next_step='write e.g. ";".')


def manifest_bytes(
    options: PackOptions,
    form: KeyForm,
    key: SequenceKey,
    files: Collection[StatedFile],
    totals: dict[str, Decimal],
) -> bytes:
    """The native manifest of one delivery; no files means that it is empty and says so.

    Raises:
        WrongUse: the receiving side would not take it, with all that is wrong.
    """
    predecessor = options.predecessor and key_form([options.predecessor]).keys[options.predecessor].text
    counted = [file.rows for file in files if file.rows is not None]
    rows = sum(counted) if len(counted) == len(files) else None
    controls = {"rows": rows, "totals": {column: f"{total:f}" for column, total in totals.items()} or None}
    raw = {
        "source": options.source,
        "dataset": options.dataset,
        "sequence" if isinstance(form.sequence, IntegerSequence) else "period": key.text,
        "revision": options.revision,
        "kind": options.kind.value,
        "empty": True if not files else None,
        "predecessor": {"period": predecessor} if predecessor else None,
        "files": [
            _known({"path": file.path, "bytes": file.bytes, "sha256": file.sha256, "rows": file.rows}) for file in files
        ],
        "controls": _known(controls) or None,
        "created_at": _moment(options.created_at),
    }
    data = (json.dumps(_known(raw), indent=1, ensure_ascii=True) + "\n").encode("ascii")
    _prove(data, options, form, len(files))
    return data


def _known(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _prove(data: bytes, options: PackOptions, form: KeyForm, files: int) -> None:
    read = native.parse(
        data,
        sequence=form.sequence,
        source=options.source,
        dataset=options.dataset,
        default_kind=options.kind,
        entries_limit=max(files, 1),
    )
    if isinstance(read, UnusableManifest):
        faults = "; ".join(str(finding) for finding in read.findings[:5])
        raise WrongUse(f"no feed would take this delivery: {faults}.", next_step="rename the files, then pack again.")


def same_statement(one: bytes, two: bytes) -> bool:
    """Whether two manifests state the same but for the time of their making."""
    if one == two:
        return True
    try:
        first, second = json.loads(one), json.loads(two)
    except ValueError:
        return False
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return False
    return {**first, "created_at": None} == {**second, "created_at": None}
