"""The asset checks of a feed: what a run found out, told as Dagster checks. They report; the gate is elsewhere.

One evaluation per check and run, over all keys of the run: Dagster's events cost 22 ms each, and a range of 400 keys has
one story to tell. The culprits are named in the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.orchestration.names import BYTES_ONLY, asset_key
from valuestream_dagster.publication.outcomes import ArrivalOutcome, KeyOutcome

COMPLETE, FIXITY, CONTROLS, UNIQUE_KEY, NO_CONFLICT = (
    "complete",
    "fixity",
    "counts_and_controls",
    "unique_key",
    "no_conflict",
)
_DESCRIPTIONS = {
    COMPLETE: "Every file that the manifest names is there, and the manifest states a delivery.",
    FIXITY: f"Every size and checksum agrees with the manifest. {BYTES_ONLY}",
    CONTROLS: "Columns, types, row counts and control totals agree with what is declared, exactly. "
    "A count from the producer's own export is no independent control.",
    UNIQUE_KEY: "The declared key is unique within each delivery and never NULL.",
    NO_CONFLICT: "No revision has arrived with other bytes than it is bound to.",
}
# Where no producer states anything, nothing is claimed to agree with a statement (M7).
_WITHOUT_MANIFEST = {
    COMPLETE: "All parts that the names number are there, or no file had changed for a while, which is weak evidence: "
    "no manifest says what completes a delivery.",
    FIXITY: "The bytes that were sealed are those that are published. No manifest says what they should be.",
}
_FIXITY_CODES = frozenset({"size_mismatch", "checksum_mismatch", "version_mismatch"})
_KEY_CODES = frozenset({"duplicate_key", "null_key"})
_COMPLETE_CODES = frozenset(
    {
        "incomplete", "symlink_refused", "name_ambiguous", "case_collision", "path_unsafe", "duplicate_entry",
        "entries_missing", "entries_too_many", "not_a_file", "key_mismatch",
    }
)  # fmt: skip


def check_specs(feed: Feed) -> list[dg.AssetCheckSpec]:
    """The checks that a feed's asset declares."""
    return [
        dg.AssetCheckSpec(name, asset=asset_key(feed), description=text) for name, text in _described(feed).items()
    ]


def _described(feed: Feed) -> dict[str, str]:
    return {**_DESCRIPTIONS, **_WITHOUT_MANIFEST} if feed.without_manifest else _DESCRIPTIONS


def check_results(feed: Feed, outcomes: Iterable[KeyOutcome]) -> list[dg.AssetCheckResult]:
    """One result per check over all that a run did."""
    told = [outcome for key in outcomes for outcome in key.outcomes]
    by_check = {name: [outcome for outcome in told if check_of(outcome) == name] for name in _DESCRIPTIONS}
    return [_result(feed, name, told, failing) for name, failing in by_check.items()]


def check_of(outcome: ArrivalOutcome) -> str | None:
    """The check that an outcome fails, or None."""
    if outcome.told.verdict is Verdict.CONFLICT:
        return NO_CONFLICT
    if outcome.told.verdict is Verdict.WAITING:
        return COMPLETE if outcome.told.code == "incomplete" else None
    if outcome.told.verdict is Verdict.HELD:
        return CONTROLS
    return check_of_code(outcome.told.code) if outcome.told.verdict is Verdict.REJECTED else None


def check_of_code(code: str) -> str:
    """The check that a finding of this code fails."""
    if code in _FIXITY_CODES:
        return FIXITY
    if code in _KEY_CODES:
        return UNIQUE_KEY
    manifest = code.startswith(("manifest_", "revision_", "kind_", "unknown_", "invalid_", "pattern_", "checksum_invalid"))
    return COMPLETE if code in _COMPLETE_CODES or manifest else CONTROLS


def _result(
    feed: Feed, name: str, told: Sequence[ArrivalOutcome], failing: Sequence[ArrivalOutcome]
) -> dg.AssetCheckResult:
    culprits = "\n\n".join(f"- {outcome.told}" for outcome in failing[:20])
    description = str(failing[0].told) if failing else f"{len(told)} deliveries looked at. {_described(feed)[name]}"
    metadata: dict[str, dg.MetadataValue] = {"deliveries": dg.MetadataValue.int(len(told))}
    if failing:
        metadata["failing"] = dg.MetadataValue.int(len(failing))
        metadata["findings"] = dg.MetadataValue.md(culprits)
        metadata["keys"] = dg.MetadataValue.text(", ".join(dict.fromkeys(o.key.text for o in failing)))
    return dg.AssetCheckResult(
        passed=not failing,
        asset_key=asset_key(feed),
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR,
        description=description,
        metadata=metadata,
    )
