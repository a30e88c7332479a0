"""Whatever the order of arrival, the end is the same; and what a chain makes of fulls, deltas and corrections in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from valuestream_tests.producer import Producer
from valuestream_tests.world import CHAIN, LOOSE_CHAIN, PERIODS, REQUIRED, World

U, D = "U", "D"


def applied(world: World) -> list[str]:
    """Keys in the order in which they were recorded."""
    return [str(row[0]) for row in world.ledger("SELECT key FROM publications ORDER BY rowid")]


def full(orders: Producer, key: int, rows: Sequence[tuple[int, str]], revision: int = 1) -> None:
    orders.deliver(key, [(*row, U) for row in rows], kind="full", revision=revision)


def delta(orders: Producer, key: int, rows: Sequence[tuple[int, str, str]], revision: int = 1) -> None:
    orders.deliver(key, rows, kind="delta", revision=revision)


# --- periods -----------------------------------------------------------------------------------------------------------


@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    order=st.lists(st.sampled_from([1, 2, 3]), max_size=3).flatmap(
        lambda repeats: st.permutations([1, 2, 3, *repeats])
    ),
    together=st.integers(1, 3),
)
def test_any_interleaving_with_repeats_of_a_periods_revisions_ends_at_the_highest(
    order: list[int], together: int
) -> None:
    """S7, M16, through the real pipeline; ``together`` deliveries arrive between two looks."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        orders = world.producer()
        highest = 0
        for start in range(0, len(order), together):
            for number, revision in enumerate(order[start : start + together], start):
                again = orders.make(1, [(1, f"{revision}.00", U)], revision=revision)
                orders.hand_over(again.named(f"arrival{number}"))
                highest = max(highest, revision)
            world.apply()
            assert world.amounts() == {1: f"{highest}.00"} and world.by_key() == {"1": highest}
        assert world.published() == world.named_files() and world.status().healthy


def test_keys_that_arrive_out_of_order_are_applied_in_order(tmp_path: Path) -> None:
    """S22: 9, 10, 11 arriving 11, 9, 10."""
    world = World(tmp_path, REQUIRED.replace('baseline: "1"', 'baseline: "9"'))
    orders = world.producer()
    orders.deliver(11, [(11, "1.00", U)])
    world.apply()
    status = world.status()
    assert (status.status, status.reason, status.expected, status.next_observed) == (
        "blocked",
        "sequence_gap",
        "9",
        "11",
    )
    orders.deliver(9, [(9, "1.00", U)])
    world.apply()
    assert world.status().position == "9" and world.status().missing == ("10",)
    orders.deliver(10, [(10, "1.00", U)])
    world.apply()
    assert applied(world) == ["9", "10", "11"] and world.status().healthy


# --- chains: examples --------------------------------------------------------------------------------------------------


def test_deltas_wait_for_the_first_full_and_then_follow_it_in_one_pass(tmp_path: Path) -> None:
    """C16: the full of a chain may arrive after its deltas, and before it nothing is visible."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    delta(orders, 3, [(3, "3.00", U)])
    delta(orders, 2, [(1, "2.00", U)])
    assert world.apply() == [] and world.status().reason == "sequence_gap"
    full(orders, 1, [(1, "1.00")])
    outcomes = world.apply()
    assert [outcome.key.text for outcome in outcomes] == ["1", "2", "3"]
    assert not any(outcome.trouble for outcome in outcomes)
    assert world.amounts() == {1: "2.00", 3: "3.00"} and world.status().healthy


def test_a_delta_deletes_and_a_later_one_brings_back(tmp_path: Path) -> None:
    """Ruling 8, and ``__all`` keeps what each delivery said."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00"), (2, "2.00")])
    delta(orders, 2, [(1, "0.00", D), (3, "3.00", U)])
    world.apply()
    assert world.amounts() == {2: "2.00", 3: "3.00"}
    delta(orders, 3, [(1, "9.00", U)])
    world.apply()
    assert world.amounts() == {1: "9.00", 2: "2.00", 3: "3.00"}
    assert world.query("SELECT _key, _op FROM acme.orders__all WHERE id = 1 ORDER BY _key") == [
        ("1", "U"),
        ("2", "D"),
        ("3", "U"),
    ]


def test_the_correction_of_an_earlier_delta_changes_its_rows_and_leaves_later_links_alone(tmp_path: Path) -> None:
    """Ruling 7."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00"), (2, "2.00")])
    delta(orders, 2, [(1, "5.00", U), (2, "5.00", U)])
    delta(orders, 3, [(2, "6.00", U)])
    world.apply()
    delta(orders, 2, [(1, "7.00", U), (2, "7.00", U)], revision=2)
    (outcome,) = world.apply()
    assert outcome.key.text == "2" and world.amounts() == {1: "7.00", 2: "6.00"}
    assert world.status().position == "3" and world.status().epoch == 1


def test_a_new_full_opens_an_epoch_and_what_lies_at_or_below_it_is_covered(tmp_path: Path) -> None:
    """C14, C15, S25: a missing delta below the full blocks nothing any more; the old chain stays in provenance."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00")])
    delta(orders, 3, [(3, "3.00", U)])
    world.apply()
    assert world.status().reason == "sequence_gap" and world.status().missing == ("2",)
    full(orders, 5, [(5, "5.00")])
    delta(orders, 5, [(55, "5.00", U)])
    delta(orders, 6, [(6, "6.00", U)])
    world.apply()
    assert world.amounts() == {5: "5.00", 6: "6.00"}
    verdicts = {(key, code) for key, _, _, code in world.verdicts()}
    assert {("3", "covered"), ("5", "covered")} <= verdicts
    status = world.status()
    assert (status.position, status.epoch, status.baseline) == ("6", 2, "5") and status.healthy
    assert world.query("SELECT _key FROM acme.orders__all WHERE id = 1") == [("1",)]
    delta(orders, 2, [(2, "2.00", U)])
    (outcome,) = world.apply()
    assert outcome.outcomes[0].told.code == "covered" and not outcome.trouble


def test_a_full_that_arrives_after_later_deltas_takes_those_after_it_into_its_epoch(tmp_path: Path) -> None:
    """Ruling 9: delta 3, applied before full 2 came, counts in the new epoch too, and the chain goes on with 4."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00"), (9, "9.00")])
    delta(orders, 2, [(2, "2.00", U)])
    delta(orders, 3, [(3, "3.00", U)])
    world.apply()
    full(orders, 2, [(1, "1.50")])
    world.apply()
    assert world.amounts() == {1: "1.50", 3: "3.00"}
    assert (world.status().position, world.status().epoch) == ("3", 2)
    delta(orders, 4, [(4, "4.00", U)])
    world.apply()
    assert world.amounts() == {1: "1.50", 3: "3.00", 4: "4.00"} and world.status().healthy


def test_a_revised_baseline_full_opens_an_epoch_and_keeps_the_deltas_after_it(tmp_path: Path) -> None:
    """Ruling 9."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00"), (2, "2.00")])
    delta(orders, 2, [(2, "2.50", U)])
    world.apply()
    full(orders, 1, [(1, "8.00"), (2, "8.00")], revision=2)
    world.apply()
    assert world.amounts() == {1: "8.00", 2: "2.50"}
    assert (world.status().position, world.status().epoch) == ("2", 2)


def test_the_revision_of_a_full_that_a_later_full_replaced_opens_no_epoch(tmp_path: Path) -> None:
    """The chain must not fall back to a baseline whose deltas were never delivered."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00")])
    full(orders, 5, [(5, "5.00")])
    delta(orders, 6, [(6, "6.00", U)])
    world.apply()
    full(orders, 1, [(1, "1.11")], revision=2)
    world.apply()
    status = world.status()
    assert world.by_key()["1"] == 2 and world.amounts() == {5: "5.00", 6: "6.00"}
    assert (status.position, status.epoch, status.baseline) == ("6", 2, "5")
    delta(orders, 7, [(7, "7.00", U)])
    world.apply()
    assert world.status().position == "7" and world.status().healthy


def test_without_continuity_a_gap_is_reported_and_blocks_nothing(tmp_path: Path) -> None:
    """S26."""
    world = World(tmp_path, LOOSE_CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00")])
    delta(orders, 3, [(3, "3.00", U)])
    world.apply()
    status = world.status()
    assert world.amounts() == {1: "1.00", 3: "3.00"} and status.missing == ("2",) and status.healthy
    delta(orders, 2, [(3, "2.00", U), (2, "2.00", U)])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"} and world.status().missing == ()


def test_a_conflict_in_a_chain_stops_the_keys_after_it_until_a_higher_revision(tmp_path: Path) -> None:
    """Ruling 4."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    full(orders, 1, [(1, "1.00")])
    delta(orders, 2, [(2, "2.00", U)])
    world.apply()
    orders.deliver(2, [(2, "2.22", U)], kind="delta", name="other")
    delta(orders, 3, [(3, "3.00", U)])
    world.apply()
    assert world.status().reason == "conflict" and world.amounts() == {1: "1.00", 2: "2.00"}
    delta(orders, 2, [(2, "2.50", U)], revision=2)
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50", 3: "3.00"} and world.status().healthy


# --- chains: random histories against a plain model --------------------------------------------------------------------

Link = tuple[str, int, int]  # kind, key, revision
IDS = (1, 2, 3)


def content(link: Link) -> dict[int, str | None]:
    """What a link says: amount by id, None where it deletes. Each link has content of its own."""
    kind, key, revision = link
    amount = f"{key}.{revision}{0 if kind == 'full' else 1}"
    if kind == "full":
        return dict.fromkeys(IDS[: 1 + (key + revision) % 3], amount)
    changed = IDS[(key + revision) % 3]
    return {changed: None if (key * revision) % 3 == 0 else amount, IDS[key % 3]: amount}


def hand_over(orders: Producer, link: Link, number: int) -> None:
    kind, key, revision = link
    rows = [(one, amount or "0.00", D if amount is None else U) for one, amount in content(link).items()]
    made = orders.make(key, rows, kind=kind, revision=revision)
    orders.hand_over(made.named(f"arrival{number}"))


def model(arrived: set[Link]) -> dict[int, str]:
    """Newest revision of each link; of these the newest full and the deltas that follow it without a gap."""
    newest = {(kind, key): revision for kind, key, revision in sorted(arrived)}
    fulls = [key for kind, key in newest if kind == "full"]
    if not fulls:
        return {}
    key = max(fulls)
    state: dict[int, str | None] = dict(content(("full", key, newest["full", key])))
    while ("delta", key + 1) in newest:
        key += 1
        state |= content(("delta", key, newest["delta", key]))
    return {one: amount for one, amount in state.items() if amount is not None}


links = st.tuples(st.sampled_from(["full", "delta", "delta", "delta"]), st.integers(1, 4), st.integers(1, 2))


def check_history(history: Sequence[Sequence[Link]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), CHAIN)
        orders = world.producer()
        arrived: set[Link] = set()
        number = 0
        for together in history:
            for link in together:
                number += 1
                hand_over(orders, link, number)
                arrived.add(link)
            outcomes = world.apply()
            world.settle()
            assert world.amounts() == model(arrived), (history, arrived)
            assert not any(outcome.failed for key in outcomes for outcome in key.outcomes)
        assert world.published() == world.named_files()
        assert world.apply() == []


@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(history=st.lists(st.lists(links, min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_current_state_is_the_newest_full_and_the_contiguous_deltas_whatever_the_order_of_arrival(
    history: list[list[Link]],
) -> None:
    check_history(history)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(history=st.lists(st.lists(links, min_size=1, max_size=4), min_size=1, max_size=5))
def test_more_histories_of_a_chain(history: list[list[Link]]) -> None:
    check_history(history)


@pytest.mark.parametrize("feed", [PERIODS, CHAIN], ids=["periods", "chain"])
def test_a_resend_of_everything_changes_nothing(feed: str, tmp_path: Path) -> None:
    """M14 for a whole history at once."""
    world = World(tmp_path, feed)
    orders = world.producer()
    made = [orders.make(1, [(1, "1.00", U)], kind="full")]
    made += [orders.make(key, [(key, "1.00", U)], kind=None if feed == CHAIN else "full") for key in (2, 3)]
    for delivery in made:
        orders.hand_over(delivery)
    world.apply()
    before = world.seen()
    for delivery in made:
        orders.hand_over(delivery.named(f"again{delivery.key}"))
    world.apply()
    assert world.seen() == before
    assert [verdict for _, _, verdict, _ in world.verdicts()] == ["accepted"] * 3 + ["duplicate"] * 3
