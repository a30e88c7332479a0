"""The computation hash: the digest of all that decides what a delivery's rows become, and of nothing else (L4, L29).

Two declarations with one hash publish the same rows from the same bytes; an edit that leaves it alone recomputes
nothing (L20). Not in it: names, places, alerts, order of work, and what only accepts or rejects (totals, policies).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from valuestream_dagster.core.rows import RowContract
from valuestream_dagster.feeds.versions import Shown

# Raised whenever the same contract would write other rows or other provenance columns than before.
FORMAT_VERSION = 1
_VALUE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Computation:
    """What makes rows of a delivery.

    Args:
        contract: how payload becomes rows.
        hash: digest of all that decides the output.
    """

    contract: RowContract
    hash: str

    @property
    def decisive(self) -> str:
        """All that decides the output, as canonical JSON."""
        return decisive_text(self.contract)


@dataclass(frozen=True, slots=True)
class OlderColumns:
    """The computation of deliveries before a later version of the columns, and how its rows are shown in the newest ones.

    Args:
        since: ordinal of the first key that it holds for; None from the beginning.
        contract: how payload becomes rows.
        hash: its computation hash.
        shown: how its rows fill each of the newest columns.
    """

    since: int | None
    contract: RowContract
    hash: str
    shown: tuple[Shown, ...]


def computation_hash(contract: RowContract) -> str:
    """sha256 hex over the canonical JSON of what decides the output."""
    return hashlib.sha256(decisive_text(contract).encode()).hexdigest()


def decisive_text(contract: RowContract) -> str:
    """All that decides the output, as canonical JSON.

    Columns are read by header name, so their order decides nothing, except where files have no header. The order of the
    key's columns and of the texts that mean NULL never does.
    """
    csv = contract.csv
    columns = [[column.name, column.type] for column in contract.columns]
    decisive: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "columns": sorted(columns) if csv.header else columns,
        "payload": {
            "format": "csv",
            "delimiter": csv.delimiter,
            "quote": csv.quote,
            "escape": csv.escape,
            "header": csv.header,
            "encoding": csv.encoding,
            "null": sorted(set(csv.null)),
            "compression": csv.compression,
        },
        "key": sorted(contract.key),
        "delete_when": contract.delete_when,
    }
    if contract.transform is not None:
        delivered = [[column.name, column.type] for column in contract.delivered]
        decisive["payload"] |= {"columns": sorted(delivered) if csv.header else delivered}
        decisive["transform"] = {"name": contract.transform.name, "text": contract.transform.text}
    return json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def changed_fields(before: str, now: str) -> tuple[str, ...]:
    """Which fields of a feed file differ between two decisive texts, in the words of the file, each with both values (L20)."""
    old, new = _flat(json.loads(before)), _flat(json.loads(now))
    return tuple(
        f"`{name}` from {_value(old.get(name))} to {_value(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _flat(decisive: dict[str, Any]) -> dict[str, Any]:
    """One entry per field that a person can edit."""
    flat: dict[str, Any] = {f"columns.{name}": type_ for name, type_ in decisive["columns"]}
    flat |= {f"payload.{name}": value for name, value in decisive["payload"].items()}
    known = {"columns", "payload", "format_version"}
    flat |= {name: value for name, value in decisive.items() if name not in known}
    if not decisive["payload"]["header"]:
        flat["columns (their order)"] = ", ".join(name for name, _ in decisive["columns"])
    return flat | {"valuestream's own file format": decisive["format_version"]}


def _value(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."
