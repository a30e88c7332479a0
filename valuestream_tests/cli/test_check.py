"""``check``: every fault of every file, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_tests.cli.shop import FEED, Shop, shop_in

CHAIN = """\
source: acme
dataset: prices
mode: chain
landing: landing/acme/prices
columns: {id: BIGINT, op: VARCHAR}
key: [id]
delete_when: "op = 'D'"
"""


def test_right_files_are_listed_feed_by_feed(tmp_path: Path) -> None:
    shop = shop_in(tmp_path, {"a.yaml": CHAIN, "b.yaml": FEED})
    lines = shop.run("check").stdout.splitlines()
    assert lines[0].startswith("acme/orders: periods, 2 columns")
    assert lines[1].startswith("acme/prices: chain, 2 columns")
    assert shop.json("check") | {"generated_at": ""} == {
        "generated_at": "", "feeds": ["acme/orders", "acme/prices"], "findings": []
    }  # fmt: skip


def test_every_finding_of_every_file_is_told(tmp_path: Path) -> None:
    wrong = FEED.replace("landing:", "landings:")
    shop = shop_in(tmp_path, {"a.yaml": CHAIN.replace("op = 'D'", "opp = 'D'"), "b.yaml": wrong})
    result = shop.run("check")
    assert result.exit_code == 2
    assert "feeds/a.yaml:7: `delete_when` cannot be used: Binder Error" in result.stdout
    assert "feeds/b.yaml:3:" in result.stdout
    assert "Write: " in result.stdout
    document = shop.json("check", code=2)
    assert document["feeds"] == []
    assert {"file", "line", "message", "instead"} == set(document["findings"][0])


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("op", "is VARCHAR, not true or false"),
        ("id + 1", "is BIGINT, not true or false"),
        ("count(*) > 1", "aggregates"),
        ("op = ", "Parser Error"),
        ("exists(FROM read_csv('/etc/hosts'))", "Permission Error"),
    ],
)
def test_a_condition_is_bound_by_duckdb_itself(tmp_path: Path, condition: str, said: str) -> None:
    shop = shop_in(tmp_path, {"a.yaml": CHAIN.replace("op = 'D'", condition)})
    findings = shop.json("check", code=2)["findings"]
    assert [(finding["file"], finding["line"]) for finding in findings] == [("feeds/a.yaml", 7)]
    assert said in findings[0]["message"]


def test_a_folder_that_is_none_is_wrong_use(shop: Shop, tmp_path: Path) -> None:
    assert Shop(tmp_path / "nothing").json("check", code=2)["error"]["code"] == "wrong_use"
