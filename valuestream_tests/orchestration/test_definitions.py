"""What people see in Dagster's UI changes only on purpose."""

from __future__ import annotations

from pathlib import Path

from valuestream_tests.orchestration.definitions_snapshot import GOLDEN, text


def test_the_definitions_are_those_of_the_golden_file(tmp_path: Path) -> None:
    # After a change that is meant: python -m valuestream_tests.orchestration.definitions_snapshot
    assert text(tmp_path) == GOLDEN.read_text("utf-8")
