"""A program that takes deliveries in and dies when it has told Dagster of so many: after the ledger run was closed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from valuestream_dagster.deployment import open_deployment
from valuestream_dagster.orchestration.apply import apply_feed


def main(folder: str, feed: str, events: int) -> None:
    """Apply, and die at the next event."""
    told = 0
    tell = dg.AssetExecutionContext.log_event

    def tell_or_die(self: dg.AssetExecutionContext, event: Any) -> None:
        nonlocal told
        if told == events:
            os._exit(9)
        told += 1
        tell(self, event)

    dg.AssetExecutionContext.log_event = tell_or_die  # type: ignore[method-assign]
    opened = open_deployment(Path(folder), os.environ)
    apply_feed(opened, opened.feed(feed), only=None, progress=None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
