"""A deployment folder is read whole: all findings of all files, and names that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_dagster.errors import ConfigurationInvalid, WrongUse
from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_dagster.feeds.loading import feed_from_attributes, load_deployment_files
from valuestream_tests.feeds.feed_texts import SMALLEST, feed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "valuestream.yaml").touch()
    return tmp_path


def _write(folder: Path, name: str, text: str) -> None:
    (folder / "feeds" / name).write_text(text, encoding="utf-8")


def _findings(folder: Path) -> list[str]:
    with pytest.raises(ConfigurationInvalid) as raised:
        load_deployment_files(folder, {})
    return [str(finding) for finding in raised.value.findings]


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is no folder") as raised:
        load_deployment_files(tmp_path / "nowhere", {})
    assert "pass -d DIR" in raised.value.next_step


def test_a_folder_without_its_file_is_no_deployment(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"is no deployment: no valuestream.yaml in it") as raised:
        load_deployment_files(tmp_path, {})
    assert "create an empty" in raised.value.next_step and "-d" in raised.value.next_step


def test_an_empty_deployment_has_settings_and_no_feeds(folder: Path) -> None:
    (folder / "feeds").rmdir()
    settings, feeds = load_deployment_files(folder, {})
    assert settings.deployment == folder
    assert feeds == ()


def test_feeds_come_in_the_order_of_their_names(folder: Path) -> None:
    _write(folder, "a.yaml", SMALLEST.replace("orders", "zebras"))
    _write(folder, "b.yaml", SMALLEST)
    _write(folder, ".hidden.yaml", "nonsense: 1\n")
    _write(folder, "notes.txt", "not a feed")
    _, feeds = load_deployment_files(folder, {})
    assert [(one.name, one.file) for one in feeds] == [("acme/orders", "feeds/b.yaml"), ("acme/zebras", "feeds/a.yaml")]
    assert feeds[0].landing == str(folder / "landing/acme/orders")


def test_all_findings_of_all_files_come_at_once(folder: Path) -> None:
    (folder / "valuestream.yaml").write_text("ledgr: x\n", encoding="utf-8")
    _write(folder, "a.yaml", SMALLEST.replace("BIGINT", "BIGNT"))
    _write(folder, "b.yaml", "a: [1\n")
    _write(folder, "c.yml", SMALLEST)
    _write(folder, "d.yaml", SMALLEST)
    found = _findings(folder)
    assert [finding.split(":")[0] for finding in found] == [
        "feeds/a.yaml",
        "feeds/b.yaml",
        "feeds/c.yml",
        "valuestream.yaml",
    ]


def test_two_feeds_of_one_name_are_refused(folder: Path) -> None:
    _write(folder, "a.yaml", SMALLEST)
    _write(folder, "b.yaml", "# second\n" + SMALLEST)
    assert _findings(folder) == [
        "feeds/b.yaml:2: the feed acme/orders has the same name as acme/orders in feeds/a.yaml"
        ". Write: another source or dataset"
    ]


def test_names_equal_but_for_case_are_refused(folder: Path) -> None:
    _write(folder, "a.yaml", SMALLEST)
    _write(folder, "b.yaml", SMALLEST.replace("orders", "Orders"))
    _write(folder, "c.yaml", SMALLEST.replace("acme", "ACME").replace("orders", "returns"))
    first, second = _findings(folder)
    assert "the same name but for case as acme/orders" in first
    assert "the source `ACME` is `acme` in feeds/a.yaml, equal but for case. Write: source: acme" in second


def test_a_source_that_is_the_catalogues_own_name_is_refused(folder: Path) -> None:
    _write(folder, "a.yaml", SMALLEST.replace("acme", "Catalog"))
    (finding,) = _findings(folder)
    assert "the catalogue file's name too" in finding


def test_values_of_the_environment_reach_the_feed(folder: Path) -> None:
    _write(folder, "a.yaml", SMALLEST.replace("landing/acme/orders", "${DROP}/orders"))
    _, (one,) = load_deployment_files(folder, {"DROP": "/data"})
    assert one.landing == "/data/orders"


def test_a_components_attributes_are_the_same_feed(folder: Path) -> None:
    attributes = {
        "source": "acme",
        "dataset": "orders",
        "landing": "landing/acme/orders",
        "columns": {"order_id": "BIGINT", "amount": "DECIMAL(18,2)"},
    }
    declared = FeedDeclaration.model_validate(attributes)
    assert feed_from_attributes(declared, Path("/srv/deployment"), "feeds/x.yaml") == feed(SMALLEST)
