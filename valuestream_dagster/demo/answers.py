"""What readers have in the end: the comparison with the package's own file, and two questions with their answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from valuestream_dagster.core.rows import Column
from valuestream_dagster.demo.producer import FIRST_DAY, LAST_DAY, NULL
from valuestream_dagster.feeds.feed import Feed

WORST_DELAYS = (
    "SELECT origin, carrier, max(dep_delay) AS worst_delay, count(*) AS flights "
    "FROM bts.flights GROUP BY ALL ORDER BY worst_delay DESC LIMIT 4"
)
LAST_ORIGINS = (
    "SELECT last_origin, count(*) AS aircraft, count(type) AS registered, max(last_seen) AS last_seen "
    "FROM bts.aircraft GROUP BY ALL ORDER BY last_origin"
)
QUESTIONS = (
    ("The worst delays in minutes, by airport and carrier:", WORST_DELAYS),
    ("Where aircraft departed last (no airport: registered, not seen in the two months):", LAST_ORIGINS),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """Flights summed up: how many, how far in all (miles), and a hash over every value of every row in any order."""

    rows: int
    distance: int
    hash: str

    def __str__(self) -> str:
        return f"{self.rows:,} flights, {self.distance:,} miles, rows {self.hash}"


def measure_package(catalogue: duckdb.DuckDBPyConnection, feed: Feed, flights: Path) -> Measure:
    """The package's own file, read by DuckDB with the declared types; none of valuestream's files or tables is touched.

    Args:
        catalogue: any DuckDB connection.
        feed: whose columns are meant.
        flights: the package's flights, unpacked.
    """
    columns = feed.contract.columns
    types = ", ".join(f"'{column.name}': '{column.type}'" for column in columns)
    source = (
        f"(SELECT * FROM read_csv(?, header=true, auto_detect=false, delim=',', quote='\"', nullstr='{NULL}', "
        f"columns={{{types}}}) WHERE make_date(year, month, day) BETWEEN DATE '{FIRST_DAY}' AND DATE '{LAST_DAY}')"
    )
    return _measure(catalogue, columns, source, [str(flights)])


def measure_catalogue(catalogue: duckdb.DuckDBPyConnection, feed: Feed) -> Measure:
    """What readers see."""
    return _measure(catalogue, feed.contract.columns, f"{feed.source}.{feed.dataset}", [])


def _measure(
    connection: duckdb.DuckDBPyConnection, columns: tuple[Column, ...], source: str, parameters: list[str]
) -> Measure:
    names = ", ".join(f'"{column.name}"' for column in columns)
    rows, distance, hashed = connection.execute(
        f"SELECT count(*), coalesce(sum(distance), 0), coalesce(sum(CAST(hash({names}) AS HUGEINT)), 0) FROM {source}",
        parameters,
    ).fetchall()[0]
    return Measure(int(rows), int(distance), f"{int(hashed) % 2**64:016x}")
