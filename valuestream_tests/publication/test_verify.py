"""L7: what verify reads again, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from valuestream_dagster.publication.verify import Verified
from valuestream_tests.publication.test_recompute import recompute
from valuestream_tests.world import World


def published(tmp_path: Path) -> World:
    world = World(tmp_path)
    for key in (1, 2, 3):
        world.producer().deliver(key, [(key, f"{key}.00", "U")])
    world.apply()
    return world


def verify(world: World, *, inputs: bool = False) -> Verified:
    opened = world.opened
    return opened.verify(opened.feed("acme/orders"), inputs=inputs)


def file_of(world: World, key: int) -> Path:
    (name,) = [name for name in world.named_now() if name.startswith(f"{key}/")]
    return world.root / "state/store/published/acme/orders" / name


def test_what_is_as_it_was_written_is_told_so_and_nothing_is_changed(tmp_path: Path) -> None:
    world = published(tmp_path)
    before = [world.ledger(f"FROM {table}") for table in ("receipts", "runs", "publications")]
    told: list[tuple[int, int]] = []
    opened = world.opened
    found = opened.verify(None, progress=lambda done, of: told.append((done, of)))
    assert (found.files, found.faults) == (3, ()) and sorted(told) == [(1, 3), (2, 3), (3, 3)]
    assert [world.ledger(f"FROM {table}") for table in ("receipts", "runs", "publications")] == before
    assert verify(world, inputs=True).files == 6


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "code"),
    [(Path.unlink, "file_missing"), (_truncate, "file_changed"), (_flip, "file_changed")],
    ids=["gone", "truncated", "one bit"],
)
def test_a_file_that_is_not_as_recorded_is_named_and_made_again_as_it_is_told(
    damage: Callable[[Path], None], code: str, tmp_path: Path
) -> None:
    """Bit rot and hands: found by reading, mended from the sealed bytes."""
    world = published(tmp_path)
    damage(file_of(world, 2))
    (fault,) = verify(world).faults
    assert (fault.code, fault.file.key) == (code, "2")
    assert "apply acme/orders --key 2 --force" in fault.next_step
    recompute(world, key="2", force=True)
    assert verify(world).faults == ()
    assert world.amounts() == {1: "1.00", 2: "2.00", 3: "3.00"}


def test_a_sealed_input_that_changed_is_found_where_inputs_are_asked_for(tmp_path: Path) -> None:
    world = published(tmp_path)
    ((sha,),) = world.ledger("SELECT l.sha256 FROM lineage l JOIN publications p USING (publication_id) WHERE p.key = '2'")
    _flip(tmp_path / f"state/store/sealed/{sha[:2]}/{sha}")
    assert verify(world).faults == ()
    (fault,) = verify(world, inputs=True).faults
    assert fault.file.sealed and fault.code == "file_changed" and "higher revision" in fault.next_step


def test_a_file_that_readers_do_not_see_any_more_is_nobodys_trouble(tmp_path: Path) -> None:
    world = published(tmp_path)
    old = file_of(world, 1)
    world.producer().deliver(1, [(1, "9.00", "U")], revision=2)
    world.apply()
    old.unlink()
    assert verify(world).faults == ()
