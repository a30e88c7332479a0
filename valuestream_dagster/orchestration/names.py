"""Our nouns as Dagster's nouns: the one place where a feed becomes asset key, partition set, pool, sensor and tag."""

from __future__ import annotations

import dagster as dg

from valuestream_dagster.feeds.feed import Feed

IO_MANAGER = "valuestream_io"
CATALOGUE = "valuestream_catalogue"
REQUEST_TAG = "valuestream/request"
FEED_TAG = "valuestream/feed"
SEALING_TAG = "valuestream/sealing"
RECOMPUTING_TAG = "valuestream/recomputing"

BYTES_ONLY = (
    "A matching checksum shows that the bytes agree with the declared digest. "
    "It never shows that the business data is complete."
)


def asset_key(feed: Feed) -> dg.AssetKey:
    """``[source, dataset]``."""
    return dg.AssetKey([feed.source, feed.dataset])


def identifier(feed: Feed) -> str:
    """The feed as a Dagster name, for sensors, pools and ops."""
    return "".join(c if c.isalnum() else "_" for c in f"{feed.source}__{feed.dataset}")


def applying_name(feed: Feed) -> str:
    """The job that the sensor starts: the feed's asset and nothing else."""
    return f"{identifier(feed)}__applying"


def sealing_name(feed: Feed) -> str:
    """The job that seals what waits for its turn."""
    return f"{identifier(feed)}__sealing"


def recomputing_name(feed: Feed) -> str:
    """The job that makes again what an edit made stale."""
    return f"{identifier(feed)}__recomputing"


def partitions_name(feed: Feed) -> str:
    """The name under which the feed's partitions are registered."""
    return feed.name


def partitions_of(feed: Feed) -> dg.DynamicPartitionsDefinition:
    """The feed's sequence keys as partitions; registered in the sequence's own order by sensor and command line."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(feed))
