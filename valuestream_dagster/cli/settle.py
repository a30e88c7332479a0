"""Verbs for what nothing settles by itself: ``explain`` says why a key is as it is, ``rule`` records what a person decides.

Whatever costs time to import is imported by the verb that needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from valuestream_dagster.cli.options import example, feed_argument, open_at, verb_deployment, verb_output
from valuestream_dagster.cli.output import Output

if TYPE_CHECKING:
    from valuestream_dagster.publication.dossier import Dossier, RowDifference
    from valuestream_dagster.publication.explanation import Explanation

KINDS = ("full", "delta")
WORDS = ("keep", "release", "retract")


@click.command(
    short_help="Why a key is or is not there, and what to do.", epilog=example("valuestream explain acme/orders 2026-09-02")
)
@feed_argument(required=True)
@click.argument("key")
@verb_deployment
@verb_output
def explain(feed: str, key: str, deployment: Path, output: Output) -> int:
    """Say what is known of one key, which rule decided, by which rows of the ledger, and what to do next.

    Where one revision arrived with two contents, both are read again and compared, and a text for the producer is written. Nothing
    is recorded. Exit code 1 if something is left to be done.
    """
    opened = open_at(deployment)
    one = opened.feed(feed)
    told = opened.explain(one, opened.key(one, key))
    if output.as_json:
        output.document(told.as_dict())
    else:
        _show(told, output)
    return 0 if told.settled else 1


def _show(told: Explanation, output: Output) -> None:
    output.line(f"{told.known.feed.name} {told.known.key}: {told.readers}.", colour="healthy" if told.settled else "refused")
    for cause in told.causes:
        output.line(f"  {cause.what}.")
        output.line(f"    rule      {cause.rule}")
        for row in cause.relies_on:
            output.line(f"    known by  {row}")
        for step in cause.next_steps:
            output.line(f"    next      {step}")
    for one in told.known.rulings:
        about = f"{one.ruled.ruling} revision {one.ruled.revision}" + (f", {one.ruled.digest.short}" if one.ruled.digest else "")
        output.line(f"  ruled by {one.by} (as claimed) at {one.ruled_at:%Y-%m-%d %H:%M:%S}: {about}: {one.why}")
    for dossier in told.known.dossiers:
        _show_dossier(dossier, output)


def _show_dossier(dossier: Dossier, output: Output) -> None:
    output.line(f"  the two contents of revision {dossier.revision}: {dossier.differences()}.")
    if dossier.rows is not None:
        for sign, rows in _signed(dossier.rows):
            output.line(f"    {sign} {', '.join(f'{name}={value}' for name, value in rows.items())}")
    output.line("  a text for the producer:")
    for line in dossier.letter().splitlines():
        output.line(f"    | {line}")


def _signed(rows: RowDifference) -> list[tuple[str, dict[str, str | None]]]:
    return [*(("-", row) for row in rows.samples_removed), *(("+", row) for row in rows.samples_added)]


@click.command(
    short_help="Decide about a conflict or a held delivery.",
    epilog=example(
        'valuestream rule acme/orders 2026-09-02 keep --by ada --why "the second was a test"',
        'valuestream rule acme/orders 2026-09-02 release --revision 1 --digest 3fa9c1 --by ada --why "confirmed by phone"',
    ),
)
@feed_argument(required=True)
@click.argument("key")
@click.argument("word", type=click.Choice(WORDS), metavar="|".join(WORDS))
@click.option("--kind", type=click.Choice(KINDS), help="Full or delta, where the key has both.")
@click.option("--revision", type=click.IntRange(min=1), help="Which revision, where more than one waits.")
@click.option("--digest", help="Digest of the bytes to decide for, or its first digits.")
@click.option("--against", multiple=True, help="Digest of bytes that you saw and decide against; refused if others came since.")
@click.option("--by", required=True, help="Who decides; kept as claimed.")
@click.option("--why", required=True, help="For what reason; kept for good.")
@verb_deployment
@verb_output
def rule(
    feed: str,
    key: str,
    word: str,
    kind: str | None,
    revision: int | None,
    digest: str | None,
    against: tuple[str, ...],
    by: str,
    why: str,
    deployment: Path,
    output: Output,
) -> int:
    """Record a person's decision about one revision of KEY, for ever; `valuestream explain FEED KEY` prints the right commands.

    keep: the applied bytes stay (else the first that were sealed); a held delivery stays out.

    release: the named bytes become the revision's publication; a held delivery may go.

    retract: readers see nothing of the revision until a higher one comes.

    It is refused if it does not fit what is known now.
    """
    from valuestream_dagster.core.decision import RulingWord
    from valuestream_dagster.core.manifest import Kind
    from valuestream_dagster.core.ruling import Asked
    from valuestream_dagster.publication.rulings import RulingAsked

    for name, text in (("--by", by), ("--why", why)):
        if not text.strip():
            raise click.UsageError(f"{name} may not be empty.")
    opened = open_at(deployment)
    one = opened.feed(feed)
    asked = Asked(RulingWord(word), revision, digest, tuple(part for text in against for part in text.split(",")))
    made = opened.rule(one, RulingAsked(opened.key(one, key), Kind(kind) if kind else None, asked, by.strip(), why.strip()))
    from valuestream_dagster.orchestration.rulings import show_ruling

    show_ruling(opened, one, made)
    ruled = made.ruled
    next_step = f"valuestream apply {feed}" if ruled.ruling is RulingWord.RELEASE else ""
    if output.as_json:
        output.document(
            {
                "feed": made.feed, "key": made.key.text, "kind": made.kind, "ruling": ruled.ruling, "revision": ruled.revision,
                "digest": ruled.digest.hex if ruled.digest else None, "settles": [other.hex for other in ruled.settles],
                "by": made.by, "why": made.why, "ruled_at": made.ruled_at, "next": next_step,
            }
        )  # fmt: skip
        return 0
    what = f" {ruled.digest.short}" if ruled.digest else ""
    output.line(f"{made.feed} {made.key}: {ruled.ruling}{what}, revision {ruled.revision} ({made.kind}), ruled by {made.by}.")
    if next_step:
        output.line(f"  next: run `{next_step}`, or wait for the sensor.")
    return 0
