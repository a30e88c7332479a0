"""Which of the listed objects a feed looks at. Nothing about their contents."""

from __future__ import annotations

from collections.abc import Iterable

from valuestream_dagster.core.globs import glob_pattern
from valuestream_dagster.stores.base import ObjectStat


def select(listing: Iterable[ObjectStat], include: Iterable[str], exclude: Iterable[str]) -> list[ObjectStat]:
    """The objects whose path fits one of ``include`` and none of ``exclude``, in the listing's order.

    Links are selected like files: who reads them refuses them by name.
    """
    wanted = [glob_pattern(glob) for glob in include]
    refused = [glob_pattern(glob) for glob in exclude]
    return [
        stat
        for stat in listing
        if any(pattern.match(stat.path) for pattern in wanted)
        and not any(pattern.match(stat.path) for pattern in refused)
    ]
