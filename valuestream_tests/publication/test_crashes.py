"""A crash at any point leaves each delivery done or not done: never twice, never half (S8, L19, M18).

After each one the next invocation brings everything to what an undisturbed run makes of the same deliveries.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from valuestream_tests.producer import Producer
from valuestream_tests.publication.dying import applying, die_at
from valuestream_tests.world import CHAIN, PERIODS, World

# Each step once, at the moment of it that tells most; 4 commits are the run's beginning and 3 keys, the fifth is its end.
STEPS = [
    ("sealed", 1),
    ("staged", 2),
    ("linked", 2),
    ("read back", 3),
    ("write run", 1),
    ("committed", 1),
    ("write delivery", 1),
    ("write epoch", 1),
    ("write slice_events", 2),
    ("write publication", 2),
    ("write receipts", 2),
    ("write objects_seen", 3),
    ("before commit", 3),
    ("committed", 2),
    ("committed", 4),
    ("write run_end", 1),
    ("committed", 5),
    ("catalogue built", 1),
    ("after catalogue", 1),
]


def deliver(orders: Producer) -> None:
    orders.deliver(1, [(1, "1.00", "U"), (2, "2.00", "U")], kind="full")
    orders.deliver(2, [(1, "1.50", "U"), (3, "3.00", "U")])
    orders.deliver(3, [(2, "0.00", "D")])


def end_state(world: World) -> tuple[Any, ...]:
    """All that must be equal whatever happened on the way: rows, visible publications, verdicts, how the feed stands."""
    status = world.status()
    return (
        world.amounts(),
        world.query(
            "SELECT kind, key, revision, digest, rows FROM valuestream.publications WHERE visible ORDER BY ALL"
        ),
        sorted(world.verdicts()),
        (status.status, status.position, status.epoch, status.applied, status.healthy),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    world = World(tmp_path_factory.mktemp("undisturbed"), CHAIN)
    deliver(world.producer())
    world.apply()
    state = end_state(world)
    assert state[0] == {1: "1.50", 3: "3.00"}
    return state


def check_nothing_is_half_or_twice(world: World) -> None:
    recorded = world.ledger("SELECT kind, key, revision, count(*) FROM publications GROUP BY ALL HAVING count(*) > 1")
    assert recorded == [], "recorded twice"
    assert world.named_files() <= world.published(), "a file that the ledger names is not there"
    assert world.ledger("FROM runs WHERE run_id NOT IN (SELECT run_id FROM run_ends)") == [], "a run is still open"
    assert world.ledger("SELECT run_id FROM run_ends GROUP BY ALL HAVING count(*) > 1") == [], "a run ended twice"
    assert world.apply() == [], "there is still something to do"


@pytest.mark.parametrize(("step", "count"), STEPS, ids=str)
def test_a_crash_at_a_named_step_leaves_both_or_neither_and_the_next_invocation_goes_on(
    step: str, count: int, tmp_path: Path, undisturbed: tuple[Any, ...]
) -> None:
    world = World(tmp_path, CHAIN)
    deliver(world.producer())
    assert die_at(world, step, count)
    if (tmp_path / "state/catalog.duckdb").exists():  # then readers see all of the run or nothing of it
        assert world.amounts() in ({}, undisturbed[0])
    world.apply()
    assert end_state(world) == undisturbed
    check_nothing_is_half_or_twice(world)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_crash_at_every_single_step_leaves_both_or_neither(
    tmp_path_factory: pytest.TempPathFactory, undisturbed: tuple[Any, ...]
) -> None:
    """S8 in full: one world for each announcement of the whole way, until a process comes through."""
    for number in range(1, 200):
        world = World(tmp_path_factory.mktemp(f"step{number}"), CHAIN)
        deliver(world.producer())
        died = die_at(world, "*", number)
        world.apply()
        assert end_state(world) == undisturbed, number
        check_nothing_is_half_or_twice(world)
        if not died:
            assert number > 40
            return
    pytest.fail("the process never came through")


@pytest.mark.parametrize(("step", "count"), [("write run_end", 1), ("committed", 1), ("before catalogue", 1)])
def test_a_crash_while_an_interrupted_run_is_being_settled_is_settled_by_the_one_after(
    step: str, count: int, tmp_path: Path, undisturbed: tuple[Any, ...]
) -> None:
    world = World(tmp_path, CHAIN)
    deliver(world.producer())
    assert die_at(world, "committed", 3)
    opened = world.opened
    assert opened.publisher(opened.feed("acme/orders")).has_open_run()
    assert die_at(world, step, count, doing="settle")
    world.apply()
    assert end_state(world) == undisturbed
    check_nothing_is_half_or_twice(world)


def many_keys(world: World, keys: int) -> None:
    orders = world.producer()
    for key in range(1, keys + 1):
        orders.deliver(key, [(key, f"{key}.00", "U")])


def killed_again_and_again(root: Path, *, kills: int, keys: int, seed: int) -> None:
    """SIGKILL at random moments of a process that works off many small keys, then to the end."""
    world = World(root, PERIODS, settings="limits: {keys_per_ledger_run: 7, ledger_slice_seconds: 0.05}\n")
    many_keys(world, keys)
    chance = random.Random(seed)
    shown = 0
    for _ in range(kills):
        process = applying(world)
        process.join(chance.uniform(0.05, 1.0))
        process.kill()
        process.join()
        if (root / "state/catalog.duckdb").exists():
            now_shown = len(world.amounts())
            assert now_shown >= shown, "readers never see less than before"
            shown = now_shown
    world.apply()
    assert world.amounts() == {key: f"{key}.00" for key in range(1, keys + 1)}
    assert world.query("SELECT count(*), count(DISTINCT key) FROM valuestream.publications WHERE visible") == [
        (keys, keys)
    ]
    assert sorted({verdict for _, _, verdict, _ in world.verdicts()}) == ["accepted"]
    assert len(world.receipts()) == keys and world.status().healthy
    check_nothing_is_half_or_twice(world)


def test_a_process_killed_at_random_moments_again_and_again_ends_with_the_catalogue_of_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    killed_again_and_again(tmp_path, kills=8, keys=40, seed=20260910)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_more_kills_at_other_moments(seed: int, tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, kills=40, keys=200, seed=seed)
