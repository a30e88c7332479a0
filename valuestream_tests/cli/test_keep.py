"""``verify`` and ``vacuum`` by the command line."""

from __future__ import annotations

import shutil

import pytest

from valuestream_tests.cli.shop import Shop

pytestmark = pytest.mark.slow


def test_verify_is_green_until_a_file_changes_and_then_names_it(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    assert shop.run("apply").exit_code == 0
    assert "1 file read, " in shop.run("verify").stdout and "all as recorded" in shop.run("verify", "--inputs").stdout
    (file,) = (shop.path / "state/store/published").rglob("*.parquet")
    file.chmod(0o644)
    file.write_bytes(b"edited by hand")
    found = shop.run("verify", "acme/orders")
    assert found.exit_code == 1 and "[file_changed]" in found.stdout and "--force" in found.stdout
    (fault,) = shop.json("verify", code=1)["faults"]
    assert (fault["feed"], fault["key"], fault["code"]) == ("acme/orders", "2026-09-01", "file_changed")
    file.unlink()
    assert "run `valuestream verify`" in shop.run("query", "FROM acme.orders").stderr
    assert shop.run("apply", "acme/orders", "--key", "2026-09-01", "--force").exit_code == 0
    assert shop.run("verify").exit_code == 0


def test_vacuum_rehearses_unless_it_is_told_yes(shop: Shop) -> None:
    (shop.path / "valuestream.yaml").write_text("retention: {superseded_days: 0, input_days: 0, reader_grace_minutes: 0}\n")
    shop.deliver("2026-09-01")
    assert shop.run("apply").exit_code == 0
    shop.deliver("2026-09-01", "1,9.00\n", revision=2)
    assert shop.run("apply").exit_code == 0
    files = list((shop.path / "state/store/published").rglob("*.parquet"))
    rehearsed = shop.run("vacuum")
    assert rehearsed.exit_code == 0 and "would go; nothing was touched" in rehearsed.stdout
    assert list((shop.path / "state/store/published").rglob("*.parquet")) == files
    done = shop.json("vacuum", "--yes")
    assert done["done"] and [one["why"].split()[0] for one in done["removals"]] == ["superseded"]
    assert len(list((shop.path / "state/store/published").rglob("*.parquet"))) == 1
    assert shop.json("query", "SELECT count(*) FROM valuestream.removals")["rows"] == [[1]]
    assert shop.json("query", "FROM acme.orders")["rows"] == [[1, "9.00"]]


@pytest.mark.parametrize("found", ["nothing", "that of an older day", "a damaged one"])
def test_a_lost_dagster_home_is_told_everything_again_and_nothing_is_applied_twice(shop: Shop, found: str) -> None:
    """Ruling 15: the ledger is the truth; Dagster's log, lost or put back older, is repaired from it."""
    home, older = shop.path / "state/dagster", shop.path / "older"
    shutil.copytree(home, older)
    for day in (1, 2, 3):
        shop.deliver(f"2026-09-0{day}")
    assert shop.run("apply").exit_code == 0
    before = shop.json("query", "SELECT publication_id FROM valuestream.publications ORDER BY 1")["rows"]
    if found == "a damaged one":
        (home / "history/runs.db").write_bytes(b"no database" * 1_000)
        refused = shop.run("recover")
        assert refused.exit_code == 1 and f"move {home} away and run `valuestream recover`" in refused.stderr, refused.output
    shutil.rmtree(home)
    if found == "that of an older day":
        older.rename(home)

    assert "nothing new" in shop.run("apply").stdout
    told = shop.run("recover")
    assert told.exit_code == 0 and "Dagster was told of 3 publications that it lacked" in told.stdout, told.output
    assert "Dagster was told" not in shop.run("recover").stdout
    assert shop.json("query", "SELECT publication_id FROM valuestream.publications ORDER BY 1")["rows"] == before
    shop.deliver("2026-09-04")
    assert shop.run("apply").exit_code == 0


def test_a_partition_that_only_dagster_has_is_named(shop: Shop) -> None:
    """The reverse: an older ledger was put back, and the producer's bytes are gone from the store too."""
    shop.deliver("2026-09-01")
    assert shop.run("apply").exit_code == 0
    assert shop.run("backup", str(shop.path / "copy")).exit_code == 0
    shop.deliver("2026-09-02")
    assert shop.run("apply").exit_code == 0
    for record in (shop.path / "state/store/sealed/deliveries").rglob("2026-09-02*.json"):
        record.unlink()
    shutil.rmtree(shop.landing)
    shop.landing.mkdir()
    assert shop.run("restore", str(shop.path / "copy")).exit_code == 0
    told = shop.run("recover")
    assert told.exit_code == 1
    assert "acme/orders 2026-09-02: Dagster shows it as materialized, and the ledger has no publication of it" in told.stdout
