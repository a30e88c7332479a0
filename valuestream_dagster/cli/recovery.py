"""Verbs for when something died or was lost: ``recover``, ``backup``, ``restore``, ``rebuild``.

Whatever costs time to import is imported by the verb that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from valuestream_dagster.cli.documents import Document, error_document
from valuestream_dagster.cli.options import example, feed_argument, open_at, selected_at, verb_deployment, verb_output
from valuestream_dagster.cli.output import Output

if TYPE_CHECKING:
    from valuestream_dagster.deployment import Deployment
    from valuestream_dagster.upkeep import RecoveredFeed

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(
    short_help="Settle what died; offer again what only the store knows.", epilog=example("valuestream recover acme/orders")
)
@feed_argument()
@click.option("--older-ledger", is_flag=True, help="The ledger is older than what readers see, and is the one that counts now.")
@verb_deployment
@verb_output
def recover(feed: str | None, deployment: Path, output: Output, *, older_ledger: bool) -> int:
    """Say what was left by runs that died and settle it; every apply and every sensor tick does that much by itself.

    Beyond it: sealed deliveries that the ledger never heard of are offered again, the catalogue is brought up to date, Dagster
    is told of what it lacks, and partitions that Dagster shows as materialized and the ledger does not have are named.
    """
    from valuestream_dagster import upkeep

    opened, feeds = selected_at(deployment, feed)
    done = upkeep.recover(opened, feeds, older_ledger=older_ledger)
    told = [_dagster(opened, one) for one in done]
    if output.as_json:
        output.document({"feeds": [{**_document(one), **asdict(each)} for one, each in zip(done, told, strict=True)]})
    _show(done, output)
    for one, each in zip(done, told, strict=True):
        if each.reported:
            output.line(f"{one.feed.name}: Dagster was told of {each.reported} publications that it lacked.")
        for key in each.unbacked:
            output.line(f"{one.feed.name} {key}: Dagster shows it as materialized, and the ledger has no publication of it.")
    return _code(done) or int(any(each.unbacked for each in told))


@dataclass(frozen=True, slots=True)
class _Compared:
    """How many publications Dagster was told of, and the partitions that it has and the ledger does not."""

    reported: int = 0
    unbacked: tuple[str, ...] = ()


def _dagster(opened: Deployment, one: RecoveredFeed) -> _Compared:
    if one.error is not None:
        return _Compared()
    from valuestream_dagster.orchestration.apply import compare_with_dagster

    return _Compared(*compare_with_dagster(opened, one.feed))


def _show(done: Sequence[RecoveredFeed], output: Output) -> None:
    for one in done:
        name = one.feed.name
        if one.error is not None:
            output.line(f"{name}: {one.error.message}", colour="refused")
            output.line(f"  next: {one.error.next_step}")
            continue
        for run in one.settled:
            output.line(f"{name}: run {run.run_id} of {run.holder} had died; {run.kept} of its deliveries are good and kept.")
            for fault in run.voided:
                output.line(f"  done again: {fault}")
        for outcome in one.offered:
            output.line(f"{name}: offered again: {outcome.told.detail}")
        if not (one.settled or one.offered):
            output.line(f"{name}: nothing was left behind.", colour="healthy")
    if any(one.offered for one in done):
        output.line("  next: run `valuestream apply`.")


def _code(done: Sequence[RecoveredFeed]) -> int:
    return 1 if any(one.error is not None for one in done) else 0


def _document(one: RecoveredFeed) -> Document:
    return {
        "feed": one.feed.name,
        "settled": [
            {"run_id": run.run_id, "holder": run.holder, "kept": run.kept, "done_again": list(run.voided)} for run in one.settled
        ],
        "offered": [
            {"key": o.key.text, "kind": o.kind, "revision": o.revision, "code": o.told.code, "detail": o.told.detail}
            for o in one.offered
        ],
        "error": error_document(one.feed, one.error) if one.error is not None else None,
    }


@click.command(short_help="Copy the ledger while it is in use.", epilog=example("valuestream backup /backups/orders-2026-09-02"))
@click.argument("folder", required=False, type=_FOLDER)
@verb_deployment
@verb_output
def backup(folder: Path | None, deployment: Path, output: Output) -> int:
    """Copy the ledger and its exported rows into a new FOLDER (default: state/backups/TIME), while others work.

    Files of the store never change: copy the store by any means, after this, and the two fit together.
    """
    from valuestream_dagster import upkeep

    place, made = upkeep.backup(open_at(deployment), folder)
    if output.as_json:
        output.document({"folder": str(place), "bytes": made.bytes, "sha256": made.sha256, "generation": made.generation})
    else:
        output.line(f"{place}: the ledger, {made.bytes} bytes, sha256 {made.sha256[:12]}.", colour="healthy")
        output.line("  next: copy the store's folder too; everything that this ledger names is in it.")
    return 0


@click.command(short_help="Put a backup of the ledger back.", epilog=example("valuestream restore state/backups/20260902T060000"))
@click.argument("folder", type=_FOLDER)
@verb_deployment
@verb_output
def restore(folder: Path, deployment: Path, output: Output) -> int:
    """Let the backup in FOLDER take the ledger's place; the present one is put aside beside it, never deleted.

    Everything that was sealed since the backup is offered again, so that nothing is lost; `valuestream apply` then publishes it.
    """
    from valuestream_dagster import upkeep

    aside, done = upkeep.restore(open_at(deployment), folder)
    if output.as_json:
        output.document({"put_aside": str(aside) if aside else None, "feeds": [_document(one) for one in done]})
    output.line(f"the ledger of {folder} is in place" + (f"; the one before is {aside}." if aside else "."), colour="healthy")
    _show(done, output)
    return _code(done)


@click.command(short_help="Make a lost ledger anew.", epilog=example("valuestream rebuild"))
@verb_deployment
@verb_output
def rebuild(deployment: Path, output: Output) -> int:
    """Make a lost ledger anew from the rows that the catalogue and its segments hold; then offer again what was sealed later.

    Every question has the answer that it had. What the catalogue never held is found out anew: objects at the landing places are
    looked at once more, and their deliveries told as known. It refuses where a ledger is.
    """
    from valuestream_dagster import upkeep

    rows, done = upkeep.rebuild_ledger(open_at(deployment))
    if output.as_json:
        output.document({"rows": rows, "feeds": [_document(one) for one in done]})
    output.line(f"the ledger is rebuilt: {rows['publications']} publications, {rows['receipts']} receipts.", colour="healthy")
    _show(done, output)
    return _code(done)
