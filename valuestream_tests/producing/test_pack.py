"""What is handed over is what the manifest says, the manifest comes last, and nothing that is there is replaced."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from valuestream_dagster.cli.main import cli
from valuestream_dagster.core.manifest import Kind, Manifest
from valuestream_dagster.core.sequence import Cadence, DatedSequence, IntegerSequence, Sequence
from valuestream_dagster.errors import ObjectExists, WrongUse
from valuestream_dagster.manifests import native
from valuestream_dagster.producing.pack import Packed, pack_delivery
from valuestream_dagster.producing.statement import PackOptions, key_form

OPTIONS = PackOptions(source="acme", dataset="orders")
DAILY = DatedSequence(Cadence.DAILY)


def a_file(folder: Path, name: str = "orders.csv", text: str | bytes = "id,amount\n1,2.50\n2,-0.25\n") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(packed: Packed, sequence: Sequence = DAILY) -> Manifest:
    manifest = native.parse(
        packed.manifest.read_bytes(),
        sequence=sequence,
        source="acme",
        dataset="orders",
        default_kind=Kind.FULL,
        entries_limit=100,
    )
    assert isinstance(manifest, Manifest), manifest
    return manifest


def test_a_manifest_states_the_true_sizes_checksums_rows_and_sums(tmp_path: Path) -> None:
    files = [
        a_file(tmp_path),
        a_file(tmp_path, "more.csv", 'id,amount\n3,"10"\n4,\n'),
        a_file(tmp_path, "note.txt", "x"),
    ]
    options = PackOptions(source="acme", dataset="orders", revision=2, kind=Kind.DELTA, predecessor="2026-09-01")
    packed = pack_delivery(files, tmp_path / "drop", key="2026-09-02", options=options)
    assert packed.manifest.name == "orders-2026-09-02-delta-r2.manifest.json"
    manifest = read(packed)
    assert manifest.name == "acme/orders 2026-09-02 delta r2"
    assert manifest.predecessor is not None
    assert manifest.predecessor.key == "2026-09-01"
    assert [(entry.path, entry.rows) for entry in manifest.entries] == [
        ("orders.csv", 2), ("more.csv", 2), ("note.txt", None)
    ]  # fmt: skip
    for entry, file in zip(manifest.entries, files, strict=True):
        there = (tmp_path / "drop" / entry.path).read_bytes()
        assert there == file.read_bytes()
        assert entry.bytes == len(there)
        assert entry.checksum is not None
        assert entry.checksum.hex == hashlib.sha256(there).hexdigest()


def test_sums_are_exact_and_rows_are_records_not_lines(tmp_path: Path) -> None:
    text = "id,amount,note\r\n" + "".join(f'{n},0.1,"two\nlines, ""quoted"""\r\n' for n in range(30)) + "30,1e,\r\n"
    options = PackOptions(source="acme", dataset="orders", totals=("amount", "id"), null=("1e", ""))
    packed = pack_delivery([a_file(tmp_path, text=text)], tmp_path / "drop", key="2026-09-01", options=options)
    controls = read(packed).controls
    assert controls.rows == 31
    assert dict(controls.totals) == {"amount": Decimal("3.0"), "id": Decimal(465)}


def test_packed_text_is_counted_too(tmp_path: Path) -> None:
    file = a_file(tmp_path, "orders.csv.gz", gzip.compress(b"id,amount\n1,2.5\n"))
    options = PackOptions(source="acme", dataset="orders", totals=("amount",))
    packed = pack_delivery([file], tmp_path / "drop", key="2026-09-01", options=options)
    assert (packed.rows, packed.totals) == (1, {"amount": Decimal("2.5")})
    with pytest.raises(WrongUse, match="cut off"):
        pack_delivery([a_file(tmp_path, "x.csv.gz", file.read_bytes()[:-9])], tmp_path / "d", key="1", options=OPTIONS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no header"),
        ("a,a\n1,2\n", "two columns of one name"),
        ("a,b\n1\n", r"record 2 \(the header is 1\) has 1 fields"),
        ("a,b\n1,2,3\n", "has 3 fields"),
        ('a,b\n1,"2\n', "never closed"),
        ('a,b\n1,"2"x\n', "record 2"),
        ("a,b\r1,2\r", "header cannot be read"),
        ("a,b\n1,2\r3,4\n", "record 2"),
        (b"\xff\xfea\x00", "header cannot be read"),
    ],
)
def test_a_file_that_nobody_could_read_is_refused_and_nothing_is_left(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    with pytest.raises(WrongUse, match=said):
        pack_delivery([a_file(tmp_path, text=text)], tmp_path / "drop", key="2026-09-01", options=OPTIONS)
    assert list((tmp_path / "drop").iterdir()) == []


def test_without_counting_any_bytes_may_be_handed_over(tmp_path: Path) -> None:
    options = PackOptions(source="acme", dataset="orders", count_rows=False)
    packed = pack_delivery([a_file(tmp_path, text=b"\xff")], tmp_path / "drop", key="2026-09-01", options=options)
    assert packed.rows is None
    assert read(packed).controls.rows is None


@pytest.mark.parametrize(
    ("text", "said"), [("id,amount\n1,1e3\n", "'1e3' in column amount"), ("id,amount\n1," + "9" * 39 + "\n", "--total")]
)
def test_a_sum_that_is_not_exact_is_refused(tmp_path: Path, text: str, said: str) -> None:
    options = PackOptions(source="acme", dataset="orders", totals=("amount",))
    with pytest.raises(WrongUse) as refused:
        pack_delivery([a_file(tmp_path, text=text)], tmp_path / "drop", key="2026-09-01", options=options)
    assert said in str(refused.value)


def test_the_manifest_is_named_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    link = os.link

    def noted(source: Path, target: Path) -> None:
        named.append(target.name)
        link(source, target)

    monkeypatch.setattr(os, "link", noted)
    pack_delivery(
        [a_file(tmp_path, "b.csv"), a_file(tmp_path, "a.csv")], tmp_path / "d", key="2026-09-01", options=OPTIONS
    )
    assert named == ["b.csv", "a.csv", "orders-2026-09-01-r1.manifest.json"]


def test_the_same_again_changes_nothing_and_other_content_is_refused(tmp_path: Path) -> None:
    into = tmp_path / "drop"
    first = pack_delivery([a_file(tmp_path)], into, key="2026-09-01", options=OPTIONS)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in into.iterdir()}
    later = PackOptions(source="acme", dataset="orders", created_at=datetime(2026, 9, 2, tzinfo=UTC))
    again = pack_delivery([a_file(tmp_path)], into, key="2026-09-01", options=later)
    assert (first.written, again.written) == (True, False)
    with pytest.raises(ObjectExists, match=r"orders\.csv is there already"):
        pack_delivery([a_file(tmp_path, text="id,amount\n")], into, key="2026-09-02", options=OPTIONS)
    with pytest.raises(ObjectExists) as refused:
        pack_delivery([a_file(tmp_path, "other.csv")], into, key="2026-09-01", options=OPTIONS)
    assert "raise --revision" in refused.value.next_step
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in into.iterdir()} == before


def test_a_file_that_lies_there_already_is_not_copied(tmp_path: Path) -> None:
    packed = pack_delivery([a_file(tmp_path)], tmp_path, key="2026-09-01", options=OPTIONS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-2026-09-01-r1.manifest.json", "orders.csv"]
    assert packed.rows == 2


def test_a_file_system_without_links_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert pack_delivery([a_file(tmp_path)], tmp_path / "drop", key="2026-09-01", options=OPTIONS).written
    assert not pack_delivery([a_file(tmp_path)], tmp_path / "drop", key="2026-09-01", options=OPTIONS).written
    with pytest.raises(ObjectExists):
        pack_delivery([a_file(tmp_path, text="id,amount\n")], tmp_path / "drop", key="2026-09-01", options=OPTIONS)


@pytest.mark.parametrize(("text", "sequence"), [("0007", IntegerSequence()), ("2026", DatedSequence(Cadence.YEARLY))])
def test_keys_are_written_as_their_feed_reads_them(tmp_path: Path, text: str, sequence: Sequence) -> None:
    packed = pack_delivery([a_file(tmp_path)], tmp_path / "drop", key=text, options=OPTIONS)
    assert read(packed, sequence).key.text == packed.key.text == str(int(text))


@pytest.mark.parametrize("text", ["2026-9-1", "2026-02-30", "", "../x", "today"])
def test_what_is_no_key_of_any_feed_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongUse, match="no sequence key"):
        pack_delivery([a_file(tmp_path)], tmp_path / "drop", key=text, options=OPTIONS)


def test_keys_of_two_forms_are_refused_and_the_odd_one_is_named() -> None:
    with pytest.raises(WrongUse, match="'2026-9-3'"):
        key_form(["2026-09-01", "2026-09-02", "2026-9-3"])


def test_an_empty_delivery_says_that_it_is(tmp_path: Path) -> None:
    packed = pack_delivery([], tmp_path / "drop", key="2026-09-01", options=OPTIONS)
    manifest = read(packed)
    assert manifest.empty
    assert manifest.entries == ()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--key", "2026-09-01"], 0, "2 rows"),
        (["--key", "2026-09-01", "--total", "amount"], 0, "amount 2.25"),
        (["--key", "2026-09-01", "--total", "price"], 2, "no column price"),
        ([], 2, "either --key or --split-by"),
        (["--key", "1", "--split-by", "id"], 2, "either --key or --split-by"),
        (["--key", "1", "--empty"], 2, "or --empty"),
        (["--key", "1", "--from-key", "1"], 2, "go with --split-by"),
        (["--key", "1", "--revision", "0"], 2, "--revision"),
        (["--key", "1", "--dataset", "a/b"], 2, "is no name"),
        (["--key", "1", "--delimiter", ";;"], 2, "not one character"),
        (["--split-by", "nothing"], 2, "--split-by: it is SQL"),
        (["--split-by", "NULL"], 2, "no key"),
        (["--split-by", "id", "--from-key", "9"], 2, "keys go from 1 to 2"),
        (["--split-by", "id", "--from-key", "2"], 0, "acme/orders 2:"),
    ],
)
def test_the_verb(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    base = ["pack", str(a_file(tmp_path)), "--into", str(tmp_path / "drop"), "--source", "acme", "--dataset", "orders"]
    result = CliRunner().invoke(cli, [*base, *words])
    assert result.exit_code == code, result.output
    assert said in result.output


def test_the_verbs_document_and_refusal(tmp_path: Path) -> None:
    base = ["pack", "--into", str(tmp_path / "drop"), "--source", "acme", "--dataset", "orders", "--key", "1", "--json"]
    result = CliRunner().invoke(cli, [*base, str(a_file(tmp_path)), "--total", "amount"])
    (packed,) = json.loads(result.stdout)["packed"]
    assert (packed["key"], packed["rows"], packed["totals"], packed["written"]) == ("1", 2, {"amount": "2.25"}, True)
    refused = CliRunner().invoke(cli, [*base, str(a_file(tmp_path, "other.csv"))])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["code"] == "object_exists"
