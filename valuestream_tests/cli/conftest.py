from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_tests.cli.shop import Shop, shop_in


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VALUESTREAM_DEPLOYMENT", "VALUESTREAM_NOW", "VALUESTREAM_TRACEBACK", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return shop_in(tmp_path)
