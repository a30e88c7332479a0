"""Every question to the ledger, asked of rows as the publication writes them (C17, C19-C21, L13, L23, L25, M17, M19)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from valuestream_dagster.core.continuity import Epoch, SliceState
from valuestream_dagster.core.decision import Applied, Bound, Identity, Verdict
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import IntegerSequence, SequenceKey
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import KeyRecord, SeenObject
from valuestream_tests.builders import NOON, Book, digest

FEED = "acme/orders"


def k(number: int) -> SequenceKey:
    return IntegerSequence().at(number)


def chain(book: Book, *numbers: int) -> None:
    """Deltas that each required the one before, as a chain from a declared key records them."""
    book.epoch(1, k(numbers[0]))
    for number in numbers:
        book.publish(k(number), kind=Kind.DELTA, requires=k(number - 1) if number != numbers[0] else None)


def record(session: LedgerSession, number: int) -> KeyRecord:
    return session.read.records(FEED, [str(number)])[str(number)]


def position(session: LedgerSession, *, required: bool = True) -> str | None:
    found = session.read.position(FEED, required=required)
    return found.text if found else None


# --- discovery -------------------------------------------------------------------------------------------------------


def test_news_is_what_was_never_looked_at_under_its_present_stamp(book: Book) -> None:
    """ruling of discovery: only a changed stamp of a manifest or of what it names is news"""
    read, write = book.session.read, book.session.write
    manifest = SeenObject("m1", "s1", "m1")
    with book.session.transaction():
        write.objects_seen(FEED, [manifest, SeenObject("a.csv", "s1", "m1"), SeenObject("b.csv", "s1", "m2")], NOON)
        write.objects_seen("other/feed", [SeenObject("new", "s1", "new")], NOON)
    listing = [("m1", "s1"), ("a.csv", "s2"), ("b.csv", "s1"), ("new", "s1")]
    assert read.news(FEED, listing) == (frozenset({"a.csv", "new"}), frozenset({"m1"}))
    assert read.news(FEED, []) == (frozenset(), frozenset())
    assert read.news(FEED, listing[2:3]) == (frozenset(), frozenset()), "what is gone is no news"


def test_an_object_is_news_again_when_it_changes_back(book: Book) -> None:
    """The newest stamp counts, not any that was ever seen."""
    for stamp in ("s1", "s2"):
        with book.session.transaction():
            book.session.write.objects_seen(FEED, [SeenObject("m", stamp, "m")], NOON)
    assert book.session.read.news(FEED, [("m", "s2")])[0] == frozenset()
    assert book.session.read.news(FEED, [("m", "s1")])[0] == {"m"}


def test_a_key_is_asked_again_by_the_manifests_that_did_not_end_well(book: Book) -> None:
    """C9"""
    with book.session.transaction():
        book.receipt(Verdict.REJECTED, k(1), manifest="bad")
        book.receipt(Verdict.WAITING, k(1), manifest="late", name=None)
        book.receipt(Verdict.WAITING, k(1), manifest="sealed")
        book.receipt(Verdict.WAITING, k(1), manifest="good")
        book.receipt(Verdict.ACCEPTED, k(1), manifest="good")
        book.receipt(Verdict.REJECTED, k(2), manifest="other")
    assert book.session.read.manifests_of(FEED, ["1", "3"]) == {"1": ("bad", "late")}


def test_the_last_receipt_of_a_manifest_is_its_newest(book: Book) -> None:
    """A waiting receipt is written once per change of what is missing."""
    with book.session.transaction():
        book.receipt(Verdict.WAITING, k(1), manifest="m", detail="a.csv")
        book.receipt(Verdict.WAITING, k(1), manifest="m", detail="b.csv")
    assert book.session.read.last_receipts(FEED, ["m", "n"]) == {"m": (Verdict.WAITING, "b.csv")}


# --- deciding --------------------------------------------------------------------------------------------------------


def test_of_an_unknown_key_nothing_is_known(session: LedgerSession) -> None:
    assert session.read.records(FEED, ["1"]) == {"1": KeyRecord()}
    assert session.read.records(FEED, []) == {}


def test_a_key_is_known_with_what_is_bound_and_applied_as_soon_as_its_transaction_has_committed(book: Book) -> None:
    """M17, M19, decision 0001: also while its run is open"""
    book.epoch(1, k(1))
    book.begin("run")
    published = book.publish(k(1), 1, "X", run_id="run")
    known = record(book.session, 1)
    assert known.state is SliceState.SUCCEEDED
    assert known.history(Kind.FULL).bound == (Bound(1, digest("X")),)
    assert known.history(Kind.FULL).applied == Applied(1, digest("X"), published, "hash", 2)
    assert known.history(Kind.DELTA).applied is None


def test_the_newest_publication_of_a_key_is_the_applied_one(book: Book) -> None:
    """M16, L23"""
    book.publish(k(1), 1, "X")
    book.publish(k(1), 3, "Z")
    applied = record(book.session, 1).history(Kind.FULL).applied
    assert applied is not None
    assert (applied.revision, applied.digest) == (3, digest("Z"))


def test_a_full_and_a_delta_of_one_key_have_histories_of_their_own(book: Book) -> None:
    """ruling 1"""
    book.publish(k(1), 1, "X", kind=Kind.FULL)
    book.publish(k(1), 4, "Y", kind=Kind.DELTA)
    known = record(book.session, 1)
    assert [bound.revision for bound in known.history(Kind.FULL).bound] == [1]
    assert [bound.revision for bound in known.history(Kind.DELTA).bound] == [4]


def test_a_failed_slice_is_failed_and_says_why_and_success_beats_a_later_failure(book: Book) -> None:
    """L25, C8"""
    book.publish(k(1))
    with book.session.transaction():
        book.event(k(1), SliceState.FAILED, why="disk full")
        book.event(k(2), SliceState.FAILED, why="disk full")
    assert record(book.session, 1).state is SliceState.SUCCEEDED
    assert (record(book.session, 2).state, record(book.session, 2).why) == (SliceState.FAILED, "disk full")


@pytest.mark.parametrize("judged_in", [0, 1])
def test_a_failure_from_before_any_epoch_was_recorded_is_not_forgotten(book: Book, judged_in: int) -> None:
    """C8, C40: the very first key may fail, judged from no epoch or from the one that a declared baseline implies"""
    with book.session.transaction():
        book.event(k(1), SliceState.FAILED, epoch=judged_in, why="disk full")
    assert record(book.session, 1).state is SliceState.FAILED
    book.epoch(1, k(2))
    assert record(book.session, 1).state is SliceState.FAILED
    assert book.session.read.summary(FEED, required=False).failed == ("1",)


def test_what_happened_in_an_older_epoch_is_not_the_state_in_the_newest(book: Book) -> None:
    """C15, C35, S25: old rows are kept and block nothing"""
    chain(book, 1, 2)
    with book.session.transaction():
        book.event(k(3), SliceState.FAILED, kind=Kind.DELTA, why="disk full")
    assert book.session.read.summary(FEED, required=True).failed == ("3",)
    book.epoch(2, k(4))
    book.publish(k(4), epoch=2)
    assert record(book.session, 3).state is SliceState.MISSING
    assert record(book.session, 2).state is SliceState.MISSING
    assert record(book.session, 2).history(Kind.DELTA).applied is not None, "what is applied is known in every epoch"
    assert book.session.read.summary(FEED, required=True).failed == ()
    events = book.session.connection.execute("SELECT count(*) FROM slice_events WHERE epoch = 1").fetchall()
    assert events == [(3,)]


def test_a_rejected_key_is_rejected_until_it_succeeds(book: Book) -> None:
    """ruling 6"""
    with book.session.transaction():
        book.receipt(Verdict.REJECTED, k(2), manifest="bad")
    assert record(book.session, 2).state is SliceState.REJECTED
    book.publish(k(2), 2)
    assert record(book.session, 2).state is SliceState.SUCCEEDED


def test_a_conflict_beats_success_and_is_settled_by_a_higher_revision(book: Book) -> None:
    """M15, ruling 4"""
    book.publish(k(1), 2, "X")
    with book.session.transaction():
        book.event(k(1), SliceState.CONFLICT, 2, "Y")
    known = record(book.session, 1)
    assert known.state is SliceState.CONFLICT
    assert known.history(Kind.FULL).conflicts == (Bound(2, digest("Y")),)
    applied = known.history(Kind.FULL).applied
    assert applied is not None
    assert applied.digest == digest("X"), "what is applied stays"
    assert book.session.read.summary(FEED, required=False).conflicts == ("1",)
    book.publish(k(1), 3, "Z")
    known = record(book.session, 1)
    assert (known.state, known.history(Kind.FULL).conflicts) == (SliceState.SUCCEEDED, ())
    assert book.session.read.summary(FEED, required=False).conflicts == ()


def test_a_conflict_of_a_full_is_not_settled_by_a_delta_of_the_same_key(book: Book) -> None:
    """M10: kind is part of the identity"""
    book.publish(k(1), 1, "X", kind=Kind.FULL)
    with book.session.transaction():
        book.event(k(1), SliceState.CONFLICT, 1, "Y", kind=Kind.FULL)
    book.publish(k(1), 9, "Z", kind=Kind.DELTA)
    assert book.session.read.summary(FEED, required=False).conflicts == ("1",)


def test_a_voided_publication_counts_for_nothing_and_what_was_before_it_counts_again(book: Book) -> None:
    """L15, L18, L24"""
    book.publish(k(1), 1, "X")
    damaged = book.publish(k(1), 2, "Y")
    with book.session.transaction():
        book.session.write.voided(damaged, "a file is gone", NOON)
    applied = record(book.session, 1).history(Kind.FULL).applied
    assert applied is not None
    assert applied.revision == 1
    assert [bound.revision for bound in record(book.session, 1).history(Kind.FULL).bound] == [1, 2]
    assert [p.revision for p in book.session.read.newest_publications(FEED, ["1"])["1"]] == [1]


def test_the_epoch_is_the_newest_and_says_whether_a_full_opened_it(book: Book) -> None:
    """C34, ruling 9"""
    assert book.session.read.epoch(FEED) is None
    book.epoch(1, k(1))
    book.publish(k(1), kind=Kind.DELTA)
    assert book.session.read.epoch(FEED) == Epoch(1, k(1), full=False)
    book.epoch(2, k(5))
    book.publish(k(5), kind=Kind.FULL, epoch=2)
    assert book.session.read.epoch(FEED) == Epoch(2, k(5), full=True)
    assert book.session.read.epoch("other/feed") is None


# --- rejections ------------------------------------------------------------------------------------------------------


def _reject(book: Book, revision: int | None, kind: Kind | None = Kind.FULL, manifest: str = "bad") -> None:
    with book.session.transaction():
        book.receipt(Verdict.REJECTED, k(1), revision, None, kind=kind, manifest=manifest)


def _accept(book: Book, revision: int, verdict: Verdict = Verdict.ACCEPTED) -> None:
    with book.session.transaction():
        book.receipt(verdict, k(1), revision, manifest=f"good-{revision}")


def _open(book: Book) -> int:
    return len(book.session.read.open_rejections(FEED))


@pytest.mark.parametrize("verdict", [Verdict.ACCEPTED, Verdict.DUPLICATE])
@pytest.mark.parametrize("revision", [2, 3])
def test_a_rejection_is_made_good_by_the_same_or_a_higher_revision_found_good_after_it(
    book: Book, revision: int, verdict: Verdict
) -> None:
    """ruling 17"""
    _reject(book, 2)
    assert _open(book) == 1
    _accept(book, revision, verdict)
    assert _open(book) == 0


def test_a_rejection_is_not_made_good_by_a_lower_revision_nor_by_the_same_one_before_it(book: Book) -> None:
    """ruling 17"""
    _accept(book, 2)
    _reject(book, 2)
    _accept(book, 1)
    assert _open(book) == 1


def test_a_rejection_of_a_revision_that_was_overtaken_long_ago_needs_nobody(book: Book) -> None:
    """M13"""
    _accept(book, 3)
    _reject(book, 2)
    assert _open(book) == 0


def test_a_rejection_whose_revision_and_kind_could_not_be_read_is_made_good_by_any_later_one_and_by_none_before(
    book: Book,
) -> None:
    """ruling 11"""
    _accept(book, 5)
    _reject(book, None, None)
    assert _open(book) == 1
    _accept(book, 1)
    assert _open(book) == 0


def test_a_rejection_without_a_key_is_open_until_its_manifest_is_read_again(book: Book) -> None:
    """ruling 11"""
    with book.session.transaction():
        book.receipt(Verdict.REJECTED, None, None, None, kind=None, manifest="m")
    found = book.session.read.open_rejections(FEED)
    assert [(rejection.manifest, rejection.key) for rejection in found] == [("m", None)]
    with book.session.transaction():
        book.receipt(Verdict.WAITING, k(1), manifest="m")
    assert _open(book) == 1, "waiting says nothing yet"
    with book.session.transaction():
        book.receipt(Verdict.ACCEPTED, k(1), manifest="m")
    assert _open(book) == 0


def test_a_manifest_rejected_twice_is_one_open_rejection(book: Book) -> None:
    _reject(book, 2)
    _reject(book, 2)
    assert _open(book) == 1


def test_a_rejection_of_one_kind_is_not_made_good_by_the_other(book: Book) -> None:
    """M10"""
    _reject(book, 1, Kind.DELTA)
    _accept(book, 9)
    assert _open(book) == 1


# --- position --------------------------------------------------------------------------------------------------------


def test_the_position_is_the_last_key_of_the_contiguous_prefix(book: Book) -> None:
    """C19: take while succeeded, never count"""
    assert position(book.session) is None
    chain(book, 1, 2, 3)
    assert position(book.session) == "3"
    book.publish(k(5), kind=Kind.DELTA, requires=k(4))
    book.publish(k(6), kind=Kind.DELTA, requires=k(5))
    assert position(book.session) == "3", "a hole at 4, whatever lies after it"
    assert position(book.session, required=False) == "6", "C23: plain watermarks keep their meaning"
    book.publish(k(4), kind=Kind.DELTA, requires=k(3))
    assert position(book.session) == "6"


def test_a_waived_key_counts_for_the_position_and_a_failed_one_does_not(book: Book) -> None:
    """ruling 10, C7"""
    chain(book, 1)
    with book.session.transaction():
        book.event(k(2), SliceState.FAILED, kind=Kind.DELTA, requires=k(1))
    assert position(book.session) == "1"
    with book.session.transaction():
        book.event(k(2), SliceState.WAIVED, kind=Kind.DELTA, requires=k(1))
    assert position(book.session) == "2"


def test_a_correction_of_an_applied_link_moves_no_position(book: Book) -> None:
    """ruling 7"""
    chain(book, 1, 2, 3)
    book.publish(k(2), 2, "Y", kind=Kind.DELTA, requires=k(1))
    assert position(book.session) == "3"


def test_a_new_epoch_has_a_position_of_its_own_from_its_full_and_the_linked_deltas(book: Book) -> None:
    """C14, C34, ruling 9"""
    chain(book, 1, 2)
    book.epoch(2, k(4))
    book.publish(k(4), epoch=2)
    assert position(book.session) == "4"
    book.publish(k(5), kind=Kind.DELTA, requires=k(4), epoch=2)
    assert position(book.session) == "5"
    assert book.session.read.summary(FEED, required=True).applied == 4


def test_the_position_of_a_voided_link_goes_back(book: Book) -> None:
    """L15, C19: always derived"""
    chain(book, 1, 2)
    damaged = book.publish(k(3), kind=Kind.DELTA, requires=k(2))
    book.publish(k(4), kind=Kind.DELTA, requires=k(3))
    with book.session.transaction():
        book.session.write.voided(damaged, "gone", NOON)
    assert position(book.session) == "2"


def test_deltas_after_a_place_are_given_in_order_with_their_newest_revision(book: Book) -> None:
    """ruling 9"""
    for number, revision in ((6, 1), (4, 1), (5, 1), (5, 2)):
        book.publish(k(number), revision, f"{number} {revision}", kind=Kind.DELTA)
    book.publish(k(7), kind=Kind.FULL)
    found = [(key.text, revision, hexes) for key, revision, hexes, _ in book.session.read.deltas_after(FEED, 4)]
    assert found == [("5", 2, digest("5 2").hex), ("6", 1, digest("6 1").hex)]


def test_the_lowest_key_seen_is_the_lowest_whose_bytes_were_bound(book: Book) -> None:
    """ruling 5"""
    assert book.session.read.lowest_seen(FEED) is None
    with book.session.transaction():
        book.receipt(Verdict.WAITING, k(1))
        for number in (7, 3, 9):
            book.session.write.delivery(
                FEED, Identity(Kind.FULL, k(number), 1), digest("X"), manifest="m", manifest_sha256="m", at=NOON
            )
    assert book.session.read.lowest_seen(FEED) == k(3)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_each_run_of_a_feed_has_the_next_fencing_number(book: Book) -> None:
    """M18"""
    assert book.session.read.fence(FEED) == 0
    book.begin("r1")
    book.begin("r2")
    Book(book.session, "other/feed").begin("r3")
    assert book.session.read.fence(FEED) == 2
    assert book.session.read.fence("other/feed") == 1


def test_open_runs_are_those_that_never_ended_oldest_first(book: Book) -> None:
    """L9, L11, L13"""
    for run in ("r1", "r2", "r3"):
        book.begin(run)
    book.end("r2", "failed")
    assert [(run.run_id, run.fence, run.status) for run in book.session.read.open_runs(FEED)] == [
        ("r1", 1, "running"), ("r3", 3, "running"),
    ]  # fmt: skip
    assert book.session.read.open_runs("other/feed") == ()


def test_publications_of_an_open_run_are_recorded_and_not_visible(book: Book) -> None:
    """L8, L9, decision 0001"""
    book.publish(k(1), 1, "X")
    book.begin("run")
    book.publish(k(1), 2, "Y", run_id="run")
    book.publish(k(2), 1, "Z", run_id="run")
    read = book.session.read
    assert [p.key.text for p in read.publications_of_run("run")] == ["1", "2"]
    assert {key: [p.revision for p in found] for key, found in read.newest_publications(FEED, ["1", "2"]).items()} == {
        "1": [1]
    }
    assert [p.revision for p in read.unreported(FEED, 10)] == [1]
    assert [p.revision for p, _ in read.history(FEED, None)] == [1]
    book.end("run")
    visible = read.newest_publications(FEED, ["1", "2"])
    assert {key: [p.revision for p in found] for key, found in visible.items()} == {"1": [2], "2": [1]}


def test_a_key_with_a_full_and_a_delta_has_a_visible_publication_of_each(book: Book) -> None:
    """ruling 1"""
    book.publish(k(1), kind=Kind.FULL)
    book.publish(k(1), kind=Kind.DELTA)
    assert [p.kind for p in book.session.read.newest_publications(FEED, ["1"])["1"]] == [Kind.FULL, Kind.DELTA]


def test_what_dagster_was_told_is_not_told_again(book: Book) -> None:
    """ruling 15"""
    first, second, third = (book.publish(k(number)) for number in (1, 2, 3))
    with book.session.transaction():
        book.session.write.reported(FEED, [first], NOON)
        book.session.write.voided(third, "gone", NOON)
    assert [p.publication_id for p in book.session.read.unreported(FEED, 10)] == [second]
    assert book.session.read.unreported(FEED, 0) == ()


def test_the_manifest_of_a_publication_is_the_one_that_bound_its_bytes(book: Book) -> None:
    """C17"""
    published = book.session.read.publication(book.publish(k(1), 2, "X"))
    assert published is not None
    found = book.session.read.manifest_of(published)
    assert found is not None and found[0] == "1-full-r2.manifest.json"


def test_history_says_when_each_publication_was_replaced(book: Book) -> None:
    """C15, C17: the old chain stays in provenance"""
    for number, revision in ((1, 1), (2, 1), (1, 2), (1, 3)):
        book.publish(k(number), revision, f"{number} {revision}")
    history = book.session.read.history(FEED, None)
    assert [(p.key.text, p.revision, replaced is None) for p, replaced in history] == [
        ("1", 1, False), ("2", 1, True), ("1", 2, False), ("1", 3, True),
    ]  # fmt: skip
    of_key = book.session.read.history(FEED, "1")
    for (_, replaced), (newer, _) in pairwise(of_key):
        assert replaced == newer.published_at


# --- looking ---------------------------------------------------------------------------------------------------------


def test_the_summary_of_a_feed(book: Book) -> None:
    """C19, C44"""
    chain(book, 1, 2)
    book.publish(k(2), 2, "Y", kind=Kind.DELTA, requires=k(1))
    with book.session.transaction():
        book.receipt(Verdict.SUPERSEDED, k(0))
        book.receipt(Verdict.WAITING, k(90))
        book.receipt(Verdict.REJECTED, k(3), manifest="bad")
        book.event(k(5), SliceState.FAILED, kind=Kind.DELTA)
        book.event(k(4), SliceState.INTERRUPTED, kind=Kind.DELTA)
    summary = book.session.read.summary(FEED, required=True)
    assert (summary.applied, summary.position) == (2, k(2))
    assert (summary.lowest_seen, summary.highest_seen) == (k(0), k(2))
    assert summary.failed == ("4", "5")
    assert [rejection.key for rejection in summary.rejections] == [k(3)]


def test_gaps_are_between_neighbours_that_are_more_than_a_step_apart(book: Book) -> None:
    """C23, S26"""
    for number in (2, 3, 7, 9):
        book.publish(k(number))
    book.publish(k(7), 2, "Y")
    assert book.session.read.gaps(FEED, 1, 10) == ((3, 7), (7, 9))
    assert book.session.read.gaps(FEED, 1, 1) == ((3, 7),)
    assert book.session.read.gaps(FEED, 2, 10) == ((3, 7),)


def test_the_shape_of_a_feed_is_the_newest_recorded(book: Book) -> None:
    """L26"""
    for config, shape in (("h1", "s1"), ("h2", "s2")):
        with book.session.transaction():
            book.session.write.feed_version(
                feed=FEED, source="acme", dataset="orders", mode="periods", config_hash=config, shape=shape, at=NOON
            )
    assert book.session.read.feed_shapes() == {FEED: ("h2", "s2")}


def test_the_generation_grows_with_everything_that_readers_can_see(book: Book) -> None:
    """decision 0003: it only grows"""
    seen = [book.session.read.generation()]

    def grew() -> bool:
        seen.append(book.session.read.generation())
        return seen[-1] > seen[-2]

    published = book.publish(k(1))
    assert grew()
    with book.session.transaction():
        book.receipt(Verdict.DUPLICATE, k(1))
    assert grew()
    with book.session.transaction():
        book.session.write.voided(published, "gone", NOON)
    assert grew()
    with book.session.transaction():
        book.session.write.feed_version(
            feed=FEED, source="acme", dataset="orders", mode="periods", config_hash="h", shape="s", at=NOON
        )
    assert grew()


# --- cost ------------------------------------------------------------------------------------------------------------

MANY = 100_000


class Counting:
    """A connection that counts the rows that come back to Python."""

    def __init__(self, connection: object) -> None:
        self._connection = connection
        self.rows = 0

    def execute(self, *arguments: object) -> Counting:
        self._result = self._connection.execute(*arguments)  # type: ignore[attr-defined]
        return self

    def fetchall(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = self._result.fetchall()
        self.rows += len(found)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


def _fill(session: LedgerSession, many: int) -> None:
    """Deliveries 1 to ``many``, accepted and visible; written by SQL because Python would take a minute."""
    numbers = f"range(1, {many + 1}) t(n)"
    sha = digest("X").hex
    for statement in (
        "INSERT INTO epochs VALUES ('acme/orders', 1, '1', 1, '1', now()::TIMESTAMP, 'run')",
        "INSERT INTO runs VALUES ('run', 'acme/orders', 1, NULL, 'h:1', 'hash', now()::TIMESTAMP, NULL)",
        "INSERT INTO run_ends VALUES ('run', 'acme/orders', 'ok', now()::TIMESTAMP)",
        f"""INSERT INTO slice_events SELECT 'acme/orders', 1, 'delta', n::VARCHAR, n,
              CASE WHEN n > 1 THEN (n - 1)::VARCHAR END, CASE WHEN n > 1 THEN n - 1 END, 'succeeded', 1, '{sha}', 'run',
              'p' || n, NULL, now()::TIMESTAMP FROM {numbers}""",
        f"""INSERT INTO deliveries SELECT 'acme/orders', 'delta', n::VARCHAR, n, 1, '{sha}', 'm' || n, 'm',
              now()::TIMESTAMP FROM {numbers}""",
        f"""INSERT INTO publications SELECT 'p' || n, 'acme/orders', 'delta', n::VARCHAR, n, 1, '{sha}', 'hash', 'run', 1, 1,
              '{{}}', NULL, NULL, 1, now()::TIMESTAMP FROM {numbers}""",
        f"INSERT INTO reported SELECT 'acme/orders', 'p' || n, now()::TIMESTAMP FROM {numbers}",
        f"""INSERT INTO receipts SELECT 'r' || n, now()::TIMESTAMP, 'acme/orders', 'delta', n::VARCHAR, n, 1, '{sha}',
              'accepted', 'accepted', '', '', [], '[]', 'run', 'm' || n, 'm' FROM {numbers}""",
        f"INSERT INTO objects_seen SELECT 'acme/orders', 'm' || n, 's', 'm' || n, now()::TIMESTAMP FROM {numbers}",
    ):
        session.connection.execute(statement)


def test_no_question_brings_back_more_rows_as_history_grows(session: LedgerSession) -> None:
    """decision 0002: the same few rows at a hundred thousand deliveries"""
    _fill(session, MANY)
    counting = Counting(session.connection)
    read = type(session.read)(counting)  # type: ignore[arg-type]
    summary = read.summary(FEED, required=True)
    assert (summary.applied, summary.position) == (MANY, k(MANY))
    records = read.records(FEED, [str(MANY), str(MANY + 1)])
    assert [records[str(n)].state for n in (MANY, MANY + 1)] == [SliceState.SUCCEEDED, SliceState.MISSING]
    read.epoch(FEED)
    read.fence(FEED)
    read.lowest_seen(FEED)
    read.generation()
    read.open_runs(FEED)
    read.unreported(FEED, 100)
    read.gaps(FEED, 1, 100)
    read.receipts(FEED, 5)
    read.manifests_of(FEED, [str(MANY)])
    read.newest_publications(FEED, [str(MANY)])
    assert read.news(FEED, [(f"m{n}", "s") for n in range(1, MANY + 1)]) == (frozenset(), frozenset())
    assert counting.rows < 40


def test_a_hole_in_a_long_chain_is_found(session: LedgerSession) -> None:
    """C19"""
    _fill(session, MANY)
    with session.transaction():
        session.write.voided("p70000", "gone", NOON)
    assert position(session) == "69999"
