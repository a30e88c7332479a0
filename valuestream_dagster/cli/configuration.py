"""What is wrong with a deployment's YAML beyond its form: conditions that DuckDB cannot bind to the declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from valuestream_dagster.core.rows import RowContract
from valuestream_dagster.errors import ConfigurationFinding, ConfigurationInvalid
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.loading import FEEDS_FOLDER, in_order, load_deployment_files, parse_feed
from valuestream_dagster.feeds.yaml_source import read_yaml_file

_EXAMPLE = "a condition over `columns`, e.g. delete_when: \"op = 'D'\""


@dataclass(frozen=True, slots=True)
class Checked:
    """The feeds of a deployment that are right (none where any file is wrong), and every finding."""

    feeds: tuple[Feed, ...]
    findings: tuple[ConfigurationFinding, ...]


def check_folder(folder: Path, environ: Mapping[str, str]) -> Checked:
    """Read every file of a deployment and collect all that is wrong.

    Args:
        folder: the deployment.
        environ: values for ``${NAME}``.

    Raises:
        WrongUse: the folder is no deployment.
    """
    findings: list[ConfigurationFinding] = []
    feeds: tuple[Feed, ...] = ()
    try:
        _, feeds = load_deployment_files(folder, environ)
    except ConfigurationInvalid as invalid:
        findings += invalid.findings
    findings += _condition_findings(folder, environ)
    return Checked(() if findings else feeds, tuple(in_order(findings)))


def _condition_findings(folder: Path, environ: Mapping[str, str]) -> Iterator[ConfigurationFinding]:
    """Faults of the conditions of every feed file that is right otherwise."""
    for path in sorted((folder / FEEDS_FOLDER).glob("[!.]*.yaml")):
        file = f"{FEEDS_FOLDER}/{path.name}"
        try:
            feed = parse_feed(path.read_text("utf-8-sig"), file, deployment=folder, environ=environ)
        except (ConfigurationInvalid, OSError, UnicodeDecodeError):
            continue  # told already, with its lines
        contracts = (*(one.contract for one in feed.older), feed.contract)
        fault = next((found for one in contracts if (found := condition_fault(one)) is not None), None)
        if fault is not None:
            yield read_yaml_file(path, file, environ).finding(("delete_when",), f"`delete_when` {fault}", _EXAMPLE)


def condition_fault(contract: RowContract) -> str | None:
    """Why ``delete_when`` is no condition over the declared columns, in DuckDB's words; None where it is one."""
    if contract.delete_when is None:
        return None
    import duckdb  # here: most deployments have no condition, and it costs a quarter of a second

    columns = ", ".join(f'"{column.name.replace(chr(34), chr(34) * 2)}" {column.type}' for column in contract.columns)
    condition = f"(\n{contract.delete_when}\n)"
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.execute(f"CREATE TABLE delivery ({columns})")
        try:
            bound = connection.sql(f"SELECT {condition} AS removes FROM delivery WHERE {condition}")
        except duckdb.Error as error:
            return f"cannot be used: {' '.join(str(error).split(chr(10), 1)[0].split())}"
        found = str(bound.types[0])
    return None if found == "BOOLEAN" else f"is {found.strip(chr(34))}, not true or false"
