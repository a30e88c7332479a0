"""Folders: links lead nowhere (case 34), odd names crash nothing, and the store never overwrites."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from valuestream_dagster.errors import ObjectChanged, ObjectExists, StoreFailure, WrongUse
from valuestream_dagster.feeds.settings import S3Settings
from valuestream_dagster.stores import local
from valuestream_dagster.stores.landing import open_landing
from valuestream_dagster.stores.local import LocalLanding, LocalStore
from valuestream_dagster.stores.s3 import S3Landing
from valuestream_tests.permissions import bound_by_permissions


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def test_a_landing_folder_that_is_not_there_yet_is_told_apart_from_an_empty_one(tmp_path: Path, root: Path) -> None:
    absent = LocalLanding(tmp_path / "nowhere")
    assert absent.list() == []
    assert "nowhere does not exist yet" in (absent.absent() or "")
    assert LocalLanding(root).absent() is None


def test_links_are_reported_and_never_followed(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_bytes(b"secret")
    (root / "file.csv").symlink_to(outside / "secret.csv")
    (root / "folder").symlink_to(outside)
    (root / "broken").symlink_to("nowhere")
    listed = LocalLanding(root).list()
    assert [(stat.path, stat.is_link) for stat in listed] == [("broken", True), ("file.csv", True), ("folder", True)]
    for stat in listed:
        with pytest.raises(StoreFailure, match="symbolic link"):
            LocalLanding(root).read(stat, 100)


def test_a_folder_swapped_for_a_link_after_the_listing_leads_nowhere(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "a.csv").write_bytes(b"mine")
    (seen,) = LocalLanding(root).list()
    (root / "d").rename(root.parent / "elsewhere")
    (root / "d").symlink_to(root.parent / "elsewhere")
    with pytest.raises(StoreFailure, match="symbolic link"):
        LocalLanding(root).read(seen, 100)
    assert LocalLanding(root).head("d/a.csv") is None


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root / "a.csv").write_bytes(b"x")
    alias = root.parent / "alias"
    alias.symlink_to(root)
    assert [stat.path for stat in LocalLanding(alias).list()] == ["a.csv"]


def test_a_pipe_is_reported_as_special_and_does_not_hang_a_reader(root: Path) -> None:
    os.mkfifo(root / "pipe.csv")
    (stat,) = LocalLanding(root).list()
    assert stat.is_special
    with pytest.raises(ObjectChanged):
        LocalLanding(root).read(replace(stat, is_special=False), 100)


def test_a_name_that_is_not_utf8_is_listed_read_and_addressed(root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9.csv")).write_bytes(b"x")
    (stat,) = LocalLanding(root).list()
    assert LocalLanding(root).read(stat, 10) == b"x"
    assert LocalLanding(root).uri(stat.path).endswith("/caf%E9.csv")


def test_a_folder_that_may_not_be_read_is_named(root: Path) -> None:
    (root / "closed").mkdir(mode=0)
    with bound_by_permissions(), pytest.raises(StoreFailure, match="closed: Permission denied"):
        LocalLanding(root).list()


def test_a_landing_place_that_is_a_file_is_named(root: Path) -> None:
    (root / "a.csv").write_bytes(b"x")
    with pytest.raises(StoreFailure, match=r"a\.csv: Not a directory"):
        LocalLanding(root / "a.csv").list()


def test_folders_without_end_are_refused(root: Path) -> None:
    (root / "/".join("d" * (local.DEPTH_LIMIT + 1))).mkdir(parents=True)
    with pytest.raises(StoreFailure, match="64 folders deep"):
        LocalLanding(root).list()


def test_an_overwrite_that_keeps_size_and_time_has_another_stamp(root: Path) -> None:
    target = root / "s.csv"
    target.write_bytes(b"old")
    (before,) = LocalLanding(root).list()
    target.write_bytes(b"new")
    os.utime(target, ns=(before.modified_ns or 0, before.modified_ns or 0))
    (after,) = LocalLanding(root).list()
    assert (after.bytes, after.modified_ns) == (before.bytes, before.modified_ns)
    assert after.stamp != before.stamp


class TestTheStore:
    def _temp(self, store: LocalStore, data: bytes) -> Path:
        temp = store.temp(".part")
        with store.writing(temp) as file:
            file.write(data)
        return temp

    def test_nothing_is_created_before_the_first_write(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path / "store")
        assert not store.exists("a/b")
        assert not (tmp_path / "store").exists()

    def test_a_name_is_written_once_and_the_second_writer_is_refused(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path / "store")
        store.put_new("a/b", self._temp(store, b"first"))
        late = self._temp(store, b"second")
        with pytest.raises(ObjectExists, match="never overwritten"):
            store.put_new("a/b", late)
        assert store.path("a/b").read_bytes() == b"first"
        assert late.exists()
        assert list((tmp_path / "store/tmp").iterdir()) == [late]

    def test_temps_never_share_a_name(self, tmp_path: Path) -> None:
        one, two = LocalStore(tmp_path), LocalStore(tmp_path)
        assert len({store.temp() for store in (one, two) for _ in range(100)}) == 200

    def test_deleting_twice_is_no_error(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path / "store")
        store.put_new("a", self._temp(store, b"x"))
        store.delete("a")
        store.delete("a")
        assert not store.exists("a")

    def test_a_store_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "store").write_bytes(b"a file")
        with pytest.raises(StoreFailure, match="store"):
            LocalStore(tmp_path / "store").temp()


@pytest.mark.parametrize("address", ["ftp://host/x", "s3://", "s3:///x"])
def test_an_address_that_is_no_landing_place_is_wrong_use(address: str) -> None:
    with pytest.raises(WrongUse, match="no landing place"):
        open_landing(address, S3Settings(endpoint_url=None, region=None))


def test_an_address_tells_the_kind_of_landing_place() -> None:
    assert isinstance(open_landing("/some/folder", S3Settings(endpoint_url=None, region=None)), LocalLanding)
    bucket = open_landing("s3://b/in/box", S3Settings(endpoint_url=None, region=None))
    assert isinstance(bucket, S3Landing)
    assert bucket.uri("a.csv") == "s3://b/in/box/a.csv"
