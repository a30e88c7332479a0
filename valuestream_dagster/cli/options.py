"""Options that several verbs share, and the deployment that they name. Importing this costs nothing but click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from valuestream_dagster.cli.output import Output

if TYPE_CHECKING:
    from valuestream_dagster.deployment import Deployment
    from valuestream_dagster.feeds.feed import Feed

DEPLOYMENT_VARIABLE = "VALUESTREAM_DEPLOYMENT"
DEFAULT_DEPLOYMENT = "deployments/local"

VerbT = TypeVar("VerbT", bound=Callable[..., Any])
_FOLDER = click.Path(path_type=Path)


def example(*lines: str) -> str:
    """The end of a verb's help; its lines are kept as they are."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def program_deployment(command: VerbT) -> VerbT:
    """``-d`` before the verb: the deployment of whatever follows."""
    return click.option(
        "-d",
        "--deployment",
        type=_FOLDER,
        envvar=DEPLOYMENT_VARIABLE,
        default=DEFAULT_DEPLOYMENT,
        show_default=True,
        metavar="DIR",
        help=f"The deployment's folder; also ${DEPLOYMENT_VARIABLE}.",
    )(command)


def verb_deployment(command: VerbT) -> VerbT:
    """``-d`` after the verb, which wins; the callback gets the folder either way."""

    def chosen(context: click.Context, _: click.Parameter, value: Path | None) -> Path:
        given: Path = context.find_root().params.get("deployment") or Path(DEFAULT_DEPLOYMENT)
        return value or given

    return click.option(
        "-d", "--deployment", type=_FOLDER, callback=chosen, metavar="DIR", help="The deployment's folder."
    )(command)


def verb_output(command: VerbT) -> VerbT:
    """``--json``: the callback gets an ``Output``."""
    return click.option(
        "--json",
        "output",
        is_flag=True,
        callback=lambda _context, _parameter, value: Output(as_json=bool(value)),
        help="One JSON document on stdout.",
    )(command)


def feed_argument(*, required: bool = False) -> Callable[[VerbT], VerbT]:
    """``FEED``: ``source/dataset``, or every feed."""
    return click.argument("feed", required=required, metavar="FEED" if required else "[FEED]")


def open_at(folder: Path) -> Deployment:
    """The deployment in a folder.

    Raises:
        WrongUse, ConfigurationInvalid: the folder is no deployment, or its YAML is wrong.
    """
    import os

    from valuestream_dagster.deployment import open_deployment  # here: costs half a second, which --help need not wait

    return open_deployment(folder, os.environ)


def selected_at(folder: Path, name: str | None) -> tuple[Deployment, tuple[Feed, ...]]:
    """The deployment in a folder with the named feed, or all of its feeds."""
    opened = open_at(folder)
    return opened, opened.selected(name)
