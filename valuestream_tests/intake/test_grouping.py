"""Files grouped by their names: deterministic, total, and nothing whole before its time (L1, L2, C24, M2, ruling 11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.grouping import Grouped, group_by_name
from valuestream_dagster.stores.base import ObjectStat
from valuestream_tests.feeds.feed_texts import SMALLEST, feed

NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
RESTED = 3600.0


def stat(path: str, *, size: int = 10, rested: float = RESTED, stable: bool = False, link: bool = False) -> ObjectStat:
    changed = int((NOW - timedelta(seconds=rested)).timestamp() * 1e9)
    return ObjectStat(path, size, f"{size}@{changed}", changed, stable=stable, is_link=link)


def never(_: ObjectStat, __: ObjectStat) -> bool:
    return False


def group(
    pattern: str,
    stats: Sequence[ObjectStat],
    *,
    more: str = "",
    fresh: Collection[str] | None = None,
    same: Callable[[ObjectStat, ObjectStat], bool] = never,
    limit: int = 1000,
) -> Grouped:
    declared = feed(SMALLEST + f'manifest: none\nsequence: {{pattern: "{pattern}"}}\n' + more)
    return group_by_name(
        declared,
        stats,
        fresh={one.path for one in stats} if fresh is None else fresh,
        same_bytes=same,
        now=NOW,
        settle_seconds=2,
        entries_limit=limit,
    )


DAY = "orders-{date:YYYYMMDD}.csv"
PARTS = "orders-{date:YYYYMMDD}-{part}of{parts}.csv"


def test_each_key_and_revision_is_one_group_oldest_first() -> None:
    """L1."""
    found = group("{date:YYYYMMDD}-r{revision}.csv", [stat("20260902-r1.csv"), stat("20260901-r2.csv"), stat("20260901-r1.csv")])
    assert [(one.manifest.key.text, one.manifest.revision) for one in found.groups] == [
        ("2026-09-01", 1), ("2026-09-01", 2), ("2026-09-02", 1)
    ]  # fmt: skip
    assert not found.refusals


@given(st.permutations([f"orders-2026090{day}-{part}of3.csv" for day in (1, 2) for part in (1, 2, 3)]))
def test_groups_are_the_same_in_whatever_order_files_are_listed(paths: list[str]) -> None:
    """L2."""
    found = group(PARTS, [stat(path) for path in paths])
    assert [one.data for one in found.groups] == [one.data for one in group(PARTS, [stat(path) for path in sorted(paths)]).groups]


def test_parts_are_complete_when_all_are_there_and_in_order_of_their_numbers() -> None:
    """M3: by number, not as text."""
    (one,) = group(PARTS, [stat(f"orders-20260901-{part}of11.csv") for part in (10, 2, 1, 3, 4, 5, 6, 7, 8, 9, 11)]).groups
    assert isinstance(one.completeness, Resolved)
    assert [entry.path for entry, _ in one.completeness.entries] == [f"orders-20260901-{part}of11.csv" for part in range(1, 12)]


def test_missing_parts_are_named() -> None:
    """M3, M4: one or two of three are never a delivery."""
    (one,) = group(PARTS.replace("{part}of{parts}", "part-{part}of{parts}"), [stat("orders-20260901-part-0002of0003.csv")]).groups
    assert isinstance(one.completeness, Incomplete)
    assert one.completeness.missing == (
        "part 1 of 3 (orders-20260901-part-0001of0003.csv)",
        "part 3 of 3 (orders-20260901-part-0003of0003.csv)",
    )


def test_a_name_that_claims_a_billion_parts_costs_no_more_than_its_message() -> None:
    (one,) = group(PARTS, [stat("orders-20260901-7of999999999.csv")]).groups
    assert isinstance(one.completeness, Incomplete)
    assert len(one.completeness.missing) == 21 and one.completeness.missing[-1] == "and 999999978 more parts"


def test_a_part_that_has_just_changed_may_be_arriving_still() -> None:
    """Case 01: a file is visible under its final name while it is written."""
    stats = [stat("orders-20260901-1of2.csv"), stat("orders-20260901-2of2.csv", rested=1)]
    (one,) = group(PARTS, stats).groups
    assert one.completeness == Incomplete(("orders-20260901-2of2.csv (it changed less than 2 s ago)",))


def test_parts_of_a_place_where_objects_appear_whole_need_no_rest() -> None:
    stats = [stat(f"orders-20260901-{part}of2.csv", rested=0, stable=True) for part in (1, 2)]
    (one,) = group(PARTS, stats).groups
    assert isinstance(one.completeness, Resolved)


def test_files_without_part_numbers_are_whole_once_they_were_quiet() -> None:
    """M2: weak evidence, and said so; also where objects appear whole, because one more may come."""
    for rested, stable, whole in ((299, False, False), (300, False, True), (299, True, False), (301, True, True)):
        (one,) = group(DAY, [stat("orders-20260901.csv", rested=rested, stable=stable)]).groups
        assert isinstance(one.completeness, Resolved) is whole, rested
    assert "weak evidence" in one.manifest.warnings[0]


def test_the_quiet_time_is_the_declared_one() -> None:
    (one,) = group(DAY, [stat("orders-20260901.csv", rested=61)], more="completion: {kind: quiet, seconds: 60}\n").groups
    assert isinstance(one.completeness, Resolved)


def test_a_time_stamp_in_the_future_is_told_as_that() -> None:
    (one,) = group(DAY, [stat("orders-20260901.csv", rested=-10_000)]).groups
    assert one.completeness == Incomplete(("orders-20260901.csv (its time stamp lies in the future)",))


def test_a_selected_name_that_says_nothing_is_a_refusal_and_no_group() -> None:
    """C25, C26, S20: with code, culprit, pattern and reason; the others are still grouped."""
    found = group(DAY, [stat("orders-202609O2.csv"), stat("readme.txt"), stat("orders-20260901.csv")])
    assert [(one.code, one.path, one.expected_pattern) for one in found.refusals] == [
        ("invalid_date", "orders-202609O2.csv", DAY), ("pattern_mismatch", "readme.txt", DAY)
    ]  # fmt: skip
    assert len(found.groups) == 1 and "exclude" in found.refusals[0].next_step


def test_two_new_files_with_other_bytes_for_one_key_are_a_refusal() -> None:
    """S21, ruling 11."""
    stats = [stat("a-20260901.csv"), stat("b-20260901.csv")]
    (refusal,) = group("{*}-{date:YYYYMMDD}.csv", stats).refusals
    assert (refusal.code, refusal.path) == ("duplicate_sequence_key", "b-20260901.csv")
    assert "other bytes than a-20260901.csv" in refusal.detail


def test_two_new_files_with_the_same_bytes_are_one_delivery() -> None:
    """M11: names do not enter identity."""
    stats = [stat("a-20260901.csv"), stat("b-20260901.csv")]
    found = group("{*}-{date:YYYYMMDD}.csv", stats, same=lambda _, __: True)
    assert not found.refusals and [one.path for one in found.groups[0].stats] == ["a-20260901.csv"]


def test_a_new_file_stands_before_one_that_was_judged() -> None:
    """Ruling 11: only unsettled objects refuse; the new one is judged against what its key is bound to."""
    stats = [stat("a-20260901.csv"), stat("b-20260901.csv")]
    found = group("{*}-{date:YYYYMMDD}.csv", stats, fresh={"b-20260901.csv"})
    assert not found.refusals and [one.path for one in found.groups[0].stats] == ["b-20260901.csv"]


def test_files_that_disagree_on_the_number_of_parts_are_a_refusal() -> None:
    (refusal,) = group(PARTS, [stat("orders-20260901-1of2.csv"), stat("orders-20260901-2of3.csv")]).refusals
    assert refusal.code == "parts_disagree"


def test_a_delivery_sent_anew_in_fewer_parts_forgets_the_old_ones() -> None:
    old = [stat(f"orders-20260901-{part}of3.csv") for part in (1, 2, 3)]
    new = [stat(f"orders-20260901-{part}of2.csv") for part in (1, 2)]
    (one,) = group(PARTS, [*old, *new], fresh={entry.path for entry in new}).groups
    assert [entry.path for entry in one.stats] == [entry.path for entry in new]


def test_what_was_judged_before_makes_no_group_and_no_refusal_unless_by_its_name() -> None:
    """C24: only a name refuses whatever else is known."""
    settled = [stat("orders-20260901-1of2.csv"), stat("orders-20260901-2of3.csv"), stat("orders-x.csv")]
    found = group(PARTS, settled, fresh=())
    assert found.groups == () and [one.path for one in found.refusals] == ["orders-x.csv"]


def test_roles_are_places_of_their_own() -> None:
    (one,) = group("{role}-{date:YYYYMMDD}.csv", [stat("lines-20260901.csv"), stat("heads-20260901.csv")]).groups
    assert [entry.role for entry in one.manifest.entries] == ["heads", "lines"]


def test_a_delta_is_refused_where_only_fulls_are_taken() -> None:
    """Ruling 1."""
    (refusal,) = group("{date:YYYYMMDD}_{kind}.csv", [stat("20260901_update.csv")]).refusals
    assert refusal.code == "kind_mismatch"


def test_in_a_chain_full_and_delta_of_one_key_are_two_groups() -> None:
    """Case 55."""
    stats = [stat("20260901_Full.csv"), stat("20260901_Update.csv")]
    found = group("{date:YYYYMMDD}_{kind}.csv", stats, more="mode: chain\nkey: [order_id]\n")
    assert {one.manifest.kind for one in found.groups} == {Kind.FULL, Kind.DELTA}


def test_more_files_than_the_limit_are_a_refusal() -> None:
    stats = [stat(f"orders-20260901-{part}of9.csv") for part in range(1, 10)]
    (refusal,) = group(PARTS, stats, limit=8).refusals
    assert refusal.code == "entries_too_many"


def test_a_link_is_wrong_and_never_followed() -> None:
    """Case 34, ruling 14."""
    (one,) = group(DAY, [stat("orders-20260901.csv", link=True)]).groups
    assert isinstance(one.completeness, Invalid) and one.completeness.findings[0].code == "symlink_refused"


def test_what_was_grouped_is_kept_as_text() -> None:
    """M9: a receipt has something to name."""
    (one,) = group(DAY, [stat("orders-20260901.csv", size=7)]).groups
    told = json.loads(one.data)
    assert (told["sequence"], told["revision"], told["kind"]) == ("2026-09-01", 1, "full")
    assert told["files"] == [{"path": "orders-20260901.csv", "bytes": 7, "role": "data", "stamp": one.stats[0].stamp}]
    assert one.touched == (("orders-20260901.csv", one.stats[0].stamp),)
