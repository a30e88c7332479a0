"""The run lock: one run per feed at a time, for as long as its process lives. The second fails at once and names the first (L12).

Whoever only asks takes the lock shared, for an instant, and so never stands in a run's way: a run that finds the lock taken
shared knows that no run holds it, and tries again.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from valuestream_dagster.errors import FeedBusy

# A shared lock is held for microseconds; a run gives way to none for long.
# No feed can bear this name, which has no dataset.
_STORE = ".store"
_ATTEMPTS, _PAUSE_SECONDS = 100, 0.005


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
    descriptor = _open(folder, feed)
    try:
        for _ in range(_ATTEMPTS):
            if _take(descriptor, fcntl.LOCK_EX):
                break
            if not _take(descriptor, fcntl.LOCK_SH):
                raise _busy(descriptor, feed)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            time.sleep(_PAUSE_SECONDS)
        else:
            raise _busy(descriptor, feed)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"holder": holder_name(), "since": since.isoformat()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """Be at work on the store: held shared, with others, for as long as bytes are in it that no row names yet.

    Args:
        folder: where the lock files lie.
    """
    descriptor = _open(folder, _STORE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def sweeping(folder: Path) -> Iterator[None]:
    """Have the store to oneself, to take unnamed files away.

    Raises:
        FeedBusy: somebody takes deliveries in.
    """
    descriptor = _open(folder, _STORE)
    try:
        if not _take(descriptor, fcntl.LOCK_EX):
            raise FeedBusy(
                "deliveries are being taken in, so nothing can be cleared away now.",
                next_step="try again when no run is at work.",
            )
        yield
    finally:
        os.close(descriptor)


def is_busy(folder: Path, feed: str) -> bool:
    """Whether some process holds the feed's run lock now."""
    descriptor = _open(folder, feed)
    try:
        return not _take(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _open(folder: Path, feed: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / f"{feed.replace('/', '__')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _take(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(descriptor: int, feed: str) -> FeedBusy:
    return FeedBusy(
        f"{feed} is being run by {_holder(descriptor)}.",
        next_step="wait for it to end, or end that process, then run it again.",
    )


def _holder(descriptor: int) -> str:
    try:
        known = json.loads(os.pread(descriptor, 4096, 0))
        return f"{known['holder']} since {known['since']}"
    except (ValueError, KeyError, OSError):
        return "another process"
