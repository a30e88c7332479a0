"""Projects of the user's own: feeds declared in ``defs.yaml`` beside assets that load them."""

from __future__ import annotations

import importlib
import itertools
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException

from valuestream_dagster import DeliveryFeed
from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.orchestration.names import CATALOGUE, IO_MANAGER
from valuestream_tests.orchestration import places

_numbers = itertools.count()
PYPROJECT = """\
[project]
name = "{name}"
version = "0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "{name}"
"""
OWN_ASSET = """\
import dagster as dg
import pyarrow as pa

@dg.asset(ins={"orders": dg.AssetIn(key=["acme", "orders"])}, io_manager_key="io_manager")
def order_count(orders: pa.Table) -> int:
    return orders.num_rows
"""


class Project:
    """A Dagster project with a deployment in it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.opened = places.make_deployment(root / "deployments" / "local", {})
        (root / "pyproject.toml").write_text(PYPROJECT.format(name=name), "utf-8")
        self.write("__init__.py", "")
        self.write("defs/__init__.py", "")

    def write(self, path: str, text: str) -> None:
        """Put a file of the project's package."""
        target = self.root / self.name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    def declare(self, dataset: str, text: str | None = None, folder: str | None = None) -> None:
        """A component as people write it."""
        fields = (text or places.feed_text(dataset)).splitlines()
        body = "\n".join(f"  {line}" for line in fields)
        self.write(f"defs/feeds/{folder or dataset}/defs.yaml", f"type: valuestream_dagster.DeliveryFeed\nattributes:\n{body}\n")
        (self.opened.path / "landing" / dataset).mkdir(parents=True, exist_ok=True)

    def load(self) -> dg.Definitions:
        """As `dg.load_from_defs_folder` in the project's own definitions does."""
        importlib.invalidate_caches()
        return dg.load_from_defs_folder(path_within_project=self.root / self.name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.delenv("VALUESTREAM_DEPLOYMENT", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"shop{next(_numbers)}"
    yield Project(tmp_path, name)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


def refused(project: Project) -> str:
    """All that Dagster prints when the project cannot be loaded."""
    with pytest.raises(ComponentTreeException) as raised:
        project.load()
    return "".join(traceback.format_exception(raised.value))


def run(defs: dg.Definitions, opened: Deployment, dataset: str, key: str) -> dg.ExecuteInProcessResult:
    job = defs.resolve_implicit_global_asset_job_def()
    with instance_of(opened) as instance:
        instance.add_dynamic_partitions(f"acme/{dataset}", [key])
        return job.execute_in_process(
            instance=instance, partition_key=key, asset_selection=[dg.AssetKey(["acme", dataset])]
        )


def test_ten_lines_are_a_working_feed(project: Project) -> None:
    project.declare("orders")
    defs = project.load()
    (delivery,) = places.deliver(project.opened, "orders", 1)
    assert run(defs, project.opened, "orders", "1").success
    key = dg.AssetKey(["acme", "orders"])
    with instance_of(project.opened) as instance:
        records = instance.fetch_materializations(key, limit=10).records
    tags = [event.tags or {} for record in records if (event := record.asset_materialization)]
    assert [one["dagster/data_version"] for one in tags] == [places.version_of(delivery)]
    assert {sensor.name for sensor in defs.sensors or ()} == {"acme__orders__deliveries", "acme__orders__alerts"}


def test_the_sensor_sees_a_feed_that_only_a_component_declares(project: Project) -> None:
    project.declare("orders")
    defs = project.load()
    places.deliver(project.opened, "orders", 1)
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = defs.resolve_sensor_def("acme__orders__deliveries")
        answer = sensor(dg.build_sensor_context(instance))
        assert isinstance(answer, dg.SensorResult)
        assert [request.partition_key for request in answer.run_requests or ()] == ["1"]
        alerts = defs.resolve_sensor_def("acme__orders__alerts")(dg.build_sensor_context(instance))
        assert isinstance(alerts, dg.SkipReason)


def test_components_a_deployments_own_feeds_and_own_assets_live_in_one_project(project: Project) -> None:
    (project.opened.path / "feeds" / "third.yaml").write_text(places.feed_text("third"), "utf-8")
    project.declare("orders")
    project.declare("items")
    project.write("defs/own.py", OWN_ASSET)
    from valuestream_dagster import build_defs

    defs = dg.Definitions.merge(
        build_defs(project.opened.path),
        project.load(),
        dg.Definitions(resources={"io_manager": build_defs(project.opened.path).resources[IO_MANAGER]}),  # type: ignore[index]
    )
    dg.Definitions.validate_loadable(defs)
    assert set(defs.resources or {}) == {IO_MANAGER, CATALOGUE, "io_manager"}
    assert {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()} == {
        "acme/orders", "acme/items", "acme/third", "order_count",
    }  # fmt: skip
    assert sorted(sensor.name for sensor in defs.sensors or ()) == [
        "acme__items__alerts", "acme__items__deliveries", "acme__orders__alerts", "acme__orders__deliveries",
        "acme__third__deliveries", "valuestream_alerts",
    ]  # fmt: skip
    assert defs.executor is dg.in_process_executor


def test_two_components_share_a_landing_place_and_know_each_other(project: Project) -> None:
    # A manifest of another declared feed is not selected, wherever that feed is declared.
    project.declare("orders")
    project.declare("items", places.feed_text("items").replace("landing/items", "landing/orders"))
    defs = project.load()
    places.deliver(project.opened, "orders", 1)
    with dg.DagsterInstance.ephemeral() as instance:
        answer = defs.resolve_sensor_def("acme__items__deliveries")(dg.build_sensor_context(instance))
        assert isinstance(answer, dg.SkipReason)
        answer = defs.resolve_sensor_def("acme__orders__deliveries")(dg.build_sensor_context(instance))
        assert isinstance(answer, dg.SensorResult) and len(answer.run_requests or ()) == 1


def test_a_component_may_name_its_deployment_and_take_values_from_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = places.make_deployment(project.root / "elsewhere", {})
    monkeypatch.setenv("DROP", "landing/dropped")
    text = places.feed_text("orders").replace("landing/orders", '"{{ env.DROP }}"') + "deployment: elsewhere\n"
    project.declare("orders", text)
    (component,) = dg.ComponentTree.for_project(project.root).get_all_components(DeliveryFeed)
    assert component.deployment == other.path
    assert component.feed.landing == str(other.path / "landing" / "dropped")
    assert component.feed.file == f"{project.name}/defs/feeds/orders/defs.yaml"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("colums: {id: BIGINT}", "unknown field `colums`"),
        ("mode: periodical", "`periodical` is no value of `mode`; did you mean `periods`?"),
        ("controls: {totals: [amuont]}", "`amuont` is no declared column. Write: amount"),
        ("retired: true", "`retired` is part of the design and not built in this version"),
        ("description: NO", "text (in quotes where YAML would read something else)"),
        ("tags: {region: NO}", "text (in quotes where YAML would read something else)"),
        ("sequence: {kind: integer, continuity: required, baseline: 010}", "`010` is read as something else"),
        ("sequence: {kind: integer, continuity: required, baseline: 1_000}", "`1_000` is read as something else"),
    ],
)
def test_wrong_attributes_are_named(project: Project, line: str, says: str) -> None:
    field = line.partition(":")[0]
    kept = [one for one in places.feed_text("orders").splitlines() if not one.startswith(f"{field}:")]
    project.declare("orders", "\n".join([*kept, line]))
    said = refused(project)
    assert says in said, said
    assert "defs.yaml" in said


def test_a_component_without_attributes_says_what_is_missing(project: Project) -> None:
    project.write("defs/feeds/orders/defs.yaml", "type: valuestream_dagster.DeliveryFeed\n")
    assert "the component has no `attributes`" in refused(project)


def test_two_components_of_one_name_are_refused(project: Project) -> None:
    project.declare("orders")
    project.declare("orders", places.feed_text("orders").replace("dataset: orders", "dataset: Orders"), folder="again")
    assert "the same name but for case" in refused(project)


def test_dagsters_tools_find_the_component_through_its_entry_point() -> None:
    (entry,) = entry_points(group="dagster_dg_cli.registry_modules", name="valuestream_dagster")
    module = entry.load()
    assert module.DeliveryFeed is DeliveryFeed
    assert "DeliveryFeed" in dir(module)
    model = DeliveryFeed.get_model_cls()
    assert model is not None
    assert {"source", "dataset", "landing", "columns", "deployment"} <= set(model.model_json_schema()["properties"])


def test_definitions_of_a_deployment_take_overriding_resources(project: Project) -> None:
    mine = dg.ResourceDefinition.hardcoded_resource("mine")
    defs = deployment_definitions(project.opened, **{CATALOGUE: mine})
    assert (defs.resources or {})[CATALOGUE] is mine
