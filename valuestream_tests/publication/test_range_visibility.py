"""When each key of a long range is visible, and to whom, when the process is killed in the middle (decision 0001)."""

from __future__ import annotations

from pathlib import Path

from valuestream_dagster.core.continuity import Claimable
from valuestream_tests.publication.dying import die_at
from valuestream_tests.world import REQUIRED, World

KEYS = 400
PER_LEDGER_RUN = 200


def visible(world: World) -> list[str]:
    return [str(row[0]) for row in world.query("SELECT DISTINCT _key FROM acme.orders__all ORDER BY _key::BIGINT")]


def test_a_range_killed_in_either_ledger_run_shows_whole_ledger_runs_and_is_never_worked_off_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, REQUIRED, settings=f"limits: {{keys_per_ledger_run: {PER_LEDGER_RUN}}}\n")
    orders = world.producer()
    for key in range(1, KEYS + 1):
        orders.deliver(key, [(key, "1.00", "U")])
    world.settle()
    opened = world.opened
    feed = opened.feed("acme/orders")
    first = [str(key) for key in range(1, PER_LEDGER_RUN + 1)]

    # Killed right after the commit of key 200 (the ledger's name and the run's beginning are commits too) and before its close.
    assert die_at(world, "committed", 2 + PER_LEDGER_RUN)
    with opened.ledger.session() as session:
        position = session.read.position(feed.name, required=True)
        assert position is not None and position.text == "200"
        records = session.read.records(feed.name, ["200"])
        judged = feed.rule.judge(
            feed.default_kind,
            opened.key(feed, "201"),
            session.read.epoch(feed.name),
            lambda key: records[key.text].state,
        )
    assert isinstance(judged, Claimable), "the next claim would be 201"
    assert opened.plan(feed).claimable[0].text == "201"
    assert visible(world) == [], "readers see none of the 200"

    # The next invocation shows the 200 at once, goes on with 201, and is killed in its own ledger run.
    assert die_at(world, "committed", 1 + 50)
    assert visible(world) == first
    with opened.ledger.session() as session:
        position = session.read.position(feed.name, required=True)
        assert position is not None and position.text == "250"

    outcomes = world.apply()
    assert [outcome.key.text for outcome in outcomes] == [str(key) for key in range(251, KEYS + 1)]
    assert visible(world) == [str(key) for key in range(1, KEYS + 1)]
    assert world.query("SELECT status, count(*) FROM valuestream.runs GROUP BY ALL ORDER BY ALL") == [
        ("ok", 1),
        ("partial", 2),
    ]
    assert world.query("SELECT count(*), count(DISTINCT key) FROM valuestream.publications") == [(KEYS, KEYS)]
