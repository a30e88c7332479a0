"""The Dagster component: a feed declared in ``defs.yaml``, by the same model as a deployment's ``feeds/*.yaml``.

Each component carries all that its feed needs; what several of them share (IO manager, catalogue) is one object per
deployment, because ``Definitions.merge`` takes equal names only from one and the same object. The definitions of a
deployment may be merged in beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_duckdb import DuckDBResource
from pydantic import BaseModel, Field, ValidationError

from valuestream_dagster.deployment import DEFAULT_DEPLOYMENT, DEPLOYMENT_VARIABLE, Deployment, open_deployment
from valuestream_dagster.errors import ConfigurationFinding, ConfigurationInvalid
from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.loading import feed_from_attributes, in_order, name_findings
from valuestream_dagster.feeds.yaml_source import check_scalars
from valuestream_dagster.orchestration.alerts import build_alert_sensor
from valuestream_dagster.orchestration.assets import build_asset
from valuestream_dagster.orchestration.io_manager import ValueStreamIOManager
from valuestream_dagster.orchestration.names import CATALOGUE, IO_MANAGER, identifier
from valuestream_dagster.orchestration.sensors import build_sensor

DEFS_FILE = "defs.yaml"


class _Attributes(FeedDeclaration):
    """A feed file's fields, and the deployment that the feed belongs to."""

    deployment: str | None = Field(None, description="Folder with valuestream.yaml, relative to the project.")


class DeliveryFeed(dg.Component):
    """One delivery feed as a partitioned asset with its sensors and checks.

    Its ``attributes`` are the fields of a feed file, and optionally ``deployment``, the folder with ``valuestream.yaml``
    (default ``$VALUESTREAM_DEPLOYMENT``, else ``deployments/local`` in the project). Texts may hold ``{{ env.NAME }}``.

    Args:
        declaration: what the feed declares.
        deployment: absolute folder of the deployment.
        file: where it is declared.
    """

    def __init__(self, declaration: FeedDeclaration, deployment: Path, file: str) -> None:
        self.deployment = deployment
        self.feed = feed_from_attributes(declaration, deployment, file)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The feed file's model with the deployment's folder beside it."""
        return _Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> DeliveryFeed:
        """Make the component from validated attributes.

        Raises:
            ConfigurationInvalid: the file's scalars mean different things to different YAML loaders, or nothing is declared.
        """
        root = Path(context.project_root)
        written = Path(str(context.path)) / DEFS_FILE
        file = os.path.relpath(written, root)
        if written.is_file() and (findings := check_scalars(written.read_text("utf-8"), file)):
            raise ConfigurationInvalid(findings)
        if not isinstance(attributes, _Attributes):
            missing = ConfigurationFinding(file, 1, "the component has no `attributes`", "the fields of a feed file")
            raise ConfigurationInvalid([missing])
        written_values = attributes.model_dump(exclude_unset=True, by_alias=True)
        values = dict(context.resolution_context.resolve_value(written_values))
        chosen = values.pop("deployment", None) or os.environ.get(DEPLOYMENT_VARIABLE, DEFAULT_DEPLOYMENT)
        return cls(_declared(values, file), Path(os.path.abspath(root / chosen)), file)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Asset and sensors of the feed, and the resources that it shares with all feeds of its deployment."""
        siblings = [
            other.feed
            for other in context.component_tree.get_all_components(DeliveryFeed)
            if other.deployment == self.deployment
        ]
        opened = open_deployment(self.deployment, os.environ, extra_feeds=siblings)
        if findings := name_findings([(feed, 1) for feed in siblings], opened.settings):
            raise ConfigurationInvalid(in_order(findings))
        alerts = build_alert_sensor(
            [self.feed], opened, name=f"{identifier(self.feed)}__alerts", extra_feeds=siblings
        )  # fmt: skip
        return dg.Definitions.merge(
            feed_definitions(opened, [self.feed], extra_feeds=siblings),
            dg.Definitions(sensors=[alerts], resources=shared_resources(opened)),
        )


def _declared(values: Mapping[str, Any], file: str) -> FeedDeclaration:
    """The declaration once its templates are filled in; what they bring must be as right as what stands in the file."""
    try:
        return FeedDeclaration.model_validate(values)
    except ValidationError as error:
        findings = [
            ConfigurationFinding(file, 1, f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}")
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigurationInvalid(findings) from None


def feed_definitions(
    opened: Deployment, feeds: Sequence[Feed], *, extra_feeds: Sequence[Feed] = ()
) -> dg.Definitions:
    """Assets with their checks, and the completeness sensors.

    Args:
        opened: the deployment.
        feeds: which of its feeds.
        extra_feeds: its feeds that its folder does not declare.
    """
    return dg.Definitions(
        assets=[build_asset(feed, extra_feeds) for feed in feeds],
        sensors=[build_sensor(feed, opened, extra_feeds=extra_feeds) for feed in feeds],
    )


def shared_resources(opened: Deployment) -> dict[str, Any]:
    """What all feeds of a deployment use: their IO manager, and the catalogue for assets of the user's own."""
    return {IO_MANAGER: _io_manager(str(opened.path)), CATALOGUE: _catalogue(str(opened.settings.catalog))}


@cache
def _io_manager(deployment: str) -> ValueStreamIOManager:
    return ValueStreamIOManager(deployment=deployment)


@cache
def _catalogue(path: str) -> DuckDBResource:
    return DuckDBResource(database=path, connection_config={"access_mode": "READ_ONLY"})


def deployment_definitions(opened: Deployment, **overrides: Any) -> dg.Definitions:
    """Everything that a deployment declares, as Dagster definitions.

    Args:
        opened: the deployment.
        overrides: resources by name that take the place of our own.
    """
    feeds = tuple(opened.feeds.values())
    alerts = build_alert_sensor(feeds, opened, name="valuestream_alerts", extra_feeds=())
    resources = {**shared_resources(opened), **overrides}
    return dg.Definitions.merge(
        feed_definitions(opened, feeds),
        dg.Definitions(sensors=[alerts], resources=resources, executor=dg.in_process_executor),
    )
