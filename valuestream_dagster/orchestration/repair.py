"""Telling Dagster what the ledger knows and Dagster does not: a run died between its commit and its event.

The ledger is the truth and Dagster's log a mirror (ruling 15). Asked only about publications not marked as reported, so the
cost is that of what is open, never of history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import dagster as dg

from valuestream_dagster.ledger.rows import Publication
from valuestream_dagster.orchestration.event_log import make_durable
from valuestream_dagster.orchestration.io_manager import materialization
from valuestream_dagster.orchestration.names import asset_key, partitions_name
from valuestream_dagster.publication.publish import Publisher

EVENTS_AT_ONCE = 200


def missing_materializations(instance: dg.DagsterInstance, publisher: Publisher) -> list[dg.AssetMaterialization]:
    """The materializations that Dagster lacks, in order; what it has or no longer needs is marked as reported.

    A revision that was replaced meanwhile is not told of any more: Dagster takes the last that it hears of for the current one.
    """
    unreported = publisher.unreported(EVENTS_AT_ONCE)
    if not unreported:
        return []
    known = _known_versions(instance, publisher, unreported)
    current = _current(publisher, unreported)
    lacking = [
        one
        for one in unreported
        if one.publication_id in current and not _versions(one) & known.get(one.key.text, set())
    ]
    make_durable(instance)
    publisher.mark_reported([one for one in unreported if one not in lacking])
    return [materialization(publisher.feed, publication) for publication in lacking]


def report_missing(instance: dg.DagsterInstance, publisher: Publisher) -> int:
    """Report what Dagster lacks at once, from the command line; returns how many."""
    events = missing_materializations(instance, publisher)
    for event in events:
        instance.report_runless_asset_event(event)
    if events:
        missing_materializations(instance, publisher)
    return len(events)


def tell_again(instance: dg.DagsterInstance, publisher: Publisher, materialized: Collection[str]) -> int:
    """Register the keys that readers have and report those that Dagster does not show as materialized; returns how many."""
    feed = publisher.feed
    with publisher.ledger.session() as session:
        keys = [key.text for key in session.read.published_keys(feed.name)]
    registered = set(instance.get_dynamic_partitions(partitions_name(feed)))
    if new := [key for key in keys if key not in registered]:
        instance.add_dynamic_partitions(partitions_name(feed), new)
    lacking = [key for key in keys if key not in materialized]
    for start in range(0, len(lacking), EVENTS_AT_ONCE):
        with publisher.ledger.session() as session:
            found = session.read.newest_publications(feed.name, lacking[start : start + EVENTS_AT_ONCE])
        for publications in found.values():
            instance.report_runless_asset_event(materialization(feed, publications[-1]))
    return len(lacking)


def unbacked(publisher: Publisher, materialized: Iterable[str]) -> tuple[str, ...]:
    """Partitions that Dagster shows as materialized and of which the ledger has no publication, in order of their names."""
    keys = list(materialized)
    with publisher.ledger.session() as session:
        known = session.read.newest_publications(publisher.feed.name, keys)
    return tuple(sorted(set(keys) - known.keys()))


def _current(publisher: Publisher, publications: tuple[Publication, ...]) -> set[str]:
    """The publications that readers see now of these keys."""
    with publisher.ledger.session() as session:
        newest = session.read.newest_publications(publisher.feed.name, [one.key.text for one in publications])
    return {one.publication_id for ones in newest.values() for one in ones}


def _versions(one: Publication) -> set[tuple[str, str]]:
    """The versions under which Dagster may know a publication: what was made again has the same data and another code version."""
    return {(one.data_version, one.computation_hash), (one.data_version, "")}


def _known_versions(
    instance: dg.DagsterInstance, publisher: Publisher, publications: tuple[Publication, ...]
) -> dict[str, set[tuple[str, str]]]:
    """Data versions that Dagster's log holds of these keys, each with the code version where the event bears one."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=asset_key(publisher.feed),
            asset_partitions=list({publication.key.text for publication in publications}),
        ),
        limit=5 * EVENTS_AT_ONCE,
    ).records
    known: dict[str, set[tuple[str, str]]] = {}
    for record in records:
        event = record.asset_materialization
        if event is not None and event.partition is not None and event.tags:
            tags = event.tags
            version = (tags.get("dagster/data_version", ""), tags.get("dagster/code_version", ""))
            known.setdefault(event.partition, set()).add(version)
    return known
