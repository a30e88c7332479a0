"""What producers do wrong, each with the receipt it gets: verdict, code, culprit and next step; and that nobody else suffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_tests.producer import Delivery, Producer, csv_text
from valuestream_tests.world import PERIODS, World, another

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


FILE = "2-data-r1-1.csv"
BAD = [
    Bad(
        "a wrong size",
        lambda d: d.with_file(b"id,amount,op\n1,1.00,U\n"),
        "size_mismatch",
        {"file": FILE, "expected": "31", "found": "22"},
    ),
    Bad("a wrong checksum", flipped, "checksum_mismatch", {"file": FILE}),
    Bad(
        "a wrong count", lambda d: d.with_entry(rows=3), "row_count_mismatch", {"file": FILE, "expected": "3", "found": "2"}
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
        lambda d: d.with_entry(path="../orders/" + next(iter(d.files))),
        "path_unsafe",
        {"file": f"../orders/{FILE}"},
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


def two_feeds(root: Path) -> World:
    feeds = {"orders.yaml": PERIODS, "returns.yaml": another(PERIODS, "returns")}
    return World(root, feeds, settings=f"limits: {{manifest_bytes: {LIMIT}}}\n")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_delivery_gets_a_receipt_with_its_culprit_changes_nothing_and_holds_up_nobody(
    bad: Bad, tmp_path: Path
) -> None:
    world = two_feeds(tmp_path)
    orders, returns = world.producer(), world.producer("returns")
    orders.deliver(1, GOOD)
    world.apply()
    before = world.seen()

    spoilt = orders.hand_over(bad.spoil(orders.make(2, GOOD)))
    world.apply()

    receipt = world.last(Verdict.REJECTED)
    assert receipt.code == bad.code
    assert {name: receipt.findings[0].get(name) for name in bad.culprit} == bad.culprit
    assert receipt.next_step
    assert receipt.manifest == spoilt.manifest_path
    assert (receipt.key.text if receipt.key else None) == ("2" if bad.key_known else None)
    assert world.seen() == before, "nothing that anybody can see has changed"
    assert not world.status().healthy
    assert world.status().rejected == ("2" if bad.key_known else spoilt.manifest_path,)

    orders.deliver(3, GOOD)
    returns.deliver(1, GOOD)
    world.apply()
    world.apply("acme/returns")
    assert world.by_key() == {"1": 1, "3": 1}, "another delivery of the same feed goes on"
    assert world.by_key("acme/returns") == {"1": 1}, "and so does another feed"
    assert world.status("acme/returns").healthy
    assert len(world.receipts()) == 3, "a rejection is written once"

    good = orders.make(2, GOOD, revision=2) if bad.key_known else orders.make(2, GOOD).named(spoilt.name)
    orders.hand_over(good)
    world.apply()
    assert world.by_key() == {"1": 1, "2": good.statement["revision"], "3": 1}
    assert world.status().healthy, "a corrected delivery makes it good"


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


def test_a_manifest_that_is_no_json_waits_while_it_may_be_arriving_and_is_rejected_once_it_rests(tmp_path: Path) -> None:
    """Ruling 11; its name does not give the key, so it is listed by its path and made good under it."""
    world = World(tmp_path, now="2030-01-01T00:00:00Z", settings="limits: {settle_seconds: 60}\n")
    orders = world.producer()
    path = world.landing() / "x.manifest.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"source": "acme", ')
    just_now = path.stat().st_mtime
    import os
    from datetime import UTC, datetime

    os.utime(path, (just_now, datetime(2029, 12, 31, 23, 59, 30, tzinfo=UTC).timestamp()))
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
