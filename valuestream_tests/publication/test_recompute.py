"""L4-L6, L20, ruling 12: what an edit makes stale, what it costs, making it again from sealed bytes, one switch for readers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from valuestream_dagster.publication.plan import Staleness
from valuestream_dagster.publication.recompute import Recomputed
from valuestream_dagster.publication.run import FeedRun
from valuestream_tests.publication.dying import die_at
from valuestream_tests.world import CHAIN, PERIODS, World

SMALL_PIECES = "limits: {keys_per_ledger_run: 2}\n"


def declare(world: World, text: str) -> None:
    """Edit the feed file."""
    (world.root / "feeds/orders.yaml").write_text(text)


def retyped(text: str = PERIODS) -> str:
    return text.replace('"DECIMAL(18,2)"', '"DECIMAL(18,3)"')


def delivered(tmp_path: Path, text: str = PERIODS, keys: int = 5, settings: str = SMALL_PIECES) -> World:
    """A feed with some published keys, nothing of which is at the landing place any more."""
    world = World(tmp_path, text, settings=settings)
    for key in range(1, keys + 1):
        kind = ("full" if key == 1 else "delta") if "mode: chain" in text else None
        world.producer().deliver(key, [(key, f"{key}.00", "U")], kind=kind)
    world.apply()
    shutil.rmtree(world.landing())
    world.landing().mkdir()
    return world


def recompute(world: World, **how: object) -> Recomputed:
    opened = world.opened
    return opened.recompute(opened.feed("acme/orders"), **how)  # type: ignore[arg-type]


def stale(world: World) -> Staleness:
    opened = world.opened
    return opened.plan(opened.feed("acme/orders")).stale


def visible(world: World) -> object:
    """All that readers see, and from which files."""
    return world.seen().everything, world.named_now()


def hashes(world: World) -> list[tuple[str, int]]:
    return world.query(
        "SELECT computation_hash, count(*)::INT FROM valuestream.publications WHERE visible GROUP BY ALL ORDER BY 2 DESC"
    )


def test_an_edit_of_what_only_orders_the_work_makes_nothing_stale(tmp_path: Path) -> None:
    """L4: execution-only settings are no part of the hash."""
    world = delivered(tmp_path)
    declare(world, PERIODS + "description: other words\npolicy: {allow_empty: true}\n")
    assert stale(world) == Staleness()


def test_the_plan_names_what_is_stale_which_field_did_it_and_what_it_costs(tmp_path: Path) -> None:
    """L20"""
    world = delivered(tmp_path)
    declare(world, retyped())
    found = stale(world)
    assert [one.key.text for one in found.deliveries] == ["1", "2", "3", "4", "5"]
    assert found.fields == ("`columns.amount` from DECIMAL(18,2) to DECIMAL(18,3)",)
    assert found.sealed_bytes == sum(row[0] for row in world.ledger("SELECT bytes FROM lineage"))
    (note,) = world.status().notes
    assert "5 published deliveries are stale" in note and "apply acme/orders --recompute" in note
    assert world.status().healthy, "stale is not broken"


def test_stale_rows_stay_as_they_were_until_readers_switch_once(tmp_path: Path) -> None:
    """Ruling 12: five keys in pieces of two; nobody sees a mixture."""
    world = delivered(tmp_path)
    declare(world, retyped())
    world.settle()
    seen: list[tuple[int, int, bool]] = []
    old = hashes(world)
    done = recompute(world, progress=lambda made, of: seen.append((made, of, hashes(world) == old)))
    assert (done.keys, done.switched, done.refused) == (5, True, [])
    assert seen == [(2, 5, True), (4, 5, True), (5, 5, True)]
    ((new, five),) = hashes(world)
    assert five == 5 and new != old[0][0]
    assert world.query("SELECT typeof(amount), sum(amount)::VARCHAR FROM acme.orders GROUP BY 1") == [("DECIMAL(18,3)", "15.000")]
    assert stale(world) == Staleness() and world.status().notes == ()


def test_making_again_leaves_receipts_slices_position_and_provenance_as_they_were(tmp_path: Path) -> None:
    """L20: it is no delivery; what was received and in which order stays."""
    world = delivered(tmp_path, CHAIN)
    tables = ("receipts", "slice_events", "objects_seen", "deliveries", "epochs")
    before = [world.ledger(f"FROM {table}") for table in tables]
    kept = world.query("SELECT key, revision, digest, previous_key, position, epoch FROM valuestream.publications WHERE visible")
    rows = world.amounts()
    declare(world, retyped(CHAIN))
    recompute(world)
    assert [world.ledger(f"FROM {table}") for table in tables] == before
    again = world.query("SELECT key, revision, digest, previous_key, position, epoch FROM valuestream.publications WHERE visible")
    assert sorted(again) == sorted(kept)
    assert {key: float(value) for key, value in world.amounts().items()} == {key: float(value) for key, value in rows.items()}
    assert world.status().position == "5" and world.status().epoch == 1 and world.status().healthy


class Dies(BaseException):
    """What kills a process between two of its steps."""


@pytest.mark.parametrize("after", [2, 5])
def test_what_was_made_before_a_death_stays_and_the_next_call_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L13, L20: pause and resume; nothing is made twice, and nobody sees half of it in between."""
    world = delivered(tmp_path)
    declare(world, retyped())
    world.settle()
    before, recorded = visible(world), list[object]()
    record_key = FeedRun._record_key

    def dying(self: FeedRun, session: object, prepared: object) -> object:
        if len(recorded) == after:
            raise Dies
        recorded.append(prepared)
        return record_key(self, session, prepared)  # type: ignore[arg-type]

    monkeypatch.setattr(FeedRun, "_record_key", dying)
    if after < 5:
        with pytest.raises(Dies):
            recompute(world)
        monkeypatch.undo()
        world.apply()  # settles what runs left behind, and leaves this one alone
        assert visible(world) == before
    done = recompute(world)
    assert done.keys + done.earlier == 5 and done.switched
    assert done.earlier == (after if after < 5 else 0)
    assert hashes(world)[0][1] == 5
    assert world.ledger("SELECT count(*) FROM publications") == [(10,)]


@pytest.mark.parametrize(
    ("step", "count"), [("staged", 2), ("write publication", 3), ("committed", 5), ("write run_end", 1), ("before catalogue", 1)]
)
def test_a_process_that_dies_while_it_makes_again_shows_readers_no_mixture_and_is_gone_on_with(
    step: str, count: int, tmp_path: Path
) -> None:
    """L18, L19"""
    world = delivered(tmp_path)
    declare(world, retyped())
    world.settle()
    old = hashes(world)
    assert die_at(world, step, count, doing="recompute")
    assert hashes(world) == old
    world.apply()
    assert len(hashes(world)) == 1
    done = recompute(world)
    assert done.refused == [] and stale(world) == Staleness()
    ((new, five),) = hashes(world)
    assert five == 5 and new != old[0][0]
    assert world.query("SELECT typeof(amount), sum(amount)::VARCHAR FROM acme.orders GROUP BY 1") == [("DECIMAL(18,3)", "15.000")]
    assert world.ledger("SELECT count(*) FROM runs WHERE run_id NOT IN (SELECT run_id FROM run_ends)") == [(0,)]
    assert world.named_now() <= world.published()


def test_another_edit_in_between_makes_the_unfinished_work_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling 12: what was made by one declaration never appears under another."""
    world = delivered(tmp_path)
    declare(world, retyped())
    make_half(world, monkeypatch)
    declare(world, PERIODS.replace('"DECIMAL(18,2)"', '"DECIMAL(18,4)"'))
    done = recompute(world)
    assert (done.keys, done.earlier, done.switched) == (5, 0, True)
    assert world.query("SELECT DISTINCT typeof(amount) FROM acme.orders") == [("DECIMAL(18,4)",)]


def test_an_edit_that_is_undone_leaves_readers_with_what_they_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = delivered(tmp_path)
    before = visible(world)
    declare(world, retyped())
    make_half(world, monkeypatch)
    declare(world, PERIODS)
    assert stale(world) == Staleness()
    recompute(world)
    assert visible(world) == before


def make_half(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to recompute and die after three keys."""
    made: list[object] = []
    record_key = FeedRun._record_key

    def dying(self: FeedRun, session: object, prepared: object) -> object:
        if len(made) == 3:
            raise Dies
        made.append(prepared)
        return record_key(self, session, prepared)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(FeedRun, "_record_key", dying)
        with pytest.raises(Dies):
            recompute(world)


def test_a_configuration_that_is_rolled_back_is_computed_anew_and_revives_nothing(tmp_path: Path) -> None:
    """Ruling 12, L6"""
    world = delivered(tmp_path)
    first = {row[0] for row in world.query("SELECT publication_id FROM valuestream.publications WHERE visible")}
    declare(world, retyped())
    recompute(world)
    declare(world, PERIODS)
    assert len(stale(world).deliveries) == 5
    assert recompute(world).keys == 5
    now = {row[0] for row in world.query("SELECT publication_id FROM valuestream.publications WHERE visible")}
    assert not first & now
    assert world.query("SELECT DISTINCT typeof(amount) FROM acme.orders") == [("DECIMAL(18,2)",)]


def test_force_makes_an_equal_computation_again_and_deletes_nothing(tmp_path: Path) -> None:
    """L6: without it nothing equal is redone; with it files get new names and the old ones stay."""
    world = delivered(tmp_path)
    assert recompute(world) == Recomputed()
    files = world.published()
    done = recompute(world, force=True)
    assert (done.keys, done.switched) == (5, True)
    assert files < world.published() and len(world.published()) == 10
    assert not files & world.named_now()
    assert recompute(world, force=True, key="3").keys == 1


def test_new_deliveries_and_corrections_go_on_between_the_pieces(tmp_path: Path) -> None:
    """Ruling 12: new links go on; what was corrected meanwhile is shown in its newest revision."""
    world = delivered(tmp_path)
    declare(world, retyped())
    done: list[int] = []

    def meanwhile(made: int, _of: int) -> None:
        if not done:
            world.producer().deliver(1, [(1, "100.00", "U")], revision=2)
            world.producer().deliver(6, [(6, "6.00", "U")])
            world.apply()
        done.append(made)

    recompute(world, progress=meanwhile)
    assert world.amounts() == {1: "100.000", **{key: f"{key}.000" for key in range(2, 7)}}
    assert world.by_key()["1"] == 2 and stale(world) == Staleness()


def test_what_cannot_be_made_again_switches_nothing_and_says_why(tmp_path: Path) -> None:
    """Readers go on with what they had; the way back is to undo or correct the edit."""
    world = delivered(tmp_path)
    world.producer().deliver(6, [(6, "6.25", "U")])
    world.apply()
    before = world.amounts()
    declare(world, PERIODS.replace('"DECIMAL(18,2)"', '"DECIMAL(18,1)"'))
    done = recompute(world)
    assert not done.switched and len(done.refused) == 1
    assert "acme/orders 6" in done.refused[0] and "amount" in done.refused[0]
    assert world.amounts() == before
    assert [v for v in world.verdicts() if v[2] == "rejected"] == [], "nobody sent anything wrong"
    declare(world, PERIODS)
    assert stale(world) == Staleness() and world.status().notes == ()


def test_a_retracted_revision_is_not_made_again(tmp_path: Path) -> None:
    """Ruling 4: there is nothing to be made of it."""
    from valuestream_tests.publication.test_rulings import rule

    world = delivered(tmp_path)
    rule(world, "retract", "2")
    declare(world, retyped())
    assert [one.key.text for one in stale(world).deliveries] == ["1", "3", "4", "5"]
    recompute(world)
    assert sorted(world.amounts()) == [1, 3, 4, 5] and stale(world) == Staleness()


def test_sealed_bytes_that_are_gone_fail_the_key_and_nothing_is_switched(tmp_path: Path) -> None:
    world = delivered(tmp_path)
    declare(world, retyped())
    (sha,) = world.ledger("SELECT l.sha256 FROM lineage l JOIN publications p USING (publication_id) WHERE p.key = '3'")[0]
    (tmp_path / f"state/store/sealed/{sha[:2]}/{sha}").unlink()
    done = recompute(world)
    assert not done.switched and "gone or changed" in done.refused[0]
    assert world.amounts()[3] == "3.00"


def test_a_delivery_that_was_sealed_without_a_record_is_made_again_by_its_lineage(tmp_path: Path) -> None:
    """Stores of earlier versions hold no seal records."""
    world = delivered(tmp_path)
    shutil.rmtree(tmp_path / "state/store/sealed/deliveries")
    declare(world, retyped())
    assert recompute(world).keys == 5 and stale(world) == Staleness()
