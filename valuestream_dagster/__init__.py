"""valuestream: delivery intake on Dagster. The names that a project of the user's own imports; all are loaded on first use.

Loaded lazily so that the command line, which needs Dagster only for ``apply`` and ``ui``, starts in a tenth of a second.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from valuestream_dagster.definitions import build_defs as build_defs
    from valuestream_dagster.orchestration.component import DeliveryFeed as DeliveryFeed
    from valuestream_dagster.orchestration.io_manager import ValueStreamIOManager as ValueStreamIOManager
    from valuestream_dagster.orchestration.partition_rule import PredecessorSucceeded as PredecessorSucceeded
    from valuestream_dagster.readers import open_catalog as open_catalog

_PUBLIC = {
    "DeliveryFeed": "valuestream_dagster.orchestration.component",
    "PredecessorSucceeded": "valuestream_dagster.orchestration.partition_rule",
    "ValueStreamIOManager": "valuestream_dagster.orchestration.io_manager",
    "build_defs": "valuestream_dagster.definitions",
    "open_catalog": "valuestream_dagster.readers",
}
__all__ = ["DeliveryFeed", "PredecessorSucceeded", "ValueStreamIOManager", "build_defs", "open_catalog"]


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
