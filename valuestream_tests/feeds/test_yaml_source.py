"""YAML is read so that no two loaders could read it differently, and every finding has its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.feeds.yaml_source import BYTES_LIMIT, YamlDocument, check_scalars, read_yaml, read_yaml_file


def _read(text: str, **environ: str) -> YamlDocument:
    return read_yaml(text, "feeds/x.yaml", environ)


def _messages(text: str, **environ: str) -> str:
    return "\n".join(str(finding) for finding in _read(text, **environ).findings)


def test_values_come_with_the_line_of_every_key_and_item() -> None:
    document = _read("a: 1\nb:\n  c: [x,\n    y]\n  d: true\n")
    assert document.value == {"a": 1, "b": {"c": ["x", "y"], "d": True}}
    assert document.line_of(("a",)) == 1
    assert document.line_of(("b", "c")) == 3
    assert document.line_of(("b", "c", 1)) == 4
    assert document.line_of(("b", "missing", "deep")) == 2
    assert document.line_of(("nowhere",)) == 1
    assert document.findings == ()


def test_an_empty_text_is_an_empty_mapping() -> None:
    for text in ("", "\n", "# only a comment\n"):
        assert _read(text).value == {}


@pytest.mark.parametrize(
    "scalar",
    [
        *("NO", "no", "yes", "On", "off", "010", "-017", "08", "0o17", "0x1F", "0b11", "1_000", "12:30:00", "12:30"),
        *("1:30.5", "2013-01-01", "2013-01-01 10:00:00", ".inf", ".nan", "1_0.5", "+5", "1.0e+3", "NULL", "Null", "="),
    ],
)
def test_a_scalar_that_yaml_1_1_turns_into_something_else_must_be_quoted(scalar: str) -> None:
    text = f"a: x\nb: {scalar}\n"
    (finding,) = _read(text).findings
    assert finding.line == 2
    assert f'"{scalar}" in quotes' in finding.instead
    assert check_scalars(text, "feeds/x.yaml") == (finding,)
    assert _read(f'a: x\nb: "{scalar}"\n').value == {"a": "x", "b": scalar}
    assert _read(f'a: x\nb: "{scalar}"\n').findings == ()


@pytest.mark.parametrize(
    "scalar", ["1", "0", "-5", "0.5", "true", "false", "True", "null", "~", "x", "2026-11", "1.5", "y"]
)
def test_scalars_that_all_loaders_read_alike_need_no_quotes(scalar: str) -> None:
    document = _read(f"b: {scalar}\n")
    assert document.findings == ()
    assert document.value == yaml.safe_load(f"b: {scalar}\n")


@given(st.text(alphabet="0123456789:._-+xXoObBeEnNyYtTfFaslru~", min_size=1, max_size=8))
def test_what_passes_without_a_finding_is_what_yamls_own_loader_reads(scalar: str) -> None:
    text = f"a: {scalar}\n"
    document = _read(text)
    if not document.findings:
        assert document.value == yaml.safe_load(text)


@given(st.text(max_size=60))
def test_reading_is_total(text: str) -> None:
    _read(text)
    check_scalars(text, "defs.yaml")


def test_keys_are_checked_as_values_are() -> None:
    assert '"on" in quotes' in _messages("columns:\n  on: DATE\n")
    assert '"2013" in quotes' in _messages("2013: x\n")
    assert "a key must be plain text" in _messages("? [a, b]\n: x\n")


def test_the_field_named_null_may_stand_bare() -> None:
    document = _read("payload: {null: NA}\n")
    assert document.value == {"payload": {"null": "NA"}}
    assert document.findings == ()


def test_a_key_twice_is_refused_with_both_lines() -> None:
    assert (
        _messages("a: 1\nb: 2\na: 3\n")
        == "feeds/x.yaml:3: `a` stands twice here; the first is on line 1. Write: `a` once"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x 1\nb: *x\n", "feeds/x.yaml:2: the alias"),
        ("a: !!python/name:os.system x\n", "feeds/x.yaml:1: tags"),
        ("a: 1\n---\nb: 2\n", "feeds/x.yaml:2: a second YAML document"),
        ("a: 1\nb: [1\n", "this is no YAML"),
        ("a:\n\t- 1\n", "feeds/x.yaml:2: this is no YAML"),
        ("a: 1\nb: \x01\n", "feeds/x.yaml:2: a character that YAML does not allow"),
        ("[" * 40 + "]" * 40, "nested deeper than 32"),
        ("a: " + "x" * BYTES_LIMIT, "larger than 1024 KiB"),
    ],
)
def test_a_text_that_is_no_plain_yaml_is_one_finding(text: str, words: str) -> None:
    document = _read(text)
    assert document.unreadable
    assert len(document.findings) == 1
    assert words in str(document.findings[0])


def test_a_bomb_of_aliases_is_refused_before_it_is_built() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    assert _read("\n".join(lines)).unreadable


def test_a_name_in_braces_takes_its_value_from_the_environment() -> None:
    assert _read("a: ${HOST}/x\n", HOST="h").value == {"a": "h/x"}
    assert _read("a: '${A}${B}'\n", A="1", B="NO").value == {"a": "1NO"}


def test_a_missing_name_is_a_finding_and_so_is_a_malformed_one() -> None:
    assert "feeds/x.yaml:2: the environment variable HOST is not set" in _messages("b: 1\na: ${HOST}\n")
    assert "begins no variable name" in _messages("a: ${1x}\n")
    assert "begins no variable name" in _messages("a: ${HOST\n")


def test_values_from_the_environment_are_taken_out_of_every_message() -> None:
    document = _read("a: ${DSN}\n", DSN="slack://very-secret-thing")
    finding = document.finding(("a",), "`slack://very-secret-thing` is bad", "not slack://very-sec")
    assert "secret" not in str(finding) and "very-sec" not in str(finding)
    assert "${DSN}" in finding.message
    assert "slack" not in repr(document).replace("value={'a': 'slack://very-secret-thing'}", "")


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter2",
        "s3: {secret_access_key: abc}",
        "s3:\n  access_key_id: AKIA",
        "api-key: abc",
        "auth_token: [abc]",
        "password: x${PART}",
        "dsn: postgresql://me:hunter2@host/db",
        "alerts: [mailto://me:hunter2@example.org]",
        "alerts: [slack://TokenA/TokenB/TokenC]",
        "alerts: ['json://host/?token=abc']",
    ],
)
def test_a_literal_secret_is_refused_and_never_repeated(text: str) -> None:
    document = _read(text, PART="y")
    (finding,) = document.findings
    assert "literal secret" in finding.message
    assert finding.instead.startswith("${NAME}")
    for word in ("hunter2", "abc", "AKIA", "TokenA"):
        assert word not in str(finding)


@pytest.mark.parametrize(
    "text",
    [
        "password: ${PASSWORD}",
        "dsn: postgresql://me:${PASSWORD}@host/db",
        "alerts: ['slack://${PASSWORD}']",
        "alerts: ['${PASSWORD}']",
        "alerts: ['json://localhost:8080/hook']",
        "columns: {token: VARCHAR, password: VARCHAR}",
        "key: [token]",
        "landing: s3://bucket/prefix",
    ],
)
def test_a_reference_or_a_column_of_that_name_is_no_secret(text: str) -> None:
    assert _messages(text, PASSWORD="hunter2") == ""


def test_dagsters_own_templates_are_no_literal_secrets() -> None:
    assert check_scalars("attributes: {password: '{{ env.PASSWORD }}'}\n---\na: x\n", "defs.yaml") == ()


def test_every_document_of_a_defs_file_is_checked() -> None:
    (finding,) = check_scalars("a: x\n---\nb: NO\n", "defs.yaml")
    assert (finding.file, finding.line) == ("defs.yaml", 3)


def test_a_file_that_is_no_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    (finding,) = read_yaml_file(path, "feeds/x.yaml", {}).findings
    assert str(finding).startswith("feeds/x.yaml:2: the file is not UTF-8")


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: x\n")
    assert read_yaml_file(path, "feeds/x.yaml", {}).value == {"a": "x"}


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (BYTES_LIMIT + 10))
    assert "larger than" in read_yaml_file(path, "x", {}).findings[0].message
