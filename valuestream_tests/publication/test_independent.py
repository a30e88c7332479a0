"""M8: an independent control is compared, told apart from the manifest's own counts, and where it differs a person must say."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_tests.publication.test_rulings import explain, rule
from valuestream_tests.world import PERIODS, World

CONTROLLED = PERIODS.replace(
    "controls: {totals: [amount]}",
    "controls: {totals: [amount], independent: {file: finance.csv, totals: [amount], obtained: from finance}}",
)
ROWS = [(1, "1.00", "U"), (2, "2.50", "U")]


def world_with(tmp_path: Path, text: str) -> World:
    world = World(tmp_path, CONTROLLED)
    (tmp_path / "finance.csv").write_text(text)
    return world


def test_agreement_is_told_apart_and_claims_no_completeness(tmp_path: Path) -> None:
    world = world_with(tmp_path, "key,rows,amount\n1,2,3.50\n")
    world.producer().deliver(1, ROWS)
    world.apply()
    (told,) = world.last(Verdict.ACCEPTED).warnings
    assert told == (
        "independent control (from finance) agrees: rows 2, the total of amount 3.50; that is no proof of completeness"
    )
    assert world.status().healthy


@pytest.mark.parametrize(("line", "why"), [("1,3,3.50", "rows is 3"), ("1,2,9.99", "the total of amount is 9.99")])
def test_where_it_differs_the_delivery_is_held_until_a_person_lets_it_go(line: str, why: str, tmp_path: Path) -> None:
    world = world_with(tmp_path, f"key,rows,amount\n{line}\n")
    world.producer().deliver(1, ROWS)
    world.apply()
    assert world.verdicts()[-1] == ("1", 1, "held", "independent_control_differs") and world.published() == frozenset()
    assert why in world.last(Verdict.HELD).detail and world.status().held == ("1",)
    assert why in explain(world).causes[0].what
    rule(world, "release")
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50"} and world.status().healthy


def test_a_key_of_which_it_says_nothing_is_accepted_and_that_is_said(tmp_path: Path) -> None:
    world = world_with(tmp_path, "key,rows,amount\n7,1,\n")
    world.producer().deliver(1, ROWS)
    world.apply()
    assert "nothing is known of 1" in world.last(Verdict.ACCEPTED).warnings[0]


def test_what_comes_into_it_later_counts_for_the_next_revision(tmp_path: Path) -> None:
    world = world_with(tmp_path, "key,rows,amount\n")
    world.producer().deliver(1, ROWS)
    world.apply()
    (tmp_path / "finance.csv").write_text("key,rows,amount\n1,1,\n")
    world.producer().deliver(1, ROWS[:1], revision=2)
    world.apply()
    assert world.by_key() == {"1": 2} and "agrees: rows 1;" in world.last(Verdict.ACCEPTED).warnings[0]


@pytest.mark.parametrize("text", [None, "key,rows\n1,many\n", "rows\n2\n"], ids=["gone", "no number", "no key"])
def test_one_that_cannot_be_read_accepts_nothing_unchecked(text: str | None, tmp_path: Path) -> None:
    """Our own fault: the slice fails, and is tried again when it is mended."""
    world = world_with(tmp_path, text or "")
    if text is None:
        (tmp_path / "finance.csv").unlink()
    world.producer().deliver(1, ROWS)
    (failed,) = [outcome for key in world.apply() for outcome in key.outcomes]
    assert failed.failed and "finance.csv" in failed.told.detail
    (tmp_path / "finance.csv").write_text("key,rows,amount\n1,2,\n")
    world.apply()
    assert world.by_key() == {"1": 1} and world.status().healthy
