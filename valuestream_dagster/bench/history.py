"""A no-op apply and a status after 100 and after 10,000 deliveries: what they cost must not grow with history, nor be written.

The past is laid into the ledger by SQL, of the shape that real runs leave, since working off 10,000 deliveries would take
minutes; the landing place keeps every one of them, which is the worst case.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

from valuestream_dagster.bench.material import FIRST_DAY, ORDER_COLUMNS, daily_orders, deployment, lay_out

SMALL, LARGE = 100, 10_000
ROUNDS = 3


def measure(work: Path) -> dict[str, object]:
    """Seconds of each command as a whole process, alternately; and of its own work without starting Python."""
    folders = {count: _past(work / f"history-{count}", count) for count in (SMALL, LARGE)}
    whole: dict[tuple[str, int], list[float]] = {}
    for number in range(ROUNDS + 1):
        for verb in ("status", "apply"):
            for count, folder in folders.items():
                seconds = _command(folder, verb)
                if number:
                    whole.setdefault((verb, count), []).append(seconds)
    answer: dict[str, object] = {f"files_written_by_apply_after_{LARGE}": _written_by_apply(folders[LARGE])}
    for verb in ("status", "apply"):
        small, large = median(whole[verb, SMALL]), median(whole[verb, LARGE])
        answer[f"{verb}_after_{SMALL}_seconds"] = round(small, 2)
        answer[f"{verb}_after_{LARGE}_seconds"] = round(large, 2)
        answer[f"{verb}_ratio"] = round(large / small, 2)
    return answer


def _written_by_apply(folder: Path) -> int:
    """How many files of the whole deployment a no-op apply made or changed; anything but none is a defect."""
    before = _fingerprints(folder)
    _command(folder, "apply")
    after = _fingerprints(folder)
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    if changed:
        raise SystemExit(f"an apply with nothing new wrote {changed[:5]}")
    return 0


def _fingerprints(folder: Path) -> dict[str, str]:
    """sha256 of every file of the deployment's state, by path."""
    found: dict[str, str] = {}
    for path in sorted((folder / "state").rglob("*")):
        if path.is_file():
            with path.open("rb") as opened:
                found[str(path.relative_to(folder))] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found


def _command(folder: Path, verb: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [str(Path(sys.executable).with_name("valuestream")), "--deployment", str(folder), verb],
        check=True, capture_output=True, env={**os.environ, "DAGSTER_HOME": ""},
    )  # fmt: skip
    return time.perf_counter() - began


def _past(folder: Path, count: int) -> Path:
    """A deployment whose first delivery was really worked off, and whose others are its copies, a day apart."""
    from valuestream_dagster.deployment import open_deployment

    shutil.rmtree(folder, ignore_errors=True)
    deployment(folder, ORDER_COLUMNS)
    lay_out(folder, daily_orders(1))
    opened = open_deployment(folder, {})
    feed = opened.feed("bench/orders")
    publisher = opened.publisher(feed)
    with publisher.open_run([opened.key(feed, FIRST_DAY.isoformat())]) as run:
        for visible in run.publish([opened.key(feed, FIRST_DAY.isoformat())]):
            publisher.mark_reported([one.publication for one in visible if one.publication])
    lay_out(folder, daily_orders(count)[1:])
    first = FIRST_DAY.toordinal()
    with opened.ledger.session() as session:
        connection = session.connection
        for table in ("receipts", "deliveries", "slice_events", "publications", "files", "lineage", "reported"):
            columns = [row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()]
            copied = ", ".join(_copied(column) for column in columns)
            connection.execute(
                f"INSERT INTO {table} SELECT {copied} FROM {table} t, range(1, {count}) n(i) ORDER BY i"
            )
        seen = [[stat.path, stat.stamp] for stat in publisher.landing.list()]
        connection.executemany("INSERT INTO objects_seen VALUES ('bench/orders', ?, ?, 'x', now()::TIMESTAMP)", seen)
    last = opened.key(feed, (FIRST_DAY + timedelta(days=count - 1)).isoformat())
    opened.refresh_catalogue()
    status = opened.status(feed)
    if status.position != last.text or status.applied != count or first > last.ordinal:
        raise SystemExit(f"the laid history of {count} does not stand: {status}")
    return folder


def _copied(column: str) -> str:
    """A column of the i-th copy: keys and ids move on, the rest stays."""
    moved = {
        "key": "strftime(CAST(t.key AS DATE) + CAST(i AS INTEGER), '%Y-%m-%d')",
        "ordinal": "t.ordinal + i",
        "requires": "strftime(CAST(t.key AS DATE) + CAST(i AS INTEGER) - 1, '%Y-%m-%d')",
        "requires_ordinal": "t.ordinal + i - 1",
        "publication_id": "t.publication_id || '-' || i",
        "receipt_id": "t.receipt_id || '-' || i",
        "position": "strftime(CAST(t.key AS DATE) + CAST(i AS INTEGER), '%Y-%m-%d')",
    }
    return moved.get(column, f't."{column}"')
