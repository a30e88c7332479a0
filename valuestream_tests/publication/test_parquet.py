"""Published files are written aside, proven, named once and read back (L7, M3)."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from valuestream_dagster.core.rows import (
    PROVENANCE_COLUMNS,
    Column,
    DeclaredControls,
    MeasuredRows,
    RowContract,
    RowsRefused,
    RowStamp,
)
from valuestream_dagster.errors import Broken, ObjectExists
from valuestream_dagster.intake import payload
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.publication.parquet import (
    StagedFile,
    check_only,
    publish_file,
    read_back,
    read_provenance,
    stage,
)

CONTRACT = RowContract(
    (Column("id", "BIGINT"), Column("amount", "DECIMAL(18,2)"), Column("op", "VARCHAR")),
    key=("id",),
    totals=("amount",),
    delete_when="op = 'D'",
)
STAMP = RowStamp("2026-09-01", "delta", 7)
PROVENANCE = {"valuestream.source": "Zürich ✓ it's", "valuestream.revision": "1"}
NOTHING_DECLARED = DeclaredControls()
GOOD = b"id,amount,op\n1,0.10,U\n2,0.20,D\n"


def payload_file(folder: Path, content: bytes = GOOD, name: str = "part-0.csv", rows: int | None = None) -> PayloadFile:
    path = folder / f"sealed-{name}"
    path.write_bytes(content)
    return PayloadFile(path, name, rows)


def staged_in(
    folder: Path, *files: PayloadFile, controls: DeclaredControls = NOTHING_DECLARED, threads: int | None = None
) -> StagedFile | RowsRefused:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return stage(
        files,
        CONTRACT,
        stamp=STAMP,
        controls=controls,
        provenance=PROVENANCE,
        directory=work,
        scratch=work,
        threads=threads,
    )


def good(folder: Path) -> StagedFile:
    staged = staged_in(folder, payload_file(folder))
    assert isinstance(staged, StagedFile)
    return staged


def left(folder: Path) -> list[str]:
    return [path.name for path in (folder / "work").iterdir()]


@pytest.mark.parametrize("threads", [1, 2, None])
def test_a_staged_file_holds_the_rows_their_delivery_and_its_provenance(tmp_path: Path, threads: int | None) -> None:
    controls = DeclaredControls(2, (("amount", Decimal("0.3")),))
    staged = staged_in(tmp_path, payload_file(tmp_path, rows=2), controls=controls, threads=threads)
    assert isinstance(staged, StagedFile)
    assert staged.measured == MeasuredRows(2, (2,), (("amount", Decimal("0.30")),))
    assert staged.sha256 == hashlib.sha256(staged.path.read_bytes()).hexdigest()
    assert staged.bytes == staged.path.stat().st_size
    assert read_provenance(staged.path) == PROVENANCE
    with duckdb.connect() as con:
        relation = con.execute(f"SELECT * FROM read_parquet('{staged.path}') ORDER BY id")
        assert [(column[0], str(column[1])) for column in relation.description or ()] == [
            ("id", "BIGINT"),
            ("amount", "DECIMAL(18,2)"),
            ("op", "VARCHAR"),
            *((name, "BIGINT" if name == "_seq" else "VARCHAR") for name in PROVENANCE_COLUMNS),
        ]
        assert relation.fetchall() == [
            (1, Decimal("0.10"), "U", "2026-09-01", "delta", 7, "U", "part-0.csv"),
            (2, Decimal("0.20"), "D", "2026-09-01", "delta", 7, "D", "part-0.csv"),
        ]


def test_a_delivery_without_files_is_a_file_without_rows_but_with_its_columns(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    assert isinstance(staged, StagedFile)
    assert staged.measured == MeasuredRows(0, (), (("amount", Decimal(0)),))
    with duckdb.connect() as con:
        described = con.execute(f"DESCRIBE FROM read_parquet('{staged.path}')").fetchall()
    assert [name for name, *_ in described] == ["id", "amount", "op", *PROVENANCE_COLUMNS]


def test_a_large_file_is_proven_and_read_by_the_fast_way(tmp_path: Path) -> None:
    rows = 60_000
    content = b"id,amount,op\n" + b"".join(b"%d,%d.5,some text here\n" % (n, n) for n in range(rows))
    assert len(content) > payload.PROOF_FROM_BYTES
    staged = staged_in(tmp_path, payload_file(tmp_path, content, rows=rows))
    assert isinstance(staged, StagedFile)
    assert staged.measured.totals == (("amount", Decimal(rows * rows) / 2),)


def test_a_fault_on_the_last_line_of_a_large_file_is_found_and_named(tmp_path: Path) -> None:
    rows = 60_000
    content = b"id,amount,op\n" + b"".join(b"%d,%d.5,some text here\n" % (n, n) for n in range(rows)) + b"0,4.005,x\n"
    refused = staged_in(tmp_path, payload_file(tmp_path, content))
    assert isinstance(refused, RowsRefused)
    assert [(finding.code, finding.line, finding.found) for finding in refused.findings] == [
        ("value_does_not_fit", rows + 2, "4.005")
    ]
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"id,amount,op\n1,4.005,U\n", "value_does_not_fit"),
        (b"id,amount,op\n1,4.00,U\n1,5.00,U\n", "duplicate_key"),
        (b"id,amount,op\n,4.00,U\n", "null_key"),
        (b"id,amount\n1,4.00\n", "header_mismatch"),
        (b'id,amount,op\n1,4.00,"U\n', "csv_malformed"),
    ],
)
def test_a_refused_delivery_leaves_nothing_behind(tmp_path: Path, content: bytes, code: str) -> None:
    file = payload_file(tmp_path, content)
    refused = staged_in(tmp_path, file)
    assert isinstance(refused, RowsRefused)
    assert [finding.code for finding in refused.findings] == [code]
    assert check_only([file], CONTRACT, controls=DeclaredControls(), scratch=tmp_path / "work") == refused
    assert left(tmp_path) == []


def test_controls_that_contradict_the_bytes_refuse_the_delivery(tmp_path: Path) -> None:
    refused = staged_in(tmp_path, payload_file(tmp_path), controls=DeclaredControls(3))
    assert isinstance(refused, RowsRefused)
    assert [finding.code for finding in refused.findings] == ["row_count_mismatch"]
    assert left(tmp_path) == []


def test_an_error_that_is_not_the_rows_fault_is_raised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    wrong = RowContract(CONTRACT.columns, delete_when="no_such_column = 1")
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(duckdb.BinderException):
        stage(
            [payload_file(tmp_path)],
            wrong,
            stamp=STAMP,
            controls=DeclaredControls(),
            provenance={},
            directory=work,
            scratch=work,
        )
    assert left(tmp_path) == []


def test_checking_only_measures_the_same_and_leaves_nothing_behind(tmp_path: Path) -> None:
    staged = good(tmp_path)
    staged.path.unlink()
    measured = check_only([payload_file(tmp_path)], CONTRACT, controls=DeclaredControls(), scratch=tmp_path / "work")
    assert measured == staged.measured
    assert left(tmp_path) == []


def test_a_published_file_has_its_final_name_only_and_reads_back(tmp_path: Path) -> None:
    staged, final = good(tmp_path), tmp_path / "final.parquet"
    publish_file(staged, final)
    read_back(final, staged)
    assert left(tmp_path) == []


def test_a_name_taken_by_other_bytes_is_never_overwritten(tmp_path: Path) -> None:
    staged, final = good(tmp_path), tmp_path / "final.parquet"
    final.write_bytes(b"precious")
    with pytest.raises(ObjectExists, match="other bytes"):
        publish_file(staged, final)
    assert final.read_bytes() == b"precious"
    assert staged.path.exists()


def test_a_retry_that_finds_its_own_bytes_is_a_success(tmp_path: Path) -> None:
    staged, final = good(tmp_path), tmp_path / "final.parquet"
    final.write_bytes(staged.path.read_bytes())
    publish_file(staged, final)
    read_back(final, staged)
    assert left(tmp_path) == []


def test_reading_back_notices_a_flipped_byte_a_lost_file_and_another_file(tmp_path: Path) -> None:
    staged, final = good(tmp_path), tmp_path / "final.parquet"
    publish_file(staged, final)
    content = final.read_bytes()
    final.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.raises(Broken, match=r"sha256|cannot be read"):
        read_back(final, staged)
    other = staged_in(tmp_path, payload_file(tmp_path, b"id,amount,op\n9,9,U\n"))
    assert isinstance(other, StagedFile)
    other.path.replace(final)
    with pytest.raises(Broken, match="rows is"):
        read_back(final, staged)
    final.unlink()
    with pytest.raises(Broken, match="cannot be read back"):
        read_back(final, staged)
