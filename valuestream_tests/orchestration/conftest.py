"""One running UI and daemon for all tests of a file: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from valuestream_tests.orchestration.places import CHAINED, feed_text, make_deployment
from valuestream_tests.orchestration.server import Server, serve

LOCAL_HOME = Path(__file__).resolve().parents[2] / "deployments" / "local" / "dagster.yaml"


@pytest.fixture(scope="module")  # it looks every two seconds as long as it runs, which is half of a processor
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each test has a feed of its own: ``ordered``, ``backfilled``, ``gapped``, ``damaged``."""
    folder = tmp_path_factory.mktemp("server")
    feeds = {name: feed_text(name, CHAINED) for name in ("ordered", "backfilled", "gapped", "damaged")}
    settings = f"limits: {{tick_seconds: 2}}\nalerts: ['file://{folder}/alerts.jsonl']\n"
    opened = make_deployment(folder, feeds, settings, LOCAL_HOME.read_text("utf-8"))
    with serve(opened, folder / "server.log") as running:
        yield running
