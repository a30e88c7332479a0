"""The Dagster component: a feed declared in ``defs.yaml``, by the same model as a deployment's ``feeds/*.yaml``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from valuestream_dagster.deployment import DEFAULT_DEPLOYMENT, DEPLOYMENT_VARIABLE, Deployment, open_deployment
from valuestream_dagster.errors import ConfigurationInvalid
from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.loading import feed_from_attributes
from valuestream_dagster.feeds.yaml_source import check_scalars
from valuestream_dagster.orchestration.alerts import build_alert_sensor
from valuestream_dagster.orchestration.assets import build_asset
from valuestream_dagster.orchestration.io_manager import ValueStreamIOManager
from valuestream_dagster.orchestration.names import IO_MANAGER
from valuestream_dagster.orchestration.sensors import build_sensor


class DeliveryFeed(dg.Component):
    """One delivery feed as a partitioned asset with its sensor and checks.

    Its ``attributes`` are the fields of a feed file, and optionally ``deployment``, the folder with ``valuestream.yaml``
    (default ``$VALUESTREAM_DEPLOYMENT``, else ``deployments/local`` in the project).
    """

    def __init__(self, declaration: FeedDeclaration, deployment: str | None) -> None:
        self.declaration = declaration
        self.deployment = deployment

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The feed file's model with the deployment's folder beside it."""
        return _Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> DeliveryFeed:
        """Make the component from validated attributes."""
        assert isinstance(attributes, _Attributes)
        values = attributes.model_dump(exclude={"deployment"}, exclude_unset=True)
        return cls(FeedDeclaration.model_validate(values), attributes.deployment)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Asset and sensor; the IO manager and the alert sensor are added once, by the deployment's own definitions."""
        written = Path(str(context.path)) / "defs.yaml"
        if written.is_file() and (findings := check_scalars(written.read_text("utf-8"), str(written))):
            raise ConfigurationInvalid(findings)
        root = Path(context.project_root)
        folder = root / (self.deployment or os.environ.get(DEPLOYMENT_VARIABLE, DEFAULT_DEPLOYMENT))
        feed = feed_from_attributes(self.declaration, folder, str(written))
        opened = open_deployment(folder, os.environ, extra_feeds=[feed])
        definitions = feed_definitions(opened, [feed])
        return dg.Definitions.merge(definitions, dg.Definitions(resources={IO_MANAGER: io_manager(opened, [feed])}))


class _Attributes(FeedDeclaration):
    """A feed file's fields, and the deployment that the feed belongs to."""

    deployment: str | None = Field(None, description="Folder with valuestream.yaml, relative to the project.")


def feed_definitions(opened: Deployment, feeds: Sequence[Feed]) -> dg.Definitions:
    """Assets with their checks, and the completeness sensors."""
    tick_seconds = opened.settings.limits.tick_seconds
    return dg.Definitions(
        assets=[build_asset(feed) for feed in feeds],
        sensors=[build_sensor(feed, str(opened.path), tick_seconds=tick_seconds) for feed in feeds],
    )


def io_manager(opened: Deployment, extra: Sequence[Feed] = ()) -> ValueStreamIOManager:
    """The IO manager of a deployment."""
    return ValueStreamIOManager(deployment=str(opened.path))


def deployment_definitions(opened: Deployment, **overrides: Any) -> dg.Definitions:
    """Everything that a deployment declares, as Dagster definitions.

    Args:
        opened: the deployment.
        overrides: resources by name that take the place of our own.
    """
    from dagster_duckdb import DuckDBResource

    from valuestream_dagster.orchestration.names import CATALOGUE

    feeds = tuple(opened.feeds.values())
    resources: dict[str, Any] = {
        IO_MANAGER: io_manager(opened),
        CATALOGUE: DuckDBResource(
            database=str(opened.settings.catalog), connection_config={"access_mode": "READ_ONLY"}
        ),
        **overrides,
    }
    alerts = build_alert_sensor((), str(opened.path), tick_seconds=opened.settings.limits.tick_seconds)
    return dg.Definitions.merge(
        feed_definitions(opened, feeds),
        dg.Definitions(sensors=[alerts], resources=resources, executor=dg.in_process_executor),
    )
