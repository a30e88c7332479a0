"""Verbs that do something with a deployment: ``apply`` takes deliveries in, ``ui`` opens Dagster's.

Whatever costs time to import is imported by the verb that needs it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
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
from valuestream_dagster.cli.output import INTERRUPTED, Output, report_error
from valuestream_dagster.cli.progress import progress_bars

if TYPE_CHECKING:
    from valuestream_dagster.cli.applying import FeedApplied

HOST = "127.0.0.1"
_DETAILS_SHOWN = 20


@click.command(short_help="Take in all that may be applied.", epilog=example("valuestream apply acme/orders"))
@feed_argument()
@click.option("--key", help="Only this key of FEED, whether or not it is new.")
@click.option("--recompute", is_flag=True, help="Then make again what an edit of the feed file has made stale.")
@click.option("--force", is_flag=True, help="Then make all of it (or KEY) again; deletes nothing, overrides nothing.")
@verb_deployment
@verb_output
def apply(feed: str | None, key: str | None, deployment: Path, output: Output, *, recompute: bool, force: bool) -> int:
    """Check and publish everything that may be applied, in order, as real Dagster runs, until nothing is left.

    What is not applied is named with its reason. Run it as often as you like: with nothing new it does nothing.

    With --recompute (or `policy: {recompute: auto}`) published deliveries that another declaration made are made again from their
    sealed bytes. Readers switch once, when all of it is there; after Ctrl-C the next --recompute goes on where it stopped.
    """
    from valuestream_dagster.cli.applying import Redo, applied_document, apply_one

    if key is not None and feed is None:
        raise click.UsageError("--key needs FEED.")
    opened, feeds = selected_at(deployment, feed)
    if key is not None:
        key = opened.key(feeds[0], key).text
    results: list[FeedApplied] = []
    for one in feeds:
        if one.paused and feed is None:
            output.line(f"{one.name}: paused, nothing is applied")
            continue
        with progress_bars() as progress:
            results.append(apply_one(opened, one, key, progress, Redo(asked=recompute, force=force)))
        _show_applied(results[-1], output)
        if results[-1].interrupted:
            break
    if output.as_json:
        output.document(applied_document(results))
    if any(one.interrupted for one in results):
        return INTERRUPTED
    return 0 if all(one.ok for one in results) else 1


def _show_applied(done: FeedApplied, output: Output) -> None:
    from valuestream_dagster.cli.words import spanned, up_to
    from valuestream_dagster.core.decision import Verdict

    accepted = [str(receipt.key) for receipt in done.of(Verdict.ACCEPTED)]
    duplicates, others = done.of(Verdict.DUPLICATE), done.not_applied
    failed = sum(1 for _, ok in done.runs if not ok)
    parts = [f"{len(accepted)} applied ({spanned(accepted)})"] if accepted else []
    parts += [f"{len(duplicates)} known already"] if duplicates else []
    parts += [f"{len(others)} not applied"] if others else []
    parts += [f"{failed} failed run{'s' if failed > 1 else ''}"] if failed and not done.interrupted else []
    parts += ["interrupted"] if done.interrupted else []
    position = done.standing.status.position if done.standing else None
    what = ", ".join(parts) or ("stopped" if done.error else "nothing new")
    output.line(
        f"{done.feed.name}: {what}{f'; {up_to(position, required=done.feed.rule.required)}' if position else ''}",
        colour="healthy" if done.ok else "refused",
    )
    if done.recomputed is not None:
        output.line(f"  {done.recomputed_in_words}")
    for one in others[:_DETAILS_SHOWN]:
        output.line(f"  {one['verdict'] or 'blocked'}: {one['detail']}")
        if one["next"]:
            output.line(f"    next: {one['next']}")
    if len(others) > _DETAILS_SHOWN:
        output.line(f"  and {len(others) - _DETAILS_SHOWN} more: see `valuestream receipts {done.feed.name}`.")
    if done.error is not None:
        report_error(done.error.kind, done.error.message, done.error.next_step, as_json=False)
    if not others:  # otherwise the runs failed for the reasons that stand above
        for failure in done.failures:
            output.line(f"  failed: {failure}")
    refused = done.standing is not None and bool(done.standing.refusals)
    if not done.ok and done.standing is not None and not done.error and (refused or not others):
        for advice in done.standing.advice:
            output.line(f"  {advice.what}{f'; next: {advice.next_step}' if advice.next_step else ''}")


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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a script's `ui &` inherits it ignored, and could never end it
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
