"""A Dagster home for a fresh deployment, copied: making one takes Dagster a second of processor time, and many tests want one.

How a home is made is tested by itself (orchestration/test_home.py).
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from valuestream_dagster.deployment import open_deployment
from valuestream_dagster.orchestration.home import prepare_home


def lay_home(deployment: Path) -> None:
    """Give a deployment folder a home that nothing has run in yet."""
    shutil.copytree(_fresh(), deployment / "state" / "dagster")


@cache
def _fresh() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="valuestream-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "feeds").mkdir()
    (folder / "valuestream.yaml").touch()
    return prepare_home(open_deployment(folder, {}))
