"""Ruling 12, L20, S11: a column added, renamed and retyped from one key on leaves what came before untouched and recomputable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from valuestream_dagster.feeds.feed import Feed, shape_from_json, shape_json
from valuestream_tests.feeds.feed_texts import feed as feed_from_text
from valuestream_tests.publication.test_recompute import declare, recompute, stale
from valuestream_tests.world import CHAIN, COLUMNS, PERIODS, World

# From key 6 on the amount is called price and has three decimals, op has gone, and a currency is new.
DATED = f"""[
  {{columns: {COLUMNS}}},
  {{since: 6, columns: {{id: BIGINT, price: "DECIMAL(20,3)", currency: VARCHAR, note: VARCHAR}}, renamed: {{price: amount}},
    defaults: {{currency: EUR}}}}]"""


def dated(text: str = PERIODS) -> str:
    return text.replace(f"columns: {COLUMNS}", f"columns: {DATED}").replace("totals: [amount]", "totals: [price]")


def june(world: World, key: int, rows: list[tuple[object, ...]], revision: int = 1) -> None:
    """A delivery in the columns of June."""
    orders = world.producer()
    orders.hand_over(orders.make(key, rows, revision=revision, header="id,price,currency,note"))


def until_may(tmp_path: Path) -> World:
    world = World(tmp_path)
    for key in (1, 2, 5):
        world.producer().deliver(key, [(key, f"{key}.25", "U")])
    world.apply()
    return world


def test_a_column_added_renamed_and_retyped_in_june_leaves_january_to_may_untouched(tmp_path: Path) -> None:
    world = until_may(tmp_path)
    files, hashes = world.named_now(), world.query("SELECT key, computation_hash FROM valuestream.publications ORDER BY key")
    declare(world, dated())
    assert stale(world).deliveries == ()
    june(world, 6, [(6, "6.125", "USD", "x")])
    world.apply()
    assert files < world.named_now(), "no file of before was made again"
    kept = world.query("SELECT key, computation_hash FROM valuestream.publications WHERE key <> '6' ORDER BY key")
    assert kept == hashes
    assert world.query("SELECT id, price::VARCHAR, currency, note, typeof(price) FROM acme.orders ORDER BY id") == [
        (1, "1.250", "EUR", None, "DECIMAL(20,3)"),
        (2, "2.250", "EUR", None, "DECIMAL(20,3)"),
        (5, "5.250", "EUR", None, "DECIMAL(20,3)"),
        (6, "6.125", "USD", "x", "DECIMAL(20,3)"),
    ]
    assert world.query("SELECT _key, id FROM acme.orders__all ORDER BY ALL") == [("1", 1), ("2", 2), ("5", 5), ("6", 6)]
    assert world.status().healthy


def test_a_correction_of_march_is_read_with_the_columns_of_march(tmp_path: Path) -> None:
    world = until_may(tmp_path)
    declare(world, dated())
    june(world, 6, [(6, "6.125", "USD", "x")])
    world.producer().deliver(2, [(2, "9.75", "U")], revision=2)
    world.apply()
    assert world.query("SELECT price::VARCHAR, currency FROM acme.orders WHERE id = 2") == [("9.750", "EUR")]
    assert world.by_key()["2"] == 2 and world.status().healthy


def test_a_delivery_in_the_columns_of_another_time_is_rejected(tmp_path: Path) -> None:
    world = until_may(tmp_path)
    declare(world, dated())
    world.producer().deliver(6, [(6, "6.00", "U")])
    june(world, 3, [(3, "3.000", "EUR", "early")])
    world.apply()
    assert [(key, code) for key, _, verdict, code in world.verdicts() if verdict == "rejected"] == [
        ("3", "header_mismatch"),
        ("6", "header_mismatch"),
    ]


def test_january_to_may_can_be_made_again_from_their_sealed_bytes(tmp_path: Path) -> None:
    world = until_may(tmp_path)
    declare(world, dated())
    june(world, 6, [(6, "6.125", "USD", "x")])
    world.apply()
    before = world.query("FROM acme.orders ORDER BY id")
    done = recompute(world, force=True)
    assert (done.keys, done.refused) == (4, [])
    assert world.query("FROM acme.orders ORDER BY id") == before


def test_an_edit_of_june_makes_june_stale_and_nothing_before(tmp_path: Path) -> None:
    """S11, L20: exactly the slices whose computation changes."""
    world = until_may(tmp_path)
    declare(world, dated())
    june(world, 6, [(6, "6.125", "USD", "x")])
    june(world, 7, [(7, "7.125", "USD", "x")])
    world.apply()
    declare(world, dated().replace('"DECIMAL(20,3)"', '"DECIMAL(22,4)"'))
    found = stale(world)
    assert [one.key.text for one in found.deliveries] == ["6", "7"]
    assert found.fields == ("`columns.price` from DECIMAL(20,3) to DECIMAL(22,4)",)
    world.settle()
    assert world.query("SELECT count(*), any_value(typeof(price)) FROM acme.orders") == [(5, "DECIMAL(22,4)")]
    assert recompute(world).keys == 2 and stale(world).deliveries == ()


def test_a_chain_over_the_change_shows_the_newest_of_each_key(tmp_path: Path) -> None:
    world = World(tmp_path, CHAIN.replace('delete_when: "op = \'D\'"\n', ""))
    orders = world.producer()
    orders.deliver(5, [(1, "1.00", "U"), (2, "2.00", "U")], kind="full")
    world.apply()
    declare(world, dated(CHAIN).replace('delete_when: "op = \'D\'"\n', ""))
    june(world, 6, [(2, "2.125", "USD", "x"), (3, "3.125", "USD", "x")])
    world.apply()
    assert world.query("SELECT id, price::VARCHAR, currency FROM acme.orders ORDER BY id") == [
        (1, "1.000", "EUR"),
        (2, "2.125", "USD"),
        (3, "3.125", "USD"),
    ]
    assert world.status().position == "6"


KEYS = [1, 2, 3, 5, 8]
TYPES = ["INTEGER", "BIGINT", "DECIMAL(30,2)", "VARCHAR"]


@st.composite
def declared(draw: st.DrawFn) -> tuple[Feed, list[tuple[int, str]]]:
    """A feed whose one column is retyped at some keys, and the type that each key has."""
    places = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
    types = sorted(draw(st.lists(st.sampled_from(TYPES), min_size=len(places) + 1, max_size=len(places) + 1)), key=TYPES.index)
    columns = [f"columns: {{id: BIGINT, a: '{type_}'}}" for type_ in types]
    versions = [f"{{{columns[0]}}}", *(f"{{since: {at}, {of}}}" for at, of in zip(places, columns[1:], strict=True))]
    text = PERIODS.replace(f"columns: {COLUMNS}", f"columns: [{', '.join(versions)}]").replace("controls: {totals: [amount]}\n", "")
    return feed_from_text(text), [(key, types[sum(place <= key for place in places)]) for key in KEYS]


@settings(max_examples=60, deadline=None)
@given(declared(), declared())
def test_an_edit_invalidates_exactly_the_keys_whose_computation_it_changes(
    before: tuple[Feed, list[tuple[int, str]]], after: tuple[Feed, list[tuple[int, str]]]
) -> None:
    """L20, as a property over configurations: the hash of a key's computation changes if, and only if, its columns do."""
    for (key, old), (_, new) in zip(before[1], after[1], strict=True):
        place = before[0].sequence.at(key)
        changed = before[0].computation_for(place).hash != after[0].computation_for(place).hash
        assert changed is (old != new)
    for feed, _ in (before, after):
        assert shape_json(feed) == shape_json(feed) and shape_from_json(shape_json(feed)).columns == feed.contract.columns


@pytest.mark.parametrize("key", KEYS)
def test_a_feed_without_dated_columns_has_one_computation_for_every_key(key: int) -> None:
    feed = feed_from_text(PERIODS)
    assert feed.computation_for(feed.sequence.at(key)).hash == feed.computation_hash == feed.work_hash
    assert '"version":1' in shape_json(feed)
