"""The IO manager: a feed's output is published through it, and everybody's input is read through it.

A single key's ``Output`` passes through ``handle_output``; a range calls ``publish_range``, which publishes by the same run
and logs one materialization per key itself, because Dagster keeps back what ``handle_output`` logs until it returns, and
materializes every key of a range again (decision 0001).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg
import duckdb

from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.deployment import Deployment, attach_catalogue, open_deployment
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.rows import Publication
from valuestream_dagster.orchestration.event_log import kept_open, make_durable
from valuestream_dagster.orchestration.failures import told_as_failure
from valuestream_dagster.orchestration.names import BYTES_ONLY, asset_key
from valuestream_dagster.publication.outcomes import KeyOutcome, PreparedKey
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.run import FeedRun


@dataclass(slots=True)
class Release:
    """What a single key's asset hands to ``handle_output``: prepared bytes, and the run that records them.

    ``outcome`` is filled in when it has been recorded and is visible.
    """

    run: FeedRun
    publisher: Publisher
    prepared: PreparedKey
    outcome: KeyOutcome | None = None


def materialization_metadata(publication: Publication) -> dict[str, Any]:
    """What Dagster shows of a publication; never a secret, never a promise about business completeness (M7)."""
    return {
        "revision": publication.revision,
        "digest": publication.digest.hex,
        "dagster/partition_row_count": publication.rows,
        "rows": publication.rows,
        "bytes": publication.bytes,
        "kind": publication.kind.value,
        "previous_key": publication.previous_key or "none",
        "position": publication.position or "none",
        "epoch": publication.epoch,
        "ledger_run": publication.run_id,
        "files": dg.MetadataValue.json([file.path for file in publication.files]),
        "totals": dg.MetadataValue.json(dict(publication.totals)),
        "what_the_checksum_means": BYTES_ONLY,
    }


def materialization(feed: Feed, publication: Publication) -> dg.AssetMaterialization:
    """One key's materialization with its data version; equal bytes of one revision have one version."""
    return dg.AssetMaterialization(
        asset_key(feed),
        partition=publication.key.text,
        metadata=materialization_metadata(publication),
        tags={"dagster/data_version": publication.data_version, "dagster/code_version": publication.computation_hash},
    )


class ValueStreamIOManager(dg.ConfigurableIOManager):
    """Publishes feeds and loads their current rows.

    Args:
        deployment: folder of the deployment.
    """

    deployment: str

    @cached_property
    def opened(self) -> Deployment:
        """The deployment, read when it is first needed."""
        return open_deployment(self.deployment, os.environ)

    def opened_with(self, extra_feeds: Sequence[Feed]) -> Deployment:
        """The deployment with feeds that its folder does not declare."""
        return open_deployment(self.deployment, os.environ, extra_feeds=extra_feeds)

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Record a single key in one transaction, close the run, show it, and put what it is into the metadata.

        Raises:
            WrongUse: the output is none of a feed's; this manager writes nothing else.
        """
        if not isinstance(obj, Release):
            raise WrongUse(
                f"{context.asset_key.to_user_string()} is no feed, and this IO manager publishes feeds only.",
                next_step="give your own asset an IO manager of its own; it may still load feeds through this one.",
            )
        with told_as_failure():
            obj.outcome = obj.run.record([obj.prepared])[0]
            obj.run.close()
        if obj.outcome.publication is not None:
            context.add_output_metadata(materialization_metadata(obj.outcome.publication))

    def publish_range(
        self, context: dg.AssetExecutionContext, publisher: Publisher, run: FeedRun, keys: Sequence[SequenceKey]
    ) -> Iterator[KeyOutcome]:
        """Publish many keys; each ledger run's keys are logged as materialized once readers see them."""
        for visible in run.publish(keys, on_progress=lambda done, of: report_progress(publisher.feed.name, done, of)):
            with kept_open():
                for outcome in visible:
                    if outcome.publication is not None:
                        context.log_event(materialization(publisher.feed, outcome.publication))
            make_durable(context.instance, context.run.run_id)
            publisher.mark_reported([o.publication for o in visible if o.publication is not None and o.changed])
            yield from visible

    def load_input(self, context: dg.InputContext) -> Any:
        """A feed's rows, in the form that the parameter's annotation names.

        An unpartitioned asset gets the current rows; one with partitions gets the rows of those keys. Annotations:
        ``duckdb.DuckDBPyRelation``, ``pyarrow.Table``, ``pandas.DataFrame`` (also when there is none),
        ``polars.DataFrame``.
        """
        source, dataset = context.asset_key.path[-2:]
        query = f'SELECT * FROM "{source}"."{dataset}"'
        if _asks_for_partitions(context):
            keys = ", ".join("'" + key.replace("'", "''") + "'" for key in context.asset_partition_keys)
            query = f'SELECT * FROM "{source}"."{dataset}__all" WHERE _key IN ({keys})'
        try:
            connection = self._catalogue()
            relation = connection.sql(query)
        except (duckdb.CatalogException, duckdb.IOException) as error:
            raise WrongUse(
                f"the catalogue {self.opened.settings.catalog} does not show {source}/{dataset}: {error}",
                next_step=f"take in its first delivery: materialize {source}/{dataset}, or run `valuestream apply`.",
            ) from error
        return _as(relation, connection, context.dagster_type.typing_type)

    def _catalogue(self) -> duckdb.DuckDBPyConnection:
        """The catalogue, up to date; of a deployment whose feeds are all components, as their last runs left it."""
        opened = self.opened
        return opened.open_catalogue() if opened.feeds else attach_catalogue(opened.settings.catalog)


def _asks_for_partitions(context: dg.InputContext) -> bool:
    """Whether the rows of certain keys are wanted. To an unpartitioned asset Dagster names every key there is, which means all."""
    try:
        consumer = context.step_context.entity_partitions_def
    except dg.DagsterInvariantViolationError:
        return context.has_asset_partitions  # loaded outside of a run
    return consumer is not None and context.has_asset_partitions


_OPEN: list[duckdb.DuckDBPyConnection] = []


def _as(relation: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection, wanted: object) -> Any:
    if wanted is duckdb.DuckDBPyRelation:
        _OPEN.append(connection)  # a relation lives no longer than its connection; the step's process ends both
        return relation
    table = relation.to_arrow_table()
    if wanted is type(table):
        return table
    if getattr(wanted, "__module__", "").startswith("polars"):
        import polars as pl  # an optional extra

        return pl.from_arrow(table)
    import pandas as pd  # here: a third of a second, which a process that only publishes need not pay

    # ArrowDtype keeps DECIMAL exact, which DuckDB's own conversion to pandas does not.
    return table.to_pandas(types_mapper=pd.ArrowDtype)


_PROGRESS: list[Any] = []


def on_progress(listener: Any) -> None:
    """Let the command line follow a run that it carries out in its own process."""
    _PROGRESS[:] = [listener] if listener else []


def report_progress(feed: str, done: int, of: int) -> None:
    """Tell whoever follows this process."""
    for listener in _PROGRESS:
        listener(feed, done, of)
