"""What a released version left behind is opened, shown and carried on by this one: from the first schema on (V1)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import duckdb
import pytest

from valuestream_dagster.ledger.duck import SCHEMA_VERSION
from valuestream_tests.world import World

ARCHIVES = sorted((Path(__file__).parent / "released").glob("schema-*.tar.gz"))
FEEDS = ("acme/orders", "acme/prices")


def _unpacked(archive: Path, folder: Path) -> World:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    declared = {path.name: path.read_text() for path in (folder / "feeds").iterdir()}
    return World(folder, declared)


def _answers(world: World) -> dict[str, object]:
    answers = {name: {"rows": world.rows(name), "verdicts": world.verdicts(name)} for name in FEEDS}
    return dict(json.loads(json.dumps(answers)))


def test_every_schema_before_this_one_has_its_archive() -> None:
    assert [path.name for path in ARCHIVES] == [f"schema-{number}.tar.gz" for number in range(1, SCHEMA_VERSION)]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_released_state_folder_gives_the_same_answers_and_goes_on(archive: Path, tmp_path: Path) -> None:
    """V1: the schema is brought up to date, nothing is taken in twice, and the next delivery is applied"""
    world = _unpacked(archive, tmp_path / "deployment")
    known = json.loads(archive.with_name(archive.name.replace(".tar.gz", ".json")).read_text())
    world.settle()
    assert _answers(world) == known
    assert world.ledger("SELECT max(version) FROM schema_history") == [(SCHEMA_VERSION,)]
    world.producer("prices").deliver(3, [(3, "3.30", "U")], revision=2)
    world.apply("acme/prices")
    assert world.amounts("acme/prices") == {1: "1.10", 2: "2.00", 3: "3.30"}
    assert world.status("acme/prices").rejected == ()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_migrated_ledger_has_the_tables_of_a_new_one(archive: Path, tmp_path: Path) -> None:
    """V1: whoever comes from an older schema stands where everybody stands"""
    columns = """SELECT table_name, column_name, data_type, is_nullable, column_index FROM duckdb_columns()
                 WHERE NOT internal AND database_name = current_database() ORDER BY ALL"""
    old, new = _unpacked(archive, tmp_path / "old"), World(tmp_path / "new")
    assert old.ledger(columns) == new.ledger(columns)
    with duckdb.connect(str(old.root / "state/ledger.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM receipts").fetchone() != (0,)
