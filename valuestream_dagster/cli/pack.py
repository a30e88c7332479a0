"""``pack``, the producer's verb: options in, ``producing``'s two functions called, what was handed over told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from valuestream_dagster.cli.options import example, verb_output
from valuestream_dagster.cli.output import Output, counted, now

if TYPE_CHECKING:
    from valuestream_dagster.producing.pack import Packed
    from valuestream_dagster.producing.statement import PackOptions

_EXAMPLES = example(
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


@click.command(short_help="For producers: hand a delivery over.", epilog=_EXAMPLES)
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
        rows = "" if one.rows is None else f", {counted(one.rows, 'row')}"
        size = sum(file.bytes for file in one.files)
        sums = "".join(f", {column} {total:f}" for column, total in one.totals.items())
        was = "" if one.written else " (was there already)"
        output.line(f"{options.source}/{options.dataset} {one.key}: {counted(size, 'byte')}{rows}{sums} -> {one.manifest}{was}")


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
