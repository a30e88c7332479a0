"""Transforms (L4, M8): SQL over ``delivery`` or a function; what goes wrong in one is ours, and never the producer's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.errors import ConfigurationInvalid
from valuestream_tests.publication.test_recompute import declare, recompute, stale
from valuestream_tests.world import CHAIN, PERIODS, World

DELIVERED = """
payload: {columns: {id: BIGINT, amount: "DECIMAL(18,2)", op: VARCHAR}}
"""
COLUMNS = 'columns: {id: BIGINT, amount: "DECIMAL(18,2)", op: VARCHAR}'
OUT = "columns: {id: BIGINT, cents: BIGINT, label: VARCHAR}"
SQL = "SELECT id, CAST(amount * 100 AS BIGINT) AS cents, upper(op) || '-' || id AS label FROM delivery WHERE op <> 'X'"


def transformed(text: str = PERIODS, how: str = "transforms/cents.sql") -> str:
    return text.replace(COLUMNS, OUT) + DELIVERED + f"transform: {how}\n"


def world_with(tmp_path: Path, sql: str = SQL, text: str | None = None) -> World:
    (tmp_path / "transforms").mkdir(parents=True)
    (tmp_path / "transforms/cents.sql").write_text(sql)
    return World(tmp_path, text or transformed())


def test_readers_see_what_the_sql_makes_and_controls_are_over_what_was_delivered(tmp_path: Path) -> None:
    """M8: counts and totals of the manifest are those of its own files."""
    world = world_with(tmp_path)
    orders = world.producer()
    made = orders.make(1, [(1, "1.25", "u"), (2, "2.50", "X"), (3, "3.00", "d")])
    orders.hand_over(made.with_statement(controls={"rows": 3, "totals": {"amount": "6.75"}}))
    world.apply()
    assert world.query("FROM acme.orders ORDER BY id") == [(1, 125, "U-1"), (3, 300, "D-3")]
    ((rows, totals),) = world.query("SELECT rows, totals FROM valuestream.publications")
    assert rows == 2 and "6.75" in totals
    assert world.status().healthy


def test_a_wrong_total_of_the_delivered_rows_is_still_the_producers(tmp_path: Path) -> None:
    world = world_with(tmp_path)
    orders = world.producer()
    orders.hand_over(orders.make(1, [(1, "1.25", "u")]).with_statement(controls={"totals": {"amount": "9.99"}}))
    world.apply()
    assert world.last(Verdict.REJECTED).code == "control_total_mismatch"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT id, cents FROM delivery", "cents"),
        ("SELECT id, 1 AS cents FROM delivery", "does not give the declared column `label`"),
        ("SELECT id, 1 AS cents, 'x' AS label, 2 AS more FROM delivery", "gives `more`, which is not declared"),
        ("SELECT id, amount AS cents, op AS label FROM delivery", "`cents` comes out as DECIMAL(18,2), and 1 of its values"),
        ("SELECT 7 AS id, 1 AS cents, 'x' AS label FROM delivery, range(2)", "duplicate_key"),
        ("SELECT id, 1 AS cents, 'x' AS label FROM delivery; SELECT 1", "it is not one SELECT"),
        ("SELECT id, 1 AS cents, content AS label FROM delivery, read_text('/etc/hostname')", "disabled by configuration"),
        ("WITH t AS (FROM delivery) SELECT id, 1 AS cents, getenv('HOME') AS label FROM t", "getenv"),
    ],
)
def test_a_transform_that_is_at_fault_fails_the_slice_and_rejects_nobody(sql: str, why: str, tmp_path: Path) -> None:
    world = world_with(tmp_path, sql)
    world.producer().deliver(1, [(1, "1.25", "u")])
    outcomes = world.apply()
    (failed,) = [outcome for key in outcomes for outcome in key.outcomes]
    assert failed.failed and why in failed.told.detail and "mend the transform" in failed.told.detail
    assert world.receipts() == [] and world.rows_in("acme.orders") == []
    assert world.status().failed == ("1",)
    (tmp_path / "transforms/cents.sql").write_text(SQL)
    world.apply()
    assert world.query("SELECT cents FROM acme.orders") == [(125,)] and world.status().healthy


def test_an_edit_of_the_sql_makes_its_keys_stale_and_they_are_made_again_from_sealed_bytes(tmp_path: Path) -> None:
    """L4: the text is in the hash, and nothing else of the file is."""
    world = world_with(tmp_path)
    world.producer().deliver(1, [(1, "1.25", "u")])
    world.apply()
    (tmp_path / "transforms/cents.sql").touch()
    assert stale(world).deliveries == ()
    (tmp_path / "transforms/cents.sql").write_text(SQL.replace("'-'", "'/'"))
    found = stale(world)
    assert len(found.deliveries) == 1 and found.fields[0].startswith("`transform` from")
    recompute(world)
    assert world.query("SELECT label FROM acme.orders") == [("U/1",)]


def test_a_function_takes_a_relation_and_gives_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "code"
    package.mkdir()
    (package / "cents_of_tests.py").write_text(
        "def cents(delivery):\n"
        '    return delivery.project("id, CAST(amount * 100 AS BIGINT) AS cents, op AS label")\n\n'
        "def raises(delivery):\n"
        "    raise RuntimeError('no such luck')\n\n"
        "def nothing(delivery):\n"
        "    return None\n"
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(package))
    world = World(tmp_path, transformed(how="cents_of_tests:cents"))
    world.producer().deliver(1, [(1, "1.25", "u")])
    world.apply()
    assert world.query("FROM acme.orders") == [(1, 125, "u")]
    for key, function, why in ((2, "raises", "RuntimeError: no such luck"), (3, "nothing", "gives NoneType, no DuckDB relation")):
        declare(world, transformed(how=f"cents_of_tests:{function}"))
        world.producer().deliver(key, [(key, "1.25", "u")])
        (failed,) = [o for made in world.apply() for o in made.outcomes if o.key.text == str(key)]
        assert failed.failed and why in failed.told.detail
    sys.modules.pop("cents_of_tests", None)


def test_in_a_chain_rows_that_remove_are_told_by_the_output(tmp_path: Path) -> None:
    text = CHAIN.replace(COLUMNS, OUT).replace("delete_when: \"op = 'D'\"", "delete_when: \"label = 'gone'\"") + DELIVERED
    sql = "SELECT id, CAST(amount * 100 AS BIGINT) AS cents, CASE op WHEN 'D' THEN 'gone' ELSE 'kept' END AS label FROM delivery"
    world = world_with(tmp_path, sql, text + "transform: transforms/cents.sql\n")
    orders = world.producer()
    orders.deliver(1, [(1, "1.00", "U"), (2, "2.00", "U")], kind="full")
    orders.deliver(2, [(1, "0.00", "D")])
    world.apply()
    assert world.query("SELECT id, cents FROM acme.orders") == [(2, 200)]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("transforms/none.sql", "cannot be read"),
        ("../outside.sql", "neither a SQL file of the deployment nor a function"),
        ("transforms/drop.sql", "does not begin with SELECT"),
        ("no_such_package.at_all:f", "cannot be found"),
        ("cents", "neither a SQL file"),
    ],
)
def test_a_transform_that_cannot_be_one_is_told_with_its_line(how: str, told: str, tmp_path: Path) -> None:
    world = world_with(tmp_path)
    (tmp_path / "transforms/drop.sql").write_text("DROP TABLE delivery")
    declare(world, transformed(how=how))
    with pytest.raises(ConfigurationInvalid, match=told) as invalid:
        world.opened  # noqa: B018 - opening it is what is tried
    assert invalid.value.findings[0].line > 1


def test_other_columns_in_the_files_need_a_transform(tmp_path: Path) -> None:
    world = world_with(tmp_path)
    declare(world, PERIODS + DELIVERED)
    with pytest.raises(ConfigurationInvalid, match="only where a transform makes them"):
        world.opened  # noqa: B018
