"""What a feed file may say: ten lines work, everything wrong is a sentence with its line, and all of it at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_tests.feeds.feed_texts import CHAIN, SMALLEST, findings


def _with(line: str, text: str = SMALLEST) -> str:
    """The text with a top-level line put in the place of the one of the same field, or after all others."""
    field = line.split(":", maxsplit=1)[0]
    kept = [old for old in text.splitlines() if not old.startswith(f"{field}:")]
    if field == "columns":
        kept = [old for old in kept if not old.startswith("  ")]
    return "\n".join([*kept, line]) + "\n"


def _only(text: str) -> str:
    (finding,) = findings(text)
    return finding


def test_a_feed_of_six_lines_is_right() -> None:
    assert findings(SMALLEST) == []


def test_a_feed_that_says_everything_is_right() -> None:
    assert findings(CHAIN) == []


def test_an_unknown_field_names_its_line_and_the_nearest_known_one() -> None:
    found = findings(SMALLEST.replace("columns:", "colums:"))
    assert "feeds/x.yaml:4: unknown field `colums`; did you mean `columns`? Write: columns" in found
    assert "feeds/x.yaml:1: the field `columns` is missing. Write: columns: ..." in found
    assert "unknown field `zzz`" in _only(_with("zzz: 1"))
    assert "unknown field `grace_minute`; did you mean `grace_minutes`?" in _only(
        _with('expect: {due: "04:00", grace_minute: 5}')
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("destinations: []", "destinations"),
        ("retired: true", "retired"),
        ("formerly: [a/b]", "formerly"),
        ("after: {archive: done}", "after"),
        ("ack: true", "ack"),
        ("manifest: bagit", "manifest: bagit"),
        ("completion: sidecar", "completion: sidecar"),
        ("completion: {kind: quiet, roles: [x]}", "roles"),
        ("completion: {kind: marker, name: _SUCCESS}", "completion: marker"),
        ("revision: arrival", "revision: arrival"),
        ("sequence: {kind: linked}", "kind: linked"),
        ("sequence: {kind: label}", "kind: label"),
        *(
            (f"sequence: {{{name}: x}}", name)
            for name in ("anchor", "calendar", "series", "predecessor_from", "window", "upstream")
        ),
        ("payload: {format: parquet}", "format: parquet"),
        ("payload: {compression: zstd}", "compression: zstd"),
        *(
            (f"payload: {{{name}: x}}", name)
            for name in ("member", "deletes", "digest_of", "rows_include_header", "records")
        ),
        ("controls: {rows: 1}", "rows"),
    ],
)
def test_what_is_designed_and_not_built_is_refused_by_name(line: str, name: str) -> None:
    finding = _only(_with(line))
    assert f"`{name}` is part of the design and not built in this version; remove it" in finding


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("source: valuestream", "`valuestream` is a schema of the catalogue's own"),
        ("source: pg_catalog", "a schema of the catalogue's own"),
        ("source: a/b", "`a/b` is no name"),
        ("source: ../up", "is no name"),
        ("source: -a", "is no name"),
        (f"source: {'a' * 65}", "is no name"),
        ("source: 5", "`source` must be text"),
        ("dataset: orders__all", "ends with `__all`"),
        ("dataset: orders__ALL", "ends with `__all`"),
        ("owners: [bob]", "neither an email address nor a team"),
        ("tags: {'a b': x}", "is no tag"),
        ("tags: [x]", "`tags` must be a mapping"),
        ("mode: chian", "`chian` is no value of `mode`; did you mean `chain`?"),
        ("kind: delta", "only a chain has deltas"),
        ("landing: gs://b/x", "scheme `gs://` is not built"),
        ("landing: file:///x", "scheme `file://` is not built"),
        ("landing: s3://", "names no bucket"),
        ("landing: ''", "is empty"),
        ("landing:", "`landing` must be text (in quotes where YAML would read something else) (nothing stands here)"),
        ("include: []", "include"),
        ("include: '*.json'", "`include` must be a list"),
        ("include: ['/abs/*']", "relative to the landing place"),
        ("exclude: ['../*']", "never leaves the landing place"),
        ("completion: manifst", "did you mean `manifest`?"),
        ("completion: {kind: manifest, seconds: 3}", "has no options"),
        ("completion: {}", "completion needs a kind"),
        ("sequence: {cadence: dayly}", "did you mean `daily`?"),
        ("sequence: {timezone: Europe/Brusels}", "no time zone `Europe/Brusels`. Write: Europe/Brussels"),
        ("sequence: {timezone: Europe}", "no time zone `Europe`"),
        ("sequence: {timezone: ../../etc/passwd}", "no time zone"),
        ("sequence: {step: 2}", "`step` is for integer keys"),
        ("sequence: {kind: integer, step: 0}", "`step`: input should be greater"),
        ("sequence: {kind: integer, cadence: daily}", "`cadence` says nothing of integer keys"),
        ("sequence: {baseline: '2027-02-29'}", "the baseline is no key of this sequence: '2027-02-29' does not exist"),
        ("sequence: {baseline: 27}", "'27' is not of the form YYYY-MM-DD"),
        ("sequence: {kind: integer, baseline: x}", "'x' is not an integer"),
        ("sequence: {baseline: true}", "`baseline` must be text"),
        ("sequence: {baseline: full}", "only a chain begins with a full"),
        ("sequence: {continuity: required, baseline: full}", "only a chain begins with a full"),
        ("sequence: daily", "here must stand a mapping"),
        ("expect: {due: 4h}", '`4h` is no due time. Write: "04:00"'),
        ("expect: {grace_minutes: 5}", "the field `due` is missing"),
        ("expect: {due: '04:00', grace_minutes: -1}", "greater than or equal to 0"),
        ("expect: {due: 'day 3 12:00'}", "`day N` is for keys of a month or longer; these are daily"),
        ("payload: {delimiter: '||'}", "is not one character"),
        ('payload: {delimiter: "\'", quote: "\'"}', "the delimiter is the quoting or escaping character too"),
        ("payload: {encoding: cp1252}", "`cp1252` is not built in this version"),
        ("payload: {header: 1}", "`header` must be true or false"),
        ('payload: {header: "true"}', "`header` must be true or false"),
        ("payload: {null: []}", "at least 1 item"),
        ("columns: {}", "at least 1 item"),
        ("columns: {_key: BIGINT}", "begins with `_`"),
        ("columns: {a: BIGINT, A: BIGINT}", "`a` and `A` are equal but for case"),
        ("columns: {a: INTGER}", "`INTGER` is no column type; did you mean INTEGER?"),
        ("columns: {a: }", "`columns.a` must be text"),
        ("key: [order]", "`order` is no declared column"),
        ("key: [order_id, order_id]", "`order_id` stands twice"),
        ("controls: {totals: [amout]}", "`amout` is no declared column. Write: amount"),
        ("columns: {a: DATE}\ncontrols: {totals: [a]}", "`a` is DATE, which has no exact total"),
        ("columns: {a: DOUBLE}\ncontrols: {totals: [a]}", "`a` is DOUBLE, which has no exact total"),
        ('delete_when: "x = 1"', "only rows of a chain can remove others"),
        ("paused: 'no'", "`paused` must be true or false"),
        ("alerts: [ops]", "a notification place is a URL"),
        ("policy: {extra_files: ignore}", "`ignore` is no value of `extra_files`"),
        ("policy: {conflict: stopp}", "did you mean `stop`?"),
    ],
)
def test_a_wrong_value_is_refused_and_says_what_to_write(line: str, words: str) -> None:
    text = _with(line)
    finding = _only(text)
    assert words in finding
    assert re.match(r"feeds/x\.yaml:\d+: ", finding)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("op = 'D'; DROP TABLE x", "without `;`"),
        ("op = 'D' -- x", "comments"),
        ("op /* x */ = 'D'", "comments"),
        ("op = $1", "`$`"),
        ("op = 'D", "unbalanced quote"),
        ("(op = 'D'", "unbalanced brackets"),
        ("op = 'D') OR (TRUE", ""),
        (") = (", "unbalanced brackets"),
        ("SELECT 1", "not a statement"),
        (" ", "1 to 2000"),
        ("x" * 2001, "1 to 2000"),
    ],
)
def test_a_condition_that_is_no_single_expression_is_refused(condition: str, words: str) -> None:
    assert words in _only(_with(f'delete_when: "{condition}"', CHAIN))


@pytest.mark.parametrize("condition", ["op = 'D'", "op = ';--'", "op IN ('D', 'it''s')", "(op = 'D' OR (amount < 0))"])
def test_a_condition_may_hold_anything_within_quotes(condition: str) -> None:
    assert findings(_with(f'delete_when: "{condition}"', CHAIN)) == []


def test_continuity_without_a_baseline_is_refused_with_its_reason() -> None:
    finding = _only(_with("sequence: {continuity: required}"))
    assert "without a baseline no gap can be proven" in finding
    assert "first (the lowest seen)" in finding


@pytest.mark.parametrize(
    "sequence",
    [
        "{continuity: required, baseline: first}",
        "{continuity: required, baseline: '2026-09-01'}",
        "{cadence: yearly, continuity: required, baseline: 2026}",
        "{cadence: weekly, baseline: 2026-W53}",
        "{kind: integer, continuity: required, baseline: 27}",
        "{kind: integer, step: 10, baseline: '0270'}",
    ],
)
def test_a_baseline_is_a_key_of_the_sequence_or_first(sequence: str) -> None:
    assert findings(_with(f"sequence: {sequence}")) == []


def test_a_chain_needs_a_key() -> None:
    assert "a chain needs `key`" in _only(_with("mode: chain"))


def test_integer_keys_have_no_due_time() -> None:
    text = _with('expect: {due: "04:00"}') + "sequence: {kind: integer}\n"
    assert "integer keys have no date" in _only(text)


def test_day_n_is_for_months_and_longer() -> None:
    assert findings(_with('expect: {due: "day 3 12:00"}') + "sequence: {cadence: monthly}\n") == []


def test_every_error_of_a_file_is_reported_at_once_each_on_its_line() -> None:
    text = """\
source: valuestream
dataset: orders
mode: chain
landing: landing/x
sequence: {cadence: daly, calendar: {holidays: NO}}
columns:
  a: DATE
  A: INTGER
  on: DATE
key: [missing]
retired: true
colums: {}
"""
    found = findings(text)
    assert [int(finding.split(":")[1]) for finding in found] == [1, 5, 5, 5, 8, 9, 11, 12]
    # With the broken column out of the way the rules over several fields speak too.
    found = findings(text.replace("INTGER", "INTEGER"))
    assert any("`a` and `A` are equal but for case" in finding for finding in found)
    assert any("`missing` is no declared column" in finding for finding in found)


def test_rules_over_several_fields_are_checked_though_another_field_is_wrong() -> None:
    found = findings(_with("key: [nope]") + "sequence: {cadence: daly}\nzzz: 1\n")
    assert len(found) == 3


def test_a_rule_is_not_reported_for_what_a_broken_field_may_have_meant() -> None:
    # A mode that cannot be read may have been `chain`; nothing is said about deltas in periods.
    found = findings(_with("mode: chian") + "kind: delta\n")
    assert len(found) == 1


def test_a_value_from_the_environment_never_enters_a_message() -> None:
    secret = "not-a-zone-" + "s3cr3t" * 30
    for line in ("sequence: {timezone: '${X}'}", "source: ${X}", "columns: {a: '${X}'}", "key: ['${X}']", "mode: ${X}"):
        found = findings(_with(line), {"X": secret})
        assert found
        assert not any("s3cr3t" in finding for finding in found), found


def test_the_component_sees_the_same_sentences_as_the_feed_file() -> None:
    with pytest.raises(ValidationError) as raised:
        FeedDeclaration.model_validate(
            {"source": "a", "dataset": "b", "landing": "l", "columns": {"a": "X"}, "after": 1}
        )
    assert "`X` is no column type" in str(raised.value)
    assert "`after` is part of the design and not built in this version" in str(raised.value)


def test_pydantics_error_can_be_raised_anew_from_its_own_details() -> None:
    # Dagster does that to add source positions; custom error types would make it fail and hide the sentence.
    with pytest.raises(ValidationError) as raised:
        FeedDeclaration.model_validate({"sourc": "a", "mode": "chian"})
    again = ValidationError.from_exception_data("again", [dict(detail) for detail in raised.value.errors()])  # type: ignore[misc]
    assert "did you mean `source`?" in str(again)


def test_a_bare_null_key_read_as_nothing_is_the_field_null() -> None:
    declaration = FeedDeclaration.model_validate(
        {"source": "a", "dataset": "b", "landing": "l", "columns": {"a": "DATE"}, "payload": {None: ["NA"]}}
    )
    assert declaration.payload.null == ("NA",)


def test_the_schema_describes_every_field() -> None:
    schema = TypeAdapter(FeedDeclaration).json_schema()
    models = [schema, *(model for model in schema["$defs"].values() if model["type"] == "object")]
    for model in models:
        assert model["additionalProperties"] is False
        for name, field in model["properties"].items():
            assert field.get("description") or "$ref" in field, name
    assert schema["required"] == ["source", "dataset", "landing", "columns"]
    assert set(schema["$defs"]["SequenceDeclaration"]["properties"]) >= {"from", "baseline", "continuity"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["date", "chain", "full"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*FeedDeclaration.model_fields, "x"]), _JSON, max_size=8) | _JSON)
def test_whatever_is_declared_is_accepted_or_refused_in_sentences(value: object) -> None:
    try:
        FeedDeclaration.model_validate(value)
    except ValidationError as error:
        assert all(detail["type"] == "value_error" for detail in error.errors())
