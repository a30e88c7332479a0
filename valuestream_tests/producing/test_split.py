"""Carving: every record goes to its key, in order, byte for byte; the pieces together are the file."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.errors import WrongUse
from valuestream_dagster.producing import split
from valuestream_dagster.producing.pack import Packed
from valuestream_dagster.producing.split import pack_split
from valuestream_dagster.producing.statement import PackOptions

OPTIONS = PackOptions(source="acme", dataset="orders")
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=6) | st.sampled_from(
    ["NA", "", '"', "a,b", "two\nlines", " x ", "007", "1e3", "NULL"]
)
_ROWS = st.lists(st.tuples(st.integers(1, 4), _TEXTS, _TEXTS), min_size=1, max_size=30)


def payload(packed: Packed) -> bytes:
    return (packed.manifest.parent / packed.files[0].path).read_bytes()


@given(
    rows=_ROWS, line_end=st.sampled_from(["\n", "\r\n"]), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
)
def test_the_pieces_hold_exactly_the_records_of_the_file(
    rows: list[tuple[int, str, str]], line_end: str, quoting: int
) -> None:
    def written(row: tuple[object, ...]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator=line_end, quoting=quoting).writerow(row)  # type: ignore[arg-type]
        return text.getvalue().encode()

    header = written(("key", "a", "b"))
    expected: dict[str, bytes] = defaultdict(lambda: header)
    for row in rows:
        expected[str(row[0])] += written(row)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "all.csv"
        file.write_bytes(header + b"".join(written(row) for row in rows))
        packed = pack_split(file, Path(folder) / "drop", split_by="key", options=OPTIONS)
        assert [one.key.text for one in packed] == sorted(expected)
        assert {one.key.text: payload(one) for one in packed} == expected
        assert sum(one.rows or 0 for one in packed) == len(rows)


def test_the_key_is_sql_over_texts_and_bounds_are_inclusive(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    lines = [f"2013,{month},{day},NA\n" for month in (1, 12) for day in (1, 2, 11)]
    file.write_text("year,month,day,delay\n" + "".join(lines))
    sql = "year || '-' || lpad(month, 2, '0') || '-' || lpad(day, 2, '0') -- the day"
    packed = pack_split(
        file, tmp_path / "drop", split_by=sql, options=OPTIONS, from_key="2013-01-02", to_key="2013-12-01"
    )
    assert [one.key.text for one in packed] == ["2013-01-02", "2013-01-11", "2013-12-01"]
    assert payload(packed[0]) == b"year,month,day,delay\n2013,1,2,NA\n"
    assert json.loads(packed[0].manifest.read_text())["period"] == "2013-01-02"
    assert len(list((tmp_path / "drop").iterdir())) == 6


def test_integers_are_bounded_as_numbers(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("k;v\n998;a\n0999;b\n1000;c\n1001;d\n999;e")
    options = PackOptions(source="acme", dataset="orders", delimiter=";")
    packed = pack_split(file, tmp_path / "drop", split_by="k", options=options, from_key="999", to_key="1000")
    assert [(one.key.text, one.rows) for one in packed] == [("999", 2), ("1000", 1)]
    assert payload(packed[0]) == b"k;v\n0999;b\n999;e"


def test_sums_are_those_of_each_key(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("k,v\n1,0.10\n2,NA\n1,0.205\n")
    options = PackOptions(source="acme", dataset="orders", totals=("v",), null=("NA",))
    one, two = pack_split(file, tmp_path / "drop", split_by="k", options=options)
    assert (one.totals, two.totals) == ({"v": Decimal("0.305")}, {"v": Decimal(0)})


def test_many_pieces_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "_BUFFERED_BYTES", 64)
    file = tmp_path / "all.csv"
    file.write_text("k,v\n" + "".join(f"{n % 300},{n}\n" for n in range(3000)))
    packed = pack_split(file, tmp_path / "drop", split_by="k", options=OPTIONS)
    assert len(packed) == 300
    assert payload(packed[7]) == b"k,v\n" + b"".join(b"7,%d\n" % n for n in range(7, 3000, 300))


def test_packing_again_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("k,v\n1,a\n2,b\n")
    first = pack_split(file, tmp_path / "drop", split_by="k", options=OPTIONS)
    again = pack_split(file, tmp_path / "drop", split_by="k", options=OPTIONS)
    assert [one.written for one in (*first, *again)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k,v\n", "no record"),
        ("k,v\n1,a\n,b\n", "no key"),
        ("k,v\n2026-9-1,a\n2026-09-02,b\n", "'2026-9-1'"),
        ("k,v\n1,a,b\n", "fields|columns"),
    ],
)
def test_what_cannot_be_carved_leaves_nothing(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "all.csv"
    file.write_text(text)
    with pytest.raises(WrongUse, match=said):
        pack_split(file, tmp_path / "drop", split_by="k", options=OPTIONS)
    assert not list(tmp_path.glob("drop/*"))
