"""Immutable Parquet: write rows aside while proving them, give the file its final name once, read it back.

The order is: COPY to a temporary name (``COPY`` overwrites silently and syncs nothing, so never to the final one), validate what
was written, hash, fsync; then ``os.link``, which refuses to overwrite, and fsync the folder; then read back. Nothing here decides
names or knows the ledger. A file without a name in the ledger is inert, so a crash leaves at most an orphan.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from uuid import uuid4

import duckdb

from valuestream_dagster.core.rows import DeclaredControls, MeasuredRows, RowContract, RowsRefused, RowStamp
from valuestream_dagster.errors import Broken, ObjectExists
from valuestream_dagster.intake.csv_sql import literal
from valuestream_dagster.intake.payload import CheckedRows, PayloadFile, open_rows
from valuestream_dagster.intake.validation import validate
from valuestream_dagster.publication.transform import TransformFailed, carry_out

# One thread is faster than two below this, and opening a connection (30 ms) would be most of the work, so that one is kept.
SMALL_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A written, proven and synced Parquet file that has no final name yet.

    Args:
        path: its temporary name.
        sha256: hex digest of its bytes.
        bytes: its size.
        measured: what was counted in it.
        provenance: what is embedded in it.
    """

    path: Path
    sha256: str
    bytes: int
    measured: MeasuredRows
    provenance: tuple[tuple[str, str], ...] = ()


def stage(
    files: Sequence[PayloadFile],
    contract: RowContract,
    *,
    stamp: RowStamp,
    controls: DeclaredControls,
    provenance: Mapping[str, str],
    directory: Path,
    scratch: Path,
    threads: int | None = None,
    max_ratio: int = 200,
) -> StagedFile | RowsRefused:
    """Write the delivery's rows as one Parquet file beside its final place, proven lossless and validated.

    Args:
        files: the delivery's sealed files; none makes a Parquet file without rows.
        contract: how rows are declared.
        stamp: what every row carries.
        controls: what the manifest says the rows add up to.
        provenance: embedded in the file's metadata, text by text.
        directory: for the temporary file; on the file system of the final name.
        scratch: for unpacked copies and spilled memory.
        threads: how many to use; by size where ``None``.
        max_ratio: unpacked bytes per packed byte beyond which a file is refused.

    Returns:
        The file, or every finding; then nothing is left behind.

    Raises:
        WrongUse: the contract cannot be read (types, encoding).
        duckdb.Error: not the rows' fault (disk full, out of memory, ``delete_when`` is no SQL).
    """
    used = threads or _threads(files)
    if contract.transform is not None:
        return _stage_transformed(
            files, contract, stamp=stamp, controls=controls, provenance=provenance, directory=directory, scratch=scratch,
            threads=used, max_ratio=max_ratio,
        )  # fmt: skip
    temporary = directory / f".{uuid4().hex}.parquet.tmp"
    try:
        with open_rows(files, contract, scratch=scratch, threads=used, max_ratio=max_ratio) as rows:
            if isinstance(rows, RowsRefused):
                return rows
            with _connection(used, scratch) as con:
                refused = _write(con, rows, stamp, provenance, temporary)
                if refused is not None:
                    return refused
                measured, findings = validate(con, _relation(temporary), files, contract, controls)
        if findings:
            temporary.unlink()
            return RowsRefused(findings)
        sha256, size = _sync(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return StagedFile(temporary, sha256, size, measured, tuple(provenance.items()))


def _stage_transformed(
    files: Sequence[PayloadFile],
    contract: RowContract,
    *,
    stamp: RowStamp,
    controls: DeclaredControls,
    provenance: Mapping[str, str],
    directory: Path,
    scratch: Path,
    threads: int,
    max_ratio: int,
) -> StagedFile | RowsRefused:
    """The same by way of a transform: delivered rows are read and compared first, then the transform's output is proven.

    Raises:
        TransformFailed: the transform is at fault, also where its rows have a key twice; that is never the producer's.
    """
    transform = contract.transform
    with TemporaryDirectory(dir=scratch, prefix="transform-") as folder:
        work = Path(folder)
        delivered = stage(
            files, contract.as_delivered, stamp=stamp, controls=controls, provenance={}, directory=work, scratch=work,
            threads=threads, max_ratio=max_ratio,
        )  # fmt: skip
        if isinstance(delivered, RowsRefused):
            return delivered
        made = work / "transformed.parquet"
        carry_out(delivered.path, contract, stamp=stamp, provenance=provenance, target=made, threads=threads)
        with _connection(threads, work) as con:
            measured, findings = validate(con, _relation(made), (), replace(contract, totals=()), DeclaredControls())
        if findings:
            raise TransformFailed(
                f"the transform {transform.name if transform else ''} failed: {findings[0].detail} [{findings[0].code}].",
                next_step="mend the transform, then run `valuestream apply` again; the delivery is sealed and stays.",
            )
        temporary = directory / f".{uuid4().hex}.parquet.tmp"
        made.rename(temporary)
    sha256, size = _sync(temporary)
    counted = MeasuredRows(measured.rows, delivered.measured.rows_per_file, delivered.measured.totals)
    return StagedFile(temporary, sha256, size, counted, tuple(provenance.items()))


def check_only(
    files: Sequence[PayloadFile],
    contract: RowContract,
    *,
    controls: DeclaredControls,
    scratch: Path,
    threads: int | None = None,
    max_ratio: int = 200,
) -> MeasuredRows | RowsRefused:
    """The same checks by the same way; what was written to ``scratch`` for them is gone when this returns."""
    staged = stage(
        files,
        contract,
        stamp=RowStamp("", "", 0),
        controls=controls,
        provenance={},
        directory=scratch,
        scratch=scratch,
        threads=threads,
        max_ratio=max_ratio,
    )
    if isinstance(staged, RowsRefused):
        return staged
    staged.path.unlink()
    return staged.measured


def publish_file(staged: StagedFile, final: Path) -> None:
    """Give a staged file its final name, durably; its temporary name is gone afterwards.

    Raises:
        ObjectExists: the name is taken by other bytes. The same bytes are fine: a retry that finds its own file.
    """
    try:
        os.link(staged.path, final)
    except FileExistsError as error:
        if _hash(final)[0] != staged.sha256:
            raise ObjectExists(
                f"{final} holds other bytes than those to be published.",
                next_step="a published name is written once; run `valuestream recover`, then try again.",
            ) from error
    _sync_folder(final.parent)
    staged.path.unlink(missing_ok=True)


def read_back(final: Path, staged: StagedFile) -> None:
    """Read a published file again: bytes, rows and embedded provenance are those that were staged.

    Raises:
        Broken: they are not, or the file cannot be read.
    """
    try:
        sha256, size = _hash(final)
        with _connection(1, final.parent) as con:
            rows = con.execute(f"SELECT count(*) FROM {_relation(final)}").fetchone()
            embedded = _provenance(con, final)
    except (OSError, duckdb.Error) as error:
        raise Broken(
            f"{final} cannot be read back: {error}", next_step="check the disk; nothing was recorded."
        ) from error
    differences = [
        f"{what} is {found}, staged was {wanted}"
        for what, found, wanted in (
            ("sha256", sha256, staged.sha256),
            ("size", size, staged.bytes),
            ("rows", rows, (staged.measured.rows,)),
            ("provenance", embedded, dict(staged.provenance)),
        )
        if found != wanted
    ]
    if differences:
        raise Broken(f"{final} reads back differently: {'; '.join(differences)}.", next_step="check the disk.")


def read_provenance(path: Path) -> dict[str, str]:
    """The texts that were embedded in a Parquet file when it was written."""
    with _connection(1, path.parent) as con:
        return _provenance(con, path)


def _threads(files: Sequence[PayloadFile]) -> int:
    small = sum(file.path.stat().st_size for file in files) < SMALL_BYTES
    return 1 if small else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _connection(threads: int, scratch: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An in-memory connection: a cursor of the kept one for one thread, else one of its own that spills to scratch."""
    if threads == 1:
        with _kept_connection(os.getpid()).cursor() as con:
            yield con
        return
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "temp_directory": str(scratch),
        "autoinstall_known_extensions": False,
    }
    with duckdb.connect(":memory:", config=config) as con:
        # Rows have no order (keys are unique), and keeping the file's costs 100 MB and a tenth of the time.
        con.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        yield con


@lru_cache(maxsize=1)
def _kept_connection(_process: int) -> duckdb.DuckDBPyConnection:
    """The process's own; a forked child, with another id, gets another."""
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "temp_directory": gettempdir()}
    con = duckdb.connect(":memory:", config={**config, "autoinstall_known_extensions": False})
    con.execute("SET GLOBAL TimeZone = 'UTC'")
    return con


def _write(
    con: duckdb.DuckDBPyConnection, rows: CheckedRows, stamp: RowStamp, provenance: Mapping[str, str], target: Path
) -> RowsRefused | None:
    pairs = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in provenance.items())
    embedded = f", KV_METADATA {{{pairs}}}" if pairs else ""
    options = f"FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2{embedded}"

    def discard() -> None:
        target.unlink(missing_ok=True)

    findings = rows.evaluate(
        con, stamp, lambda select: con.execute(f"COPY ({select}) TO {literal(str(target))} ({options})"), discard
    )
    if findings:
        discard()
    return RowsRefused(findings) if findings else None


def _relation(path: Path) -> str:
    return f"read_parquet({literal(str(path))})"


def _provenance(con: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    found = con.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata({literal(str(path))})").fetchall()
    return {str(key): str(value) for key, value in found}


def _sync(path: Path) -> tuple[str, int]:
    """Make a file's bytes durable; their sha256 and how many they are."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return _hash(path)


def _hash(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
