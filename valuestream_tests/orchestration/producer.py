"""A producer and a deployment for tests: feeds as texts, deliveries as files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from valuestream_dagster.deployment import Deployment, open_deployment

HOME = "telemetry: {enabled: false}\nnux: {enabled: false}\n"


def feed_text(dataset: str, sequence: str = "{kind: integer}", more: str = "") -> str:
    """A feed file of ``acme/<dataset>``."""
    return (
        f"source: acme\ndataset: {dataset}\nlanding: landing/{dataset}\nsequence: {sequence}\n"
        f"columns: {{id: BIGINT, amount: 'DECIMAL(18,2)'}}\ncontrols: {{totals: [amount]}}\n{more}"
    )


CHAINED = "{kind: integer, continuity: required, baseline: '1'}"


def make_deployment(folder: Path, feeds: dict[str, str], settings: str = "", home: str = HOME) -> Deployment:
    """A deployment folder with feeds by dataset."""
    (folder / "feeds").mkdir(parents=True, exist_ok=True)
    (folder / "valuestream.yaml").write_text(settings, "utf-8")
    (folder / "dagster.yaml").write_text(home, "utf-8")
    for name, text in feeds.items():
        (folder / "feeds" / f"{name}.yaml").write_text(text, "utf-8")
        (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
    return open_deployment(folder, {})


@dataclass(frozen=True, slots=True)
class Producer:
    """Hands deliveries of ``acme/<dataset>`` over.

    Args:
        landing: the folder.
        dataset: what it delivers.
    """

    landing: Path
    dataset: str

    def name(self, key: str | int, revision: int = 1) -> str:
        """The payload's file name."""
        return f"{key}-r{revision}.csv"

    def write_payload(self, key: str | int, revision: int = 1, amount: str = "1.50") -> bytes:
        """Put the data file only."""
        data = self.data(key, amount)
        self.landing.mkdir(parents=True, exist_ok=True)
        (self.landing / self.name(key, revision)).write_bytes(data)
        return data

    @staticmethod
    def data(key: str | int, amount: str = "1.50") -> bytes:
        """Two rows."""
        number = "".join(c for c in str(key) if c.isdigit())
        return f"id,amount\n{number}1,{amount}\n{number}2,0.10\n".encode()

    def write_manifest(self, key: str | int, data: bytes, revision: int = 1, sha256: str | None = None) -> Path:
        """Put the manifest only."""
        manifest = {
            "source": "acme",
            "dataset": self.dataset,
            "sequence": str(key),
            "revision": revision,
            "files": [
                {
                    "path": self.name(key, revision),
                    "bytes": len(data),
                    "sha256": sha256 or hashlib.sha256(data).hexdigest(),
                    "rows": 2,
                }
            ],
        }
        self.landing.mkdir(parents=True, exist_ok=True)
        path = self.landing / f"{key}-r{revision}.manifest.json"
        path.write_text(json.dumps(manifest), "utf-8")
        return path

    def deliver(self, *keys: str | int, revision: int = 1, amount: str = "1.50") -> None:
        """Whole deliveries, manifest last."""
        for key in keys:
            self.write_manifest(key, self.write_payload(key, revision, amount), revision)

    def deliver_damaged(self, key: str | int) -> None:
        """A delivery whose bytes are not those that its manifest states."""
        self.write_manifest(key, self.write_payload(key), sha256="0" * 64)


def data_version(key: str | int, revision: int = 1, amount: str = "1.50") -> str:
    """The data version that such a delivery must have, computed apart from the program (SURFACE: digest of a delivery)."""
    data = Producer.data(key, amount)
    line = f"data {hashlib.sha256(data).hexdigest()} {len(data)}\n"
    return f"r{revision}-{hashlib.sha256(line.encode()).hexdigest()[:12]}"
