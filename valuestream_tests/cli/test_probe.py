"""``probe`` shows groups, keys, refusals, schema and samples before anything runs, and writes nothing (L22, C25)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from valuestream_tests.cli.shop import FEED, Shop, shop_in

BY_NAME = """\
source: acme
dataset: orders
landing: landing/acme/orders
manifest: none
sequence: {kind: date, pattern: "orders-{date:YYYYMMDD}.csv"}
columns: {id: BIGINT, amount: "DECIMAL(18,2)"}
key: [id]
"""


@pytest.fixture
def unmanned(tmp_path: Path) -> Shop:
    return shop_in(tmp_path, {"orders.yaml": BY_NAME})


def put(shop: Shop, name: str, text: str = "id,amount\n1,2.50\n") -> Path:
    path = shop.landing / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_750_000_000, 1_750_000_000))
    return path


def everything(shop: Shop) -> dict[str, int]:
    return {str(path.relative_to(shop.path)): path.stat().st_mtime_ns for path in shop.path.rglob("*")}


def test_probe_writes_nothing_and_needs_no_state(unmanned: Shop) -> None:
    """L22: before the first run there is no state folder, and afterwards neither."""
    shutil.rmtree(unmanned.path / "state")
    put(unmanned, "orders-20260901.csv")
    before = everything(unmanned)
    assert unmanned.run("probe", "acme/orders").exit_code == 0
    assert everything(unmanned) == before and not (unmanned.path / "state").exists()


def test_every_object_is_shown_with_its_key_or_its_refusal(unmanned: Shop) -> None:
    """C24, C25: one key or one structured refusal, with code, culprit and expected pattern."""
    put(unmanned, "orders-20260902.csv")
    put(unmanned, "orders-20260901.csv")
    put(unmanned, "orders-202609O3.csv")
    told = unmanned.json("probe", "acme/orders", code=1)
    assert [(one["path"], one["is"], one["key"]) for one in told["objects"]] == [
        ("orders-20260901.csv", "file", "2026-09-01"),
        ("orders-20260902.csv", "file", "2026-09-02"),
        ("orders-202609O3.csv", "refused", None),
    ]
    assert told["counts"] == {"objects": 3, "groups": 2, "files": 2, "bytes": 34, "keys": 2}
    assert told["keys"] == {"first": "2026-09-01", "last": "2026-09-02"}
    (refusal,) = told["refusals"]
    assert (refusal["code"], refusal["uri"], refusal["expected_pattern"]) == (
        "invalid_date", "orders-202609O3.csv", "orders-{date:YYYYMMDD}.csv"
    )  # fmt: skip
    text = unmanned.run("probe", "acme/orders")
    assert text.exit_code == 1
    assert "refused: orders-202609O3.csv: 'O3' stands where the digits of DD belong [invalid_date]" in text.stdout
    assert "acme/orders: 2 deliveries, 2 files, 34 bytes; 2 keys, 2026-09-01 to 2026-09-02." in text.stdout


def test_the_newest_delivery_is_looked_into_unless_a_key_is_named(unmanned: Shop) -> None:
    put(unmanned, "orders-20260901.csv", "id,amount\n1,2.50\n2,3\n")
    put(unmanned, "orders-20260902.csv")
    assert unmanned.json("probe", "acme/orders")["sample"]["key"] == "2026-09-02"
    sample = unmanned.json("probe", "acme/orders", "--key", "2026-09-01", "--rows", "1")["sample"]
    assert (sample["key"], sample["rows"], sample["rows_rejected"], sample["findings"]) == ("2026-09-01", 2, 0, [])
    assert (sample["heads"], sample["sample"]) == (["id", "amount"], [["1", "2.50"]])
    text = unmanned.run("probe", "acme/orders", "--key", "2026-09-01").stdout
    assert "2 rows, all fit." in text and "DECIMAL(18,2)" in text


def test_a_key_of_which_nothing_is_here_is_wrong_use(unmanned: Shop) -> None:
    put(unmanned, "orders-20260901.csv")
    absent = unmanned.run("probe", "acme/orders", "--key", "2026-09-05")
    assert absent.exit_code == 2 and "here are 2026-09-01 to 2026-09-01" in absent.stderr
    assert unmanned.run("probe", "acme/orders", "--key", "yesterday").exit_code == 2


def test_columns_that_differ_from_the_declared_ones_are_named(unmanned: Shop) -> None:
    """L22: schema found against schema declared; a header that differs rejects every row."""
    put(unmanned, "orders-20260901.csv", "id,price,day\n1,2.505,2026-09-01\n2,3,2026-09-02\n")
    sample = unmanned.json("probe", "acme/orders", code=1)["sample"]
    assert sample["columns"] == [
        {"name": "id", "declared": "BIGINT", "found": "BIGINT", "status": "ok"},
        {"name": "amount", "declared": "DECIMAL(18,2)", "found": None, "status": "missing"},
        {"name": "price", "declared": None, "found": "DECIMAL(4,3)", "status": "not declared"},
        {"name": "day", "declared": None, "found": "DATE", "status": "not declared"},
    ]
    assert (sample["missing"], sample["extra"]) == (["amount"], ["price", "day"])
    assert (sample["rows"], sample["rows_rejected"]) == (2, 2)
    assert sample["findings"][0]["code"] == "header_mismatch"


def test_rows_that_would_be_rejected_are_counted_and_the_first_named(unmanned: Shop) -> None:
    """L22: by the checks that would reject them later, with file, line and column."""
    put(unmanned, "orders-20260901.csv", "id,amount\n1,2.50\nx,3.00\n3,4.005\n4,5.00,6\n")
    told = unmanned.json("probe", "acme/orders", code=1)
    sample = told["sample"]
    assert (sample["rows"], sample["rows_rejected"], told["would_be_taken"]) == (4, 3, False)
    assert {(one["line"], one["code"]) for one in sample["findings"]} == {
        (3, "value_does_not_fit"), (4, "value_does_not_fit"), (5, "csv_malformed")
    }  # fmt: skip
    text = unmanned.run("probe", "acme/orders")
    assert text.exit_code == 1 and "3 of 4 rows do not fit, and the delivery would be rejected." in text.stdout


def test_a_page_of_html_under_the_name_of_data_is_told(unmanned: Shop) -> None:
    """Case 06."""
    put(unmanned, "orders-20260901.csv", "<html>\n<body>blocked</body>\n")
    sample = unmanned.json("probe", "acme/orders", code=1)["sample"]
    assert sample["findings"][0]["code"] == "header_mismatch" and sample["rows_rejected"] == sample["rows"] == 1


def test_a_repeated_key_column_is_found_too(unmanned: Shop) -> None:
    put(unmanned, "orders-20260901.csv", "id,amount\n1,2.50\n1,3.00\n")
    assert unmanned.json("probe", "acme/orders", code=1)["sample"]["findings"][0]["code"] == "duplicate_key"


def test_a_delivery_without_rows_is_told_as_it_would_be_rejected(unmanned: Shop) -> None:
    """Ruling 13."""
    put(unmanned, "orders-20260901.csv", "id,amount\n")
    assert unmanned.json("probe", "acme/orders", code=1)["sample"]["findings"][0]["code"] == "empty_not_allowed"


def test_what_is_not_whole_yet_would_wait_and_is_healthy(unmanned: Shop) -> None:
    """Ruling 17: waiting needs nobody."""
    path = put(unmanned, "orders-20260901.csv")
    os.utime(path)
    told = unmanned.json("probe", "acme/orders")
    assert told["groups"][0]["state"] == "waiting" and told["sample"] is None
    assert "waiting: acme/orders 2026-09-01 r1 is not complete" in unmanned.run("probe", "acme/orders").stdout


def test_an_empty_landing_place_is_said_to_be_empty(unmanned: Shop) -> None:
    unmanned.landing.mkdir(parents=True)
    text = unmanned.run("probe", "acme/orders")
    assert text.exit_code == 0 and "0 deliveries, 0 files, 0 bytes; 0 keys." in text.stdout


# --- feeds with manifests --------------------------------------------------------------------------------------------


def test_manifests_and_the_files_that_they_name_are_told_apart(shop: Shop) -> None:
    shop.deliver("2026-09-01")
    (shop.landing / "notes.txt").write_text("hello")
    told = shop.json("probe", "acme/orders")
    assert sorted((one["is"], one["key"]) for one in told["objects"] if one["key"]) == [
        ("file", "2026-09-01"), ("manifest", "2026-09-01")
    ]  # fmt: skip
    assert [one["is"] for one in told["objects"] if one["path"] == "notes.txt"] == ["not selected"]
    assert told["sample"]["rows"] == 1 and told["would_be_taken"] is True


def test_a_wrong_byte_beside_a_manifest_is_found(shop: Shop) -> None:
    """M5."""
    manifest = shop.deliver("2026-09-01")
    (data,) = (path for path in shop.landing.rglob("*.csv"))
    data.write_text(data.read_text().replace("2.50", "9.50"))
    assert manifest.exists()
    assert shop.json("probe", "acme/orders", code=1)["sample"]["findings"][0]["code"] == "checksum_mismatch"


def test_an_unreadable_manifest_is_told(shop: Shop) -> None:
    put(shop, "x.manifest.json", "{")
    told = shop.json("probe", "acme/orders", code=1)
    assert told["unusable"][0]["code"] == "manifest_unreadable" and told["objects"][0]["is"] == "unusable"


def test_another_feeds_manifest_is_told_as_that(tmp_path: Path) -> None:
    other = FEED.replace("dataset: orders", "dataset: items")
    shop = shop_in(tmp_path, {"orders.yaml": FEED, "items.yaml": other})
    shop.deliver("2026-09-01")
    told = shop.json("probe", "acme/items")
    assert {one["is"] for one in told["objects"] if one["path"].endswith(".manifest.json")} == {"other feed"}


# --- what the other verbs say of a refused feed ----------------------------------------------------------------------


def test_plan_and_status_say_why_a_feed_is_refused(unmanned: Shop) -> None:
    """C26, C38: exit code 1, the refusal by code, culprit and expected pattern, nothing claimable."""
    put(unmanned, "orders-20260901.csv")
    put(unmanned, "orders-2026090x.csv")
    plan = unmanned.json("plan", code=1)
    assert [(one["code"], one["uri"], one["expected_pattern"]) for one in plan["refusals"]] == [
        ("invalid_date", "orders-2026090x.csv", "orders-{date:YYYYMMDD}.csv")
    ]
    assert [(one["key"], one["claimable"], one["reason"]) for one in plan["slices"]] == [("2026-09-01", False, "refused")]
    (feed,) = unmanned.json("status", code=1)["feeds"]
    assert (feed["status"], feed["reason"], len(feed["refusals"])) == ("refused", "refused", 1)
    text = unmanned.run("status").stdout
    assert "run `valuestream apply" not in text
    assert "orders-2026090x.csv: '0x' stands where the digits of DD belong" in text and "exclude" in text


def test_the_checks_of_a_feed_without_manifests_claim_nothing_of_one(unmanned: Shop) -> None:
    """M7: the wording in Dagster says what was compared, and with what."""
    from valuestream_dagster.deployment import open_deployment
    from valuestream_dagster.orchestration.checks import check_specs

    (feed,) = open_deployment(unmanned.path, {}).feeds.values()
    told = {spec.name: spec.description or "" for spec in check_specs(feed)}
    assert "weak evidence" in told["complete"] and "No manifest says" in told["fixity"]
    assert "agrees with the manifest" not in " ".join(told.values())


def test_apply_of_a_refused_feed_says_so_and_ends_with_one(unmanned: Shop) -> None:
    put(unmanned, "orders-20260901.csv")
    bad = put(unmanned, "notes.txt")
    applied = unmanned.run("apply")
    assert applied.exit_code == 1 and "notes.txt: the name is not of this form" in applied.stdout
    assert [one["uri"] for one in unmanned.json("apply", code=1)["refusals"]] == ["notes.txt"]
    bad.unlink()
    assert unmanned.run("apply").exit_code == 0
    assert unmanned.json("query", "SELECT count(*) FROM acme.orders")["rows"] == [[1]]
