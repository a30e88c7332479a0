"""From each schema to the next. Never edited once released: an old ledger takes the same steps as the first one did.

Each step runs inside the opening's transaction, with nobody else in the file (V1).
A column is added by name, so that rows exported before it read as NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb

Migration = Callable[[duckdb.DuckDBPyConnection], None]

_TWO = """
    ALTER TABLE runs ADD COLUMN purpose VARCHAR;
    ALTER TABLE rulings ADD COLUMN settles VARCHAR[];
    CREATE TABLE computations (
        feed VARCHAR NOT NULL, computation_hash VARCHAR NOT NULL, decisive VARCHAR NOT NULL,
        recorded_at TIMESTAMP NOT NULL);
    CREATE TABLE removals (
        path VARCHAR NOT NULL, bytes BIGINT NOT NULL, why VARCHAR NOT NULL, publication_id VARCHAR,
        removed_at TIMESTAMP NOT NULL);
    CREATE TABLE ledger_identity (ledger_id VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL);
"""


def _to_two(connection: duckdb.DuckDBPyConnection) -> None:
    """Rulings, recomputation, vacuum, and the ledger's own name."""
    connection.execute(_TWO)


MIGRATIONS: Mapping[int, Migration] = {1: _to_two}
