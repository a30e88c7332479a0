"""The native manifest: every fault has its code, none hides another, and no bytes make the parser raise (M1, ruling 14)."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.manifest import Checksum, Kind, Manifest, Predecessor, UnusableManifest
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.manifests import native
from valuestream_dagster.manifests.registry import PARSERS, parser_of

SHA = "1e563229350c63233df7b24a64b79c80cbe5a3fcd0a84d87dcf52abce2439ce9"
MD5 = "f14ae9aa8a558de833362f0df59baec9"
DAILY = DatedSequence(Cadence.DAILY)
FILE: dict[str, Any] = {"path": "a.csv", "bytes": 43, "sha256": SHA, "rows": 3}
BASE: dict[str, Any] = {"source": "acme", "dataset": "orders", "period": "2026-11-30", "files": [FILE]}


def parse(data: bytes, sequence: Sequence = DAILY, **options: Any) -> Manifest | UnusableManifest:
    return native.parse(
        data, sequence=sequence, source="acme", dataset="orders", default_kind=Kind.FULL, entries_limit=5, **options
    )


def usable(raw: dict[str, Any], sequence: Sequence = DAILY, **options: Any) -> Manifest:
    parsed = parse(json.dumps(raw).encode(), sequence, **options)
    assert isinstance(parsed, Manifest), parsed
    return parsed


def codes(data: bytes | dict[str, Any], sequence: Sequence = DAILY, **options: Any) -> list[str]:
    parsed = parse(data if isinstance(data, bytes) else json.dumps(data).encode(), sequence, **options)
    assert isinstance(parsed, UnusableManifest), parsed
    assert all(finding.next_step for finding in parsed.findings)
    return [finding.code for finding in parsed.findings]


def test_a_small_manifest_states_a_delivery_with_defaults() -> None:
    manifest = usable(BASE)
    assert (manifest.source, manifest.dataset, manifest.key.text) == ("acme", "orders", "2026-11-30")
    assert (manifest.revision, manifest.kind, manifest.empty, manifest.warnings) == (1, Kind.FULL, False, ())
    (entry,) = manifest.entries
    assert (entry.path, entry.bytes, entry.rows, entry.role) == ("a.csv", 43, 3, "data")
    assert entry.checksum == Checksum("sha256", SHA)


def test_every_field_of_the_schema_is_carried() -> None:
    file = FILE | {"version_id": "v7", "role": "deletes"}
    manifest = usable(
        BASE
        | {
            "sequence": 8,
            "revision": 4,
            "kind": "delta",
            "files": [file],
            "controls": {"rows": 3, "totals": {"amount": "10.50"}},
            "predecessor": {"period": 7, "digest": "abc"},
            "finality": "official",
            "created_at": "2026-11-30T04:00:00Z",
        },
        IntegerSequence(),
    )
    assert (manifest.key.text, manifest.period, manifest.revision, manifest.kind) == ("8", "2026-11-30", 4, Kind.DELTA)
    assert (manifest.entries[0].version_id, manifest.entries[0].role) == ("v7", "deletes")
    assert (manifest.controls.rows, manifest.controls.totals) == (3, (("amount", Decimal("10.50")),))
    assert manifest.predecessor == Predecessor("7", "abc")
    assert (manifest.finality, manifest.created_at) == ("official", "2026-11-30T04:00:00Z")


@pytest.mark.parametrize(("field", "value"), [("sequence", 42), ("sequence", "42"), ("period", 42), ("period", "042")])
def test_a_key_is_an_integer_or_a_text(field: str, value: object) -> None:
    raw = {name: content for name, content in BASE.items() if name != "period"} | {field: value}
    assert usable(raw, IntegerSequence()).key.text == "42"


def test_unknown_fields_are_kept_by_place_and_have_no_effect() -> None:
    raw = BASE | {"verdict": "accepted", "files": [FILE | {"skip": True}], "controls": {"x": 1}}
    manifest = usable(raw)
    assert dict(manifest.extra) == {"verdict": "accepted", "files[0].skip": True, "controls.x": 1}
    assert manifest.entries == usable(BASE).entries


@pytest.mark.parametrize(
    "fields",
    [
        {"sha256": SHA.upper()},
        {"checksum": {"algorithm": "SHA-256", "value": SHA}},
        {"checksum": {"algorithm": "sha256", "value": base64.b64encode(bytes.fromhex(SHA)).decode()}},
        {"sha256": SHA, "md5": MD5},
    ],
)
def test_a_checksum_is_read_as_a_value_in_hex_of_either_case_or_base64(fields: dict[str, Any]) -> None:
    (entry,) = usable(BASE | {"files": [{"path": "a.csv"} | fields]}).entries
    assert entry.checksum == Checksum("sha256", SHA)


def test_base64_is_exact_and_in_its_own_case() -> None:
    value = base64.b64encode(bytes.fromhex(SHA)).decode()
    for wrong in (value.rstrip("="), value + "=", " " + value, value[:-2] + "p="):
        assert codes(BASE | {"files": [{"path": "a", "sha256": wrong}]}) == ["checksum_invalid"]


def test_a_checksum_of_another_algorithms_length_blames_the_manifest_and_says_so() -> None:
    parsed = parse(json.dumps(BASE | {"files": [{"path": "d.csv", "sha256": MD5}]}).encode())
    assert isinstance(parsed, UnusableManifest)
    (finding,) = parsed.findings
    assert (finding.code, finding.file) == ("checksum_invalid", "d.csv")
    assert "manifest" in finding.detail
    assert "fits md5" in finding.detail


def test_totals_are_exact_whether_texts_or_numbers() -> None:
    text = json.dumps(BASE)[:-1] + ', "controls": {"totals": {"a": "0.10", "b": 4.005, "c": 12345678901234567890.01}}}'
    parsed = parse(text.encode())
    assert isinstance(parsed, Manifest)
    totals = [str(total) for _, total in parsed.controls.totals]
    assert totals == ["0.10", "4.005", "12345678901234567890.01"]


BROKEN_JSON = {
    "nothing": b"",
    "half a manifest": json.dumps(BASE).encode()[:-5],
    "no object": b"[1]",
    "not UTF-8": "café".encode("latin-1"),
    "UTF-16": json.dumps(BASE).encode("utf-16"),
    "NaN": json.dumps(BASE)[:-1].encode() + b', "x": NaN}',
    "minus infinity": json.dumps(BASE)[:-1].encode() + b', "x": -Infinity}',
    "twins": json.dumps(BASE)[:-1].encode() + b', "revision": 1, "revision": 2}',
    "twins below": json.dumps(BASE)[:-1].encode() + b', "x": [{"a": 1, "a": 1}]}',
    "a bottomless nest": b"[" * 100_000,
    "a bottomless nest of objects": b'{"a":' * 100_000,
    "an endless integer": json.dumps(BASE)[:-1].encode() + b', "x": ' + b"9" * 5000 + b"}",
    "a web page": b"<html><body>403</body></html>",
}


@pytest.mark.parametrize("data", BROKEN_JSON.values(), ids=BROKEN_JSON.keys())
def test_bytes_that_are_not_one_json_object_are_unreadable(data: bytes) -> None:
    assert codes(data) == ["manifest_unreadable"]
    assert native.identify(data) is None


def test_an_exponent_beyond_reason_is_no_total_and_costs_nothing() -> None:
    text = json.dumps(BASE)[:-1] + ', "controls": {"totals": {"a": 1e999999999}}}'
    assert codes(text.encode()) == ["control_invalid"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"source": "other"}, ["unknown_source"]),
        ({"dataset": None}, ["unknown_source"]),
        ({"source": 1, "dataset": []}, ["unknown_source", "unknown_source"]),
        ({"period": "2027-02-29"}, ["invalid_date"]),
        ({"period": "2026-W10"}, ["pattern_mismatch"]),
        ({"period": True}, ["pattern_mismatch"]),
        ({"period": 1.5}, ["pattern_mismatch"]),
        ({"period": None}, ["key_missing"]),
        ({"revision": 0}, ["revision_invalid"]),
        ({"revision": -1}, ["revision_invalid"]),
        ({"revision": True}, ["revision_invalid"]),
        ({"revision": "2"}, ["revision_invalid"]),
        ({"revision": 1.0}, ["revision_invalid"]),
        ({"revision": None}, ["revision_invalid"]),
        ({"revision": 2**63}, ["revision_invalid"]),
        ({"kind": "snapshot"}, ["kind_invalid"]),
        ({"kind": ["full"]}, ["kind_invalid"]),
        ({"files": None}, ["entries_missing"]),
        ({"files": []}, ["entries_missing"]),
        ({"files": {}}, ["entry_invalid"]),
        ({"files": ["a.csv"]}, ["entry_invalid"]),
        ({"files": [{}]}, ["entry_invalid"]),
        ({"files": [{"path": 1}]}, ["entry_invalid"]),
        ({"files": [FILE] * 6}, ["entries_too_many"]),
        ({"files": [FILE | {"bytes": -1}]}, ["bytes_invalid"]),
        ({"files": [FILE | {"bytes": "43"}]}, ["bytes_invalid"]),
        ({"files": [FILE | {"bytes": True}]}, ["bytes_invalid"]),
        ({"files": [FILE | {"rows": 2.5}]}, ["rows_invalid"]),
        ({"files": [FILE | {"role": "data x\n"}]}, ["role_invalid"]),
        ({"files": [FILE | {"version_id": 7}]}, ["field_invalid"]),
        ({"files": [FILE | {"sha256": 7}]}, ["checksum_invalid"]),
        ({"files": [FILE | {"sha256": ""}]}, ["checksum_invalid"]),
        ({"files": [FILE | {"checksum": "abc"}]}, ["checksum_invalid"]),
        ({"files": [FILE | {"checksum": {"algorithm": "crc32", "value": "00"}}]}, ["checksum_invalid"]),
        ({"files": [FILE | {"checksum": {"algorithm": "sha256", "value": "0" * 64}}]}, ["checksum_invalid"]),
        ({"files": [FILE, FILE | {"sha256": "0" * 64}]}, ["duplicate_entry"]),
        ({"files": [FILE, FILE | {"path": "./a.csv", "bytes": 44}]}, ["duplicate_entry"]),
        ({"files": [FILE, FILE | {"path": "A.csv"}]}, ["case_collision"]),
        ({"files": [{"path": "caf\u00e9"}, {"path": "cafe\u0301"}]}, ["case_collision"]),
        ({"controls": []}, ["control_invalid"]),
        ({"controls": {"rows": -1}}, ["control_invalid"]),
        ({"controls": {"totals": [1]}}, ["control_invalid"]),
        ({"controls": {"totals": {"a": "1,5", "b": "1e3", "c": True, "d": None}}}, ["control_invalid"] * 4),
        ({"predecessor": "2026-11-29"}, ["field_invalid"]),
        ({"predecessor": {"digest": "x"}}, ["field_invalid"]),
        ({"empty": "yes"}, ["field_invalid"]),
        ({"finality": "final"}, ["field_invalid"]),
        ({"finality": ["official"]}, ["field_invalid"]),
        ({"created_at": 5}, ["field_invalid"]),
    ],
)
def test_each_fault_has_its_code(change: dict[str, Any], expected: list[str]) -> None:
    assert codes(BASE | change) == expected


def test_all_faults_are_told_at_once_with_what_could_be_read() -> None:
    raw = BASE | {"source": "x", "revision": 0, "files": [{"path": "../a", "bytes": -1}, FILE | {"rows": -1}]}
    parsed = parse(json.dumps(raw).encode())
    assert isinstance(parsed, UnusableManifest)
    assert [f.code for f in parsed.findings] == ["unknown_source", "revision_invalid", "path_unsafe", "rows_invalid"]
    assert (parsed.key, parsed.kind, parsed.revision) == (DAILY.parse("2026-11-30"), Kind.FULL, None)


def test_a_flood_of_faults_is_bounded_and_counted() -> None:
    raw = BASE | {"files": [{"path": "../x"}] * 500}
    parsed = native.parse(
        json.dumps(raw).encode(),
        sequence=DAILY,
        source="acme",
        dataset="orders",
        default_kind=Kind.FULL,
        entries_limit=1000,
    )
    assert isinstance(parsed, UnusableManifest)
    assert len(parsed.findings) == native.FINDINGS_LIMIT + 1
    assert "400 more" in parsed.findings[-1].detail


@pytest.mark.parametrize(
    "path",
    [
        "../../outside.csv",
        "/etc/hostname",
        "data/../../outside.csv",
        "..\\..\\outside.csv",
        "C:\\lab\\x.csv",
        "~/x.csv",
        "data/%2e%2e/%2e%2e/x.csv",
        "\\\\server\\share\\x.csv",
        "data/d.csv\x00.txt",
        "",
        ".",
        "data/",
        "a\ud800",
        "s3://bucket/x",
        "%2Fetc%2Fhostname",
    ],
)
def test_one_unsafe_path_refuses_the_whole_manifest(path: str) -> None:
    assert codes(BASE | {"files": [FILE, {"path": path}]}) == ["path_unsafe"]


@pytest.mark.parametrize("path", ["100%.csv", "a%20b.csv", "rate 5%2Fday".replace("%2F", " per "), "..data/x"])
def test_a_path_that_only_looks_odd_is_taken(path: str) -> None:
    assert usable(BASE | {"files": [{"path": path}]}).entries[0].path == path


@pytest.mark.parametrize("spelling", ["a.csv", "./a.csv", ".//a.csv"])
def test_a_file_listed_twice_alike_counts_once_with_a_warning(spelling: str) -> None:
    manifest = usable(BASE | {"files": [FILE, {"path": spelling, "md5": None, "sha256": SHA}]})
    assert [(entry.path, entry.bytes) for entry in manifest.entries] == [("a.csv", 43)]
    assert any("listed twice" in warning for warning in manifest.warnings)


def test_two_files_with_the_same_bytes_are_two_files() -> None:
    assert len(usable(BASE | {"files": [FILE, FILE | {"path": "b.csv"}]}).entries) == 2


def test_a_byte_order_mark_is_a_warning() -> None:
    parsed = parse(b"\xef\xbb\xbf" + json.dumps(BASE).encode())
    assert isinstance(parsed, Manifest)
    assert parsed.warnings == ("the manifest begins with a byte order mark",)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"files": [], "empty": True}, {}),
        ({"files": None, "empty": True}, {}),
        ({"files": []}, {"allow_empty": True}),
    ],
)
def test_an_empty_delivery_is_one_that_says_so_or_that_the_feed_allows(
    change: dict[str, Any], options: dict[str, Any]
) -> None:
    assert usable(BASE | change, **options).entries == ()


def test_a_manifest_without_files_is_no_empty_delivery_even_where_those_are_allowed() -> None:
    assert codes(BASE | {"files": None}, allow_empty=True) == ["entries_missing"]


def test_a_kind_that_the_feed_does_not_take_is_a_mismatch() -> None:
    assert codes(BASE | {"kind": "delta"}, allowed_kinds=frozenset({Kind.FULL})) == ["kind_mismatch"]


def test_a_manifest_of_another_feed_is_told_by_source_and_dataset_alone() -> None:
    assert native.identify(b'{"source": "a", "dataset": "b", "files": 7}') == ("a", "b")
    assert native.identify(b'{"source": "a", "dataset": 1}') is None


def test_a_manifest_too_large_to_read_is_said_to_be_that() -> None:
    (finding,) = native.too_large(11, 10).findings
    assert (finding.code, finding.found) == ("manifest_too_large", "11 bytes")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["source", "dataset", "period", "sequence", "revision", "kind", "files", "controls", "predecessor", "empty"]
ENTRIES = st.lists(st.dictionaries(st.sampled_from(["path", "bytes", "sha256", "md5", "checksum", "role"]), JSON))


@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.none() | ENTRIES)
def test_no_json_makes_the_parser_raise(change: dict[str, Any], files: list[Any] | None) -> None:
    raw = BASE | change | ({} if files is None else {"files": files})
    parsed = parse(json.dumps(raw).encode())
    if isinstance(parsed, UnusableManifest):
        assert parsed.findings
        json.dumps([finding.as_dict() for finding in parsed.findings]).encode()


@given(st.binary(max_size=60))
def test_no_bytes_make_the_parser_raise(data: bytes) -> None:
    assert isinstance(parse(data), UnusableManifest)
    native.identify(data)


def test_the_registry_lists_the_formats_and_names_the_nearest() -> None:
    assert parser_of("native") is PARSERS["native"]
    with pytest.raises(WrongUse, match="native"):
        parser_of("nativ")
