"""Verbs that do something: ``pack`` hands a delivery over, ``apply`` takes deliveries in, ``ui`` opens Dagster's.

Whatever costs time to import is imported by the verb that needs it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from valuestream_dagster.cli.options import (
    DEPLOYMENT_VARIABLE,
    example,
    feed_argument,
    open_at,
    selected_at,
    verb_deployment,
    verb_output,
)
from valuestream_dagster.cli.output import Output, now, report_error

if TYPE_CHECKING:
    from valuestream_dagster.cli.applying import FeedApplied, Progress
    from valuestream_dagster.producing.pack import Packed
    from valuestream_dagster.producing.statement import PackOptions

HOST = "127.0.0.1"
_DETAILS_SHOWN = 20
_PACK_EXAMPLES = example(
    "valuestream pack orders.csv --into drop --source acme --dataset orders --key 2026-09-01 --total amount",
    "valuestream pack flights.csv --into drop --source bts --dataset flights --to-key 2013-03-01 \\",
    "  --split-by \"year || '-' || lpad(month, 2, '0') || '-' || lpad(day, 2, '0')\"",
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _pack_options(command: click.decorators.FC) -> click.decorators.FC:
    """What ``pack`` may be told about a delivery."""
    for option in reversed((
        click.option("--into", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="DIR",
                     help="Where the delivery is handed over; made if need be."),
        click.option("--source", required=True, help="Who delivers."),
        click.option("--dataset", required=True, help="What kind of thing."),
        click.option("--key", help="The delivery's sequence key, e.g. 2026-09-01."),
        click.option("--split-by", metavar="SQL", help="Instead of --key: carve one CSV file into a delivery per key; "
                     "SQL over its columns, all texts, that gives the key."),
        click.option("--from-key", metavar="KEY", help="With --split-by: the first key to take."),
        click.option("--to-key", metavar="KEY", help="With --split-by: the last key to take."),
        click.option("--revision", type=click.IntRange(min=1), default=1, show_default=True,
                     help="Raise it for a correction."),
        click.option("--kind", type=click.Choice(["full", "delta"]), default="full", show_default=True,
                     help="All of it, or the changes since the predecessor."),
        click.option("--predecessor", metavar="KEY", help="The delivery that this one follows."),
        click.option("--empty", is_flag=True, help="State that there is nothing for this key."),
        click.option("--total", "totals", multiple=True, metavar="COLUMN",
                     help="State the exact sum of a CSV column; may be repeated."),
        click.option("--count-rows/--no-count-rows", default=True, show_default=True,
                     help="State the records of CSV files."),
        click.option("--delimiter", default=",", show_default=True, help=r"Of the CSV files; \t for a tab."),
        click.option("--null", multiple=True, metavar="TEXT",
                     help="Text that means no value, for --total and --split-by; may be repeated.  [default: empty]"),
        click.option("--name-prefix", default="", help="Put before the names of the payload's files."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command(short_help="For producers: hand a delivery over.", epilog=_PACK_EXAMPLES)
@click.argument("files", nargs=-1, type=_FILE, metavar="FILE...")
@_pack_options
@verb_output
def pack(
    files: tuple[Path, ...],
    into: Path,
    key: str | None,
    split_by: str | None,
    from_key: str | None,
    to_key: str | None,
    output: Output,
    *,
    empty: bool,
    **stated: object,
) -> int:
    """Copy FILE... into DIR, then write the manifest that completes the delivery: sizes, checksums, rows and sums.

    It needs no deployment and replaces nothing: for a correction raise --revision.
    """
    from valuestream_dagster.producing.pack import pack_delivery
    from valuestream_dagster.producing.split import pack_split

    options = _stated(stated)
    if (key is None) == (split_by is None):
        raise click.UsageError("give either --key or --split-by.")
    packed: tuple[Packed, ...]
    if split_by is not None:
        if len(files) != 1 or empty:
            raise click.UsageError("--split-by carves exactly one CSV file.")
        packed = pack_split(files[0], into, split_by=split_by, options=options, from_key=from_key, to_key=to_key)
    else:
        if bool(files) == empty:
            raise click.UsageError("give FILE..., or --empty to state that there is nothing.")
        if from_key or to_key:
            raise click.UsageError("--from-key and --to-key go with --split-by.")
        packed = (pack_delivery(files, into, key=str(key), options=options),)
    _show_packed(packed, options, output)
    return 0


def _stated(given: dict[str, object]) -> PackOptions:
    from valuestream_dagster.core.manifest import Kind
    from valuestream_dagster.producing.statement import PackOptions

    given["kind"] = Kind(str(given["kind"]))
    given["delimiter"] = "\t" if given["delimiter"] == "\\t" else given["delimiter"]
    given["null"] = given["null"] or ("",)
    return PackOptions(**given, created_at=now())  # type: ignore[arg-type]


def _show_packed(packed: tuple[Packed, ...], options: PackOptions, output: Output) -> None:
    if output.as_json:
        output.document({"packed": [_packed_document(one, options) for one in packed]})
    for one in packed:
        rows = "" if one.rows is None else f", {one.rows} rows"
        size = sum(file.bytes for file in one.files)
        sums = "".join(f", {column} {total:f}" for column, total in one.totals.items())
        was = "" if one.written else " (was there already)"
        output.line(f"{options.source}/{options.dataset} {one.key}: {size} bytes{rows}{sums} -> {one.manifest}{was}")


def _packed_document(one: Packed, options: PackOptions) -> dict[str, object]:
    return {
        "manifest": str(one.manifest),
        "key": one.key.text,
        "kind": options.kind,
        "revision": options.revision,
        "files": [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256, "rows": f.rows} for f in one.files],
        "rows": one.rows,
        "totals": {column: f"{total:f}" for column, total in one.totals.items()},
        "written": one.written,
    }


@click.command(short_help="Take in all that may be applied.", epilog=example("valuestream apply acme/orders"))
@feed_argument()
@click.option("--key", help="Only this key of FEED, whether or not it is new.")
@verb_deployment
@verb_output
def apply(feed: str | None, key: str | None, deployment: Path, output: Output) -> int:
    """Check and publish everything that may be applied, in order, as real Dagster runs, until nothing is left.

    What is not applied is named with its reason. Run it as often as you like: with nothing new it does nothing.
    """
    from valuestream_dagster.cli.applying import applied_document, apply_one

    if key is not None and feed is None:
        raise click.UsageError("--key needs FEED.")
    opened, feeds = selected_at(deployment, feed)
    if key is not None:
        key = opened.key(feeds[0], key).text
    results: list[FeedApplied] = []
    with _progress() as progress:
        for one in feeds:
            if one.paused and feed is None:
                output.line(f"{one.name}: paused, nothing is applied")
                continue
            results.append(apply_one(opened, one, key, progress))
            _show_applied(results[-1], output)
    if output.as_json:
        output.document(applied_document(results))
    return 0 if all(one.ok for one in results) else 1


def _show_applied(done: FeedApplied, output: Output) -> None:
    from valuestream_dagster.cli.words import listed
    from valuestream_dagster.core.decision import Verdict

    accepted = [str(receipt.key) for receipt in done.of(Verdict.ACCEPTED)]
    duplicates, others = done.of(Verdict.DUPLICATE), done.not_applied
    parts = [f"{len(accepted)} applied ({listed(accepted)})"] if accepted else []
    parts += [f"{len(duplicates)} known already"] if duplicates else []
    parts += [f"{len(others)} not applied"] if others else []
    position = done.standing.status.position if done.standing else None
    output.line(
        f"{done.feed.name}: {', '.join(parts) or 'nothing new'}{f'; complete up to {position}' if position else ''}",
        colour="healthy" if done.ok else "refused",
    )
    for one in others[:_DETAILS_SHOWN]:
        output.line(f"  {one['verdict'] or 'blocked'}: {one['detail']}")
        if one["next"]:
            output.line(f"    next: {one['next']}")
    if len(others) > _DETAILS_SHOWN:
        output.line(f"  and {len(others) - _DETAILS_SHOWN} more: see `valuestream receipts {done.feed.name}`.")
    if done.error is not None:
        report_error(done.error.kind, done.error.message, done.error.next_step, as_json=False)
    if not done.ok and done.standing is not None and not (others or done.error):
        for advice in done.standing.advice:
            output.line(f"  {advice.what}{f'; next: {advice.next_step}' if advice.next_step else ''}")


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar on stderr while somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, object] = {}

        def told(feed: str, done: int, of: int) -> None:
            if feed not in tasks:
                tasks[feed] = bars.add_task(feed, total=of)
            bars.update(tasks[feed], completed=done, total=of)  # type: ignore[arg-type]

        yield told


@click.command(short_help="Dagster's UI over this deployment.", epilog=example("valuestream ui --port 3001"))
@click.option("--port", type=click.IntRange(1, 65_535), default=3000, show_default=True, help="Port on this machine.")
@verb_deployment
def ui(port: int, deployment: Path) -> int:
    """Start Dagster's UI and daemon over this deployment: the same runs, sensors that take deliveries in by themselves.

    It runs until you stop it with Ctrl-C.
    """
    opened = open_at(deployment)
    _refuse_taken(port)
    from valuestream_dagster.orchestration.home import prepare_home

    home = prepare_home(opened)
    click.echo(f"http://{HOST}:{port} shows {opened.path}; stop it with Ctrl-C.")
    sys.stdout.flush()
    # The process becomes Dagster's, so that Ctrl-C and exit codes are its own.
    os.execve(sys.executable, ui_command(port), ui_environment(os.environ, home, opened.path))  # noqa: S606


def ui_command(port: int) -> list[str]:
    """The command that ``ui`` becomes."""
    return [
        sys.executable, "-m", "dagster", "dev", "-m", "valuestream_dagster.definitions", "-h", HOST, "-p", str(port)
    ]  # fmt: skip


def ui_environment(environ: Mapping[str, str], home: Path, deployment: Path) -> dict[str, str]:
    """Its environment: the deployment's own Dagster home, so that UI and command line show the same runs."""
    return {**environ, "DAGSTER_HOME": str(home), DEPLOYMENT_VARIABLE: str(deployment)}


def _refuse_taken(port: int) -> None:
    from valuestream_dagster.errors import WrongUse

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise WrongUse(f"port {port} is not free ({error.strerror}).", next_step="pass another --port.") from None
