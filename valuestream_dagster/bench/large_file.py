"""One large CSV: verified publication against the unsafe ``COPY``, each in a fresh process that tells its time and peak memory."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from statistics import median

import duckdb

from valuestream_dagster.bench.material import FIRST_DAY, FLIGHT_COLUMNS, deployment, flights_csv, write_manifest

ROUNDS = 3
WARM_UP = "warm-up"


def measure(work: Path) -> dict[str, object]:
    """Run both ways alternately; medians, their ratio, and peak memory."""
    csv = flights_csv(work)
    ready = _prepare(work, csv)
    ways = ("unsafe", "verified", "verified_with_key")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(ROUNDS + 1):
        for way in ways:
            one = _child(way, csv, ready)
            if number:  # the first round warms the page cache for all
                found[way].append(one)
    seconds = {way: median(one["seconds"] for one in runs) for way, runs in found.items()}
    peak = {way: median(one["peak_mb"] for one in runs) for way, runs in found.items()}
    return {
        "csv_mb": round(csv.stat().st_size / 1e6),
        "unsafe_copy_seconds": round(seconds["unsafe"], 2),
        "verified_seconds": round(seconds["verified"], 2),
        "ratio": round(seconds["verified"] / seconds["unsafe"], 2),
        "ratio_with_unique_key": round(seconds["verified_with_key"] / seconds["unsafe"], 2),
        "unsafe_peak_mb": round(peak["unsafe"]),
        "verified_peak_mb": round(peak["verified"]),
    }


def _prepare(work: Path, csv: Path) -> Path:
    """Landing places with the file and its manifest, one with and one without a declared key."""
    ready = work / "large"
    shutil.rmtree(ready, ignore_errors=True)
    data = csv.read_bytes()
    with duckdb.connect() as connection:
        rows, distance = connection.execute(
            f"SELECT count(*), sum(CAST(distance AS DECIMAL(38,0))) FROM read_csv('{csv}', all_varchar=true)"
        ).fetchall()[0]
    for name, more in (("verified", ""), ("verified_with_key", "key: [time_hour, carrier, flight]\n")):
        folder = deployment(
            ready / name, FLIGHT_COLUMNS, null="NA", more=f"controls: {{totals: [distance]}}\n{more}"
        )
        (folder / "landing").mkdir()
        os.link(csv, folder / "landing" / "flights.csv")
        write_manifest(
            folder / "landing", FIRST_DAY.isoformat(), "flights.csv", data, rows, [("distance", str(Decimal(distance)))]
        )
    return ready


def _child(way: str, csv: Path, ready: Path) -> dict[str, float]:
    shutil.rmtree(ready / way / "state", ignore_errors=True)
    answer = subprocess.run(
        [sys.executable, "-m", "valuestream_dagster.bench.large_file", way, str(csv), str(ready / way)],
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(json.loads(answer.stdout))


def _unsafe(csv: Path, folder: Path) -> None:
    """What people write: no check, no copy, no fsync; the same types and the same Parquet options as ours."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in FLIGHT_COLUMNS.items())
    with duckdb.connect() as connection:
        connection.execute(
            f"""COPY (FROM read_csv('{csv}', auto_detect=false, header=true, nullstr='NA', columns={{{columns}}}))
                TO '{folder}/out.parquet' (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2)"""
        )


def _verified(folder: Path) -> None:
    """The whole way: look, seal, prove, write, read back, record, close, show."""
    from valuestream_dagster.deployment import open_deployment

    opened = open_deployment(folder, {})
    feed = opened.feed("bench/orders")
    key = opened.key(feed, FIRST_DAY.isoformat())
    with opened.publisher(feed).open_run([key]) as run:
        outcomes = [outcome for visible in run.publish([key]) for outcome in visible]
    trouble = [str(outcome.told) for one in outcomes for outcome in one.trouble]
    if trouble or not outcomes[0].changed:
        raise SystemExit(f"the benchmark's delivery was not accepted: {trouble}")


def main() -> None:
    """One measurement, in this process alone; prints it as JSON."""
    way, csv, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    for module in ("valuestream_dagster.deployment", "valuestream_dagster.intake.csv_proof", "numpy", "pyarrow.compute"):
        importlib.import_module(module)  # importing is not what is measured, for either way
    began = time.perf_counter()
    if way == "unsafe":
        _unsafe(csv, folder)
    else:
        _verified(folder)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "peak_mb": _peak_mb()}))


def _peak_mb() -> float:
    """Largest memory of this process since it was started; ``ru_maxrss`` would count its parent's from before."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
