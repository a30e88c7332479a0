"""Dagster's home of a deployment: where its runs are kept, so that command line and UI show the same ones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from sqlalchemy.exc import DatabaseError

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.errors import StoreFailure

HOME_VARIABLE = "DAGSTER_HOME"


def prepare_home(opened: Deployment) -> Path:
    """Make the home and lay the deployment's ``dagster.yaml`` into it; returns its absolute path."""
    home = opened.settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home / ".valuestream.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _lay_configuration(opened, home)
        if not os.fstat(descriptor).st_size:
            # Dagster makes its tables when a home is opened first, and two processes that do so at once both fail.
            with dg.DagsterInstance.from_config(str(home)) as instance:
                instance.get_runs_count()
            os.pwrite(descriptor, b"ready\n", 0)
    finally:
        os.close(descriptor)
    return home


def _lay_configuration(opened: Deployment, home: Path) -> None:
    declared = opened.path / "dagster.yaml"
    target = home / "dagster.yaml"
    wanted = declared.read_text("utf-8") if declared.is_file() else "telemetry: {enabled: false}\nnux: {enabled: false}\n"
    if not target.is_file() or target.read_text("utf-8") != wanted:
        temporary = target.with_name(f"dagster.yaml.{os.getpid()}")
        temporary.write_text(wanted, "utf-8")
        temporary.replace(target)  # other processes may be reading it


@contextmanager
def instance_of(opened: Deployment) -> Iterator[dg.DagsterInstance]:
    """The deployment's Dagster instance, for the length of a block.

    Raises:
        StoreFailure: its storage did not answer, before or within the block.
    """
    try:
        home = prepare_home(opened)
        os.environ[HOME_VARIABLE] = str(home)  # run workers and code that Dagster starts find the same one
        with dg.DagsterInstance.get() as instance:
            yield instance
    except DatabaseError as error:
        home = opened.settings.dagster_home
        raise StoreFailure(
            f"Dagster's storage (see {home / 'dagster.yaml'}) did not answer: {error.orig}.",
            next_step="free space or bring it back, then run it again; what was published is kept and is told to Dagster then. "
            f"If it is damaged, move {home} away and run `valuestream recover`.",
        ) from error


def home_warning(opened: Deployment, environ: Mapping[str, str]) -> str | None:
    """What to say when this process shows other runs than the command line would, or None."""
    home = opened.settings.dagster_home
    found = environ.get(HOME_VARIABLE)
    if found and Path(found).resolve() == home.resolve():
        return None
    now = f"is {found}" if found else "is not set"
    return (
        f"{HOME_VARIABLE} {now}, so this UI does not show the runs of the `valuestream` command line. "
        f"Start it with {HOME_VARIABLE}={home}, or run `valuestream -d {opened.path} ui`."
    )
