"""The verb ``probe``: what a feed would make of what is at its landing place, before anything is taken in. It keeps nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from valuestream_dagster.cli.options import example, feed_argument, open_at, verb_deployment, verb_output
from valuestream_dagster.cli.output import Output, counted

if TYPE_CHECKING:
    from valuestream_dagster.intake.observe import Arrival
    from valuestream_dagster.publication.probe import Column, Probe, Probed, Sample

OBJECTS_SHOWN = 50
FINDINGS_SHOWN = 10
_OBJECT_HEADS = ("OBJECT", "BYTES", "IS", "KEY", "KIND", "REV")
_COLUMN_HEADS = ("COLUMN", "DECLARED", "FOUND", "")


@click.command(
    short_help="What would be made of what is there, before anything is taken in.",
    epilog=example("valuestream probe acme/orders", "valuestream probe acme/orders --key 2026-09-01 --rows 20 --json"),
)
@feed_argument(required=True)
@click.option("--key", metavar="KEY", help="Look into this delivery (the newest whole one).")
@click.option("--rows", type=click.IntRange(0, 1_000), default=5, show_default=True, help="How many rows to show.")
@verb_deployment
@verb_output
def probe(feed: str, key: str | None, rows: int, deployment: Path, output: Output) -> int:
    """Show each object's delivery and key, or why its name is refused; and one delivery's columns, faults and first rows.

    Nothing is written, no ledger is asked: it works before a state folder exists, and says nothing of repeats and order. One
    delivery is copied to a temporary folder, checked as it would be on its way in, and forgotten. Exit code 1 if something would
    be refused or rejected; what is not whole yet only waits.
    """
    import tempfile

    from valuestream_dagster.publication.probe import probe as look_into

    opened = open_at(deployment)
    one = opened.feed(feed)
    publisher = opened.publisher(one)
    with tempfile.TemporaryDirectory(prefix="valuestream-probe-") as scratch:
        found = look_into(
            one,
            publisher.landing,
            other_feeds=publisher.other_feeds,
            now=opened.now(),
            limits=opened.settings.limits,
            scratch=Path(scratch),
            key=opened.key(one, key) if key is not None else None,
            sample_rows=rows,
        )
    if output.as_json:
        output.document(probe_document(found))
    else:
        _show(found, output)
    return 0 if found.ok else 1


def _show(found: Probe, output: Output) -> None:
    heads = [(one.stat.path, one.stat.bytes, one.what, *_identity(one.group)) for one in found.objects[:OBJECTS_SHOWN]]
    if heads:
        output.table(_OBJECT_HEADS, heads)
    if len(found.objects) > OBJECTS_SHOWN:
        output.line(f"and {len(found.objects) - OBJECTS_SHOWN} more objects; --json lists them all.")
    for line, step in _faults(found):
        output.line(line, colour="refused")
        if step:
            output.line(f"  next: {step}")
    files, size = _size(found.objects)
    keys = [key.text for key in found.keys]
    span = f", {keys[0]} to {keys[-1]}" if len(keys) > 1 else f", {keys[0]}" if keys else ""
    deliveries = counted(len(found.groups), "delivery", "deliveries")
    taken = f"{deliveries}, {counted(files, 'file')}, {counted(size, 'byte')}; {counted(len(keys), 'key')}{span}"
    output.line(f"{found.feed.name}: {taken}.")
    if found.absent:
        output.line(found.absent)
    if found.sample is not None:
        _show_sample(found.sample, output)


def _faults(found: Probe) -> list[tuple[str, str]]:
    """Everything that would be refused, rejected, or wait, with what to do."""
    from valuestream_dagster.core.decision import Incomplete, Invalid

    told = [(f"refused: {one.detail} [{one.code}]", one.next_step) for one in found.refusals]
    told += [(f"rejected: {one.stat.path}: {one.findings[0]}", one.findings[0].next_step) for one in found.unusable]
    for arrival in found.groups:
        match arrival.completeness:
            case Invalid(findings):
                told.append((f"rejected: {arrival.manifest.name}: {findings[0]}", findings[0].next_step))
            case Incomplete(missing):
                told.append((f"waiting: {arrival.manifest.name} is not complete, missing: {', '.join(missing[:5])}", ""))
            case _:
                pass
    return told


def _show_sample(sample: Sample, output: Output) -> None:
    output.line()
    output.line(f"{sample.group.manifest.name}, looked into:")
    if sample.columns:
        output.table(_COLUMN_HEADS, [(c.name, c.declared, c.found, _said(c)) for c in sample.columns])
    if sample.number is not None:
        output.line(_fit(sample, sample.number), colour="refused" if sample.findings else "healthy")
    for finding in sample.findings[:FINDINGS_SHOWN]:
        output.line(f"  {finding}")
    if len(sample.findings) > FINDINGS_SHOWN:
        output.line(f"  and {len(sample.findings) - FINDINGS_SHOWN} more findings; --json lists them.")
    if sample.findings and sample.findings[0].next_step:
        output.line(f"  next: {sample.findings[0].next_step}")
    if sample.rows:
        output.line()
        output.table(sample.heads, [[*row, *[None] * len(sample.heads)][: len(sample.heads)] for row in sample.rows])


def _fit(sample: Sample, number: int) -> str:
    if not sample.findings:
        return f"{counted(number, 'row')}, all fit."
    if not sample.rejected:
        return f"{counted(number, 'row')} can be read, and the delivery would be rejected all the same."
    return f"{sample.rejected} of {counted(number, 'row')} do not fit, and the delivery would be rejected."


def _said(column: Column) -> str:
    if column.declared is None:
        return "not declared"
    return "" if column.there else "missing"


def _identity(group: Arrival | None) -> tuple[str | None, str | None, int | None]:
    if group is None:
        return None, None, None
    return group.manifest.key.text, group.manifest.kind.value, group.manifest.revision


def _size(objects: tuple[Probed, ...]) -> tuple[int, int]:
    """Number and bytes of the payload files that belong to a delivery."""
    files = [one.stat.bytes for one in objects if one.what == "file"]
    return len(files), sum(files)


def probe_document(found: Probe) -> dict[str, object]:
    """What ``probe --json`` prints."""
    from valuestream_dagster.cli.documents import name_refusal_document, unusable_document

    files, size = _size(found.objects)
    keys = [key.text for key in found.keys]
    return {
        "feed": found.feed.name,
        "landing": found.feed.landing,
        "would_be_taken": found.ok,
        "objects": [_object_document(one) for one in found.objects],
        "groups": [_group_document(arrival) for arrival in found.groups],
        "counts": {"objects": len(found.objects), "groups": len(found.groups), "files": files, "bytes": size, "keys": len(keys)},
        "keys": {"first": keys[0] if keys else None, "last": keys[-1] if keys else None},
        "refusals": [name_refusal_document(found.feed, refusal) for refusal in found.refusals],
        "unusable": [unusable_document(found.feed, one) for one in found.unusable],
        "sample": _sample_document(found.sample) if found.sample else None,
    }


def _object_document(one: Probed) -> dict[str, object]:
    key, kind, revision = _identity(one.group)
    return {
        "path": one.stat.path, "bytes": one.stat.bytes, "is": one.what, "key": key, "kind": kind, "revision": revision,
        "why": one.why or None,
    }  # fmt: skip


def _group_document(arrival: Arrival) -> dict[str, object]:
    from valuestream_dagster.core.decision import Incomplete, Invalid

    manifest, whole = arrival.manifest, arrival.completeness
    state = "waiting" if isinstance(whole, Incomplete) else "rejected" if isinstance(whole, Invalid) else "complete"
    return {
        "key": manifest.key.text,
        "kind": manifest.kind,
        "revision": manifest.revision,
        "manifest": arrival.stat.path,
        "files": len(manifest.entries),
        "bytes": sum(entry.bytes or 0 for entry in manifest.entries),
        "state": state,
        "missing": list(whole.missing) if isinstance(whole, Incomplete) else [],
        "findings": [finding.as_dict() for finding in whole.findings] if isinstance(whole, Invalid) else [],
        "warnings": list(manifest.warnings),
    }


def _sample_document(sample: Sample) -> dict[str, object]:
    key, kind, revision = _identity(sample.group)
    return {
        "key": key,
        "kind": kind,
        "revision": revision,
        "columns": [
            {"name": c.name, "declared": c.declared, "found": c.found, "status": _said(c) or "ok"} for c in sample.columns
        ],
        "missing": [c.name for c in sample.columns if not c.there],
        "extra": [c.name for c in sample.columns if c.declared is None],
        "rows": sample.number,
        "rows_rejected": sample.rejected,
        "findings": [finding.as_dict() for finding in sample.findings],
        "heads": list(sample.heads),
        "sample": [list(row) for row in sample.rows],
    }
