"""Where sequence order meets Dagster's: ranges, and the automation condition."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from valuestream_dagster import PredecessorSucceeded
from valuestream_dagster.core.sequence import IntegerSequence, SequenceKey
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.orchestration.apply import apply_feed
from valuestream_dagster.orchestration.partition_rule import range_tags, ranges, unregistered
from valuestream_tests.orchestration import places


def keys(*numbers: int) -> list[SequenceKey]:
    parsed = [IntegerSequence().parse(str(number)) for number in numbers]
    return [key for key in parsed if isinstance(key, SequenceKey)]


@pytest.mark.parametrize(
    ("registered", "wanted", "expected"),
    [
        (["1", "2", "3"], [1, 2, 3], [[1, 2, 3]]),
        (["1", "2", "3"], [3, 1], [[1], [3]]),
        (["1", "3", "4", "2"], [2, 3, 4], [[2], [3, 4]]),  # FACTS 4: a range follows the order of registration
        (["1", "2"], [2, 3], [[2]]),
        (["9", "10", "11"], [11, 10, 9], [[9, 10, 11]]),
        ([], [1], []),
    ],
)
def test_a_range_holds_only_neighbours_in_both_orders(
    registered: list[str], wanted: list[int], expected: list[list[int]]
) -> None:
    assert [[int(key.text) for key in piece] for piece in ranges(registered, keys(*wanted))] == expected


def test_new_keys_come_in_the_order_of_the_sequence() -> None:
    assert unregistered(["9"], keys(11, 9, 10, 2), 2) == ["2", "10"]


def test_a_single_key_needs_no_range() -> None:
    assert range_tags(keys(5)) == {}
    assert range_tags(keys(5, 6, 7)) == {
        "dagster/asset_partition_range_start": "5",
        "dagster/asset_partition_range_end": "7",
    }


def test_the_automation_condition_is_true_for_the_keys_whose_turn_it_is(tmp_path: Path) -> None:
    # C21
    opened = places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})
    places.deliver(opened, "a", 1)
    apply_feed(opened, opened.feed("acme/a"), only=None, progress=None)
    places.deliver(opened, "a", 2, 3, 5)

    @dg.asset(
        key=["acme", "a"],
        partitions_def=dg.DynamicPartitionsDefinition(name="acme/a"),
        automation_condition=PredecessorSucceeded(str(tmp_path), "acme/a"),
    )
    def mirror() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("acme/a", ["1", "2", "3", "5"])
        result = dg.evaluate_automation_conditions([mirror], instance)
        assert result.get_requested_partitions(mirror.key) == {"2", "3"}
        apply_feed(opened, opened.feed("acme/a"), only=None, progress=None)
        again = dg.evaluate_automation_conditions([mirror], instance, cursor=result.cursor)
        assert again.total_requested == 0


def test_the_automation_condition_names_an_unknown_feed(tmp_path: Path) -> None:
    places.make_deployment(tmp_path, {"a": places.feed_text("a")})

    @dg.asset(
        partitions_def=dg.DynamicPartitionsDefinition(name="x"),
        automation_condition=PredecessorSucceeded(str(tmp_path), "acme/b"),
    )
    def mirror() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("x", ["1"])
        with pytest.raises(Exception, match="conditions for mirror") as raised:
            dg.evaluate_automation_conditions([mirror], instance)
    cause = raised.value.__cause__
    assert isinstance(cause, WrongUse)
    assert "there is no feed acme/b" in cause.message
