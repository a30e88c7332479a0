"""What assets of the user's own get from a feed: its rows, in the form that they ask for."""

# No `from __future__ import annotations` here: Dagster reads the assets' annotations as they are.
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster_duckdb import DuckDBResource

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.names import CATALOGUE, IO_MANAGER
from valuestream_tests.orchestration import places

FEED = dg.AssetKey(["acme", "orders"])
CURRENT = [(11, Decimal("1.50")), (12, Decimal("0.10")), (21, Decimal("2.50")), (22, Decimal("0.10"))]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Key 1 in its first revision, key 2 in its second."""
    made = places.make_deployment(tmp_path_factory.mktemp("rows"), {"orders": places.feed_text("orders")})
    places.deliver(made, "orders", 1, 2)
    materialize(made, [], "1")
    materialize(made, [], "2")
    places.deliver(made, "orders", 2, revision=2)
    materialize(made, [], "2")
    return made


def materialize(
    opened: Deployment, assets: list[dg.AssetsDefinition], partition: str | None, *, raises: bool = True
) -> dg.ExecuteInProcessResult:
    """Run own assets, or the feed where there are none."""
    keep = dg.Definitions(assets=assets, resources={"io_manager": dg.mem_io_manager})
    job = dg.Definitions.merge(deployment_definitions(opened), keep).resolve_implicit_global_asset_job_def()
    with instance_of(opened) as instance:
        if partition:
            instance.add_dynamic_partitions("acme/orders", [partition])
        return job.execute_in_process(
            instance=instance,
            partition_key=partition,
            raise_on_error=raises,
            asset_selection=[asset.key for asset in assets] or [FEED],
        )


def current(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows)


def test_unannotated_and_annotated_inputs_hold_the_current_rows(opened: Deployment) -> None:
    seen: dict[str, Any] = {}
    feed = {"orders": dg.AssetIn(key=FEED, input_manager_key=IO_MANAGER)}

    @dg.asset(ins=feed)
    def relation(orders: duckdb.DuckDBPyRelation) -> None:
        seen["relation"] = orders.project("id, amount").fetchall()

    @dg.asset(ins=feed)
    def table(orders: pa.Table) -> None:
        seen["arrow type"] = orders.schema.field("amount").type
        seen["table"] = [(row["id"], row["amount"]) for row in orders.to_pylist()]

    @dg.asset(ins=feed)
    def frame(orders: pd.DataFrame) -> None:
        seen["frame"] = list(orders[["id", "amount"]].itertuples(index=False, name=None))

    @dg.asset(ins=feed)
    def polars_frame(orders: pl.DataFrame) -> None:
        seen["polars type"] = orders.schema["amount"]
        seen["polars"] = orders.select("id", "amount").rows()

    @dg.asset(ins=feed)
    def plain(orders) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        seen["plain"] = type(orders)

    @dg.asset(ins=feed)
    def names(orders: pa.Table) -> None:
        seen["names"] = orders.schema.names

    materialize(opened, [names, relation, table, frame, polars_frame, plain], None)
    for name in ("relation", "table", "frame", "polars"):
        assert current(seen[name]) == CURRENT, name  # S6: revision 2 of key 2, and DECIMAL is exact
    assert seen["arrow type"] == pa.decimal128(18, 2)
    assert seen["polars type"] == pl.Decimal(18, 2)
    assert seen["plain"] is pd.DataFrame
    assert seen["names"] == ["id", "amount", "op"]


def test_values_can_be_loaded_outside_of_a_run(opened: Deployment) -> None:
    defs = deployment_definitions(opened)
    with instance_of(opened) as instance:
        everything: Any = defs.load_asset_value(FEED, python_type=pa.Table, instance=instance)
        one: Any = defs.load_asset_value(FEED, python_type=pa.Table, instance=instance, partition_key="2")
    assert everything.schema.names == ["id", "amount", "op"] and everything.num_rows == 4
    assert one.column("id").to_pylist() == [21, 22]


def test_a_chains_current_rows_are_what_an_unpartitioned_asset_gets(tmp_path: Path) -> None:
    # Rows that a later delta removed are still in `__all`.
    more = "mode: chain\nkind: delta\ndelete_when: \"op = 'D'\"\n"
    text = places.feed_text("orders", "{kind: integer, continuity: required, baseline: full}", more)
    made = places.make_deployment(tmp_path, {"orders": text})
    hand = places.producer(made, "orders")
    hand.deliver(1, [[1, "1.00", ""], [2, "2.00", ""]], kind="full")
    hand.deliver(2, [[2, "0.00", "D"], [3, "3.00", ""]], kind="delta")
    materialize(made, [], "1")
    materialize(made, [], "2")
    seen: list[int] = []

    @dg.asset(ins={"orders": dg.AssetIn(key=FEED, input_manager_key=IO_MANAGER)})
    def ids(orders: pa.Table) -> None:
        seen.extend(orders.column("id").to_pylist())

    materialize(made, [ids], None)
    assert sorted(seen) == [1, 3]


def test_an_asset_of_the_same_partitions_gets_the_rows_of_its_key(opened: Deployment) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(
        ins={"orders": dg.AssetIn(key=FEED, input_manager_key=IO_MANAGER)},
        partitions_def=dg.DynamicPartitionsDefinition(name="acme/orders"),
    )
    def per_key(orders: pa.Table) -> None:
        seen["rows"] = orders.to_pylist()

    materialize(opened, [per_key], "2")
    assert [(row["id"], row["amount"], row["_key"], row["_revision"]) for row in seen["rows"]] == [
        (21, Decimal("2.50"), "2", 2),
        (22, Decimal("0.10"), "2", 2),
    ]


def test_a_name_that_is_the_feeds_own_key_needs_no_more_than_the_annotation(opened: Deployment) -> None:
    # The project's own io_manager may be ours: it loads feeds, and its own outputs go elsewhere.
    seen: list[int] = []

    @dg.asset(ins={"orders": dg.AssetIn(key=["acme", "orders"])})
    def count(orders: pa.Table) -> None:
        seen.append(orders.num_rows)

    ours = (deployment_definitions(opened).resources or {})[IO_MANAGER]
    defs = dg.Definitions.merge(deployment_definitions(opened), dg.Definitions(assets=[count]))
    with instance_of(opened) as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=[count.key]).success
    assert ours is not None
    assert seen == [4]


def test_an_output_that_is_no_feeds_is_refused_and_says_what_to_do(opened: Deployment) -> None:
    @dg.asset(io_manager_key=IO_MANAGER)
    def mine() -> int:
        return 1

    result = materialize(opened, [mine], None, raises=False)
    (event,) = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    assert error is not None
    assert "give your own asset an IO manager of its own" in error.to_string()


def test_a_feed_that_never_delivered_is_empty_and_typed(tmp_path: Path) -> None:
    made = places.make_deployment(tmp_path, {"orders": places.feed_text("orders")})
    seen: list[pa.Table] = []

    @dg.asset(ins={"orders": dg.AssetIn(key=FEED, input_manager_key=IO_MANAGER)})
    def early(orders: pa.Table) -> None:
        seen.append(orders)

    materialize(made, [early], None)
    assert seen[0].num_rows == 0
    assert seen[0].schema.names == ["id", "amount", "op"]


def test_the_catalogue_is_a_resource_that_reads(opened: Deployment) -> None:
    seen: list[Any] = []

    @dg.asset
    def report(valuestream_catalogue: DuckDBResource) -> None:
        with valuestream_catalogue.get_connection() as connection:
            seen.extend(connection.execute("SELECT count(*) FROM acme.orders").fetchall())
            seen.extend(connection.execute("SELECT count(*) FROM valuestream.receipts").fetchall())
            with pytest.raises(duckdb.Error):
                connection.execute("CREATE TABLE acme.mine (i INTEGER)")

    assert CATALOGUE == "valuestream_catalogue"
    materialize(opened, [report], None)
    assert seen == [(4,), (3,)]
