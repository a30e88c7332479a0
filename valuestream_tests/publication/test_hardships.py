"""What happens to machines: many at once, readers at work meanwhile, a clock that goes back. Real processes, real files."""

from __future__ import annotations

import multiprocessing
import resource
import time
from pathlib import Path

import duckdb
import pytest

from valuestream_dagster.errors import FeedBusy, FenceLost, ValueStreamError
from valuestream_tests.permissions import bound_by_permissions
from valuestream_tests.world import World

PROCESSES = 8
PAUSE_SECONDS = 0.02  # between two tries: the processor is for who has work
pytestmark = pytest.mark.slow


def _apply_each(roots: dict[str, int]) -> None:
    """One of many: go through the deployments, each with so many keys to apply."""
    for root, wanted in roots.items():
        _apply_until_done(World(Path(root)), wanted)


def _apply_until_done(world: World, wanted: int) -> None:
    """Apply what there is, as soon as the feed is free, until all is there."""
    for _ in range(2_000):
        try:
            world.apply()
        except (FeedBusy, FenceLost):  # fails fast; whoever has it does the work
            time.sleep(PAUSE_SECONDS)
            continue
        if len(world.opened.summary(world.opened.feed("acme/orders")).failed) == 0 and len(world.receipts()) >= wanted:
            return
    raise AssertionError("never done")


def _read(path: str, found: multiprocessing.Queue[str]) -> None:
    """Attach, ask both views of one picture, let go; until a file says that it is over."""
    looks = 0
    while not Path(path).with_name("over").exists():
        try:
            with duckdb.connect() as connection:
                connection.execute(f"ATTACH '{path}' AS c (READ_ONLY)")
                connection.execute("USE c")
                pairs = connection.execute(
                    """SELECT (SELECT max(amount) FROM acme.orders WHERE id = 1),
                              (SELECT max(amount) FROM acme.orders WHERE id = 2),
                              (SELECT count(DISTINCT revision) FROM valuestream.publications WHERE visible),
                              (SELECT count(*) FROM acme.orders), (SELECT count(*) FROM acme.orders__all)"""
                ).fetchall()
        except duckdb.Error as error:
            found.put(f"{type(error).__name__}: {error}")
            return
        first, second, revisions, rows, everything = pairs[0]
        looks += 1
        if not (first == second and revisions == 1 and rows == everything == 2):
            found.put(f"an inconsistent picture: {pairs[0]}")
            return
        time.sleep(PAUSE_SECONDS)
    found.put(f"ok {looks}")


def test_eight_processes_race_and_each_key_is_accepted_once(tmp_path: Path) -> None:
    """S14, M18, L12: on one key and then on eight, whoever is second fails fast, nobody starves, nothing is accepted twice."""
    roots = {str(tmp_path / str(keys)): keys for keys in (1, PROCESSES)}
    worlds = {keys: World(Path(root)) for root, keys in roots.items()}
    for keys, world in worlds.items():
        for key in range(1, keys + 1):
            world.producer().deliver(key, [(key, f"{key}.00", "U")])
        world.settle()
    spawn = multiprocessing.get_context("spawn")
    racing = [spawn.Process(target=_apply_each, args=(roots,)) for _ in range(PROCESSES)]
    for process in racing:
        process.start()
    for process in racing:
        process.join(240)
        assert process.exitcode == 0
    for keys, world in worlds.items():
        assert [verdict for _, _, verdict, _ in world.verdicts()] == ["accepted"] * keys
        assert world.ledger("SELECT count(*), count(DISTINCT key) FROM publications") == [(keys, keys)]
        assert world.published() == world.named_files()


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.thorough)])
def test_readers_never_see_an_inconsistent_pair_of_views_while_revisions_are_published(rounds: int, tmp_path: Path) -> None:
    """S9, L18: both keys of a run, and every view, change together or not at all."""
    world = World(tmp_path)
    for key in (1, 2):
        world.producer().deliver(key, [(key, "1.00", "U")])
    world.apply()
    spawn = multiprocessing.get_context("spawn")
    found: multiprocessing.Queue[str] = spawn.Queue()
    catalogue = tmp_path / "state/catalog.duckdb"
    readers = [spawn.Process(target=_read, args=(str(catalogue), found)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for revision in range(2, rounds + 2):
        for key in (1, 2):
            world.producer().deliver(key, [(key, f"{revision}.00", "U")], revision=revision)
        world.apply()
    catalogue.with_name("over").touch()
    told = [found.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join(60)
    assert all(text.startswith("ok ") and int(text.split()[1]) > 0 for text in told), told


def _apply_with_files_up_to(limit: int, world: World, told: multiprocessing.Queue[str]) -> None:
    """In the child: no file may grow beyond ``limit`` bytes, whoever writes it; what apply says to that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    told.put(_told_by_apply(world))


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        pytest.param(0, 10, id="no temporary file"),
        pytest.param(2_000, 10, id="no commit"),
        pytest.param(100_000, 10, id="no folding of the ledger's log into it"),
        pytest.param(8_000_000, 240_000, id="no payload"),
    ],
)
def test_a_disk_that_is_full_is_said_and_once_there_is_room_everything_goes_on(limit: int, rows: int, tmp_path: Path) -> None:
    """L18: real writes that fail; nothing is lost, nothing is half there."""
    world = World(tmp_path)
    orders = world.producer()
    orders.deliver(1, [(1, "1.00", "U")])
    world.apply()
    orders.deliver(2, [(number, f"{number}.00", f"{number * 7919 % 1_000_003:x}" * 6) for number in range(rows)])
    orders.deliver(1, [(1, "2.00", "U")], revision=2)
    world.settle()
    spawn = multiprocessing.get_context("spawn")
    said: multiprocessing.Queue[str] = spawn.Queue()
    child = spawn.Process(target=_apply_with_files_up_to, args=(limit, world, said))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    told = said.get(timeout=60)
    assert ("File too large" in told or "temporary" in told) and "Next: " in told, told
    assert world.by_key() in ({"1": 1}, {"1": 2}, {"1": 2, "2": 1})
    world.apply()
    assert world.by_key() == {"1": 2, "2": 1} and world.status().healthy
    assert world.query("SELECT count(*) FROM acme.orders") == [(rows + 1,)]
    assert world.named_files() <= world.published()


@pytest.mark.parametrize("folder", ["state/store", "state/store/published", "state/store/sealed", "state"])
def test_a_folder_that_may_not_be_written_is_said_and_once_it_may_everything_goes_on(folder: str, tmp_path: Path) -> None:
    """L18"""
    world = World(tmp_path)
    world.producer().deliver(1, [(1, "1.00", "U")])
    world.apply()
    world.producer().deliver(2, [(2, "2.00", "U")])
    world.settle()
    closed = [tmp_path / folder, *(path for path in (tmp_path / folder).rglob("*") if path.is_dir())]
    for path in closed:
        path.chmod(0o555)
    try:
        with bound_by_permissions():
            told = _told_by_apply(world)
    finally:
        for path in closed:
            path.chmod(0o755)
    assert "Permission denied" in told and "Next: " in told, told
    assert world.by_key() == {"1": 1}
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1} and world.status().healthy


def _told_by_apply(world: World) -> str:
    """What apply could not do, and why."""
    try:
        outcomes = [outcome for key in world.apply() for outcome in key.outcomes]
    except ValueStreamError as error:
        return f"{error.message} Next: {error.next_step}"
    return "; ".join(str(one.told) for one in outcomes if not one.told.ok) or "ok"


def test_a_clock_that_goes_back_changes_no_order(tmp_path: Path) -> None:
    """M11, M13: the order is that of recording and of revisions; times are only told."""
    world = World(tmp_path, now="2026-09-10T12:00:00Z")
    orders = world.producer()
    orders.deliver(1, [(1, "1.00", "U")])
    world.apply()
    world.now = "2020-01-01T00:00:00Z"
    orders.deliver(1, [(1, "2.00", "U")], revision=2)
    orders.deliver(2, [(2, "2.00", "U")])
    world.apply()
    assert world.amounts() == {1: "2.00", 2: "2.00"} and world.by_key() == {"1": 2, "2": 1}
    assert [receipt.revision for receipt in world.receipts()] == [1, 2, 1]
    assert world.status().healthy
