"""Rows are read without loss or not at all, and every refusal names file, line and column (M3, S2)."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import PROVENANCE_COLUMNS, Column, CsvFormat, RowContract, RowsRefused, RowStamp
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.intake import payload
from valuestream_dagster.intake.csv_proof import is_plain, row_pattern
from valuestream_dagster.intake.csv_source import MAX_FINDINGS
from valuestream_dagster.intake.payload import PayloadFile, open_rows

STAMP = RowStamp("2026-09-01", "delta", 7)
PLAIN = CsvFormat()
Rows = list[tuple[object, ...]]

REFUSED = [
    *(("INTEGER", text) for text in ("1.5", "0x10", "0b1", "1_000", "1e3", "1e2", "007", " 5", "5 ", "+5", "-0", "5.")),
    *(("INTEGER", text) for text in ("2147483648", "-2147483649", "five", "1,5", "١", "--5", "-", "NaN")),
    ("TINYINT", "128"),
    ("UTINYINT", "-1"),
    ("BIGINT", "0xFFFFFFFF"),
    ("BIGINT", "9223372036854775808"),
    *(("DECIMAL(18,2)", text) for text in ("4.005", "4.001", "1e3", "1_000", "007", "+5", " 5", "5.", ".", "-", "1,5")),
    *(("DECIMAL(18,2)", text) for text in ("12345678901234567.00", "0x1", "nan", "(5.00)", "5.00-", "1.234.5")),
    ("DECIMAL(5,0)", "1.5"),
    *(("DOUBLE", text) for text in ("nan", "inf", "-Infinity", "1e999", "0x1p3", "1_0.5", "1,5", "+1.5", "01.5", "1.")),
    ("FLOAT", "1e39"),
    *(("BOOLEAN", text) for text in ("yes", "no", "2", "wahr", "tr")),
    *(("DATE", text) for text in ("2026-02-30", "2026-13-01", "2026-9-1", "01.09.2026", "2026-09-01x", "20260901")),
    *(("DATE", text) for text in ("2026-09-01 00:00:00", "infinity", "epoch")),
    *(("TIME", text) for text in ("24:00:00", "9:30", "09:60", "09:30:00.1234567", "09:30+01")),
    *(("TIMESTAMP", text) for text in ("2026-02-30 00:00:00", "2026-09-01 10:00:00.1234567", "2026-09-01 24:00:00")),
    *(("TIMESTAMP", text) for text in ("2026-09-01T10:00:00+02:00", "now", "2026-09-01 10")),
    *(("TIMESTAMPTZ", text) for text in ("2026-09-01 10:00:00", "2026-09-01", "2026-09-01 10:00:00 Europe/Brussels")),
    *(("UUID", text) for text in ("0", "{00000000-0000-0000-0000-000000000001}", "00000000000000000000000000000001")),
]
ACCEPTED = [
    *(("INTEGER", text, int(text)) for text in ("-5", "0", "100", "1000000", "2147483647", "-2147483648")),
    ("UBIGINT", "18446744073709551615", 18446744073709551615),
    *(
        ("DECIMAL(18,2)", text, Decimal(text))
        for text in ("4.1", "4.10", "4.100", "0.5", ".5", "-.5", "5", "-0.00", "-5")
    ),
    ("DECIMAL(18,2)", "9999999999999999.99", Decimal("9999999999999999.99")),
    ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
    ("DECIMAL(5,0)", "12.000", Decimal(12)),
    ("DOUBLE", "1.5e3", 1500.0),
    ("DOUBLE", "-0.1", -0.1),
    *(("BOOLEAN", text, True) for text in ("true", "T", "1", "TRUE")),
    *(("BOOLEAN", text, False) for text in ("false", "f", "0")),
    ("VARCHAR", " 007 ", " 007 "),
]


def contract(*types: str, csv: CsvFormat = PLAIN, delete_when: str | None = None) -> RowContract:
    return RowContract(
        tuple(Column(f"c{place}", text) for place, text in enumerate(types)), csv, delete_when=delete_when
    )


def columns(**types: str) -> RowContract:
    return RowContract(tuple(Column(name, text) for name, text in types.items()))


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One for all tests: opening another costs 30 ms."""
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET GLOBAL TimeZone = 'UTC'")
    return con


def read(
    folder: Path, contents: Sequence[bytes], wanted: RowContract, name: str = "part-{}.csv"
) -> Rows | tuple[Finding, ...]:
    """The rows, or the findings, of files with these contents."""
    files = []
    for place, content in enumerate(contents):
        path = folder / f"sealed-{place}"
        path.write_bytes(content)
        files.append(PayloadFile(path, name.format(place)))
    with open_rows(files, wanted, scratch=folder) as rows, connection().cursor() as con:
        if isinstance(rows, RowsRefused):
            return rows.findings
        found: Rows = []
        findings = rows.evaluate(con, STAMP, lambda select: found.extend(con.execute(select).fetchall()), found.clear)
        return findings or found


def values(folder: Path, content: bytes, wanted: RowContract) -> Rows:
    """The declared columns only."""
    found = read(folder, [content], wanted)
    assert isinstance(found, list), found
    return [row[: len(wanted.columns)] for row in found]


def faults(folder: Path, content: bytes, wanted: RowContract, name: str = "part-{}.csv") -> tuple[Finding, ...]:
    found = read(folder, [content], wanted, name)
    assert isinstance(found, tuple), found
    return found


@pytest.fixture(params=["cell by cell", "proven"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule holds for the slow reading and for the proof: what one takes, the other takes."""
    monkeypatch.setattr(payload, "PROOF_FROM_BYTES", 0 if request.param == "proven" else 1 << 40)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("canonical", "text"), REFUSED)
def test_a_value_that_does_not_fit_without_loss_is_refused_with_its_place(
    tmp_path: Path, canonical: str, text: str
) -> None:
    content = f'c0,c1\nfine,\nbad,"{text}"\n'.encode()
    (finding,) = faults(tmp_path, content, contract("VARCHAR", canonical))
    assert (finding.code, finding.file, finding.line, finding.column, finding.found) == (
        "value_does_not_fit",
        "part-0.csv",
        3,
        "c1",
        text,
    )


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("canonical", "text"), [case for case in REFUSED if "," not in case[1]])
def test_quotes_make_no_difference_to_what_fits(tmp_path: Path, canonical: str, text: str) -> None:
    content = f"c0,c1\nfine,\nbad,{text}\n".encode()
    assert [finding.code for finding in faults(tmp_path, content, contract("VARCHAR", canonical))] == [
        "value_does_not_fit"
    ]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("canonical", "text", "value"), ACCEPTED)
@pytest.mark.parametrize("mark", ["", '"'])
def test_a_value_that_fits_is_read_exactly(tmp_path: Path, canonical: str, text: str, value: object, mark: str) -> None:
    assert values(tmp_path, f"c0\n{mark}{text}{mark}\n".encode(), contract(canonical)) == [(value,)]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("canonical", "text", "shown"),
    [
        ("DATE", "2026-09-01", "2026-09-01"),
        ("TIME", "09:30", "09:30:00"),
        ("TIMESTAMP", "2026-09-01", "2026-09-01 00:00:00"),
        ("TIMESTAMP", "2026-09-01T10:00:00.1234560Z", "2026-09-01 10:00:00.123456"),
        ("TIMESTAMPTZ", "2026-09-01T10:00:00+02:00", "2026-09-01 08:00:00+00"),
        ("TIMESTAMPTZ", "2026-09-01 10:00Z", "2026-09-01 10:00:00+00"),
        ("UUID", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
    ],
)
def test_times_dates_and_identifiers_keep_their_meaning(tmp_path: Path, canonical: str, text: str, shown: str) -> None:
    path = tmp_path / "sealed"
    path.write_text(f"c0\n{text}\n")
    with open_rows([PayloadFile(path, "a.csv")], contract(canonical), scratch=tmp_path) as rows:
        assert not isinstance(rows, RowsRefused)
        with connection().cursor() as con:
            found: Rows = []
            rows.evaluate(
                con, STAMP, lambda select: found.extend(con.execute(f"SELECT c0::VARCHAR FROM ({select})").fetchall()), found.clear
            )
            assert found == [(shown,)]


@given(
    number=st.decimals(min_value=Decimal("-9999999999999999.99"), max_value=Decimal("9999999999999999.99"), places=2),
    zeros=st.integers(0, 4),
    proven=st.booleans(),
)
def test_any_decimal_text_that_is_accepted_is_that_number(
    tmp_path_factory: pytest.TempPathFactory, number: Decimal, zeros: int, proven: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "PROOF_FROM_BYTES", 0 if proven else 1 << 40)
        text = f"{number:f}" + "0" * zeros
        found = values(tmp_path_factory.mktemp("decimal"), f"c0\n{text}\n".encode(), contract("DECIMAL(18,2)"))
    assert found == [(number,)]


@given(text=st.text("0123456789.-+eExX_ b", min_size=1, max_size=8), proven=st.booleans())
def test_any_text_is_either_refused_or_read_as_the_very_same_number(
    tmp_path_factory: pytest.TempPathFactory, text: str, proven: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "PROOF_FROM_BYTES", 0 if proven else 1 << 40)
        wanted = contract("INTEGER", "DECIMAL(9,2)")
        as_integer = read(tmp_path_factory.mktemp("text"), [f"c0,c1\n{text},\n".encode()], wanted)
        as_decimal = read(tmp_path_factory.mktemp("text"), [f"c0,c1\n,{text}\n".encode()], wanted)
    if isinstance(as_integer, list):
        assert str(as_integer[0][0]) == text
    if isinstance(as_decimal, list):
        assert as_decimal[0][1] == Decimal(text)


@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6), st.integers(-999, 999)),
        max_size=6,
    ),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_proof_accepts_duckdb_reads_as_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]], ending: str
) -> None:
    """Quotes, delimiters and line ends inside quotes: the proof's grammar and the reader's agree."""
    quoted = [(f'"{text.replace(chr(34), chr(34) * 2)}"', text, number) for text, number in rows]
    content = ending.join(["c0,c1", *(f"{cell},{number}" for cell, _, number in quoted), ""]).encode()
    folder = tmp_path_factory.mktemp("grammar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "PROOF_FROM_BYTES", 0)
        if ending == "\n" or not any("\n" in text for text, _ in rows):
            assert values(folder, content, contract("VARCHAR", "INTEGER")) == [
                (text, number) for _, text, number in quoted
            ]


def test_the_proof_cuts_large_files_into_blocks_at_row_ends_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("valuestream_dagster.intake.csv_proof.BLOCK_BYTES", 64)
    row = row_pattern(["VARCHAR", "INTEGER"], CsvFormat())
    assert row is not None
    path = tmp_path / "rows.csv"
    for threads in (1, 2):
        path.write_text('"a\nb ""quoted"" c\nd",17\nplain,-5\n' * 100)
        assert is_plain(path, start=0, row=row, quote='"', threads=threads)
        path.write_text('"a\nb ""quoted"" c\nd",17\nplain,-5\n' * 99 + "plain,07\n" + "plain,7\n" * 99)
        assert not is_plain(path, start=0, row=row, quote='"', threads=threads)
        path.write_text('plain,-5\n"never closed,6\n' + "plain,7\n" * 99)
        assert not is_plain(path, start=0, row=row, quote='"', threads=threads)


_PIECES = st.sampled_from(["plain,1\n", '"a\n\nb",2\n', '"' + "\n" * 30 + '",3\n', '""",\n""",4\n', "x" * 70 + ",5\n", "\n"])


@pytest.mark.parametrize("threads", [1, 2])
@given(pieces=st.lists(_PIECES, max_size=12), bad=st.sampled_from(["", "07,x\n", '"', "\n,6,\n"]))
def test_the_proof_never_passes_over_a_bad_row_wherever_blocks_are_cut(threads: int, pieces: list[str], bad: str) -> None:
    row = row_pattern(["VARCHAR", "INTEGER"], CsvFormat())
    assert row is not None
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr("valuestream_dagster.intake.csv_proof.BLOCK_BYTES", 64)
        path = Path(folder) / "rows.csv"
        path.write_text("".join(pieces) + bad, newline="")
        plain = is_plain(path, start=0, row=row, quote='"', threads=threads)
    assert not (plain and bad)
    # Whole rows that each fit in a block are always proven, so the fast way is really taken.
    assert plain or bad or any(len(piece) > 32 for piece in pieces)


@pytest.mark.parametrize(
    ("content", "kept", "thrown_away"),
    [(b"c0,c1\nx,1\n", 1, 0), (b"c0,c1\nx,007\n", 0, 1), (b'c0,c1\n"never closed,1\n', 0, 0)],
    ids=["plain", "read and not plain", "cannot be read"],
)
def test_what_is_read_before_the_proof_fails_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, kept: int, thrown_away: int
) -> None:
    monkeypatch.setattr(payload, "PROOF_FROM_BYTES", 0)
    path = tmp_path / "sealed"
    path.write_bytes(content)
    made: list[str] = []
    thrown: list[str] = []

    def undo() -> None:
        thrown.extend(made)
        made.clear()

    with open_rows([PayloadFile(path, "a.csv")], contract("VARCHAR", "INTEGER"), scratch=tmp_path) as rows:
        assert not isinstance(rows, RowsRefused)
        with connection().cursor() as con:
            findings = rows.evaluate(con, STAMP, lambda select: made.append(str(con.execute(select).fetchall())), undo)
    assert (len(made), len(thrown)) == (kept, thrown_away)
    assert bool(findings) == (kept == 0)


@pytest.mark.usefixtures("both_ways")
def test_a_quoted_text_is_never_null_and_an_unquoted_null_text_always_is(tmp_path: Path) -> None:
    wanted = contract("VARCHAR", "INTEGER", csv=CsvFormat(null=("NA", "")))
    assert values(tmp_path, b'c0,c1\nNA,1\n"NA",NA\n"",\n,2\n', wanted) == [
        (None, 1),
        ("NA", None),
        ("", None),
        (None, 2),
    ]
    (finding,) = faults(tmp_path, b'c0,c1\nx,"NA"\n', wanted)
    assert (finding.column, finding.found) == ("c1", "NA")


@pytest.mark.usefixtures("both_ways")
def test_without_declared_null_texts_an_empty_cell_is_empty_text_and_no_number(tmp_path: Path) -> None:
    wanted = contract("VARCHAR", "INTEGER", csv=CsvFormat(null=()))
    assert values(tmp_path, b"c0,c1\n,1\n", wanted) == [("", 1)]
    assert [finding.code for finding in faults(tmp_path, b"c0,c1\nx,\n", wanted)] == ["value_does_not_fit"]


@pytest.mark.usefixtures("both_ways")
def test_columns_are_matched_by_name_and_never_by_position(tmp_path: Path) -> None:
    wanted = columns(id="INTEGER", name="VARCHAR", city="VARCHAR")
    found = read(tmp_path, [b"id,city,name\n1,Bern,Anna\n", b"name,id,city\nBea,2,Basel\n"], wanted)
    assert sorted(found) == [  # type: ignore[type-var]
        (1, "Anna", "Bern", "2026-09-01", "delta", 7, "U", "part-0.csv"),
        (2, "Bea", "Basel", "2026-09-01", "delta", 7, "U", "part-1.csv"),
    ]


@pytest.mark.parametrize(
    ("header", "culprits"),
    [
        ("id", {"name"}),
        ("id,name,extra", {"extra"}),
        ("id,Name", {"name", "Name"}),
        ("id,name,name", {"name"}),
        ("id, name", {"name", " name"}),
        ("1,Anna", {"id", "name", "1", "Anna"}),
    ],
)
def test_a_header_that_lacks_adds_renames_or_repeats_a_column_is_refused(
    tmp_path: Path, header: str, culprits: set[str]
) -> None:
    found = faults(tmp_path, f"{header}\n".encode(), columns(id="INTEGER", name="VARCHAR"))
    assert {finding.code for finding in found} == {"header_mismatch"}
    assert {finding.column for finding in found} == culprits


def test_a_file_of_no_bytes_lacks_its_header(tmp_path: Path) -> None:
    assert [finding.code for finding in faults(tmp_path, b"", contract("INTEGER"))] == ["header_missing"]


def test_a_header_alone_is_a_file_without_rows(tmp_path: Path) -> None:
    assert values(tmp_path, b"c0\n", contract("INTEGER")) == []
    assert values(tmp_path, b"c0", contract("INTEGER")) == []


def test_without_a_header_columns_are_taken_in_declared_order(tmp_path: Path) -> None:
    wanted = contract("INTEGER", "VARCHAR", csv=CsvFormat(header=False))
    assert values(tmp_path, b"1,a\n2,b\n", wanted) == [(1, "a"), (2, "b")]
    assert values(tmp_path, b"", wanted) == []


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfc0,c1\r\n1,a\r\n2,b", b'"c0","c1"\n1,a\n\n2,b\n', b"c0,c1\n1,a\n2,b\n\n"]
)
def test_marks_line_ends_and_blank_lines_change_nothing(tmp_path: Path, content: bytes) -> None:
    assert values(tmp_path, content, contract("INTEGER", "VARCHAR")) == [(1, "a"), (2, "b")]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"c0,c1\n1,a\n2,b,\n", 3),
        (b"c0,c1\n1,a\n2,b,c\n", 3),
        (b"c0,c1\n1,a\n2\n", 3),
        (b'c0,c1\n1,a\n2,"b\n3,c\n', 3),
        (b'c0,c1\n1,a\n2,"b"c\n', 3),
        (b'c0,c1\n1,"a\nb"\n2\n', 4),
    ],
)
def test_a_broken_record_is_refused_with_the_line_where_it_starts(tmp_path: Path, content: bytes, line: int) -> None:
    found = faults(tmp_path, content, contract("INTEGER", "VARCHAR"))
    assert [(finding.code, finding.line) for finding in found] == [("csv_malformed", line)]


@pytest.mark.usefixtures("both_ways")
def test_bytes_that_are_not_the_declared_encoding_are_refused(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, b"c0\nfine\nZ\xfcrich\n", contract("VARCHAR"))
    assert (finding.code, finding.line) == ("encoding_invalid", 3)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings_are_read_as_what_they_are(tmp_path: Path, encoding: str) -> None:
    wanted = contract("VARCHAR", csv=CsvFormat(encoding=encoding))
    assert values(tmp_path, "c0\nZürich\n".encode(encoding), wanted) == [("Zürich",)]


def test_an_unknown_encoding_or_type_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="klingon"):
        read(tmp_path, [b"c0\n"], contract("VARCHAR", csv=CsvFormat(encoding="klingon")))
    with pytest.raises(WrongUse, match="GEOMETRY"):
        read(tmp_path, [b"c0\n"], contract("GEOMETRY"))


def test_gzip_of_several_members_is_unpacked_and_its_copy_removed(tmp_path: Path) -> None:
    packed = gzip.compress(b"c0\n1\n") + gzip.compress(b"2\n")
    found = read(tmp_path, [packed], contract("INTEGER"), "part-{}.csv.gz")
    assert [row[0] for row in found] == [1, 2]  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["sealed-0"]


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-6], lambda packed: b"no gzip", lambda packed: packed + b"x"]
)
def test_damaged_gzip_is_refused(tmp_path: Path, damage: object) -> None:
    packed = damage(gzip.compress(b"c0\n1\n" * 1000))  # type: ignore[operator]
    found = faults(tmp_path, packed, contract("INTEGER"), "part-{}.csv.gz")
    assert [finding.code for finding in found] == ["compression_corrupt"]
    assert [path.name for path in tmp_path.iterdir()] == ["sealed-0"]


def test_faults_of_every_file_and_kind_are_told_and_none_hides_another(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [b"c0,c1\nx,1\n", b"c0,c9\n1,1\n", b"c0,c1\n1,2,3\n1,y\n"],
        contract("INTEGER", "INTEGER"),
    )
    assert isinstance(found, tuple)
    assert {(finding.file, finding.code) for finding in found} == {
        ("part-0.csv", "value_does_not_fit"),
        ("part-1.csv", "header_mismatch"),
        ("part-2.csv", "csv_malformed"),
        ("part-2.csv", "value_does_not_fit"),
    }


def test_many_faults_are_bounded_and_counted(tmp_path: Path) -> None:
    found = faults(tmp_path, b"c0\n" + b"x\n" * 1000, contract("INTEGER"))
    assert len(found) == MAX_FINDINGS + 1
    assert found[-1].detail == "and 980 more of these faults"
    assert [finding.line for finding in found[:2]] == [2, 3]


def test_a_line_is_counted_as_an_editor_counts_it(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, b'c0,c1\n1,"a\nb\nc"\n\nx,d\n', contract("INTEGER", "VARCHAR"))
    assert finding.line == 6


def test_every_row_carries_its_delivery_and_deletes_are_marked(tmp_path: Path) -> None:
    wanted = contract("INTEGER", "VARCHAR", delete_when="c1 = 'D' -- removed")
    found = read(tmp_path, [b"c0,c1\n1,D\n2,U\n3,\n"], wanted)
    assert isinstance(found, list)
    assert PROVENANCE_COLUMNS == ("_key", "_kind", "_seq", "_op", "_file")
    assert [row[2:] for row in found] == [("2026-09-01", "delta", 7, op, "part-0.csv") for op in "DUU"]


def test_names_and_texts_with_quotes_stay_text(tmp_path: Path) -> None:
    wanted = RowContract((Column("a \"b\" 'c'", "VARCHAR"),))
    content = b'"a ""b"" \'c\'"\n\'; DROP TABLE x; --\n'
    found = read(tmp_path, [content], wanted, "it's-{}.csv")
    assert found == [("'; DROP TABLE x; --", "2026-09-01", "delta", 7, "U", "it's-0.csv")]


def test_two_files_of_one_name_are_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="one name"):
        read(tmp_path, [b"c0\n", b"c0\n"], contract("VARCHAR"), "same.csv")


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked_whole(tmp_path: Path) -> None:
    """Limits: untrusted archives; the ratio is the deployment's setting."""
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"id\n" + b"0" * 40_000_000))
    contract = RowContract(columns=(Column("id", "VARCHAR"),))
    with open_rows([PayloadFile(bomb, "bomb.csv.gz", None)], contract, scratch=tmp_path, max_ratio=50) as rows:
        assert isinstance(rows, RowsRefused)
        assert rows.findings[0].code == "compression_ratio"


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b'c0,c1\n"never closed,1\n', 2, "a quote is broken or never closed"),
        (b'c0,c1\nx,1\n"two\nlines",2\n"never closed,3\n', 5, "a quote is broken or never closed"),
        (b"c0,c1\nx,1\n" + b"y" * 2_100_000 + b",2\n", 3, "a field is longer than 2,000,000 characters"),
        (b"c0,c1\r\nx,1\r\ny,2\n", 3, "this line ends otherwise than the first one"),
        (b"c0,c1\nx,1\ny,2\r\n", 3, "this line ends otherwise than the first one"),
    ],
    ids=["quote", "quote after a record of two lines", "long field", "LF among CRLF", "CRLF among LF"],
)
def test_a_record_that_cannot_be_read_is_named_by_its_line_and_its_fault(
    tmp_path: Path, content: bytes, line: int, words: str
) -> None:
    found = faults(tmp_path, content, contract("VARCHAR", "INTEGER"))
    assert found[0].code == "csv_malformed"
    assert found[0].line == line
    assert words in found[0].detail
