"""The seal record: one small file in the store beside the sealed bytes, saying which delivery they are.

Written before anything is recorded in the ledger, so that whatever the ledger knows can be taken up from the store again: a
delivery that had to wait, one that a ruling lets go, a published one that is to be computed anew, and, after an older ledger was
restored, every delivery that it does not know (ruling 16). Whether a delivery was accepted is the ledger's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal

from valuestream_dagster.core.decision import Identity
from valuestream_dagster.core.manifest import Digest, Kind, SealedFile
from valuestream_dagster.core.rows import DeclaredControls
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.stores.local import LocalStore

RECORDS = "sealed/deliveries"
RECORD_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRecord:
    """One sealed delivery.

    Args:
        source: the feed's source.
        dataset: the feed's dataset.
        identity: kind, key and revision.
        digest: of the delivery.
        manifest: path of its manifest below the landing place.
        manifest_sha256: under which the manifest's bytes are kept.
        files: its payload, in the manifest's order.
        controls: what the manifest says the rows add up to.
        empty: the manifest says that there are no rows.
        sealed_at: when.
    """

    source: str
    dataset: str
    identity: Identity
    digest: Digest
    manifest: str
    manifest_sha256: str
    files: tuple[SealedFile, ...]
    sealed_at: datetime
    controls: DeclaredControls = DeclaredControls()
    empty: bool = False

    @property
    def name(self) -> str:
        """Its name in the store."""
        return record_name(self.source, self.dataset, self.identity, self.digest, self.manifest_sha256)


def record_name(source: str, dataset: str, identity: Identity, digest: Digest, manifest_sha256: str) -> str:
    """Where the record of a delivery is, by what the ledger knows of it."""
    what = f"{identity.key}-{identity.kind}-r{identity.revision}-{digest.short}-{manifest_sha256[:12]}"
    return f"{RECORDS}/{source}/{dataset}/{what}.json"


def place_record(store: LocalStore, record: SealRecord) -> str:
    """Write a record under its name, not yet durably; one that is there is kept. Raises StoreFailure."""
    identity = record.identity
    text = json.dumps(
        {
            "version": RECORD_VERSION,
            "source": record.source,
            "dataset": record.dataset,
            "kind": identity.kind.value,
            "key": identity.key.text,
            "ordinal": identity.key.ordinal,
            "revision": identity.revision,
            "digest": record.digest.hex,
            "manifest": record.manifest,
            "manifest_sha256": record.manifest_sha256,
            "files": [asdict(file) for file in record.files],
            "controls": {
                "rows": record.controls.rows,
                "totals": [[column, str(total)] for column, total in record.controls.totals],
            },
            "empty": record.empty,
            "sealed_at": record.sealed_at.isoformat(),
        },
        indent=1,
    )
    store.place(record.name, text.encode("utf-8", "surrogateescape"))
    return record.name


def read_record(store: LocalStore, name: str) -> SealRecord | None:
    """The record of that name, or None where there is none that can be read.

    Released ledgers of schema 1 know deliveries that were sealed without a record.
    """
    try:
        raw = json.loads(store.path(name).read_bytes())
        if raw["version"] != RECORD_VERSION:
            return None
        return SealRecord(
            source=str(raw["source"]),
            dataset=str(raw["dataset"]),
            identity=Identity(Kind(raw["kind"]), SequenceKey(str(raw["key"]), int(raw["ordinal"])), int(raw["revision"])),
            digest=Digest(str(raw["digest"])),
            manifest=str(raw["manifest"]),
            manifest_sha256=str(raw["manifest_sha256"]),
            files=tuple(SealedFile(**file) for file in raw["files"]),
            sealed_at=datetime.fromisoformat(raw["sealed_at"]),
            controls=DeclaredControls(
                raw["controls"]["rows"], tuple((str(c), Decimal(t)) for c, t in raw["controls"]["totals"])
            ),
            empty=bool(raw["empty"]),
        )
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
        return None


def record_names(store: LocalStore, source: str, dataset: str) -> Iterator[str]:
    """The names of all records of a feed, sorted. Raises StoreFailure where they cannot be listed."""
    folder = store.path(f"{RECORDS}/{source}/{dataset}")
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreFailure(f"{folder} cannot be listed: {error.strerror}.", next_step="see that the folder works.") from error
    yield from (f"{RECORDS}/{source}/{dataset}/{name}" for name in names)
