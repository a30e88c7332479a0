"""L21, L27, rulings 15 and 16: what vacuum takes away, and what it never does."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.errors import FeedBusy, NotApplied
from valuestream_dagster.feeds.settings import Retention
from valuestream_dagster.publication.locks import working
from valuestream_dagster.publication.vacuum import StoreNames, Sweep, plan_sweep
from valuestream_dagster.stores.local import StoredFile
from valuestream_tests.publication.dying import die_at
from valuestream_tests.publication.test_recompute import declare, make_half, recompute, retyped
from valuestream_tests.world import PERIODS, REQUIRED, World

NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
SHORT = "retention: {input_days: 1, superseded_days: 1, reader_grace_minutes: 30}\n"
LONG_AGO = (NOW - timedelta(days=10)).timestamp()


def sweep(world: World, *, carry_out: bool = True) -> Sweep:
    return world.opened.vacuum(carry_out=carry_out)


def aged(world: World) -> World:
    """Let every file of the store be ten days old, and the clock be ten days after what was done."""
    for path in (world.root / "state/store").rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO, LONG_AGO))
    return world


def later(world: World, days: int = 5) -> World:
    world.now = f"{NOW + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    return world


def corrected(tmp_path: Path, settings: str = SHORT, declared: str = PERIODS) -> World:
    """Key 1 in two revisions, key 2 in one."""
    world = World(tmp_path, declared, settings=settings)
    orders = world.producer()
    orders.deliver(1, [(1, "1.00", "U")])
    orders.deliver(2, [(2, "2.00", "U")])
    world.apply()
    orders.deliver(1, [(1, "1.50", "U")], revision=2)
    world.apply()
    return world


def test_a_dry_run_says_what_would_go_and_touches_nothing(tmp_path: Path) -> None:
    world = later(aged(corrected(tmp_path)))
    files = world.published()
    planned = sweep(world, carry_out=False)
    assert not planned.done and [one.why.partition(" since")[0] for one in planned.removals if one.path.startswith("pub")] == [
        "superseded"
    ]
    assert world.published() == files and world.ledger("FROM removals") == []


def test_superseded_files_past_their_retention_go_and_readers_notice_nothing(tmp_path: Path) -> None:
    """L21: and every removal is recorded with its reason."""
    world = later(aged(corrected(tmp_path)))
    before = (world.seen().everything, world.named_now())
    done = sweep(world)
    assert (world.seen().everything, world.named_now()) == before
    assert world.published() == world.named_now()
    recorded = world.query("SELECT path, why FROM valuestream.removals")
    assert sorted(recorded) == sorted((one.path, one.why) for one in done.removals)
    assert world.named_files() == world.named_now(), "files that are gone are not shown as if they were there"
    assert sweep(world).removals == ()


def test_nothing_goes_while_its_retention_lasts_or_where_none_is_set(tmp_path: Path) -> None:
    assert sweep(later(aged(corrected(tmp_path / "a", settings="")))).removals == ()
    assert sweep(aged(corrected(tmp_path / "b"))).removals != ()  # the superseded input, which is ten days old
    assert not any(one.path.startswith("published/") for one in sweep(aged(corrected(tmp_path / "c"))).removals)


def test_the_sealed_bytes_behind_what_readers_see_stay_and_can_be_computed_again(tmp_path: Path) -> None:
    """Ruling 16: the oldest input too, while its key is visible."""
    world = later(aged(corrected(tmp_path)), days=900)
    sweep(world)
    declare(world, retyped())
    assert recompute(world).keys == 2
    assert {key: float(value) for key, value in world.amounts().items()} == {1: 1.5, 2: 2.0}


def test_the_last_good_publication_stays_after_an_edit_of_the_declaration(tmp_path: Path) -> None:
    """L21, L23: stale is not superseded."""
    world = later(aged(corrected(tmp_path)), days=900)
    declare(world, retyped())
    world.settle()
    sweep(world)
    assert {key: float(value) for key, value in world.amounts().items()} == {1: 1.5, 2: 2.0}


def test_a_deleted_feed_file_makes_none_of_its_data_vanish(tmp_path: Path) -> None:
    world = corrected(tmp_path)
    (tmp_path / "feeds/other.yaml").write_text(PERIODS.replace("orders", "others"))
    world.settle()
    (tmp_path / "feeds/orders.yaml").unlink()
    sweep(later(aged(world), days=900))
    assert world.amounts() == {1: "1.50", 2: "2.00"}


def test_what_waits_for_its_turn_or_for_a_person_stays(tmp_path: Path) -> None:
    """It can still be taken up from the store."""
    world = World(tmp_path, REQUIRED, settings=SHORT)
    orders = world.producer()
    orders.deliver(1, [(1, "1.00", "U")])
    orders.deliver(3, [(3, "3.00", "U")])
    world.apply()
    orders.deliver(1, [(1, "9.00", "U")], name="again")
    world.apply()
    for path in world.landing().iterdir():
        path.unlink()
    sweep(later(aged(world), days=900))
    orders.deliver(2, [(2, "2.00", "U")])
    from valuestream_tests.publication.test_rulings import rule

    rule(world, "release", "1")
    world.apply()
    assert world.amounts() == {1: "9.00", 2: "2.00", 3: "3.00"}


def test_files_of_an_unfinished_recomputation_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L27: never anything of a run that has not ended."""
    world = corrected(tmp_path)
    orders = world.producer()
    for key in (3, 4, 5):
        orders.deliver(key, [(key, "1.00", "U")])
    world.apply()
    declare(world, retyped())
    make_half(world, monkeypatch)
    sweep(later(aged(world), days=900))
    done = recompute(world)
    assert done.keys + done.earlier == 5 and done.switched and done.earlier == 3


def test_an_orphan_of_a_run_that_died_goes_once_it_is_old_enough(tmp_path: Path) -> None:
    world = corrected(tmp_path)
    orphan = tmp_path / "state/store/published/acme/orders/1/full-r9-000000000000-x.00001.parquet"
    orphan.write_bytes(b"left over")
    young = NOW.timestamp() - 60
    os.utime(orphan, (young, young))
    sweep(world)
    assert orphan.exists()
    os.utime(orphan, (LONG_AGO, LONG_AGO))
    (gone,) = [one for one in sweep(world).removals if one.path.startswith("published/")]
    assert not orphan.exists() and "no row names it" in gone.why


def test_temporary_files_go_after_a_day(tmp_path: Path) -> None:
    world = corrected(tmp_path)
    for name, age in (("old", 2), ("new", 0)):
        path = tmp_path / f"state/store/tmp/{name}"
        path.write_bytes(b"x")
        os.utime(path, ((NOW - timedelta(days=age)).timestamp(),) * 2)
    assert [one.path for one in sweep(world).removals if one.path.startswith("tmp/")] == ["tmp/old"]


def test_rejected_bytes_and_their_evidence_go_with_the_retention_of_inputs(tmp_path: Path) -> None:
    """M7"""
    world = World(tmp_path, settings=SHORT)
    orders = world.producer()
    orders.hand_over(orders.make(1, [(1, "1.00", "U")]).with_entry(rows=7))
    world.apply()
    assert list((tmp_path / "state/store/quarantine").rglob("*.json"))
    sweep(later(aged(world)))
    assert [path.name for path in (tmp_path / "state/store").rglob("*") if path.is_file()] == ["owner.json"]


def test_nothing_is_cleared_away_while_deliveries_are_taken_in(tmp_path: Path) -> None:
    world = later(aged(corrected(tmp_path)))
    with working(tmp_path / "state/locks"), pytest.raises(FeedBusy, match="being taken in"):
        sweep(world)
    assert sweep(world).removals


def test_a_store_that_knows_more_than_the_ledger_is_left_alone(tmp_path: Path) -> None:
    """Ruling 16: after an older ledger was put back, what it does not know is not garbage."""
    world = corrected(tmp_path)
    ledger = (tmp_path / "state/ledger.duckdb").read_bytes()
    world.producer().deliver(3, [(3, "3.00", "U")])
    world.apply()
    (tmp_path / "state/ledger.duckdb").write_bytes(ledger)
    with pytest.raises(NotApplied, match="1 sealed deliveries that the ledger never heard of"):
        sweep(later(aged(world)))


@pytest.mark.parametrize(("step", "count"), [("write removals", 1), ("before commit", 1), ("committed", 1), ("deleted", 2)])
def test_a_process_that_dies_while_it_clears_away_is_made_good_by_the_next_vacuum(step: str, count: int, tmp_path: Path) -> None:
    """L18, L21: readers notice nothing of it."""
    world = later(aged(corrected(tmp_path)))
    seen = world.seen()
    assert die_at(world, step, count, doing="vacuum")
    assert (world.seen().rows, world.seen().publications) == (seen.rows, seen.publications)
    assert sweep(world).removals
    assert world.published() == world.named_now() and sweep(world).removals == ()
    world.apply()
    assert (world.seen().rows, world.seen().publications) == (seen.rows, seen.publications)


PUBLISHED = st.sampled_from([f"published/a/b/{number}" for number in range(6)])
PATHS = PUBLISHED | st.sampled_from(
    [f"sealed/00/{number}" for number in range(4)]
    + ["sealed/deliveries/a/b/1-full-r1-aaaaaaaaaaaa-bbbbbbbbbbbb.json", "quarantine/a/b/x.json", "tmp/x", "owner.json"]
)
AGES = st.integers(-10, 100_000).map(lambda minutes: NOW - timedelta(minutes=minutes))


@given(
    st.lists(st.builds(StoredFile, PATHS, st.just(1), AGES), unique_by=lambda file: file.path),
    st.frozensets(PUBLISHED),
    st.frozensets(PUBLISHED),
    st.dictionaries(PUBLISHED, st.tuples(st.just("p"), AGES)),
    st.frozensets(st.sampled_from("0123")),
    st.builds(
        Retention,
        input_days=st.none() | st.integers(0, 30),
        superseded_days=st.none() | st.integers(0, 30),
        reader_grace_minutes=st.integers(0, 10_000),
    ),
)
def test_whatever_the_facts_nothing_that_is_needed_is_in_the_plan(
    stored: list[StoredFile],
    visible: frozenset[str],
    unfinished: frozenset[str],
    replaced: dict[str, tuple[str, datetime]],
    inputs: frozenset[str],
    retention: Retention,
) -> None:
    """L21: visible, unfinished, in grace, in retention, needed as input: never; and every file is accounted for once."""
    names = StoreNames(visible=visible, unfinished=unfinished, replaced=replaced, needed_inputs=inputs)
    planned = plan_sweep(stored, names, retention, NOW)
    gone = {one.path for one in planned.removals}
    grace = timedelta(minutes=retention.reader_grace_minutes)
    by_path = {file.path: file for file in stored}
    assert not gone & (visible | unfinished)
    for path in gone:
        if path.startswith("published/"):
            since = replaced[path][1] if path in replaced else by_path[path].modified
            assert NOW - since >= grace
            assert path not in replaced or retention.superseded_days is not None
        if path.startswith("sealed/00/"):
            assert path.rpartition("/")[2] not in inputs and retention.input_days is not None
        assert path != "owner.json"
    assert len(gone) + sum(kept.files for kept in planned.kept) == len(stored)
    nothing_set = replace(retention, input_days=None, superseded_days=None)
    assert not {one.path for one in plan_sweep(stored, names, nothing_set, NOW).removals} & set(replaced)
