"""The run lock: one process per feed, the second fails at once and names the first, death lets go (L12, L13, S14)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from valuestream_dagster.errors import FeedBusy
from valuestream_dagster.publication.locks import holder_name, is_busy, run_lock
from valuestream_tests.builders import NOON

_HOLD = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from valuestream_dagster.publication.locks import run_lock
with run_lock(Path(sys.argv[1]), sys.argv[2], since=datetime(2026, 9, 10, tzinfo=UTC)):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holding(folder: Path, feed: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder), feed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_of_a_feed_fails_at_once_and_names_the_first_and_since_when(tmp_path: Path) -> None:
    """L12, S14"""
    process = _holding(tmp_path, "acme/orders")
    try:
        with pytest.raises(FeedBusy) as busy, run_lock(tmp_path, "acme/orders", since=NOON):
            pass
        assert f":{process.pid} since 2026-09-10T00:00:00+00:00" in busy.value.message
        assert busy.value.next_step
        assert (busy.value.retryable, busy.value.exit_code) == (True, 1)
        assert is_busy(tmp_path, "acme/orders")
    finally:
        process.communicate(timeout=60)
    with run_lock(tmp_path, "acme/orders", since=NOON):
        pass


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    """L13, S28: however it dies, so that whoever has the lock knows that open runs are dead"""
    process = _holding(tmp_path, "acme/orders")
    process.kill()
    process.communicate(timeout=60)
    with run_lock(tmp_path, "acme/orders", since=NOON):
        pass


def test_other_feeds_are_not_held_up(tmp_path: Path) -> None:
    """L12: the lock is the feed's"""
    with run_lock(tmp_path, "acme/orders", since=NOON), run_lock(tmp_path, "acme/items", since=NOON):
        assert is_busy(tmp_path, "acme/items")
        assert not is_busy(tmp_path, "beta/orders")


def test_within_one_process_the_second_fails_too(tmp_path: Path) -> None:
    """L12: two runs of one feed in threads of one daemon"""
    with (
        run_lock(tmp_path, "acme/orders", since=NOON),
        pytest.raises(FeedBusy, match=re.escape(holder_name())),
        run_lock(tmp_path, "acme/orders", since=NOON),
    ):
        pass
    assert not is_busy(tmp_path, "acme/orders")


def test_an_exception_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path, "acme/orders", since=NOON):
        _ = 1 / 0
    assert not is_busy(tmp_path, "acme/orders")


def test_a_lock_file_that_nobody_can_read_still_says_that_it_is_taken(tmp_path: Path) -> None:
    with run_lock(tmp_path, "acme/orders", since=NOON):
        next(tmp_path.iterdir()).write_text("half a li")
        with pytest.raises(FeedBusy, match="another process"), run_lock(tmp_path, "acme/orders", since=NOON):
            pass
