"""What reports say as fields, in the words that the public surface fixes. Values in, JSON-ready dictionaries out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from valuestream_dagster.errors import ValueStreamError

if TYPE_CHECKING:
    from valuestream_dagster.feeds.feed import Feed
    from valuestream_dagster.intake.grouping import Refusal
    from valuestream_dagster.intake.observe import UnusableArrival
    from valuestream_dagster.ledger.rows import Publication, Receipt, StaleDelivery
    from valuestream_dagster.publication.plan import PlannedSlice

Document = dict[str, object]


def receipt_document(receipt: Receipt) -> Document:
    """A receipt, in the columns of the catalogue's view."""
    return {
        "received_at": receipt.received_at,
        "feed": receipt.feed,
        "kind": receipt.kind,
        "key": receipt.key.text if receipt.key else None,
        "revision": receipt.revision,
        "digest": receipt.digest,
        "verdict": receipt.verdict,
        "code": receipt.code,
        "detail": receipt.detail,
        "next": receipt.next_step,
        "warnings": list(receipt.warnings),
        "findings": list(receipt.findings),
        "run_id": receipt.run_id,
        "manifest": receipt.manifest,
        "manifest_sha256": receipt.manifest_sha256,
        "receipt_id": receipt.receipt_id,
    }


def slice_document(planned: PlannedSlice) -> Document:
    """One arrival as it was judged."""
    return {
        "feed": planned.feed,
        "epoch": planned.epoch,
        "kind": planned.kind,
        "key": planned.key.text,
        "revision": planned.revision,
        "state": planned.state,
        "requires": planned.requires.text if planned.requires else None,
        "claimable": planned.claimable,
        "reason": planned.reason,
        "why": planned.why,
        "correction": planned.correction,
        "manifest": planned.manifest,
    }


def stale_document(feed: Feed, stale: StaleDelivery, why: str) -> Document:
    """A published delivery that an edit made stale, as a slice."""
    return {
        "feed": feed.name,
        "epoch": None,
        "kind": stale.kind,
        "key": stale.key.text,
        "revision": stale.revision,
        "state": "stale",
        "requires": None,
        "claimable": feed.recompute == "auto",
        "reason": None,
        "why": why,
        "correction": False,
        "manifest": None,
        "sealed_bytes": stale.sealed_bytes,
    }


def unusable_document(feed: Feed, unusable: UnusableArrival) -> Document:
    """A manifest that states no delivery."""
    first = unusable.findings[0]
    return {
        "feed": feed.name,
        "manifest": unusable.stat.path,
        "key": unusable.key.text if unusable.key else None,
        "revision": unusable.revision,
        "state": "rejected" if unusable.settled else "waiting",
        "code": first.code,
        "detail": first.detail,
        "next": first.next_step,
        "findings": [finding.as_dict() for finding in unusable.findings],
    }


def refusal_document(feed: Feed, error: ValueStreamError) -> Document:
    """A feed of which nothing can be said because its landing place did not answer."""
    return {
        "feed": feed.name,
        "code": error.kind,
        "uri": feed.landing,
        "expected_pattern": None,
        "detail": error.message,
        "next": error.next_step,
    }


def name_refusal_document(feed: Feed, refusal: Refusal) -> Document:
    """A name, or two, at the landing place that refuse the feed's plan."""
    return {
        "feed": feed.name,
        "code": refusal.code,
        "uri": refusal.path,
        "expected_pattern": refusal.expected_pattern,
        "detail": refusal.detail,
        "next": refusal.next_step,
    }


def error_document(feed: Feed, error: ValueStreamError) -> Document:
    """What stopped the work on one feed."""
    return {"feed": feed.name, "code": error.kind, "message": error.message, "next": error.next_step}


def history_document(publication: Publication, superseded_at: datetime | None) -> Document:
    """A published revision, where its bytes came from and where they are (C17)."""
    return {
        "feed": publication.feed,
        "epoch": publication.epoch,
        "kind": publication.kind,
        "key": publication.key.text,
        "revision": publication.revision,
        "digest": publication.digest.hex,
        "previous_key": publication.previous_key,
        "position": publication.position,
        "objects": [
            {"uri": file.uri, "version": file.version, "sha256": file.sha256, "bytes": file.bytes}
            for file in publication.lineage
        ],
        "rows": publication.rows,
        "totals": dict(publication.totals),
        "files": [
            {"path": file.path, "sha256": file.sha256, "bytes": file.bytes, "rows": file.rows}
            for file in publication.files
        ],
        "run_id": publication.run_id,
        "published_at": publication.published_at,
        "superseded_at": superseded_at,
    }
