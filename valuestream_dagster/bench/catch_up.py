"""A year caught up as one range, one Dagster event each, against a bare insert loop over the same files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import duckdb

from valuestream_dagster.bench.material import ORDER_COLUMNS, daily_orders, deployment, lay_out

DAYS = 365


def measure(work: Path) -> dict[str, object]:
    """Deliveries a second both ways."""
    folder = work / "catch-up"
    shutil.rmtree(folder, ignore_errors=True)
    deployment(folder, ORDER_COLUMNS)
    lay_out(folder, daily_orders(DAYS))
    bare = DAYS / _bare(folder)
    ours = DAYS / _ours(folder)
    return {
        "deliveries": DAYS,
        "ours_per_second": round(ours, 1),
        "bare_insert_loop_per_second": round(bare, 1),
        "ratio": round(bare / ours, 2),
    }


def _bare(folder: Path) -> float:
    """One durable INSERT per file, columns passed; nothing checked, nothing recorded, no event."""
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in ORDER_COLUMNS.items())
    listed = ", ".join(f"{name} {kind}" for name, kind in ORDER_COLUMNS.items())
    began = time.perf_counter()
    with duckdb.connect(str(folder / "bare.duckdb")) as connection:
        connection.execute(f"CREATE TABLE orders ({listed})")
        for path in sorted((folder / "landing").glob("*.csv")):
            connection.execute(
                f"INSERT INTO orders FROM read_csv('{path}', auto_detect=false, header=true, columns={{{columns}}})"
            )
    return time.perf_counter() - began


def _ours(folder: Path) -> float:
    from valuestream_dagster.deployment import open_deployment
    from valuestream_dagster.orchestration.apply import apply_feed
    from valuestream_dagster.orchestration.home import instance_of

    opened = open_deployment(folder, {})
    feed = opened.feed("bench/orders")
    with instance_of(opened):
        pass  # making Dagster's databases is done once in a deployment's life
    began = time.perf_counter()
    applied = apply_feed(opened, feed, only=None, progress=None)
    seconds = time.perf_counter() - began
    if applied.failures or opened.status(feed).applied != DAYS:
        raise SystemExit(f"the benchmark's year was not applied: {applied.failures}")
    return seconds
