"""A bar on stderr for work that takes long, while somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

Progress = Callable[[str, int, int], None]


@contextmanager
def progress_bars() -> Iterator[Progress | None]:
    """A bar on stderr while somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        tasks: dict[str, TaskID] = {}

        def told(feed: str, done: int, of: int) -> None:
            if feed not in tasks:
                tasks[feed] = bars.add_task(feed, total=of)
            bars.update(tasks[feed], completed=done, total=of)

        yield told
