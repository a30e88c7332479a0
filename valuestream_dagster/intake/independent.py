"""Independent controls: counts and totals that were obtained from somebody else than the delivery's own export (M8).

They stand in a CSV of the deployment, one line per key: ``key,rows,<column>,...``; an empty field says nothing. Agreement shows
that two sources say the same number, and is told apart from the manifest's own counts, which come from the same export.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path

from valuestream_dagster.core.decision import Held
from valuestream_dagster.core.rows import IndependentControl, MeasuredRows
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import StoreFailure

CODE = "independent_control_differs"
LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Compared:
    """What an independent control says of a delivery: in words, and why a person must see it where it differs."""

    told: str
    hold: Held | None = None


def compare(control: IndependentControl, key: SequenceKey, measured: MeasuredRows) -> Compared:
    """Compare a delivery with what was obtained independently. Costs one reading of the file per change of it.

    Args:
        control: where it stands and what of it is compared.
        key: the delivery's.
        measured: what was counted in it.

    Raises:
        StoreFailure: the file cannot be read, or holds no numbers: nothing is accepted unchecked.
    """
    line = _lines(control).get(key.text)
    source = f"independent control ({control.obtained})" if control.obtained else "independent control"
    if line is None:
        return Compared(f"{source}: nothing is known of {key}; only the producer's own counts were compared")
    agreed: list[str] = []
    for name, wanted, found in _wanted(control, line, measured):
        if wanted != found:
            return Compared(
                f"{source}: {name} is {wanted} there and {found} in the delivery",
                Held(CODE, f"by the {source} {name} is {wanted}, in the delivery it is {found}"),
            )
        agreed.append(f"{name} {wanted}")
    return Compared(f"{source} agrees: {', '.join(agreed) or 'it says nothing'}; that is no proof of completeness")


def _wanted(
    control: IndependentControl, line: Mapping[str, Decimal], measured: MeasuredRows
) -> Iterator[tuple[str, Decimal, Decimal]]:
    totals = dict(measured.totals)
    if control.rows and "rows" in line:
        yield "rows", line["rows"], Decimal(measured.rows_delivered)
    for column in control.totals:
        if column in line and column in totals:
            yield f"the total of {column}", line[column], totals[column]


def _lines(control: IndependentControl) -> Mapping[str, Mapping[str, Decimal]]:
    path = Path(control.file)
    try:
        found = path.stat()
        if found.st_size > LIMIT_BYTES:
            raise StoreFailure(f"{path} is over {LIMIT_BYTES} bytes.", next_step="keep only the keys that are still to come in it.")
        return _read(path, found.st_mtime_ns, found.st_size)
    except (OSError, UnicodeDecodeError, csv.Error, InvalidOperation, KeyError) as error:
        raise StoreFailure(
            f"the independent control {path} cannot be read: {error!r}.",
            next_step="write it as CSV with a header: key,rows and the columns of `controls.independent.totals`.",
        ) from error


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int, _size: int) -> Mapping[str, Mapping[str, Decimal]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        return {
            row["key"]: {name: Decimal(text) for name, text in row.items() if name and name != "key" and text}
            for row in reader
        }
