"""Which manifest, pattern, revision and completion go together (C5, M2), each fault with what to write instead."""

from __future__ import annotations

import pytest

from valuestream_tests.feeds.feed_texts import SMALLEST, feed, findings

BY_NAME = SMALLEST + 'manifest: none\nsequence: {pattern: "orders-{date:YYYYMMDD}.csv"}\n'


def test_a_feed_without_manifests_needs_one_line_more_than_any_other() -> None:
    """Defaults: every file is selected, and is whole when it was quiet for five minutes."""
    declared = feed(BY_NAME)
    assert declared.without_manifest and declared.include == ("**/*",) and declared.quiet_seconds == 300
    assert declared.pattern is not None and declared.pattern.text == "orders-{date:YYYYMMDD}.csv"


def test_names_that_number_their_parts_need_no_quiet_time() -> None:
    declared = feed(BY_NAME.replace(".csv", "-{part}of{parts}.csv"))
    assert declared.quiet_seconds is None


def test_the_quiet_time_and_the_selection_can_be_said() -> None:
    declared = feed(BY_NAME + 'completion: {kind: quiet, seconds: 60}\ninclude: ["*.csv"]\n')
    assert declared.quiet_seconds == 60 and declared.include == ("*.csv",)


def test_a_feed_with_manifests_may_read_keys_from_their_names() -> None:
    declared = feed(SMALLEST + 'sequence: {from: name, pattern: "{date:YYYYMMDD}.manifest.json"}\n')
    assert not declared.without_manifest and declared.pattern is not None and declared.include == ("**/*.manifest.json",)


@pytest.mark.parametrize(
    ("text", "says", "write"),
    [
        (SMALLEST + "manifest: none\n", "there is no pattern", "sequence: {pattern:"),
        (SMALLEST + "sequence: {from: name}\n", "nothing says where it stands", "pattern:"),
        (BY_NAME.replace("{pattern", "{from: manifest, pattern"), "no manifest to read the key from", "from: name"),
        (BY_NAME + "completion: manifest\n", "no manifest that could complete", "parts, or {kind: quiet, seconds: 300}"),
        (BY_NAME + "completion: parts\n", "needs names that say how many", "{part}of{parts}"),
        (BY_NAME + "revision: manifest\n", "no manifest to read the revision from", "{revision}"),
        (BY_NAME + "revision: name\n", "the pattern has no {revision}", "r{revision}"),
        (BY_NAME + "revision: arrival\n", "not built in this version", ""),
        (BY_NAME + "completion: {kind: parts, seconds: 3}\n", "completion by parts has no options", "completion: parts"),
        (BY_NAME + "completion: {kind: quiet, seconds: 0}\n", "greater than or equal to 1", ""),
        (BY_NAME.replace(".csv", "-{parts}.csv"), "not which they are", "{part}of{parts}"),
        (BY_NAME.replace(".csv", "-{part}of{parts}.csv") + "completion: quiet\n", "better than quiet", "parts"),
        (SMALLEST + "completion: quiet\n", "the manifest says what completes", "manifest: none"),
        (SMALLEST + 'sequence: {pattern: "{date:YYYYMMDD}-{part}"}\n', "the manifest lists the files", "{*} in its place"),
        (BY_NAME.replace("{date:YYYYMMDD}", "{dat}"), "the pattern cannot be used: `{dat}` is no field", ""),
        (BY_NAME.replace("{pattern", "{kind: integer, pattern"), "names no integer key", "{seq}"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_write(text: str, says: str, write: str) -> None:
    """C5: the contract says how a delivery is known, and `check` names each fault once."""
    found = findings(text)
    assert len(found) == 1, found
    assert says in found[0] and write in found[0]
