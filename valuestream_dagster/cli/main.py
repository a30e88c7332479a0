"""The program ``valuestream``: its verbs together, and how each of them ends. What a verb does is in its own room."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from valuestream_dagster.cli import act, keep, look, recovery, settle
from valuestream_dagster.cli.options import program_deployment
from valuestream_dagster.cli.output import report_exception, report_interrupt
from valuestream_dagster.cli.pack import pack
from valuestream_dagster.cli.probe import probe

BROKEN_PIPE = 141  # as the shell reports a program that died of SIGPIPE

EPILOG = """\b
The way, in five steps:
  1. A feed file in DIR/feeds says what is expected:   valuestream check
  2. A producer hands a delivery over, manifest last:  valuestream pack orders.csv --into DIR/landing/acme/orders
                                                         --source acme --dataset orders --key 2026-09-01
  3. See what is here and what may be applied:         valuestream plan
  4. Apply it, and learn what was not and why:         valuestream apply
  5. Read it, and see how every feed stands:           valuestream query 'FROM acme.orders'
                                                       valuestream status

\b
Exit codes: 0 healthy or done, 1 something is blocked, refused or failed, 2 wrong use or configuration, 3 internal error.
"""


class Program(click.Group):
    """A group whose verbs return their exit code and whose errors are sentences."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's own signature
        **extra: Any,
    ) -> Any:
        """Run one command line and end the process with its code."""
        given = list(sys.argv[1:] if args is None else args)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        code = self._ended(given, prog_name or "valuestream", complete_var, **extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _ended(self, given: list[str], prog_name: str, complete_var: str | None, **extra: Any) -> int:
        as_json = "--json" in given
        try:
            return int(super().main(given, prog_name, complete_var, standalone_mode=False, **extra) or 0)
        except click.Abort:
            return report_interrupt(as_json=as_json)
        except Exception as error:  # noqa: BLE001 - the outermost frame: what reaches it becomes a sentence
            return report_exception(error, as_json=as_json)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader that went away (``valuestream receipts | head``) is no error of ours."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        return code

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Verbs in the order in which they are met."""
        return list(self.commands)


@click.group(
    "valuestream",
    cls=Program,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@program_deployment
@click.version_option(package_name="valuestream-dagster", prog_name="valuestream")
def cli(deployment: object) -> None:
    """Take deliveries in: readers see exactly the newest accepted revision of every period, from bytes that were checked."""


_VERBS = (
    look.check,
    probe,
    pack,
    look.plan,
    act.apply,
    look.status,
    settle.explain,
    settle.rule,
    look.receipts,
    look.history,
    look.query,
    recovery.recover,
    keep.verify,
    keep.vacuum,
    recovery.backup,
    recovery.restore,
    recovery.rebuild,
    act.ui,
)
for _verb in _VERBS:
    cli.add_command(_verb)


def main() -> None:
    """Entry point of the console script."""
    cli.main()
