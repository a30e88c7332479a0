"""Deployments for these tests, who delivers to them, and what a delivery's data version must be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from valuestream_dagster.deployment import Deployment, open_deployment
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.home import instance_of
from valuestream_tests.dagster_home import lay_home
from valuestream_tests.producer import Delivery, Producer, into_folder

QUIET_HOME = "telemetry: {enabled: false}\nnux: {enabled: false}\n"
LOOSE = "{kind: integer}"
CHAINED = "{kind: integer, continuity: required, baseline: '1'}"


def feed_text(dataset: str, sequence: str = LOOSE, more: str = "") -> str:
    """A feed file of ``acme/<dataset>``."""
    return (
        f"source: acme\ndataset: {dataset}\nlanding: landing/{dataset}\nsequence: {sequence}\n"
        f"columns: {{id: BIGINT, amount: 'DECIMAL(18,2)', op: VARCHAR}}\nkey: [id]\ncontrols: {{totals: [amount]}}\n{more}"
    )


def make_deployment(
    folder: Path, feeds: Mapping[str, str], settings: str = "", home: str = QUIET_HOME
) -> Deployment:
    """A deployment folder with feed files by dataset."""
    (folder / "feeds").mkdir(parents=True, exist_ok=True)
    (folder / "valuestream.yaml").write_text(settings, "utf-8")
    (folder / "dagster.yaml").write_text(home, "utf-8")
    for name, text in feeds.items():
        (folder / "feeds" / f"{name}.yaml").write_text(text, "utf-8")
        (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
    if not (folder / "state").exists():
        lay_home(folder)
    return open_deployment(folder, {})


def producer(opened: Deployment, dataset: str) -> Producer:
    """Who delivers ``acme/<dataset>``."""
    return Producer(into_folder(opened.path / "landing" / dataset), "acme", dataset)


def deliver(opened: Deployment, dataset: str, *keys: str | int, revision: int = 1) -> list[Delivery]:
    """Right deliveries, each with rows of its own."""
    return [producer(opened, dataset).deliver(key, rows_of(key, revision), revision=revision) for key in keys]


def damaged(opened: Deployment, dataset: str, key: str | int) -> Delivery:
    """A delivery whose bytes are not those that its manifest states, not handed over yet."""
    right = producer(opened, dataset).make(key, rows_of(key))
    data = next(iter(right.files.values()))
    return right.with_file(data.replace(b"0.10", b"0.20"))


def rows_of(key: str | int, revision: int = 1) -> list[list[Any]]:
    """Two rows that no other key or revision has."""
    number = int("".join(c for c in str(key) if c.isdigit()))
    return [[number * 10 + 1, f"{revision}.50", ""], [number * 10 + 2, "0.10", ""]]


def version_of(delivery: Delivery) -> str:
    """The data version that a delivery must have, computed apart from the program (SURFACE: digest of a delivery)."""
    lines = sorted(f"data {hashlib.sha256(data).hexdigest()} {len(data)}\n" for data in delivery.files.values())
    return f"r{delivery.statement['revision']}-{hashlib.sha256(''.join(lines).encode()).hexdigest()[:12]}"


def versions(instance: dg.DagsterInstance, feed: Feed) -> list[tuple[str, str]]:
    """(partition, data version) of every materialization of a feed, oldest first."""
    key = dg.AssetKey([feed.source, feed.dataset])
    records = instance.fetch_materializations(key, limit=1_000, ascending=True).records
    events = [record.asset_materialization for record in records]
    return [(event.partition or "", (event.tags or {}).get("dagster/data_version", "")) for event in events if event]


def versions_seen(opened: Deployment, dataset: str) -> list[tuple[str, str]]:
    """The same, by the deployment's own instance."""
    with instance_of(opened) as instance:
        return versions(instance, opened.feed(f"acme/{dataset}"))


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The alerts that a ``file://`` URL got."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
