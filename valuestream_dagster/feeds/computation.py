"""The computation hash: the digest of all that decides what a delivery's rows become, and of nothing else (L4, L29).

Two declarations with one hash publish the same rows from the same bytes; an edit that leaves it alone recomputes
nothing (L20). Not in it: names, places, alerts, order of work, and what only accepts or rejects (totals, policies).
"""

from __future__ import annotations

import hashlib
import json

from valuestream_dagster.core.rows import RowContract

# Raised whenever the same contract would write other rows or other provenance columns than before.
FORMAT_VERSION = 1


def computation_hash(contract: RowContract) -> str:
    """sha256 hex over the canonical JSON of what decides the output.

    Columns are read by header name, so their order decides nothing, except where files have no header. The order of the
    key's columns and of the texts that mean NULL never does.
    """
    csv = contract.csv
    columns = [[column.name, column.type] for column in contract.columns]
    decisive = {
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
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
