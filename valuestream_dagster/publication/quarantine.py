"""Quarantine: for each delivery that is rejected, held or in conflict one file with its reasons and where its bytes lie.

For people, and for whoever must talk to the producer; out of sight of readers. The ledger's receipt says the same in short, and
nothing is ever decided by these files: one that is lost is lost evidence and no more.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

from valuestream_dagster.core.decision import Invalid, Valid, Verdict
from valuestream_dagster.core.manifest import SealedFile
from valuestream_dagster.intake.seal import sealed_name
from valuestream_dagster.publication.outcomes import PreparedArrival
from valuestream_dagster.publication.receipts import Told
from valuestream_dagster.stores.local import LocalStore

FOLDER = "quarantine"
_KEPT = frozenset({Verdict.REJECTED, Verdict.HELD, Verdict.CONFLICT})


def keep_evidence(store: LocalStore, one: PreparedArrival, told: Told, at: datetime) -> str | None:
    """Write down why a delivery stays out, and which sealed objects hold its bytes; the file's name, or None where it does not.

    Raises:
        StoreFailure: the store did not take it.
    """
    if told.verdict not in _KEPT:
        return None
    manifest, arrival = one.arrival.manifest, one.arrival
    what = f"{manifest.key}-{manifest.kind}-r{manifest.revision}-{arrival.sha256[:12]}-{told.verdict}"
    name = f"{FOLDER}/{manifest.source}/{manifest.dataset}/{what}.json"
    text = json.dumps(
        {
            "delivery": manifest.name,
            "verdict": told.verdict,
            "code": told.code,
            "detail": told.detail,
            "next": told.next_step,
            "findings": [finding.as_dict() for finding in told.findings],
            "manifest": {"path": arrival.stat.path, "kept_as": sealed_name(arrival.sha256)},
            "files": [{**asdict(file), "kept_as": sealed_name(file.sha256)} for file in _files(one)],
            "quarantined_at": at.isoformat(),
        },
        indent=1,
    )
    if not store.exists(name):
        store.place(name, text.encode("utf-8", "surrogateescape"))
        store.sync([name])
    return name


def _files(one: PreparedArrival) -> tuple[SealedFile, ...]:
    match one.observation:
        case Invalid(_, kept):
            return kept
        case Valid():
            return one.sealed.files if one.sealed else ()
        case _:
            return ()
