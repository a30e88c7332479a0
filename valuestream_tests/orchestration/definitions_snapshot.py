"""What Dagster is told of two feeds, as JSON; ``python -m valuestream_tests.orchestration.definitions_snapshot`` writes it anew."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg

from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_tests.orchestration import places

GOLDEN = Path(__file__).with_name("definitions.golden.json")
_DESCRIBED = 'description: Orders of the shop\nowners: ["team:shop"]\ntags: {domain: sales}\n'
FEEDS = {
    "items": places.feed_text("items"),
    "orders": places.feed_text("orders", places.CHAINED, _DESCRIBED),
}


def snapshot(folder: Path) -> dict[str, Any]:
    """The definitions of a deployment of both feeds, without anything that differs between machines."""
    defs = deployment_definitions(places.make_deployment(folder, FEEDS))
    repository = defs.get_repository_def()
    return {
        "assets": [_asset(defs.resolve_assets_def(spec.key), spec) for spec in _specs(defs)],
        "sensors": [_sensor(sensor) for sensor in sorted(repository.sensor_defs, key=lambda one: one.name)],
        "resources": sorted(defs.resources or {}),
        "executor": getattr(defs.executor, "name", None),
    }


def _specs(defs: dg.Definitions) -> list[dg.AssetSpec]:
    return sorted(defs.resolve_all_asset_specs(), key=lambda spec: spec.key.to_user_string())


def _asset(asset: dg.AssetsDefinition, spec: dg.AssetSpec) -> dict[str, Any]:
    partitions, policy = spec.partitions_def, asset.backfill_policy
    return {
        "key": spec.key.path,
        "partitions": partitions.name if isinstance(partitions, dg.DynamicPartitionsDefinition) else None,
        "pool": asset.op.pool,
        "op": asset.op.name,
        "backfill_policy": policy.policy_type.name if policy else None,
        "code_version": spec.code_version,
        "group": spec.group_name,
        "owners": list(spec.owners),
        "tags": dict(spec.tags),
        "kinds": sorted(spec.kinds),
        "skippable": spec.skippable,
        "io_manager": asset.op.output_dict["result"].io_manager_key,
        "metadata": {name: str(value) for name, value in spec.metadata.items() if not name.startswith("dagster/")},
        "description": spec.description,
        "checks": [[check.name, check.blocking, check.description] for check in asset.check_specs],
    }


def _sensor(sensor: dg.SensorDefinition) -> dict[str, Any]:
    return {
        "name": sensor.name,
        "interval_seconds": sensor.minimum_interval_seconds,
        "default_status": sensor.default_status.name,
        "description": sensor.description,
    }


def text(folder: Path) -> str:
    """The golden file's text."""
    return json.dumps(snapshot(folder), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(text(Path(made)), "utf-8")
