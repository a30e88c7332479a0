"""What producers do wrong, each with the receipt it gets: verdict, code, culprit and next step; and that nobody else suffers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.publication.status import FeedStatus
from valuestream_tests.producer import Delivery, Producer, csv_text
from valuestream_tests.world import PERIODS, Seen, World, another

GOOD = [(1, "1.00", "U"), (2, "2.50", "U")]
LIMIT = 1_500


@dataclass(frozen=True, slots=True)
class Bad:
    """One way to be wrong, made of a right delivery; ``culprit`` are fields of the first finding."""

    name: str
    spoil: Callable[[Delivery], Delivery]
    code: str
    culprit: Mapping[str, object] = field(default_factory=dict)
    # Where the manifest does not tell its key, it is made good under the same name.
    key_known: bool = True


def data(text: bytes, rows: int | None = 2) -> Callable[[Delivery], Delivery]:
    """The delivery whose manifest truly describes these bytes."""

    def spoil(delivery: Delivery) -> Delivery:
        made = Producer(lambda _path, _data: None).make(delivery.key, text, name=delivery.name)
        return made if rows is None else made.with_entry(rows=rows)

    return spoil


def flipped(delivery: Delivery) -> Delivery:
    (path, text), *_ = delivery.files.items()
    return delivery.with_file(text.replace(b"2.50", b"2.51"), path)


FILE = "<the file>"
BAD = [
    Bad(
        "a wrong size",
        lambda d: d.with_file(b"id,amount,op\n1,1.00,U\n"),
        "size_mismatch",
        {"file": FILE, "expected": "31", "found": "22"},
    ),
    Bad("a wrong checksum", flipped, "checksum_mismatch", {"file": FILE}),
    Bad(
        "a wrong count",
        lambda d: d.with_entry(rows=3),
        "row_count_mismatch",
        {"file": FILE, "expected": "3", "found": "2"},
    ),
    Bad(
        "a wrong total",
        lambda d: d.with_statement(controls={"totals": {"amount": "3.51"}}),
        "control_total_mismatch",
        {"column": "amount", "expected": "3.51", "found": "3.50"},
    ),
    Bad("a renamed column", data(csv_text(GOOD, "id,price,op")), "header_mismatch", {"file": FILE, "line": 1}),
    Bad(
        "values under the wrong header",
        data(csv_text(GOOD, "id,op,amount")),
        "value_does_not_fit",
        {"file": FILE, "line": 2, "column": "amount", "expected": "DECIMAL(18,2)", "found": "U"},
    ),
    Bad(
        "a value of another type",
        data(csv_text([(1, "1.00", "U"), ("two", "2.50", "U")])),
        "value_does_not_fit",
        {"file": FILE, "line": 3, "column": "id", "expected": "BIGINT", "found": "two"},
    ),
    Bad(
        "a third decimal",
        data(csv_text([(1, "4.005", "U"), (2, "2.50", "U")])),
        "value_does_not_fit",
        {"file": FILE, "line": 2, "column": "amount", "expected": "DECIMAL(18,2)", "found": "4.005"},
    ),
    Bad("a key twice", data(csv_text([(1, "1.00", "U"), (1, "2.50", "U")])), "duplicate_key", {"column": "id"}),
    Bad("a key that is NULL", data(csv_text([(1, "1.00", "U"), ("", "2.50", "U")])), "null_key", {"column": "id"}),
    Bad("a broken quote", data(b'id,amount,op\n1,"1.00,U\n2,2.50,U\n'), "csv_malformed", {"file": FILE}),
    Bad("an unknown source", lambda d: d.with_statement(source="acmee"), "unknown_source", {"expected": "acme"}),
    Bad(
        "a path with ..",
        lambda d: d.with_entry(path=f"../orders/{next(iter(d.files))}"),
        "path_unsafe",
        {"file": "../orders/<the file>"},
    ),
    Bad("no rows without permission", data(csv_text([]), 0), "empty_not_allowed"),
    Bad("no files without permission", lambda d: d.with_statement(files=[]), "entries_missing"),
    Bad(
        "a manifest that is too large",
        lambda d: d.with_statement(note="x" * LIMIT),
        "manifest_too_large",
        {"expected": f"at most {LIMIT} bytes"},
        key_known=False,
    ),
]


@dataclass(slots=True)
class Story:
    """One world in which everything goes wrong at once, and what was seen at each stage of it."""

    world: World
    spoilt: dict[str, Delivery]
    receipts: dict[str, Receipt]
    stages: dict[str, tuple[Seen, FeedStatus]] = field(default_factory=dict)

    def stage(self, name: str) -> None:
        self.stages[name] = self.world.seen(), self.world.status()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A good key; then every bad one; then good ones of this feed and of another; then each bad one corrected."""
    feeds = {"orders.yaml": PERIODS, "returns.yaml": another(PERIODS, "returns")}
    world = World(tmp_path_factory.mktemp("bad"), feeds, settings=f"limits: {{manifest_bytes: {LIMIT}}}\n")
    orders, returns = world.producer(), world.producer("returns")
    orders.deliver(1, GOOD)
    world.apply()
    told = Story(world, {}, {})
    told.stage("before")
    for number, bad in enumerate(BAD, 2):
        told.spoilt[bad.name] = orders.hand_over(bad.spoil(orders.make(number, GOOD)))
    world.apply()
    told.stage("bad")
    by_manifest = {receipt.manifest: receipt for receipt in world.receipts()[1:]}
    told.receipts = {name: by_manifest[delivery.manifest_path] for name, delivery in told.spoilt.items()}
    orders.deliver(100, GOOD)
    returns.deliver(1, GOOD)
    world.apply()
    world.apply("acme/returns")
    told.stage("others")
    for number, bad in enumerate(BAD, 2):
        right = orders.make(number, GOOD, revision=2)
        orders.hand_over(right if bad.key_known else orders.make(number, GOOD).named(told.spoilt[bad.name].name))
    world.apply()
    told.stage("corrected")
    return told


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_delivery_gets_a_receipt_with_verdict_code_culprit_and_next_step(bad: Bad, story: Story) -> None:
    receipt, spoilt = story.receipts[bad.name], story.spoilt[bad.name]
    assert (receipt.verdict, receipt.code) == (Verdict.REJECTED, bad.code)
    file = next(iter(spoilt.files), "")
    wanted = {
        name: value.replace(FILE, file) if isinstance(value, str) else value for name, value in bad.culprit.items()
    }
    assert {name: receipt.findings[0].get(name) for name in wanted} == wanted
    assert receipt.next_step and "Traceback" not in receipt.detail
    assert (receipt.key.text if receipt.key else None) == (spoilt.key if bad.key_known else None)
    _, status = story.stages["bad"]
    assert (spoilt.key if bad.key_known else spoilt.manifest_path) in status.rejected


def test_bad_deliveries_change_nothing_that_anybody_can_see(story: Story) -> None:
    """Rows, revisions, publications and published files are those of before; the feed is not healthy."""
    assert story.stages["bad"][0] == story.stages["before"][0]
    assert story.stages["before"][1].healthy and not story.stages["bad"][1].healthy


def test_bad_deliveries_hold_up_neither_other_keys_nor_other_feeds(story: Story) -> None:
    visible = {row[2] for row in story.stages["others"][0].publications}
    assert visible == {"1", "100"}
    assert story.world.by_key("acme/returns") == {"1": 1}
    assert story.world.status("acme/returns").healthy


def test_a_corrected_delivery_makes_a_bad_one_good(story: Story) -> None:
    seen, status = story.stages["corrected"]
    assert {row[2] for row in seen.publications} == {"1", "100", *(delivery.key for delivery in story.spoilt.values())}
    assert status.healthy and status.rejected == ()


def test_a_rejection_is_written_once_however_often_one_looks(story: Story) -> None:
    rejected = [receipt for receipt in story.world.receipts() if receipt.verdict is Verdict.REJECTED]
    assert len(rejected) == len(BAD)


def test_a_missing_file_makes_a_delivery_wait_and_is_named_until_it_comes(tmp_path: Path) -> None:
    """M3, S1: waiting is healthy, has no run and no ledger version; one receipt per change of what is missing."""
    world = World(tmp_path)
    orders = world.producer()
    three = orders.make(1, [*GOOD, (3, "3.00", "U")], parts=3)
    orders.hand_over(three.without_file("1-data-r1-3.csv").without_file("1-data-r1-2.csv"))

    assert world.apply() == []
    assert world.apply() == []
    receipt = world.last(Verdict.WAITING)
    assert "1-data-r1-2.csv, 1-data-r1-3.csv" in receipt.detail
    assert world.status().healthy and world.status().waiting == ("1",)

    orders.put("1-data-r1-2.csv", three.files["1-data-r1-2.csv"])
    assert world.apply() == []
    assert [receipt.detail.count(".csv") for receipt in world.receipts()] == [2, 1]
    assert world.ledger("SELECT count(*) FROM runs") == [(0,)]

    orders.put("1-data-r1-3.csv", three.files["1-data-r1-3.csv"])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50", 3: "3.00"}
    assert world.status().waiting == ()


def test_a_manifest_that_is_no_json_waits_while_it_may_be_arriving_and_is_rejected_once_it_rests(
    tmp_path: Path,
) -> None:
    """Ruling 11; its name does not give the key, so it is listed by its path and made good under it."""
    world = World(tmp_path, now="2030-01-01T00:00:00Z", settings="limits: {settle_seconds: 60}\n")
    orders = world.producer()
    path = world.landing() / "x.manifest.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"source": "acme", ')
    thirty_seconds_ago = datetime(2029, 12, 31, 23, 59, 30, tzinfo=UTC).timestamp()
    os.utime(path, (thirty_seconds_ago, thirty_seconds_ago))
    world.apply()
    world.apply()
    assert world.verdicts() == [("?", None, "waiting", "manifest_unsettled")]
    assert world.status().healthy and world.status().waiting == ("x.manifest.json",)

    world.now = "2030-01-01T00:02:00Z"
    world.apply()
    world.apply()
    assert world.verdicts()[1:] == [("?", None, "rejected", "manifest_unreadable")]
    assert world.last(Verdict.REJECTED).next_step
    assert world.status().rejected == ("x.manifest.json",) and not world.status().healthy

    orders.hand_over(orders.make(1, GOOD).named("x"))
    world.apply()
    assert world.by_key() == {"1": 1} and world.status().healthy


def test_columns_in_another_order_under_their_own_names_are_no_fault(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders = world.producer()
    orders.hand_over(orders.make(1, b"op,amount,id\nU,1.00,1\n"))
    world.apply()
    assert world.amounts() == {1: "1.00"}


@pytest.mark.parametrize("way", ["the manifest says so", "the feed allows it"])
def test_an_empty_delivery_is_good_where_somebody_says_so(way: str, tmp_path: Path) -> None:
    """Ruling 13, S31: the period is empty then, not old."""
    world = World(tmp_path, PERIODS + ("policy: {allow_empty: true}\n" if way == "the feed allows it" else ""))
    orders = world.producer()
    orders.deliver(1, GOOD)
    world.apply()
    empty = orders.make(1, [], revision=2)
    orders.hand_over(empty.with_statement(empty=True) if way == "the manifest says so" else empty)
    world.apply()
    assert world.verdicts()[-1] == ("1", 2, "accepted", "accepted")
    assert world.amounts() == {} and world.status().healthy


def test_every_fault_of_one_delivery_is_told_in_one_receipt(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders = world.producer()
    orders.hand_over(data(csv_text([("one", "1.005", "U"), (2, "x", "U")]))(orders.make(1, GOOD)))
    world.apply()
    found = [(finding["line"], finding["column"]) for finding in world.last(Verdict.REJECTED).findings]
    assert found == [(2, "id"), (2, "amount"), (3, "amount")]


def test_a_rejected_manifest_is_retained_byte_for_byte(tmp_path: Path) -> None:
    """M9: the producer's words and our record of them are two things, and both are kept, also where the answer was no."""
    world = World(tmp_path)
    orders = world.producer()
    wrong = orders.hand_over(flipped(orders.make(1, GOOD)))
    orders.put("y.manifest.json", b"{")
    world.apply()
    for receipt, words in zip(world.receipts(), [b"{", wrong.manifest], strict=True):
        digest = receipt.manifest_sha256 or ""
        assert (tmp_path / "state/store/sealed" / digest[:2] / digest).read_bytes() == words


def test_a_rejected_revision_leaves_the_applied_one_and_the_next_lower_good_one_is_taken(tmp_path: Path) -> None:
    """L25: of several revisions at once the newest good one counts."""
    world = World(tmp_path)
    orders = world.producer()
    orders.hand_over(flipped(orders.make(1, GOOD, revision=3)))
    orders.deliver(1, [(7, "7.00", "U")], revision=2)
    orders.deliver(1, GOOD, revision=1)
    world.apply()
    assert world.by_key() == {"1": 2} and world.amounts() == {7: "7.00"}
    assert world.status().rejected == ("1",), "revision 3 is still asked for"
