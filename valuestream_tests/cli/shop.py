"""A deployment with a producer beside it, and the command line over both."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from valuestream_dagster.cli.main import cli
from valuestream_dagster.producing.pack import pack_delivery
from valuestream_dagster.producing.statement import PackOptions
from valuestream_tests.dagster_home import lay_home

FEED = """\
source: acme
dataset: orders
landing: landing/acme/orders
sequence: {kind: date, cadence: daily, continuity: required, baseline: "2026-09-01"}
columns: {id: BIGINT, amount: "DECIMAL(18,2)"}
key: [id]
"""


@dataclass(frozen=True)
class Shop:
    """The deployment's folder."""

    path: Path

    @property
    def landing(self) -> Path:
        return self.path / "landing/acme/orders"

    def deliver(
        self, key: str, rows: str = "1,2.50\n", *, revision: int = 1, header: str = "id,amount\n", dataset: str = "orders"
    ) -> Path:
        """Hand over one delivery; its manifest."""
        parcel = self.path.parent / "parcels" / f"{key}-r{revision}.csv"
        parcel.parent.mkdir(exist_ok=True)
        parcel.write_text(header + rows)
        options = PackOptions(source="acme", dataset=dataset, revision=revision)
        return pack_delivery([parcel], self.landing.parent / dataset, key=key, options=options).manifest

    def run(self, *words: str, before: bool = False) -> Result:
        """One command line; ``-d`` before or after the verb."""
        place = ["-d", str(self.path)]
        return CliRunner().invoke(cli, [*place, *words] if before else [*words, *place])

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The verb's document; the test fails where stdout is anything else."""
        result = self.run(*words, "--json")
        assert result.exit_code == code, result.output
        document = json.loads(result.stdout)
        assert isinstance(document, dict)
        assert "generated_at" in document
        return document

    def lose_landing(self) -> None:
        """Let the landing place be something that cannot be listed."""
        shutil.rmtree(self.landing, ignore_errors=True)
        self.landing.parent.mkdir(parents=True, exist_ok=True)
        self.landing.write_text("no folder")


def shop_in(folder: Path, feeds: dict[str, str] | None = None) -> Shop:
    """A fresh deployment with these feed files (one feed, ``acme/orders``)."""
    path = folder / "shop"
    (path / "feeds").mkdir(parents=True)
    (path / "valuestream.yaml").write_text("")
    for name, text in (feeds if feeds is not None else {"orders.yaml": FEED}).items():
        (path / "feeds" / name).write_text(text)
    lay_home(path)
    return Shop(path)
