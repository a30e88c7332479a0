"""Every way in which a feed can stand is told with what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from valuestream_dagster.cli.words import advice, expected, listed, spanned, standing, there
from valuestream_dagster.core.continuity import Reason
from valuestream_dagster.publication.status import FeedStatus
from valuestream_tests.builders import a_feed

FEED = a_feed(sequence="{kind: integer, continuity: required, baseline: 5}")
HEALTHY = FeedStatus(
    feed="acme/orders",
    status="waiting_for_next",
    position="7",
    expected="8",
    observed=False,
    next_observed=None,
    reason=None,
    overdue=False,
    epoch=1,
    baseline="5",
    applied=3,
    missing=(),
    correction_pending=(),
    conflicts=(),
    held=(),
    failed=(),
    waiting=(),
    rejected=(),
    notes=(),
    paused=False,
)


def told(**changes: Any) -> str:
    return " | ".join(f"{one.what} -> {one.next_step}" for one in advice(replace(HEALTHY, **changes), FEED))


def test_a_healthy_feed_needs_nothing() -> None:
    assert advice(HEALTHY, FEED) == []
    assert standing(HEALTHY) == "waiting for next"
    assert there(HEALTHY, required=True) == "3 deliveries, without a hole up to 7"
    assert there(HEALTHY, required=False) == "3 deliveries, up to 7", "nobody looked for holes"
    assert expected(HEALTHY, FEED) == "8"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "blocked", "reason": Reason.SEQUENCE_GAP, "missing": ("8", "9"), "next_observed": "10"},
         "8, 9 are missing; 10 is here and waits -> ask acme for 8, 9"),
        ({"status": "blocked", "reason": Reason.PREDECESSOR_FAILED, "failed": ("8",)}, "run `valuestream apply`"),
        ({"status": "blocked", "reason": Reason.PREDECESSOR_REJECTED, "rejected": ("8",)}, "ask acme to correct it"),
        ({"status": "blocked", "reason": Reason.PREDECESSOR_WAITING, "waiting": ("8",)}, "here but not complete"),
        ({"status": "blocked", "reason": Reason.CONFLICT, "conflicts": ("8",)}, "under a higher revision"),
        ({"status": "blocked", "reason": Reason.HELD, "held": ("8",)}, "held for a decision: 8"),
        ({"status": "blocked", "reason": Reason.SEQUENCE_GAP, "baseline": None, "expected": None}, "ask acme for a full"),
        ({"observed": True}, "here and not applied yet: 8 -> run `valuestream apply acme/orders`"),
        ({"correction_pending": ("6",)}, "here and not applied yet: 6"),
        ({"missing": ("6",)}, "nothing waits for it"),
        ({"overdue": True}, "8 is overdue -> ask acme"),
        ({"paused": True}, "remove `paused` from feeds/x.yaml"),
        ({"status": "idle", "notes": ("the folder is not there.",)}, "the folder is not there ->"),
        ({"status": "idle"}, "nothing has arrived yet at"),
    ],
)  # fmt: skip
def test_what_is_so_and_what_to_do(changes: dict[str, Any], words: str) -> None:
    assert words in told(**changes)


def test_expectations_in_words() -> None:
    nothing = replace(HEALTHY, expected=None, position=None, applied=0)
    assert expected(nothing, FEED) == "5 first"
    assert expected(nothing, a_feed()) == "whatever comes first"
    assert expected(nothing, a_feed("chain")) == "a full delivery first"
    assert expected(replace(HEALTHY, overdue=True), FEED) == "8, overdue"
    assert there(nothing, required=True) == "nothing yet"
    assert standing(replace(HEALTHY, failed=("7",))) == "needs attention"


def test_many_names_are_shortened() -> None:
    names = [str(number) for number in range(9)]
    assert listed(names) == "0, 1, 2, 3, 4 and 4 more"
    assert spanned(names) == "0 ... 8"
    assert spanned(names[:2]) == "0, 1"
