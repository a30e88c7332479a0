"""Feed files for tests: the smallest one, a full one, and how to say what is wrong with a text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from valuestream_dagster.errors import ConfigurationInvalid
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.loading import parse_feed

DEPLOYMENT = Path("/srv/deployment")

SMALLEST = """\
source: acme
dataset: orders
landing: landing/acme/orders
columns:
  order_id: BIGINT
  amount: DECIMAL(18,2)
"""

CHAIN = """\
source: acme
dataset: orders
description: Orders of the acme shop
owners: ["team:shop", ann@example.org]
tags: {domain: sales}
mode: chain
kind: delta
landing: s3://drops/acme/orders/
include: ["*.manifest.json"]
exclude: ["test-*"]
manifest: native
completion: {kind: manifest}
sequence: {kind: date, cadence: daily, timezone: Europe/Brussels, continuity: required, baseline: full, from: manifest}
expect: {due: "04:00", grace_minutes: 240}
payload: {format: csv, delimiter: ";", quote: "'", escape: "'", header: true, encoding: ISO-8859-1, null: [NA, ""]}
revision: manifest
columns: {order_id: int8, amount: "decimal(18, 2)", placed_on: date, op: text}
key: [order_id]
delete_when: "op = 'D'"
paused: true
alerts: ["json://localhost:8080/hook"]
controls: {totals: [amount]}
policy: {allow_empty: true, extra_files: reject, conflict: continue}
"""


def feed(text: str, environ: Mapping[str, str] | None = None) -> Feed:
    """The feed that a text states; the test fails where it states none."""
    return parse_feed(text, "feeds/x.yaml", deployment=DEPLOYMENT, environ=environ or {})


def findings(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """The findings of a text as people see them; none where it is right."""
    try:
        feed(text, environ)
    except ConfigurationInvalid as invalid:
        return [str(finding) for finding in invalid.findings]
    return []
