"""What readers have in the end: the comparison with the package's own file, and two questions with their answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from valuestream_dagster.core.rows import Column
from valuestream_dagster.demo.producer import FIRST_DAY, LAST_DAY, NULL
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.feeds.feed import Feed

QUESTIONS = (
    # Two carriers share the third place: without the second word of the order the answer is one of two.
    "SELECT origin, carrier, max(dep_delay) AS worst FROM bts.flights GROUP BY ALL ORDER BY worst DESC, carrier LIMIT 4",
    "SELECT last_origin, count(*) AS aircraft, count(type) AS registered FROM bts.aircraft GROUP BY ALL ORDER BY 1",
)


@dataclass(frozen=True, slots=True)
class Measure:
    """Flights summed up: how many, how far in all (miles), and a hash over every value of every row in any order."""

    rows: int
    distance: int
    hash: str

    def __str__(self) -> str:
        return f"{self.rows:,} flights, {self.distance:,} miles, hash {self.hash}"


def measure_package(catalogue: duckdb.DuckDBPyConnection, feed: Feed, flights: Path) -> Measure:
    """The package's own file, read by DuckDB with the declared types; none of valuestream's files or tables is touched.

    Args:
        catalogue: any DuckDB connection.
        feed: whose columns are meant.
        flights: the package's flights, unpacked.

    Raises:
        StoreFailure: a file is not there.
    """
    columns = feed.contract.columns
    types = ", ".join(f"'{column.name}': '{column.type}'" for column in columns)
    source = (
        f"(SELECT * FROM read_csv(?, header=true, auto_detect=false, delim=',', quote='\"', nullstr='{NULL}', "
        f"columns={{{types}}}) WHERE make_date(year, month, day) BETWEEN DATE '{FIRST_DAY}' AND DATE '{LAST_DAY}')"
    )
    return _measure(catalogue, columns, source, [str(flights)])


def measure_catalogue(catalogue: duckdb.DuckDBPyConnection, feed: Feed) -> Measure:
    """What readers see.

    Raises:
        StoreFailure: a published file is not there.
    """
    return _measure(catalogue, feed.contract.columns, f"{feed.source}.{feed.dataset}", [])


def _measure(
    connection: duckdb.DuckDBPyConnection, columns: tuple[Column, ...], source: str, parameters: list[str]
) -> Measure:
    names = ", ".join(f'"{column.name}"' for column in columns)
    sql = f"""SELECT count(*), coalesce(sum(distance), 0), coalesce(sum(CAST(hash({names}) AS HUGEINT)), 0) FROM {source}"""
    try:
        rows, distance, hashed = connection.execute(sql, parameters).fetchall()[0]
    except duckdb.IOException as error:
        raise StoreFailure(str(error).strip(), next_step="see that the files named here are there.") from error
    return Measure(int(rows), int(distance), f"{int(hashed) % 2**64:016x}")
