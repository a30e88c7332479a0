"""When each key of a long range is visible, and to whom, when the process is killed in the middle (decision 0001)."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_dagster.core.continuity import Claimable
from valuestream_tests.publication.dying import die_at
from valuestream_tests.world import REQUIRED, World


def visible(world: World) -> list[str]:
    return [str(row[0]) for row in world.query("SELECT DISTINCT _key FROM acme.orders__all ORDER BY _key::BIGINT")]


@pytest.mark.parametrize("half", [20, pytest.param(200, marks=pytest.mark.thorough)])
def test_a_range_killed_in_either_ledger_run_shows_whole_ledger_runs_and_is_never_worked_off_again(
    half: int, tmp_path: Path
) -> None:
    """Decision 0001, with two ledger runs of ``half`` the keys each."""
    world = World(tmp_path, REQUIRED, settings=f"limits: {{keys_per_ledger_run: {half}}}\n")
    orders = world.producer()
    for key in range(1, 2 * half + 1):
        orders.deliver(key, [(key, "1.00", "U")])
    world.settle()
    opened = world.opened
    feed = opened.feed("acme/orders")
    first = [str(key) for key in range(1, half + 1)]

    # Killed right after the commit of the last key of the first and before its close; the ledger's name and the run's beginning
    # are commits too.
    assert die_at(world, "committed", 2 + half)
    with opened.ledger.session() as session:
        position = session.read.position(feed.name, required=True)
        assert position is not None and position.text == str(half)
        records = session.read.records(feed.name, [str(half)])
        judged = feed.rule.judge(
            feed.default_kind,
            opened.key(feed, str(half + 1)),
            session.read.epoch(feed.name),
            lambda key: records[key.text].state,
        )
    assert isinstance(judged, Claimable), "the next claim would be the key after it"
    assert opened.plan(feed).claimable[0].text == str(half + 1)
    assert visible(world) == [], "readers see none of it"

    # The next invocation shows it at once, goes on with the key after it, and is killed in its own ledger run.
    assert die_at(world, "committed", 1 + half // 4)
    assert visible(world) == first
    with opened.ledger.session() as session:
        position = session.read.position(feed.name, required=True)
        assert position is not None and position.text == str(half + half // 4)

    outcomes = world.apply()
    assert [outcome.key.text for outcome in outcomes] == [str(key) for key in range(half + half // 4 + 1, 2 * half + 1)]
    assert visible(world) == [str(key) for key in range(1, 2 * half + 1)]
    assert world.query("SELECT status, count(*) FROM valuestream.runs GROUP BY ALL ORDER BY ALL") == [
        ("ok", 1),
        ("partial", 2),
    ]
    assert world.query("SELECT count(*), count(DISTINCT key) FROM valuestream.publications") == [(2 * half, 2 * half)]
