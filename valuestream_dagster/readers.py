"""Reading a deployment's catalogue from Python."""

from __future__ import annotations

import os

import duckdb

from valuestream_dagster.deployment import open_deployment


def open_catalog(deployment: str | os.PathLike[str]) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection whose default database is the deployment's catalogue, read-only and up to date.

    Args:
        deployment: folder of the deployment.

    Raises:
        WrongUse, ConfigurationInvalid: the folder is no deployment, or its YAML is wrong.
    """
    return open_deployment(deployment, os.environ).open_catalogue()
