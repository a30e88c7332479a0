"""What ``dagster dev`` and the daemon load: the deployment named by ``VALUESTREAM_DEPLOYMENT``, else ``deployments/local``."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from valuestream_dagster.deployment import DEFAULT_DEPLOYMENT, DEPLOYMENT_VARIABLE, open_deployment
from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_dagster.orchestration.home import home_warning


def build_defs(deployment: str | Path | None = None, **overrides: object) -> dg.Definitions:
    """Dagster definitions of a deployment's feeds.

    Args:
        deployment: its folder; default ``$VALUESTREAM_DEPLOYMENT``, else ``deployments/local`` of this project.
        overrides: resources by name that take the place of our own.

    Raises:
        WrongUse, ConfigurationInvalid: the folder is no deployment, or its YAML is wrong.
    """
    return deployment_definitions(open_deployment(_folder(deployment), os.environ), **overrides)


def _folder(deployment: str | Path | None) -> Path:
    if deployment is not None:
        return Path(deployment)
    named = os.environ.get(DEPLOYMENT_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parent.parent / DEFAULT_DEPLOYMENT


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions of the deployment at hand; says which home to set where UI and command line would differ."""
    opened = open_deployment(_folder(None), os.environ)
    if warning := home_warning(opened, os.environ):
        dg.get_dagster_logger("valuestream").warning(warning)
    return deployment_definitions(opened)
