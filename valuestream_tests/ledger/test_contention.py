"""Several real processes at one ledger: all get their turn, no row is lost, a killed one leaves nothing half (L10, M18, S8)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from valuestream_dagster.ledger.duck import DuckLedger

PROCESSES, COMMITS = 8, 6


def _start(path: Path, name: str, commits: int | str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "valuestream_tests.ledger.contender", str(path), name, str(commits)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_eight_processes_each_commit_all_their_rows_and_see_their_own(ledger: DuckLedger) -> None:
    """FACTS, DuckDB 1 and 2: queueing on the sibling lock loses nobody, also while the schema is first made"""
    running = [_start(ledger.path, f"acme/feed{number}", COMMITS) for number in range(PROCESSES)]
    for process in running:
        out, errors = process.communicate(timeout=240)
        assert (process.returncode, out) == (0, "done\n"), errors
    with ledger.session() as session:
        for number in range(PROCESSES):
            receipts = session.read.receipts(f"acme/feed{number}", 1_000)
            assert [receipt.revision for receipt in receipts] == list(range(1, COMMITS + 1))
        assert session.connection.execute("SELECT count(*) FROM schema_history").fetchall() == [(1,)]


def test_a_process_killed_inside_a_transaction_leaves_nothing_and_the_ledger_opens(ledger: DuckLedger) -> None:
    """S8, M18: kill -9 before COMMIT"""
    with ledger.session():
        pass
    for _ in range(3):
        process = _start(ledger.path, "acme/orders", "die")
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.kill()
        process.communicate(timeout=60)
        with ledger.session() as session:
            assert session.read.receipts(None, 10) == ()


def test_a_process_killed_while_the_schema_is_made_leaves_a_ledger_that_can_be_made(ledger: DuckLedger) -> None:
    """S8: the very first opening, inside whose session the process dies"""
    process = _start(ledger.path, "acme/orders", "die")
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    process.kill()
    process.communicate(timeout=60)
    with ledger.session() as session:
        assert session.read.receipts(None, 10) == ()
