"""The demo as its user runs it: in a process of its own, on a copy of its deployment, from another folder.

What readers have in the end is compared with the package's CSV files, read here by the csv module alone.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from valuestream_dagster.demo.__main__ import HERE, main
from valuestream_dagster.demo.answers import QUESTIONS
from valuestream_dagster.demo.producer import package_folder
from valuestream_dagster.producing.pack import pack_delivery
from valuestream_dagster.producing.statement import PackOptions
from valuestream_dagster.readers import open_catalog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FIRST, LAST = date(2013, 1, 1), date(2013, 3, 1)
STORY = [
    "accepted", "waiting", "accepted", "duplicate", "accepted", "superseded", "conflict", "accepted", "blocked", "accepted",
    "accepted",
]  # fmt: skip
RECEIPTS = {"accepted": 123, "duplicate": 1, "superseded": 1, "conflict": 1, "waiting": 10}
Rows = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Told:
    """What one demo printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def story(self) -> dict[int, tuple[str, str]]:
        """Verdict and phrase of each step that was told, by its number."""
        lines = re.findall(r"^ ?(\d+)  .{46}  (\w+) +(.+)$", self.out, re.MULTILINE)
        return {int(number): (verdict, words) for number, verdict, words in lines}


def clean_deployment(folder: Path) -> Path:
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("state", "landing"))
    return folder


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("VALUESTREAM_", "DAGSTER_"))}


def start(deployment: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "valuestream_dagster.demo", "--deployment", deployment.name],
        cwd=deployment.parent,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def demo(deployment: Path) -> Told:
    with start(deployment) as process:
        out, err = process.communicate()
    return Told(process.returncode, out, err)


def ask(deployment: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(open_catalog(deployment)) as catalogue:
        return catalogue.execute(sql).fetchall()


def verdicts(deployment: Path) -> dict[str, int]:
    return dict(ask(deployment, "SELECT verdict, count(*) FROM valuestream.receipts GROUP BY ALL"))


def dagster_runs(deployment: Path) -> int:
    with closing(sqlite3.connect(deployment / "state/dagster/history/runs.db")) as database:
        return int(database.execute("SELECT count(*) FROM runs").fetchone()[0])


@dataclass(frozen=True, slots=True)
class Finished:
    """A deployment after two demos, with what was there after the first."""

    deployment: Path
    first: Told
    again: Told
    runs: int
    receipts: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    deployment = clean_deployment(tmp_path_factory.mktemp("demo") / "it's here")
    first = demo(deployment)
    runs, receipts = dagster_runs(deployment), ask(deployment, "SELECT receipt_id FROM valuestream.receipts")
    return Finished(deployment, first, demo(deployment), runs, receipts)


# --- the package, read by other means --------------------------------------------------------------------------------


def flights_of_the_year() -> Iterator[list[str]]:
    with zipfile.ZipFile(package_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.reader(TextIOWrapper(file, "utf-8", newline=""))
        next(rows)
        yield from rows


def day_of(flight: list[str]) -> date:
    return date(int(flight[0]), int(flight[1]), int(flight[2]))


def flights_of_two_months() -> list[list[str]]:
    return [flight for flight in flights_of_the_year() if FIRST <= day_of(flight) <= LAST]


def flights_in(deployment: Path) -> Rows:
    """The catalogue's flights as the package writes them."""
    rows = ask(
        deployment,
        """SELECT COLUMNS(* EXCLUDE (time_hour))::VARCHAR, strftime(time_hour AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')
           FROM bts.flights""",
    )
    return Counter(tuple("NA" if value is None else value for value in row) for row in rows)


# --- the tests -------------------------------------------------------------------------------------------------------


def test_the_demo_ends_well_and_says_nothing_but_its_lines(finished: Finished) -> None:
    assert finished.first.code == 0, finished.first
    assert finished.first.err == ""
    lines = finished.first.out.splitlines()
    assert 25 <= len(lines) <= 40 and max(map(len, lines)) <= 132
    assert "\x1b" not in finished.first.out


def test_every_step_has_the_verdict_that_it_should_have(finished: Finished) -> None:
    story = finished.first.story
    assert [story[number][0] for number in sorted(story)] == STORY
    assert "missing: flights-2013-02-15-r1.csv" in story[2][1]
    assert "930 flights, were 890" in story[5][1]
    assert "readers keep 789 flights" in story[7][1] and "829 flights" in story[8][1]
    assert "sequence_gap: 2013-02-20; 4 applied, 9 wait" in story[9][1]


def test_the_receipts_tell_the_same(finished: Finished) -> None:
    assert verdicts(finished.deployment) == RECEIPTS


def test_readers_have_exactly_the_flights_of_the_package(finished: Finished) -> None:
    wanted = flights_of_two_months()
    assert len(wanted) == 52_913
    assert flights_in(finished.deployment) == Counter(map(tuple, wanted))
    distance = sum(int(flight[15]) for flight in wanted)
    assert ask(finished.deployment, "SELECT sum(distance) FROM bts.flights") == [(distance,)]
    assert f"52,913 flights, {distance:,} miles" in finished.first.out


def test_aircraft_are_what_their_deliveries_say_one_after_the_other(finished: Finished) -> None:
    landing = finished.deployment / "landing/bts/aircraft"
    manifests = sorted(
        (json.loads(path.read_text()) for path in landing.glob("*.json")), key=lambda one: str(one["period"])
    )
    assert [one["kind"] for one in manifests] == ["full"] + ["delta"] * 60
    state: dict[str, tuple[str, ...]] = {}
    for manifest in manifests:
        with (landing / manifest["files"][0]["path"]).open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        for row in sorted(rows, key=lambda row: row[-1] != "D"):
            state.pop(row[0], None) if row[-1] == "D" else state.update({row[0]: tuple(row)})
    found = ask(finished.deployment, "SELECT COLUMNS(*)::VARCHAR FROM bts.aircraft")
    assert Counter(tuple("NA" if value is None else value for value in row) for row in found) == Counter(state.values())


def test_aircraft_were_last_seen_when_and_where_the_flights_say(finished: Finished) -> None:
    moments: dict[str, tuple[date, int, str, str, str]] = {}
    last_of_year: dict[str, date] = {}
    for flight in flights_of_the_year():
        if flight[3] == "NA":
            continue
        day, tail = day_of(flight), flight[11]
        last_of_year[tail] = max(day, last_of_year.get(tail, day))
        if day <= LAST:
            minute = int(flight[16]) * 60 + int(flight[17]) + int(flight[5])
            moment = (day, minute, flight[9], flight[10], flight[12])
            moments[tail] = max(moment, moments.get(tail, moment))
    with (package_folder() / "planes.csv").open(newline="") as file:
        registered = {row[0] for row in list(csv.reader(file))[1:]}
    gone = {tail for tail in registered & last_of_year.keys() if last_of_year[tail] + timedelta(days=14) <= LAST}
    expected = {
        tail: (moments[tail][0], moments[tail][4]) if tail in moments else (None, None)
        for tail in (registered | moments.keys()) - gone
    }
    assert len(gone) == 30
    found = ask(finished.deployment, "SELECT tailnum, last_seen, last_origin FROM bts.aircraft")
    assert {tail: (seen, origin) for tail, seen, origin in found} == expected


def test_a_second_demo_does_nothing_says_so_and_ends_the_same(finished: Finished) -> None:
    assert (finished.again.code, finished.again.err) == (0, "")
    assert finished.again.out.startswith("Nothing to do: all 11 steps")
    assert dagster_runs(finished.deployment) == finished.runs
    assert ask(finished.deployment, "SELECT receipt_id FROM valuestream.receipts") == finished.receipts
    after = finished.again.out.index("\nfeed ")
    assert finished.again.out[after:] in finished.first.out


def test_the_questions_that_the_demo_asks_have_one_answer_each(finished: Finished) -> None:
    # Of two carriers with the same delay DuckDB's threads put now this one first, now that one.
    for question in QUESTIONS:
        answers = {tuple(ask(finished.deployment, question)) for _ in range(25)}
        assert len(answers) == 1, question


@pytest.mark.thorough
def test_a_demo_killed_twice_goes_on_where_it_stopped(tmp_path: Path) -> None:
    deployment = clean_deployment(tmp_path / "demo")
    published = deployment / "state/store/published/bts/flights"
    with start(deployment) as process:  # in the middle of the first range
        while process.poll() is None and len(list(published.glob("*"))) < 10:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    with start(deployment) as process:  # in the step after the superseded revision
        assert process.stdout is not None
        assert any("superseded" in line for line in process.stdout)
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
    told = demo(deployment)
    assert (told.code, told.err) == (0, ""), told
    assert "of 11 steps are there already; going on." in told.out
    assert flights_in(deployment) == Counter(map(tuple, flights_of_two_months()))
    assert verdicts(deployment) == RECEIPTS


def test_a_folder_that_is_not_the_demos_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--deployment", str(tmp_path / "nothing")]) == 2
    (tmp_path / "valuestream.yaml").touch()
    assert main(["--deployment", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "there is no feed bts/flights" in err and "Traceback" not in err


def test_data_that_is_not_the_packages_is_told_and_exits_1(finished: Finished, tmp_path: Path) -> None:
    # The last of these: it changes the deployment. In a copy every delivery would be new objects, and be checked once more.
    deployment = finished.deployment
    landing = deployment / "landing/bts/flights"
    cut = tmp_path / "flights-2013-02-01-r2.csv"
    cut.write_bytes(b"".join((landing / "flights-2013-02-01-r1.csv").read_bytes().splitlines(keepends=True)[:-1]))
    pack_delivery(
        [cut], landing, key="2013-02-01", options=PackOptions(source="bts", dataset="flights", revision=2, null=("NA",))
    )
    told = demo(deployment)
    assert (told.code, told.err) == (1, "")
    assert "bts.flights is NOT what the package holds" in told.out and "52,912 flights" in told.out
