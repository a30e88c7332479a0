"""Verbs that look after what is kept: ``verify`` reads it again, ``vacuum`` takes away what nothing needs.

Whatever costs time to import is imported by the verb that needs it.
"""

from __future__ import annotations

from pathlib import Path

import click

from valuestream_dagster.cli.options import example, feed_argument, open_at, verb_deployment, verb_output
from valuestream_dagster.cli.output import Output, counted
from valuestream_dagster.cli.progress import progress_bars

_SHOWN = 20


@click.command(
    short_help="Read every visible file again and compare.", epilog=example("valuestream verify acme/orders --inputs")
)
@feed_argument()
@click.option("--inputs", is_flag=True, help="Also the sealed bytes from which the files were made.")
@verb_deployment
@verb_output
def verify(feed: str | None, deployment: Path, output: Output, *, inputs: bool) -> int:
    """Read every file that readers see again and compare it with what was recorded when it was published.

    A match shows that the bytes are those that were recorded, never that the business data is complete. Nothing is written.
    Exit code 1 if anything differs.
    """
    opened = open_at(deployment)
    with progress_bars() as bars:
        told = (lambda done, of: bars("verify", done, of)) if bars else None
        found = opened.verify(opened.feed(feed) if feed else None, inputs=inputs, progress=told)
    if output.as_json:
        output.document({"files": found.files, "bytes": found.bytes, "faults": [fault.as_dict() for fault in found.faults]})
    for fault in found.faults:
        output.line(f"{fault.file.feed} {fault.file.key}: {fault.file.path}: {fault.detail} [{fault.code}]", colour="refused")
        output.line(f"  next: {fault.next_step}")
    what = f"{len(found.faults)} not as recorded" if found.faults else "all as recorded"
    read = f"{counted(found.files, 'file')} read, {counted(found.bytes, 'byte')}"
    output.line(f"{read}: {what}.", colour="refused" if found.faults else "healthy")
    return 1 if found.faults else 0


@click.command(short_help="Take away files that nothing needs.", epilog=example("valuestream vacuum", "valuestream vacuum --yes"))
@click.option("--yes", is_flag=True, help="Do it; without it, only say what would go.")
@verb_deployment
@verb_output
def vacuum(deployment: Path, output: Output, *, yes: bool) -> int:
    """Say which files of the store nothing needs any more and why; with --yes take them away, each recorded before it goes.

    Never what readers see or may still be reading, nothing of a run that has not ended, nothing that waits, and never the
    sealed bytes behind what readers see. For how long the rest is kept says `retention` in valuestream.yaml; without it, for ever.
    """
    from valuestream_dagster.publication.vacuum import by_reason

    sweep = open_at(deployment).vacuum(carry_out=yes)
    if output.as_json:
        output.document(
            {
                "done": sweep.done,
                "removals": [
                    {"path": one.path, "bytes": one.bytes, "why": one.why, "publication_id": one.publication_id}
                    for one in sweep.removals
                ],
                "kept": [{"why": one.why, "files": one.files, "bytes": one.bytes} for one in sweep.kept],
            }
        )
        return 0
    for one in sweep.removals[:_SHOWN]:
        output.line(f"  {one.path}  {counted(one.bytes, 'byte')}: {one.why}")
    if len(sweep.removals) > _SHOWN:
        output.line(f"  and {len(sweep.removals) - _SHOWN} more:")
        for why, (files, size) in by_reason(sweep.removals).items():
            output.line(f"    {counted(files, 'file')}, {counted(size, 'byte')}: {why}")
    for kept in sweep.kept:
        output.line(f"  kept {counted(kept.files, 'file')}, {counted(kept.bytes, 'byte')}: {kept.why}")
    verb = "taken away" if sweep.done else "would go; nothing was touched"
    output.line(f"{counted(len(sweep.removals), 'file')}, {counted(sweep.bytes, 'byte')} {verb}.")
    if sweep.removals and not sweep.done:
        output.line("  next: run `valuestream vacuum --yes`.")
    return 0
