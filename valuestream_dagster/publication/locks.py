"""The run lock: one run per feed at a time, for as long as its process lives. The second fails at once and names the first (L12)."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from valuestream_dagster.errors import FeedBusy


def holder_name() -> str:
    """This process, as other people find it: ``host:pid``."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def run_lock(folder: Path, feed: str, *, since: datetime) -> Iterator[None]:
    """Hold a feed's run lock; the kernel lets go of it when the process dies, however it dies.

    Args:
        folder: where the lock files lie, on a local file system.
        feed: ``source/dataset``.
        since: the clock's reading, for whoever finds it taken.

    Raises:
        FeedBusy: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{feed.replace('/', '__')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FeedBusy(
                f"{feed} is being run by {_holder(descriptor)}.",
                next_step="wait for it to end, or end that process, then run it again.",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"holder": holder_name(), "since": since.isoformat()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_busy(folder: Path, feed: str) -> bool:
    """Whether some process holds the feed's run lock now."""
    try:
        with run_lock(folder, feed, since=datetime.min):
            return False
    except FeedBusy:
        return True


def _holder(descriptor: int) -> str:
    try:
        known = json.loads(os.pread(descriptor, 4096, 0))
        return f"{known['holder']} since {known['since']}"
    except (ValueError, KeyError, OSError):
        return "another process"
