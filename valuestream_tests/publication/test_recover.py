"""What an interrupted run left is verified, kept or voided, and closed as partial (L13-L16, L18, L19, S15, S28)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from valuestream_dagster.core.continuity import SliceState
from valuestream_dagster.core.decision import Accept, Identity, Valid, decide
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.ledger.rows import KeyRecord, PublishedFile
from valuestream_dagster.publication.recover import settle_interrupted
from valuestream_dagster.stores.local import LocalStore
from valuestream_tests.builders import Book, Clock, a_feed, digest, key

PERIODS = a_feed()
CHAIN = a_feed("chain", "{kind: integer, continuity: required, baseline: '1'}")


@dataclass
class Scene:
    """A ledger and a store, and what a run does to them before it dies."""

    session: LedgerSession
    store: LocalStore
    book: Book

    def file(self, name: str) -> PublishedFile:
        path = self.store.path(f"published/{name}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
        return PublishedFile(f"published/{name}.parquet", hashlib.sha256(name.encode()).hexdigest(), len(name), 1)

    def publish(self, number: int, revision: int = 1, *, run_id: str | None, feed: Feed = PERIODS) -> PublishedFile:
        made = self.file(f"k{number}r{revision}")
        self.book.publish(
            key(feed, number), revision, f"bytes {revision}", run_id=run_id, files=[made], kind=feed.default_kind,
            requires=key(feed, number - 1) if feed is CHAIN and number > 1 else None,
        )  # fmt: skip
        return made

    def settle(self, feed: Feed = PERIODS) -> tuple[str, ...]:
        return tuple(one.run_id for one in settle_interrupted(self.session, feed, self.store, self.book.clock))

    def known(self, number: int) -> KeyRecord:
        return self.session.read.records("acme/orders", [str(number)])[str(number)]

    def visible(self) -> dict[str, int]:
        found = self.session.read.newest_publications("acme/orders", [str(number) for number in range(10)])
        return {text: publications[-1].revision for text, publications in found.items()}

    def ended(self) -> list[tuple[str, str]]:
        return self.session.connection.execute("SELECT run_id, status FROM run_ends ORDER BY rowid").fetchall()

    def damage(self, made: PublishedFile) -> None:
        self.store.path(made.path).write_bytes(b"other")

    def take_away(self, made: PublishedFile) -> None:
        self.store.path(made.path).unlink()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with DuckLedger(tmp_path / "ledger.duckdb", now=Clock()).session() as session:
        session.read.records("acme/orders", [])
        yield Scene(session, LocalStore(tmp_path / "store"), Book(session))


def test_where_no_run_is_open_nothing_is_done(scene: Scene) -> None:
    scene.publish(1, run_id=None)
    before = scene.session.read.generation()
    assert scene.settle() == ()
    assert scene.session.read.generation() == before


def test_a_run_that_died_after_recording_everything_is_kept_whole_and_becomes_visible(scene: Scene) -> None:
    """L14, L19, S28"""
    scene.book.begin("dead")
    scene.publish(1, run_id="dead")
    scene.publish(2, run_id="dead")
    assert scene.visible() == {}
    assert scene.settle() == ("dead",)
    assert scene.visible() == {"1": 1, "2": 1}
    assert scene.ended() == [("dead", "partial")]
    assert scene.settle() == (), "once only"


def test_of_three_recorded_slices_the_sound_one_is_kept_and_the_damaged_ones_are_voided(scene: Scene) -> None:
    """L14, L15, S15: one holds other bytes, one file is gone"""
    scene.book.begin("dead")
    scene.publish(1, run_id="dead")
    scene.damage(scene.publish(2, run_id="dead"))
    scene.take_away(scene.publish(3, run_id="dead"))
    assert scene.settle() == ("dead",)
    assert scene.visible() == {"1": 1}
    assert [scene.known(number).state for number in (1, 2, 3)] == [
        SliceState.SUCCEEDED, SliceState.INTERRUPTED, SliceState.INTERRUPTED,
    ]  # fmt: skip
    assert "recorded bytes" in scene.known(2).why
    assert "cannot be read" in scene.known(3).why
    assert scene.known(2).history(Kind.FULL).applied is None


@pytest.mark.parametrize("harm", [Scene.damage, Scene.take_away])
def test_a_voided_delivery_is_news_again_and_is_accepted_again(
    scene: Scene, harm: Callable[[Scene, PublishedFile], None]
) -> None:
    """L15, L16: its own bytes are no conflict, other bytes are"""
    scene.book.begin("dead")
    harm(scene, scene.publish(1, run_id="dead"))
    manifest = [("1-full-r1.manifest.json", "stamp-1")]
    assert scene.session.read.news("acme/orders", manifest)[0] == frozenset()
    scene.settle()
    assert scene.session.read.news("acme/orders", manifest)[0] == {"1-full-r1.manifest.json"}
    arrived = Valid(Identity(Kind.FULL, key(PERIODS, 1), 1), digest("bytes 1"))
    again = decide(PERIODS.rule, arrived, scene.known(1).history(Kind.FULL), None, lambda _: SliceState.MISSING)
    assert again == Accept()


def test_a_damaged_replacement_leaves_the_previous_success_visible(scene: Scene) -> None:
    """L18, L25"""
    scene.publish(1, run_id=None)
    scene.book.begin("dead")
    scene.damage(scene.publish(1, 2, run_id="dead"))
    scene.settle()
    assert scene.visible() == {"1": 1}
    applied = scene.known(1).history(Kind.FULL).applied
    assert applied is not None
    assert applied.revision == 1


def test_in_a_chain_nothing_is_kept_that_builds_on_what_is_lost(scene: Scene) -> None:
    """C22, L18: readers would see a state that never was"""
    scene.book.epoch(1, key(CHAIN, 1))
    scene.book.begin("dead")
    scene.publish(1, run_id="dead", feed=CHAIN)
    scene.damage(scene.publish(2, run_id="dead", feed=CHAIN))
    scene.publish(3, run_id="dead", feed=CHAIN)
    scene.settle(CHAIN)
    assert scene.visible() == {"1": 1}
    position = scene.session.read.position("acme/orders", required=True)
    assert position is not None
    assert position.text == "1"
    assert "2, which it builds on, is damaged" in scene.known(3).why


def test_a_run_that_recorded_nothing_is_closed(scene: Scene) -> None:
    """L13"""
    scene.book.begin("dead")
    assert scene.settle() == ("dead",)
    assert scene.session.read.open_runs("acme/orders") == ()


def test_runs_of_other_feeds_are_left_alone(scene: Scene) -> None:
    """L13: the lock is the feed's, so another feed's open run may be alive"""
    Book(scene.session, "acme/items").begin("alive")
    assert scene.settle() == ()
    assert [run.run_id for run in scene.session.read.open_runs("acme/items")] == ["alive"]


def test_several_dead_runs_are_settled_oldest_first(scene: Scene) -> None:
    """L13"""
    for run in ("first", "second"):
        scene.book.begin(run)
    assert scene.settle() == ("first", "second")


def test_a_file_that_no_row_names_is_inert(scene: Scene) -> None:
    """L8, S8: killed between the file's name and the transaction"""
    scene.file("orphan")
    scene.book.begin("dead")
    scene.settle()
    assert scene.visible() == {}
    assert scene.store.exists("published/orphan.parquet"), "only vacuum deletes"
