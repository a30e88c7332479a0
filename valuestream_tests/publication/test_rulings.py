"""Ruling 4: what a person decides about a conflict or a held delivery, what comes of it, and when it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from valuestream_dagster.core.decision import RulingWord
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.ruling import Asked
from valuestream_dagster.errors import NotApplied, WrongUse
from valuestream_dagster.ledger.rows import Ruling
from valuestream_dagster.publication.explanation import Explanation
from valuestream_dagster.publication.rulings import RulingAsked
from valuestream_tests.world import CHAIN, PERIODS, REQUIRED, World

FIRST, SECOND = [(1, "1.00", "U"), (2, "2.00", "U")], [(1, "1.00", "U"), (2, "2.50", "U"), (3, "3.00", "U")]


def rule(world: World, word: str, key: str = "1", *, kind: Kind | None = None, **asked: object) -> Ruling:
    opened = world.opened
    feed = opened.feed("acme/orders")
    wanted = Asked(RulingWord(word), **asked)  # type: ignore[arg-type]
    return opened.rule(feed, RulingAsked(opened.key(feed, key), kind, wanted, "ada", "by phone"))


def explain(world: World, key: str = "1") -> Explanation:
    opened = world.opened
    feed = opened.feed("acme/orders")
    return opened.explain(feed, opened.key(feed, key))


def in_conflict(tmp_path: Path, declared: str = PERIODS, **delivered: str) -> World:
    """Key 1 is applied, and came again as the same revision with other bytes."""
    world = World(tmp_path, declared)
    orders = world.producer()
    orders.deliver(1, FIRST, **delivered)  # type: ignore[arg-type]
    world.apply()
    orders.deliver(1, SECOND, name="again", **delivered)  # type: ignore[arg-type]
    world.apply()
    assert world.status().conflicts == ("1",)
    return world


def digests(world: World, key: str = "1") -> list[str]:
    return [row[0] for row in world.ledger(f"SELECT digest FROM deliveries WHERE key = '{key}' ORDER BY rowid")]


def test_keep_settles_a_conflict_for_what_is_applied(tmp_path: Path) -> None:
    world = in_conflict(tmp_path)
    first, second = digests(world)
    made = rule(world, "keep")
    assert made.ruled.digest is not None and made.ruled.digest.hex == first
    assert [digest.hex for digest in made.ruled.settles] == [second]
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00"} and world.status().healthy
    assert world.query('SELECT ruling, "by", why, revision FROM valuestream.rulings') == [("keep", "ada", "by phone", 1)]


def test_bytes_that_were_ruled_out_are_superseded_when_they_come_again(tmp_path: Path) -> None:
    """M15: a ruling holds for the bytes it was about; it raises no new conflict."""
    world = in_conflict(tmp_path)
    rule(world, "keep")
    world.producer().deliver(1, SECOND, name="third")
    world.apply()
    assert world.verdicts()[-1] == ("1", 1, "superseded", "ruled_out") and world.status().healthy


def test_other_bytes_after_a_ruling_are_a_new_conflict(tmp_path: Path) -> None:
    world = in_conflict(tmp_path)
    rule(world, "keep")
    world.producer().deliver(1, [(9, "9.00", "U")], name="third")
    world.apply()
    assert world.status().conflicts == ("1",) and world.amounts() == {1: "1.00", 2: "2.00"}


def test_release_publishes_the_other_bytes_from_the_store(tmp_path: Path) -> None:
    """Also when they are gone at the landing place."""
    world = in_conflict(tmp_path)
    for path in world.landing().iterdir():
        path.unlink()
    rule(world, "release")
    assert world.amounts() == {1: "1.00", 2: "2.00"}, "nothing changes before an apply"
    (planned,) = world.opened.plan(world.opened.feed("acme/orders")).slices
    assert planned.claimable and planned.why == "released by a ruling, in place of revision 1"
    assert world.status().correction_pending == ("1",)
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50", 3: "3.00"} and world.by_key() == {"1": 1}
    assert world.status().healthy and world.verdicts()[-1][2] == "accepted"
    world.apply()
    assert world.verdicts()[-1][2] == "accepted", "and once"


def test_a_released_content_may_be_taken_back_by_releasing_the_first_again(tmp_path: Path) -> None:
    """The newest ruling counts."""
    world = in_conflict(tmp_path)
    first, _ = digests(world)
    rule(world, "release")
    world.apply()
    rule(world, "release", revision=1, digest=first[:8])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00"} and world.status().healthy


def test_retract_shows_readers_nothing_until_a_higher_revision_comes(tmp_path: Path) -> None:
    world = in_conflict(tmp_path)
    rule(world, "retract", revision=1)
    assert world.rows() == [] and world.status().healthy, "at once"
    world.producer().deliver(1, FIRST, name="again and again")
    world.apply()
    assert world.rows() == [] and world.verdicts()[-1] == ("1", 1, "superseded", "retracted")
    world.producer().deliver(1, SECOND, revision=2)
    world.apply()
    assert len(world.rows()) == 3 and world.by_key() == {"1": 2}


def test_a_retraction_may_be_undone_by_releasing_the_bytes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, FIRST)
    world.apply()
    rule(world, "retract")
    assert world.rows() == []
    rule(world, "release", revision=1, digest=digests(world)[0])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.00"} and world.status().healthy


def test_a_retracted_link_of_a_chain_counts_as_settled_and_the_next_goes_on(tmp_path: Path) -> None:
    """Ruling 4: in a chain settled as if waived."""
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    orders.deliver(1, FIRST, kind="full")
    world.apply()
    orders.deliver(2, [(1, "5.00", "U")])
    world.apply()
    orders.deliver(2, [(1, "6.00", "U")], name="again")
    orders.deliver(3, [(2, "3.00", "U")])
    world.apply()
    assert world.status().position == "2" and world.status().reason == "conflict"
    rule(world, "retract", "2")
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "3.00"} and world.status().position == "3" and world.status().healthy


def test_the_full_that_a_chain_starts_from_is_never_retracted(tmp_path: Path) -> None:
    """Ruling 4"""
    world = in_conflict(tmp_path, CHAIN, kind="full")
    with pytest.raises(NotApplied, match="the chain starts from it"):
        rule(world, "retract")
    assert world.amounts() == {1: "1.00", 2: "2.00"}


def test_a_link_whose_turn_has_not_come_is_not_retracted(tmp_path: Path) -> None:
    """It would let the next one be applied on top of a hole."""
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, FIRST)
    orders.deliver(3, [(3, "3.00", "U")])
    world.apply()
    with pytest.raises(NotApplied, match="not its turn"):
        rule(world, "retract", "3", revision=1)


def test_keep_on_a_conflict_before_its_turn_lets_the_first_bytes_go_when_it_comes(tmp_path: Path) -> None:
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, FIRST)
    orders.deliver(3, [(3, "3.00", "U")])
    world.apply()
    orders.deliver(3, [(3, "4.00", "U")], name="again")
    world.apply()
    orders.deliver(2, [(20, "2.00", "U")])
    world.apply()
    assert world.status().conflicts == ("3",) and world.by_key() == {"1": 1, "2": 1}
    rule(world, "keep", "3")
    world.apply()
    assert world.amounts()[3] == "3.00" and world.status().healthy


SHRINK = PERIODS + "policy: {max_shrink: 0.5}\n"


def held(tmp_path: Path) -> World:
    world = World(tmp_path, SHRINK)
    orders = world.producer()
    orders.deliver(1, [(row, "1.00", "U") for row in range(10)])
    world.apply()
    orders.deliver(2, [(100, "1.00", "U")])
    world.apply()
    assert world.status().held == ("2",)
    return world


def test_release_lets_a_held_delivery_go(tmp_path: Path) -> None:
    world = held(tmp_path)
    rule(world, "release", "2")
    world.apply()
    assert world.by_key() == {"1": 1, "2": 1} and world.status().healthy


def test_keep_leaves_a_held_delivery_out_for_good(tmp_path: Path) -> None:
    world = held(tmp_path)
    rule(world, "keep", "2")
    world.apply()
    world.producer().deliver(2, [(100, "1.00", "U")], name="again")
    world.apply()
    assert world.by_key() == {"1": 1} and world.status().held == () and world.verdicts()[-1][3] == "ruled_out"


def test_a_ruling_is_refused_when_the_facts_have_changed(tmp_path: Path) -> None:
    """Ruling 4: it names what was seen; another content that came since, or a higher revision, makes it void."""
    world = in_conflict(tmp_path)
    first, second = digests(world)
    world.producer().deliver(1, [(9, "9.00", "U")], name="third")
    world.apply()
    with pytest.raises(NotApplied, match=r"the facts have changed: .* has arrived too"):
        rule(world, "keep", digest=first, against=(second,))
    world.producer().deliver(1, SECOND, revision=2)
    world.apply()
    with pytest.raises(NotApplied, match="revision 2 is applied already"):
        rule(world, "keep", revision=1, digest=first)
    assert world.ledger("FROM rulings") == []


@pytest.mark.parametrize(
    ("word", "asked", "why"),
    [
        ("release", {"digest": "beef"}, "no content"),
        ("keep", {"digest": "beef"}, "not beef"),
        ("keep", {"revision": 7}, "no bytes of revision 7"),
    ],
)
def test_a_ruling_about_what_is_not_known_is_refused(tmp_path: Path, word: str, asked: dict[str, Any], why: str) -> None:
    world = in_conflict(tmp_path)
    with pytest.raises(NotApplied, match=why):
        rule(world, word, **asked)


def test_nothing_is_ruled_where_nothing_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.producer().deliver(1, FIRST)
    world.apply()
    with pytest.raises(NotApplied, match="nothing of it waits"):
        rule(world, "keep")
    with pytest.raises(NotApplied, match="nothing of 2"):
        rule(world, "keep", "2")


def test_a_key_with_a_full_and_a_delta_wants_the_kind(tmp_path: Path) -> None:
    world = World(tmp_path, CHAIN)
    orders = world.producer()
    orders.deliver(1, FIRST, kind="full")
    orders.deliver(2, FIRST, kind="full")
    orders.deliver(2, [(1, "5.00", "U")], kind="delta")
    world.apply()
    with pytest.raises(WrongUse, match="a full and a delta"):
        rule(world, "keep", "2")


# --- explain ---------------------------------------------------------------------------------------------------------


def test_explain_compares_the_contents_of_a_conflict_and_writes_to_the_producer(tmp_path: Path) -> None:
    """The dossier: rows by key, totals, a text."""
    world = in_conflict(tmp_path)
    told = explain(world)
    (dossier,) = told.known.dossiers
    assert dossier.rows is not None
    assert (dossier.rows.added, dossier.rows.removed, dossier.rows.changed) == (1, 0, 1)
    assert dossier.first.applied and not dossier.second.applied
    letter = dossier.letter()
    assert letter.startswith("To acme:") and "total of amount is 6.50 instead of 3.00" in letter
    assert all(digest in letter for digest in digests(world))


def test_the_commands_that_explain_prints_are_right(tmp_path: Path) -> None:
    """Each can be taken as it is printed; here the second, which releases the other bytes."""
    world = in_conflict(tmp_path)
    (cause,) = explain(world).causes
    keep, release = cause.next_steps[1], cause.next_steps[2]
    first, second = digests(world)
    assert f"keep --kind full --revision 1 --digest {first[:12]} --against {second[:12]}" in keep
    assert f"release --kind full --revision 1 --digest {second[:12]} --against {first[:12]}" in release
    rule(world, "release", kind=Kind.FULL, revision=1, digest=second[:12], against=(first[:12],))
    world.apply()
    assert explain(world).settled


@pytest.mark.parametrize(
    ("key", "what", "step"),
    [
        ("1", "is applied", ""),
        ("2", "is missing: 3 is here", "ask acme for it"),
        ("3", "its predecessor 2 is missing", "valuestream explain acme/orders 2"),
        ("4", "1 rows, declared are 5", "ask the producer"),
        ("99", "nothing of it has ever arrived", ""),
    ],
)
def test_explain_says_of_every_key_why_and_what_to_do(key: str, what: str, step: str, tmp_path: Path) -> None:
    world = World(tmp_path, REQUIRED)
    orders = world.producer()
    orders.deliver(1, FIRST)
    orders.deliver(3, [(3, "3.00", "U")])
    orders.hand_over(orders.make(4, [(4, "4.00", "U")]).with_entry(rows=5))
    world.apply()
    told = explain(world, key)
    assert what in told.causes[0].what
    assert step in " ".join(told.causes[0].next_steps)
    assert bool(step) is not told.settled
    assert told.causes[0].rule


def test_explain_tells_of_a_ruling_who_and_why(tmp_path: Path) -> None:
    world = in_conflict(tmp_path)
    rule(world, "keep")
    told = explain(world)
    assert "by a ruling of ada: by phone" in told.causes[0].what and told.settled
    assert told.as_dict()["rulings"][0]["by"] == "ada"


def test_explain_goes_on_where_the_landing_place_is_gone(tmp_path: Path) -> None:
    world = in_conflict(tmp_path)
    for path in world.landing().iterdir():
        path.unlink()
    world.landing().rmdir()
    assert "arrived with different contents" in explain(world).causes[0].what
