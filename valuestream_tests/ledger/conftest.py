"""A ledger file and a book of one feed in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_tests.builders import Book, Clock


@pytest.fixture
def ledger(tmp_path: Path) -> DuckLedger:
    return DuckLedger(tmp_path / "state" / "ledger.duckdb", now=Clock())


@pytest.fixture
def session(ledger: DuckLedger) -> Iterator[LedgerSession]:
    with ledger.session() as opened:
        yield opened


@pytest.fixture
def book(session: LedgerSession) -> Book:
    return Book(session)
