"""Verbs that show: ``check``, ``plan``, ``status``, ``receipts``, ``history``, ``query``. None of them changes data.

Whatever costs time to import is imported by the verb that needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from valuestream_dagster.cli.options import example, feed_argument, open_at, selected_at, verb_deployment, verb_output
from valuestream_dagster.cli.output import Output, cell_text, finding_document, json_value

if TYPE_CHECKING:
    from valuestream_dagster.cli.words import Advice
    from valuestream_dagster.publication.plan import FeedPlan, PlannedSlice

RECEIPTS_SHOWN = 1_000
_SLICE_HEADS = ("FEED", "KEY", "KIND", "REV", "STATE", "WHY")
_RECEIPT_HEADS = ("RECEIVED", "FEED", "KEY", "KIND", "REV", "VERDICT", "CODE", "DETAIL")
_HISTORY_HEADS = ("KEY", "KIND", "REV", "ROWS", "PUBLISHED", "SUPERSEDED", "AFTER", "DIGEST", "RUN")
_TROUBLE = frozenset({"blocked", "failed", "conflict", "held", "interrupted"})


@click.command(
    short_help="Read the YAML; every error with file and line.", epilog=example("valuestream check -d deployments/demo")
)
@verb_deployment
@verb_output
def check(deployment: Path, output: Output) -> int:
    """Read every file of the deployment and name everything that is wrong, with file, line and what to write instead.

    Nothing is looked at outside the folder, so it may run before anything exists.
    """
    from valuestream_dagster.cli.configuration import check_folder

    checked = check_folder(deployment, os.environ)
    if output.as_json:
        output.document(
            {
                "feeds": [feed.name for feed in checked.feeds],
                "findings": [finding_document(f) for f in checked.findings],
            }
        )
    for finding in checked.findings:
        output.line(str(finding))
    if checked.findings:
        return 2
    for feed in checked.feeds:
        paused = ", paused" if feed.paused else ""
        output.line(
            f"{feed.name}: {feed.mode.value}, {len(feed.contract.columns)} columns, from {feed.landing}{paused}"
        )
    output.line(f"{_counted(len(checked.feeds), 'feed')}, nothing wrong.")
    return 0


@click.command(short_help="What is new, and what may be applied.", epilog=example("valuestream plan acme/orders"))
@feed_argument()
@verb_deployment
@verb_output
def plan(feed: str | None, deployment: Path, output: Output) -> int:
    """Look at the landing places and say of each new delivery whether it may be applied now, and why not.

    Nothing is written. Exit code 1 if something is blocked or wrong.
    """
    from valuestream_dagster.cli.documents import (
        name_refusal_document,
        refusal_document,
        slice_document,
        stale_document,
        unusable_document,
    )
    from valuestream_dagster.errors import StoreFailure

    opened, feeds = selected_at(deployment, feed)
    plans: list[FeedPlan] = []
    refusals: list[dict[str, object]] = []
    for one in feeds:
        try:
            planned = opened.plan(one)
            plans.append(planned)
            refusals += [name_refusal_document(one, refusal) for refusal in planned.refusals]
        except StoreFailure as error:
            refusals.append(refusal_document(one, error))
    slices = [planned for each in plans for planned in each.slices]
    unusable = [unusable_document(each.feed, found) for each in plans for found in each.look.unusable]
    if output.as_json:
        stale = [
            stale_document(each.feed, one, "; ".join(each.stale.fields) or "an edit of the declaration")
            for each in plans
            for one in each.stale.deliveries
        ]
        told = [*(slice_document(one) for one in slices), *stale]
        output.document({"slices": told, "unusable": unusable, "refusals": refusals})
    else:
        for each in plans:
            if each.stale.deliveries:
                output.line(f"{each.feed.name}: {each.stale.told(each.feed)}.")
        _show_plan(output, slices, [*unusable, *refusals])
    wrong = refusals or any(planned.state in _TROUBLE for planned in slices)
    return 1 if wrong or any(found["state"] == "rejected" for found in unusable) else 0


def _show_plan(output: Output, slices: list[PlannedSlice], faults: list[dict[str, object]]) -> None:
    if slices:
        output.table(_SLICE_HEADS, [(one.feed, one.key, one.kind, one.revision, one.state, one.why) for one in slices])
    for fault in faults:
        where = f" {fault['manifest']}" if "manifest" in fault else ""
        output.line(f"{fault['feed']}{where}: {fault['detail']} [{fault['code']}]", colour="refused")
        if fault["next"]:
            output.line(f"  next: {fault['next']}")
    claimable = len({(one.feed, one.key) for one in slices if one.claimable})
    if claimable:
        output.line(f"{_counted(claimable, 'key')} may be applied now: run `valuestream apply`.")
    elif not (slices or faults):
        output.line("nothing new.")


@click.command(
    short_help="How every feed stands, and what to do.", epilog=example("valuestream status --strict --json")
)
@feed_argument()
@click.option("--strict", is_flag=True, help="Exit with 1 also where a delivery is overdue.")
@verb_deployment
@verb_output
def status(feed: str | None, deployment: Path, output: Output, *, strict: bool) -> int:
    """Say for each feed what readers have, what is expected next, what is wrong and what to do about it.

    Exit code 0 if every feed is healthy, which waiting for the next delivery is.
    """
    from valuestream_dagster.cli.standing import standing_of
    from valuestream_dagster.cli.words import standing

    opened, feeds = selected_at(deployment, feed)
    known = [standing_of(opened, one) for one in feeds]
    if output.as_json:
        output.document({"feeds": [one.as_dict() for one in known]})
    else:
        for one in known:
            output.line(f"{one.status.feed}: {standing(one.status)}", colour=one.colour)
            _show_standing(output, [("there", one.there), ("expected", one.expected)], one.advice)
        if not known:
            output.line("no feed is declared yet: add a file to the deployment's feeds/ folder.")
    return 0 if all(one.status.healthy and not (strict and one.status.overdue) for one in known) else 1


def _show_standing(output: Output, facts: list[tuple[str, str]], advice: list[Advice]) -> None:
    for name, text in facts:
        output.line(f"  {name:<9} {text}")
    for one in advice:
        output.line(f"  {'but' if one.next_step else 'note':<9} {one.what}")
        if one.next_step:
            output.line(f"  {'next':<9} {one.next_step}")


@click.command(
    short_help="What arrived, and the verdict on it.", epilog=example("valuestream receipts acme/orders --limit 20")
)
@feed_argument()
@click.option("--limit", type=click.IntRange(min=1), default=RECEIPTS_SHOWN, show_default=True, help="Newest receipts.")
@verb_deployment
@verb_output
def receipts(feed: str | None, limit: int, deployment: Path, output: Output) -> int:
    """List every arrival with its verdict and the reason, oldest first.

    Resends, late revisions, rejected and unreadable manifests are all there, none is ever removed.
    """
    from valuestream_dagster.cli.documents import receipt_document

    opened = open_at(deployment)
    found = opened.receipts(opened.feed(feed).name if feed else None, limit)
    if output.as_json:
        output.document({"receipts": [receipt_document(receipt) for receipt in found]})
    elif found:
        output.table(
            _RECEIPT_HEADS,
            [
                (f"{r.received_at:%Y-%m-%d %H:%M:%S}", r.feed, r.key, r.kind, r.revision, r.verdict, r.code, r.detail)
                for r in found
            ],
        )
    else:
        output.line("nothing has arrived yet.")
    return 0


@click.command(
    short_help="Which revisions were published, and from what.",
    epilog=example("valuestream history acme/orders 2026-09-02"),
)
@feed_argument(required=True)
@click.argument("key", required=False, metavar="[KEY]")
@verb_deployment
@verb_output
def history(feed: str, key: str | None, deployment: Path, output: Output) -> int:
    """List every published revision of a feed or of one key: when, by which run, and until when it was what readers saw.

    With --json also the producer's objects that each was made from.
    """
    from valuestream_dagster.cli.documents import history_document

    opened = open_at(deployment)
    one = opened.feed(feed)
    found = opened.history(one, opened.key(one, key).text if key else None)
    if output.as_json:
        output.document({"history": [history_document(publication, until) for publication, until in found]})
    elif found:
        output.table(
            _HISTORY_HEADS,
            [
                (p.key, p.kind, p.revision, p.rows, f"{p.published_at:%Y-%m-%d %H:%M:%S}",
                 f"{until:%Y-%m-%d %H:%M:%S}" if until else None, p.previous_key, p.digest.short, p.run_id)
                for p, until in found
            ],
        )  # fmt: skip
    else:
        output.line(f"nothing was published of {feed}{f' {key}' if key else ''}; see `valuestream plan {feed}`.")
    return 0


@click.command(
    short_help="Ask the published data in SQL.", epilog=example("valuestream query 'SELECT count(*) FROM bts.flights'")
)
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
@verb_deployment
@verb_output
def query(sql: str, deployment: Path, output: Output, *, as_csv: bool) -> int:
    """Ask the catalogue in DuckDB's SQL; it is opened read-only and is up to date.

    Each feed is a view "source"."dataset"; the schema valuestream tells of receipts, slices, files and lineage.
    """
    import duckdb

    from valuestream_dagster.errors import StoreFailure, WrongUse

    if as_csv and output.as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    with open_at(deployment).open_catalogue() as connection:
        try:
            connection.execute(sql)
            heads = [column[0] for column in connection.description or ()]
            if as_csv:
                _write_csv(heads, connection)
                return 0
            rows = connection.fetchall() if heads else []
        except duckdb.IOException as error:
            mend = "run `valuestream verify`: it names what is not as recorded, and how to mend it."
            raise StoreFailure(str(error), next_step=mend) from error
        except duckdb.Error as error:
            raise WrongUse(str(error), next_step="correct the SQL; `SHOW ALL TABLES` lists what there is.") from error
    if output.as_json:
        output.document({"columns": heads, "rows": [[json_cell(value) for value in row] for row in rows]})
    else:
        output.table(heads, rows)
    return 0


def _write_csv(heads: list[str], connection: Any) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(heads)
    while rows := connection.fetchmany(10_000):
        writer.writerows([[None if value is None else cell_text(value) for value in row] for row in rows])


def json_cell(value: object) -> object:
    """A value of a row; numbers that JSON has no form for become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): json_cell(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [json_cell(member) for member in value]
    return value if value is None or isinstance(value, bool | int | float | str) else json_value(value)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
