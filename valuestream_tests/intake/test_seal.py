"""The bytes that are checked are the bytes that are kept (M5, M6, S2, S3; cases 15, 20, 68)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.manifest import Checksum, Entry, digest_of
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.seal import Sealed, seal, sealed_name
from valuestream_dagster.stores.base import ObjectStat
from valuestream_dagster.stores.local import LocalLanding, LocalStore, OpenFile
from valuestream_dagster.stores.s3 import S3Landing
from valuestream_tests.s3_server import s3_client, s3_server

BUFFER = 4096


class Meddled(LocalLanding):
    """A landing place where something happens to a file after its first bytes were read."""

    def __init__(self, root: Path, meddle: Callable[[Path], object]) -> None:
        super().__init__(root)
        self._meddle = meddle

    def open(self, stat: ObjectStat) -> OpenFile:
        opened = super().open(stat)
        self._meddle(self.root / stat.path)
        return opened


class Yard:
    """A producer's folder and our store."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "landing"
        self.root.mkdir(parents=True)
        self.landing = LocalLanding(self.root)
        self.store = LocalStore(folder / "store")

    def put(self, path: str, data: bytes) -> None:
        (self.root / path).write_bytes(data)

    def resolved(self, *entries: Entry) -> Resolved:
        listing = {stat.path: stat for stat in self.landing.list()}
        return Resolved(tuple((entry, listing[entry.path]) for entry in entries), source="acme")

    def seal(self, *entries: Entry) -> Sealed | Invalid | Incomplete:
        return seal(self.landing, self.resolved(*entries), self.store, buffer=BUFFER)

    def stored(self) -> list[str]:
        root = self.store.root
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def entry_of(path: str, data: bytes, algorithm: str = "sha256", role: str = "data") -> Entry:
    checksum = Checksum(algorithm, hashlib.new(algorithm, data).hexdigest())
    return Entry(path, len(data), checksum, role=role)


@pytest.mark.parametrize("algorithm", ["sha256", "md5", "sha1", "sha512"])
@pytest.mark.parametrize("size", [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER, 20 * BUFFER + 7])
def test_every_byte_is_kept_under_its_own_sha256_whatever_the_manifest_declares(
    yard: Yard, size: int, algorithm: str
) -> None:
    data = os.urandom(size)
    yard.put("a.csv", data)
    sealed = yard.seal(entry_of("a.csv", data, algorithm))
    assert isinstance(sealed, Sealed)
    sealed.wait_durable()
    (file,) = sealed.files
    assert (file.sha256, file.bytes) == (hashlib.sha256(data).hexdigest(), size)
    assert sealed.paths[0].read_bytes() == data
    assert yard.stored() == [sealed_name(file.sha256)]
    assert sealed.digest == digest_of(sealed.files)
    assert file.uri.endswith("/landing/a.csv")


def test_an_entry_that_declares_nothing_is_sealed_under_what_it_is(yard: Yard) -> None:
    yard.put("a.csv", b"x")
    sealed = yard.seal(Entry("a.csv", rows=3))
    assert isinstance(sealed, Sealed)
    assert (sealed.files[0].bytes, sealed.files[0].rows) == (1, 3)


def test_one_wrong_byte_names_file_and_both_digests_and_binds_nothing_but_keeps_the_evidence(yard: Yard) -> None:
    yard.put("a.csv", b"right")
    yard.put("b.csv", b"wrong")
    yard.put("c.csv", b"short")
    good, bad = entry_of("a.csv", b"right"), entry_of("b.csv", b"wrung")
    outcome = yard.seal(good, bad, entry_of("c.csv", b"shorter"))
    assert isinstance(outcome, Invalid)
    first, second = outcome.findings
    assert (first.code, first.file) == ("checksum_mismatch", "b.csv")
    assert (first.expected, first.found) == (bad.checksum and bad.checksum.hex, hashlib.sha256(b"wrong").hexdigest())
    assert first.next_step == "ask acme for a resend."
    assert (second.code, second.expected, second.found) == ("size_mismatch", "7", "5")
    assert [file.sha256 for file in outcome.kept] == [hashlib.sha256(x).hexdigest() for x in (b"right", b"wrong", b"short")]
    assert yard.stored() == sorted(sealed_name(file.sha256) for file in outcome.kept)


def test_an_old_manifest_beside_an_overwritten_file_is_refused(yard: Yard) -> None:
    old = entry_of("a.csv", b"old bytes", "md5")
    yard.put("a.csv", b"new bytes")
    outcome = yard.seal(old)
    assert isinstance(outcome, Invalid)
    assert outcome.findings[0].code == "checksum_mismatch"


def test_the_sealed_bytes_stay_when_the_source_is_overwritten_or_deleted(yard: Yard) -> None:
    yard.put("a.csv", b"checked")
    sealed = yard.seal(entry_of("a.csv", b"checked"))
    assert isinstance(sealed, Sealed)
    yard.put("a.csv", b"swapped")
    assert sealed.paths[0].read_bytes() == b"checked"
    (yard.root / "a.csv").unlink()
    assert sealed.paths[0].read_bytes() == b"checked"


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _cut(path: Path) -> None:
    os.truncate(path, 10)


def _rewrite(path: Path) -> None:
    path.write_bytes(b"n" * path.stat().st_size)


@pytest.mark.parametrize("meddle", [_append, _cut, _rewrite])
@pytest.mark.parametrize("size", [100, 5 * BUFFER])
def test_a_file_that_changes_while_it_is_copied_makes_the_delivery_wait(
    yard: Yard, meddle: Callable[[Path], object], size: int
) -> None:
    yard.put("a.csv", b"o" * size)
    resolved = yard.resolved(Entry("a.csv"))
    outcome = seal(Meddled(yard.root, meddle), resolved, yard.store, buffer=BUFFER)
    assert outcome == Incomplete(("a.csv (changed while it was read)",))
    assert yard.stored() == []


def test_a_file_that_changed_or_went_since_the_listing_makes_the_delivery_wait(yard: Yard) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        yard.put(name, b"seen")
    resolved = yard.resolved(Entry("a.csv"), Entry("b.csv"), Entry("c.csv", 4, Checksum("md5", "0" * 32)))
    yard.put("a.csv", b"other")
    (yard.root / "b.csv").unlink()
    outcome = seal(yard.landing, resolved, yard.store, buffer=BUFFER)
    assert outcome == Incomplete(("a.csv (changed while it was read)", "b.csv"))


def test_a_swap_for_a_link_after_the_listing_is_refused(yard: Yard) -> None:
    yard.put("a.csv", b"mine")
    resolved = yard.resolved(Entry("a.csv"))
    (yard.root / "a.csv").unlink()
    (yard.root / "a.csv").symlink_to("/etc/hostname")
    with pytest.raises(StoreFailure, match="symbolic link"):
        seal(yard.landing, resolved, yard.store, buffer=BUFFER)
    assert yard.stored() == []


def test_two_files_with_the_same_bytes_are_two_files_and_one_object(yard: Yard) -> None:
    yard.put("a.csv", b"same")
    yard.put("b.csv", b"same")
    sealed = yard.seal(entry_of("a.csv", b"same"), Entry("b.csv"))
    assert isinstance(sealed, Sealed)
    sealed.wait_durable()
    assert [file.path for file in sealed.files] == ["a.csv", "b.csv"]
    assert len(yard.stored()) == 1


@pytest.mark.parametrize("declares", ["sha256", "md5"])
def test_a_resend_under_another_name_reuses_the_object_and_has_the_same_digest(yard: Yard, declares: str) -> None:
    yard.put("a.csv", b"same")
    yard.put("again.csv", b"same")
    first, second = yard.seal(entry_of("a.csv", b"same")), yard.seal(entry_of("again.csv", b"same", declares))
    assert isinstance(first, Sealed)
    assert isinstance(second, Sealed)
    assert (first.digest, first.paths) == (second.digest, second.paths)
    assert len(yard.stored()) == 1


def test_known_bytes_are_hashed_again_all_the_same(yard: Yard) -> None:
    yard.put("a.csv", b"good")
    yard.seal(entry_of("a.csv", b"good"))
    yard.put("b.csv", b"evil")
    declared = entry_of("a.csv", b"good").checksum
    outcome = yard.seal(Entry("b.csv", 4, declared))
    assert isinstance(outcome, Invalid)
    assert [yard.store.path(sealed_name(file.sha256)).read_bytes() for file in outcome.kept] == [b"evil"]


@pytest.mark.parametrize("torn", [b"", b"bi", b"big and more"])
def test_an_object_that_a_power_loss_left_torn_is_made_whole(yard: Yard, torn: bytes) -> None:
    name = yard.store.path(sealed_name(hashlib.sha256(b"big").hexdigest()))
    name.parent.mkdir(parents=True)
    name.write_bytes(torn)
    yard.put("a.csv", b"big")
    sealed = yard.seal(entry_of("a.csv", b"big"))
    assert isinstance(sealed, Sealed)
    sealed.wait_durable()
    assert sealed.paths[0].read_bytes() == b"big"
    assert len(yard.stored()) == 1


def test_an_empty_delivery_has_the_digest_of_nothing(yard: Yard) -> None:
    sealed = yard.seal()
    assert isinstance(sealed, Sealed)
    sealed.wait_durable()
    assert sealed.digest.hex == hashlib.sha256(b"").hexdigest()


def test_a_store_that_takes_no_bytes_is_a_failure_that_names_it(yard: Yard) -> None:
    yard.put("a.csv", b"x")
    yard.store.root.write_bytes(b"a file where the store should be")
    with pytest.raises(StoreFailure, match="store"):
        yard.seal(Entry("a.csv"))


def test_bytes_that_could_not_be_made_durable_are_told_before_anything_is_recorded(yard: Yard) -> None:
    yard.put("a.csv", b"x")

    class Failing(LocalStore):
        def sync(self, names: object) -> None:
            raise StoreFailure("the disk is gone.")

    failing = Failing(yard.store.root)
    sealed = seal(yard.landing, yard.resolved(Entry("a.csv")), failing, buffer=BUFFER)
    assert isinstance(sealed, Sealed)
    with pytest.raises(StoreFailure, match="disk is gone"):
        sealed.made_durable(failing).wait_durable()


@given(st.lists(st.binary(max_size=20), max_size=5), st.randoms(use_true_random=False))
def test_neither_names_nor_order_enter_the_digest_of_sealed_bytes(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], random: object
) -> None:
    yard = Yard(tmp_path_factory.mktemp("yard"))
    shuffled = list(contents)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    digests = set()
    for prefix, each in (("a", contents), ("b", shuffled)):
        for index, data in enumerate(each):
            yard.put(f"{prefix}{index}", data)
        sealed = yard.seal(*(Entry(f"{prefix}{index}") for index in range(len(each))))
        assert isinstance(sealed, Sealed)
        digests.add(sealed.digest)
    assert len(digests) == 1


def test_an_object_in_s3_is_sealed_with_its_version_and_refused_under_another(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    with s3_server() as endpoint:
        client = s3_client(endpoint)
        client.create_bucket(Bucket="box")
        client.put_bucket_versioning(Bucket="box", VersioningConfiguration={"Status": "Enabled"})
        data = os.urandom(3 * BUFFER)
        version = client.put_object(Bucket="box", Key="in/a.csv", Body=data)["VersionId"]
        landing = S3Landing("box", "in", endpoint, client=client)
        (stat,) = landing.list()
        sealed = seal(landing, Resolved(((Entry("a.csv", version_id=version), stat),)), store, buffer=BUFFER)
        assert isinstance(sealed, Sealed)
        sealed.wait_durable()
        assert (sealed.files[0].uri, sealed.files[0].version) == ("s3://box/in/a.csv", version)
        assert sealed.paths[0].read_bytes() == data
        other = seal(landing, Resolved(((Entry("a.csv", version_id="v0"), stat),)), store, buffer=BUFFER)
        assert isinstance(other, Invalid)
        assert other.findings[0].code == "version_mismatch"
        client.put_object(Bucket="box", Key="in/a.csv", Body=b"new")
        assert isinstance(seal(landing, Resolved(((Entry("a.csv"), stat),)), store, buffer=BUFFER), Incomplete)
