"""What publishing promises for resends, corrections, conflicts and late revisions, and when our own surroundings fail."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.errors import FenceLost, StoreFailure
from valuestream_dagster.ledger.rows import RunRow
from valuestream_dagster.publication import parquet, take_in
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.record import Recorder
from valuestream_dagster.stores.base import LandingPlace, ObjectStat
from valuestream_dagster.stores.local import LocalStore, OpenFile
from valuestream_tests.producer import Producer, csv_text
from valuestream_tests.world import CHAIN, PERIODS, REQUIRED, World

GOOD = [(1, "1.00", "U"), (2, "2.50", "U")]
OTHER = [(1, "80.00", "U")]


def a_world(root: Path, feed: str = PERIODS) -> tuple[World, Producer]:
    world = World(root, feed)
    return world, world.producer()


# --- the bytes that were checked are the bytes that are published (M5, M6, M9, S3) --------------------------------------


class SwappedAfterSealing:
    """A landing place whose producer overwrites each file in place as soon as it was read to its end."""

    def __init__(self, landing: LandingPlace, root: Path, data: bytes) -> None:
        self._landing = landing
        self._root = root
        self._data = data
        self.swapped: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._landing, name)

    def open(self, stat: ObjectStat) -> OpenFile:
        landing = self

        class Swapping(OpenFile):
            def close(self) -> None:
                super().close()
                (landing._root / stat.path).write_bytes(landing._data)
                landing.swapped.append(stat.path)

        opened = self._landing.open(stat)
        assert isinstance(opened, OpenFile)
        opened.__class__ = Swapping
        return opened


def test_a_file_swapped_between_check_and_publish_changes_no_published_byte(tmp_path: Path) -> None:
    """M6, S3."""
    world, orders = a_world(tmp_path)
    delivery = orders.deliver(1, GOOD)
    landings: list[SwappedAfterSealing] = []

    def around(publisher: Publisher) -> Publisher:
        landings.append(SwappedAfterSealing(publisher.landing, world.landing(), csv_text([(66, "6.66", "U")])))
        return replace(publisher, landing=landings[0])  # type: ignore[arg-type, unused-ignore]

    opened = world.opened
    feed = opened.feed("acme/orders")
    with around(opened.publisher(feed)).open_run([opened.key(feed, "1")]) as run:
        list(run.publish([opened.key(feed, "1")]))
    assert landings[0].swapped == ["1-data-r1-1.csv"]
    assert world.amounts() == {1: "1.00", 2: "2.50"}
    (sealed,) = delivery.files.values()
    digest = hashlib.sha256(sealed).hexdigest()
    assert world.query("SELECT sha256 FROM valuestream.lineage") == [(digest,)]
    assert (tmp_path / "state/store/sealed" / digest[:2] / digest).read_bytes() == sealed


def test_an_overwrite_in_place_after_acceptance_is_noticed_and_changes_nothing(tmp_path: Path) -> None:
    """M5."""
    world, orders = a_world(tmp_path)
    delivery = orders.deliver(1, GOOD)
    world.apply()
    before = world.seen()
    orders.overwrite(delivery, csv_text([(1, "1.00", "U"), (2, "9.99", "U")]))
    world.apply()
    receipt = world.last(Verdict.REJECTED)
    assert receipt.code == "checksum_mismatch" and receipt.findings[0]["file"] == "1-data-r1-1.csv"
    assert world.seen() == before and not world.status().healthy
    orders.hand_over(delivery)
    world.apply()
    assert world.last(Verdict.DUPLICATE) and world.status().healthy, "the right bytes again make it good"
    assert world.seen() == before


def test_the_producers_manifest_is_retained_byte_for_byte_beside_the_ledgers_record(tmp_path: Path) -> None:
    """M9."""
    world, orders = a_world(tmp_path)
    delivery = orders.deliver(1, GOOD)
    world.apply()
    ((digest,),) = world.query("SELECT manifest_sha256 FROM valuestream.receipts")
    assert (tmp_path / "state/store/sealed" / digest[:2] / digest).read_bytes() == delivery.manifest
    assert digest == hashlib.sha256(delivery.manifest).hexdigest()


# --- resends, late revisions, conflicts (M10 to M20, S4 to S6, S10) -----------------------------------------------------


def test_the_same_bytes_under_other_names_and_times_are_acknowledged_and_change_nothing(tmp_path: Path) -> None:
    """S4, M11, M14."""
    world, orders = a_world(tmp_path)
    delivery = orders.deliver(1, GOOD, revision=2)
    world.apply()
    before = world.seen()
    orders.hand_over(delivery.named("sent-again"))
    (outcome,) = world.apply()
    assert world.last(Verdict.DUPLICATE).manifest == "sent-again.manifest.json"
    assert not outcome.changed and not outcome.trouble
    assert world.seen() == before and world.status().healthy


@pytest.mark.parametrize("other_text", [False, True], ids=["the same manifest", "another manifest"])
def test_a_resend_in_the_same_look_is_a_duplicate_and_leaves_the_first_ones_file_alone(
    other_text: bool, tmp_path: Path
) -> None:
    """Two names of one delivery found at once: the second must neither fail nor take the published file away."""
    world, orders = a_world(tmp_path)
    delivery = orders.deliver(1, GOOD)
    if other_text:
        orders.hand_over(delivery.named("zz-again"))
    else:
        orders.put("zz-again.manifest.json", delivery.manifest)
    world.apply()
    assert [verdict for _, _, verdict, _ in world.verdicts()] == ["accepted", "duplicate"]
    assert world.amounts() == {1: "1.00", 2: "2.50"} and world.status().healthy
    assert world.published() == world.named_files()


def test_other_bytes_for_the_applied_revision_are_a_conflict_and_both_digests_are_on_record(tmp_path: Path) -> None:
    """S5, M15."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD, revision=2)
    world.apply()
    before = world.seen()
    orders.deliver(1, OTHER, revision=2, name="another")
    (outcome,) = world.apply()
    assert outcome.trouble, "the run is not green"
    receipt = world.last(Verdict.CONFLICT)
    digests = {row[0] for row in world.ledger("SELECT digest FROM deliveries")}
    assert receipt.digest in digests and len(digests) == 2
    assert world.seen() == before
    assert world.status().conflicts == ("1",) and not world.status().healthy
    orders.deliver(1, OTHER, revision=3)
    world.apply()
    assert world.by_key() == {"1": 3} and world.status().healthy, "a higher revision settles it (ruling 4)"


def test_two_contents_of_one_revision_in_one_look_are_a_conflict_and_leave_no_file_behind(tmp_path: Path) -> None:
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    orders.deliver(1, OTHER, name="zz-other")
    world.apply()
    assert [verdict for _, _, verdict, _ in world.verdicts()] == ["accepted", "conflict"]
    assert world.amounts() == {1: "1.00", 2: "2.50"}
    assert world.published() == world.named_files()


def test_a_late_revision_is_recorded_and_changes_nothing(tmp_path: Path) -> None:
    """S6, M13, M16: 1(100), 2(80), then 1 again ends at 80."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, OTHER, revision=2)
    world.apply()
    before = world.seen()
    orders.deliver(1, [(1, "100.00", "U")], revision=1)
    (outcome,) = world.apply()
    receipt = world.last(Verdict.SUPERSEDED)
    assert (receipt.revision, receipt.code) == (1, "late_revision") and not outcome.trouble
    assert world.seen() == before and world.amounts() == {1: "80.00"} and world.status().healthy


def test_a_second_pass_writes_nothing_at_all(tmp_path: Path) -> None:
    """S10, L17: no receipt, no run, no file, not even another catalogue."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    orders.hand_over(orders.make(2, GOOD).without_file())
    orders.put("broken.manifest.json", b"{")
    world.apply()

    def everything() -> dict[str, tuple[int, int]]:
        files = (path for path in (tmp_path / "state").rglob("*") if path.is_file() and ".lock" not in path.name)
        return {
            str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files if path.name != "ledger.duckdb"
        }

    tables = ["receipts", "runs", "run_ends", "publications", "slice_events", "objects_seen", "feed_versions"]
    counts = [world.ledger(f"SELECT count(*) FROM {table}") for table in tables]
    before = everything()
    assert world.apply() == []
    world.settle()
    assert everything() == before
    assert [world.ledger(f"SELECT count(*) FROM {table}") for table in tables] == counts


def test_a_higher_revision_with_unchanged_bytes_uses_the_files_again(tmp_path: Path) -> None:
    """Ruling 2."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    world.apply()
    files = world.published()
    orders.deliver(1, GOOD, revision=2)
    world.apply()
    assert world.published() == files and world.by_key() == {"1": 2}
    assert "used again" in world.last(Verdict.ACCEPTED).detail


def test_unchanged_bytes_under_another_declaration_are_written_anew(tmp_path: Path) -> None:
    """L5: files are used again only where bytes *and* computation are the same."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    world.apply()
    files = world.published()
    (tmp_path / "feeds/orders.yaml").write_text(PERIODS.replace("DECIMAL(18,2)", "DECIMAL(18,3)"))
    orders.deliver(1, GOOD, revision=2)
    world.apply()
    assert len(world.published() - files) == 1 and world.by_key() == {"1": 2}
    assert world.amounts() == {1: "1.000", 2: "2.500"}


def test_a_correction_replaces_the_rows_of_its_key_alone(tmp_path: Path) -> None:
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    orders.deliver(2, [(3, "3.00", "U")])
    world.apply()
    orders.deliver(1, OTHER, revision=2)
    world.apply()
    assert world.amounts() == {1: "80.00", 3: "3.00"} and world.by_key() == {"1": 2, "2": 1}
    history = world.query("SELECT key, revision, visible FROM valuestream.publications ORDER BY ALL")
    assert history == [("1", 1, False), ("1", 2, True), ("2", 1, True)]


def test_a_publication_carries_its_provenance(tmp_path: Path) -> None:
    """C17, L14: key, previous key, objects, run, position in the ledger; and who it is inside the file itself."""
    world, orders = a_world(tmp_path, REQUIRED)
    orders.deliver(1, GOOD)
    orders.deliver(2, OTHER)
    world.apply()
    assert world.query("SELECT key, previous_key, position FROM valuestream.publications ORDER BY key") == [
        ("1", None, "1"),
        ("2", "1", "2"),
    ]
    (path,) = [name for name in world.published() if name.startswith("2/")]
    file = tmp_path / "state/store/published/acme/orders" / path
    with duckdb.connect() as connection:
        pairs = dict(
            connection.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{file}')").fetchall()
        )
    ((run,),) = world.query("SELECT DISTINCT run_id FROM valuestream.publications")
    assert pairs["valuestream.key"] == "2" and pairs["valuestream.run"] == run and run in path


# --- a batch whose parts fail (the order within one run) ----------------------------------------------------------------


def test_keys_after_one_that_is_rejected_are_not_applied_and_say_why(tmp_path: Path) -> None:
    """C7, C8: what preparing assumed of a key does not outlive its rejection."""
    world, orders = a_world(tmp_path, REQUIRED)
    orders.deliver(1, GOOD)
    orders.hand_over(orders.make(2, csv_text([("two", "2.00", "U")])))
    orders.deliver(3, OTHER)
    orders.deliver(4, OTHER)
    outcomes = world.apply()
    told = {outcome.key: outcome.told for key in outcomes for outcome in key.outcomes}
    assert [told[key].code for key in sorted(told, key=lambda key: key.ordinal)] == [
        "accepted",
        "value_does_not_fit",
        "predecessor_rejected",
        "predecessor_waiting",
    ]
    assert world.by_key() == {"1": 1} and world.published() == world.named_files()
    status = world.status()
    assert (status.status, status.reason, status.position) == ("blocked", "predecessor_rejected", "1")
    orders.deliver(2, GOOD, revision=2)
    world.apply()
    assert world.by_key() == {"1": 1, "2": 2, "3": 1, "4": 1} and world.status().healthy


class FullDisk(LocalStore):
    """A store whose disk is full for some names."""

    def __init__(self, root: Path, refuse: Callable[[str], bool]) -> None:
        super().__init__(root)
        self._refuse = refuse

    def link_new(self, rel: str, temp: Path) -> bool:
        if self._refuse(temp.read_text("utf-8", "replace")):
            raise StoreFailure(f"{rel}: No space left on device.", next_step="free space.")
        return super().link_new(rel, temp)


def test_a_full_disk_fails_the_delivery_at_hand_and_the_keys_after_it_wait_for_it(tmp_path: Path) -> None:
    """Our own failure is no verdict on the delivery: no receipt, the slice failed, a retry takes it again (C8, C9, S18)."""
    world, orders = a_world(tmp_path, REQUIRED)
    orders.deliver(1, GOOD)
    orders.deliver(2, [(2, "222.00", "U")])
    orders.deliver(3, OTHER)
    full = lambda publisher: replace(publisher, store=FullDisk(publisher.store.root, lambda text: "222.00" in text))  # noqa: E731
    outcomes = world.apply(around=full)
    failed = [outcome for key in outcomes for outcome in key.outcomes if outcome.failed]
    assert [outcome.key.text for outcome in failed] == ["2"] and "No space left" in failed[0].told.detail
    assert world.verdicts() == [("1", 1, "accepted", "accepted"), ("3", 1, "waiting", "predecessor_failed")]
    assert world.by_key() == {"1": 1}
    assert world.status().failed == ("2",) and world.status().reason == "predecessor_failed"
    assert world.published() == world.named_files()
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1} and world.status().healthy


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), duckdb.OutOfMemoryException("full")]
)
def test_a_failure_while_writing_rows_is_the_slices_and_other_keys_go_on(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, orders = a_world(tmp_path)
    for key in (1, 2, 3):
        orders.deliver(key, [(key, "1.00", "U")])

    def stage(*args: Any, stamp: Any, **others: Any) -> Any:
        if stamp.key == "2":
            raise error
        return parquet.stage(*args, stamp=stamp, **others)

    monkeypatch.setattr(take_in, "stage", stage)
    world.apply()
    assert world.by_key() == {"1": 1, "3": 1} and world.status().failed == ("2",)
    monkeypatch.undo()
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1} and world.status().healthy


def test_bytes_that_cannot_be_made_durable_are_not_recorded_and_the_next_key_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure found only when recording: what was prepared on top of it is not recorded either, and no file is left."""
    world, orders = a_world(tmp_path, REQUIRED)
    for key in (1, 2, 3):
        orders.deliver(key, [(key, f"{key}.00", "U")])
    marked = hashlib.sha256(orders.make(2, [(2, "2.00", "U")]).files["2-data-r1-1.csv"]).hexdigest()

    class Unsynced(LocalStore):
        def sync(self, names: Any) -> None:
            wanted = list(names)
            if any(marked in name for name in wanted):
                raise StoreFailure("the disk answered: Input/output error.", next_step="replace the disk.")
            super().sync(wanted)

    world.apply(around=lambda publisher: replace(publisher, store=Unsynced(publisher.store.root)))
    assert world.by_key() == {"1": 1} and world.status().failed == ("2",)
    assert world.published() == world.named_files()
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1} and world.published() == world.named_files()


def test_an_error_while_recording_frees_the_feed_and_the_next_invocation_goes_on_from_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L13, L19: the run stays open, is settled as `partial`, and nothing is done twice."""
    world, orders = a_world(tmp_path, REQUIRED)
    for key in (1, 2, 3):
        orders.deliver(key, [(key, f"{key}.00", "U")])
    real = Recorder.record

    def record(self: Any, session: Any, one: Any) -> Any:
        answer = real(self, session, one)
        if one.arrival.manifest.key.text == "2":
            raise MemoryError("no more")
        return answer

    monkeypatch.setattr(Recorder, "record", record)
    with pytest.raises(MemoryError):
        world.apply()
    monkeypatch.undo()
    assert world.ledger("SELECT count(*) FROM runs") == [(1,)] and world.ledger("FROM run_ends") == []
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1, "3": 1}
    assert world.query("SELECT status, count(*) FROM valuestream.runs GROUP BY ALL ORDER BY ALL") == [
        ("ok", 1),
        ("partial", 1),
    ]
    assert [verdict for _, _, verdict, _ in world.verdicts()] == ["accepted"] * 3


def test_a_run_that_was_taken_for_dead_records_nothing_more(tmp_path: Path) -> None:
    """M18: a later fencing number is another run's."""
    world, orders = a_world(tmp_path)
    orders.deliver(1, GOOD)
    orders.deliver(2, OTHER)
    opened = world.opened
    feed = opened.feed("acme/orders")
    one, two = (opened.key(feed, text) for text in "12")
    with opened.publisher(feed).open_run([one, two]) as run:
        run.record([run.prepare(one)])
        with opened.ledger.session() as session, session.transaction():
            later = RunRow("later", feed.name, session.read.fence(feed.name) + 1, "elsewhere:1", opened.now())
            session.write.run(later, "hash")
        prepared = run.prepare(two)
        with pytest.raises(FenceLost, match="taken over acme/orders"):
            run.record([prepared])
        with pytest.raises(FenceLost):
            run.close()
    assert world.ledger("SELECT key FROM publications") == [("1",)] and world.ledger("FROM run_ends") == []
    assert len(world.published()) == 1, "the file that was prepared is gone"


# --- what an interrupted run left (L13 to L15, S15) ---------------------------------------------------------------------


def interrupted(world: World, keys: str) -> list[str]:
    """Record keys and die before closing; the published files in order of key."""
    opened = world.opened
    feed = opened.feed("acme/orders")
    wanted = [opened.key(feed, text) for text in keys]
    with opened.publisher(feed).open_run(wanted) as run:
        run.record([run.prepare(key) for key in wanted])
    return [str(path) for (path,) in world.ledger("SELECT path FROM files ORDER BY rowid")]


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_file_of_an_interrupted_run_is_voided_and_done_again_and_good_ones_are_kept(
    damage: str, tmp_path: Path
) -> None:
    world, orders = a_world(tmp_path)
    for key in (1, 2, 3):
        orders.deliver(key, [(key, f"{key}.00", "U")])
    paths = interrupted(world, "123")
    victim = tmp_path / "state/store" / paths[1]
    if damage == "deleted":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-20])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().healthy
    assert world.ledger("SELECT key FROM voided JOIN publications USING (publication_id)") == [("2",)]
    again = world.ledger("SELECT key, count(*) FROM publications GROUP BY key ORDER BY key")
    assert again == [("1", 1), ("2", 2), ("3", 1)], "only the damaged one was done again"
    assert paths[0] in {row[0] for row in world.ledger("SELECT path FROM files")}


def test_in_a_chain_nothing_is_kept_that_was_recorded_on_top_of_a_damaged_link(tmp_path: Path) -> None:
    """Readers would see a state that never was: link 4 without link 3."""
    world, orders = a_world(tmp_path, CHAIN)
    orders.deliver(1, [(1, "1.00", "U")], kind="full")
    orders.deliver(2, [(2, "2.00", "U")])
    world.apply()
    orders.deliver(3, [(1, "3.00", "U")])
    orders.deliver(4, [(4, "4.00", "U")])
    paths = interrupted(world, "34")
    (tmp_path / "state/store" / paths[2]).unlink()
    (world.landing() / "3-data-r1-1.csv").unlink()
    world.settle_only()
    assert world.amounts() == {1: "1.00", 2: "2.00"} and world.status().position == "2"
    world.apply()
    assert world.amounts() == {1: "3.00", 2: "2.00", 4: "4.00"} and world.status().position == "4"


def test_a_damaged_full_of_an_interrupted_run_is_done_again_and_its_chain_goes_on(tmp_path: Path) -> None:
    world, orders = a_world(tmp_path, CHAIN)
    orders.deliver(1, [(1, "1.00", "U")], kind="full")
    orders.deliver(2, [(2, "2.00", "U")])
    world.apply()
    orders.deliver(3, [(3, "3.00", "U")], kind="full")
    orders.deliver(4, [(4, "4.00", "U")])
    paths = interrupted(world, "34")
    (tmp_path / "state/store" / paths[2]).write_bytes(b"")
    world.apply()
    assert world.amounts() == {3: "3.00", 4: "4.00"} and world.status().position == "4" and world.status().healthy


def test_a_published_file_is_never_written_twice(tmp_path: Path) -> None:
    """L7: every attempt has names of its own."""
    world, orders = a_world(tmp_path)
    for revision in (1, 2, 3):
        orders.deliver(1, [(1, f"{revision}.00", "U")], revision=revision)
        world.apply()
    files = world.published()
    assert len(files) == 3 and files == world.named_files()
    modes = {(tmp_path / "state/store/published/acme/orders" / name).stat().st_nlink for name in files}
    assert modes == {1}, "no temporary name is left"
    assert [path for path in (tmp_path / "state/store/tmp").iterdir() if path.is_file()] == []
