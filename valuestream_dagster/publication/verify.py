"""Verify: every file that readers see is read again and compared with what was recorded when it was published (L7).

Equal bytes are all there is to ask: rows and embedded provenance were read back when the file was written. A match shows that the
bytes are those that were recorded, never that the business data is complete. Reads only; many files at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.ledger.rows import RecordedFile
from valuestream_dagster.stores.local import LocalStore


@dataclass(frozen=True, slots=True)
class Fault:
    """One file that is not what was recorded."""

    file: RecordedFile
    code: str
    detail: str
    next_step: str

    def as_dict(self) -> dict[str, object]:
        """As ``verify --json`` prints it."""
        return {
            "feed": self.file.feed, "key": self.file.key, "path": self.file.path, "code": self.code, "detail": self.detail,
            "next": self.next_step,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read, and every fault, by name."""

    files: int
    bytes: int
    faults: tuple[Fault, ...]


def verify(
    store: LocalStore, files: Iterable[RecordedFile], *, on_progress: Callable[[int, int], None] | None = None
) -> Verified:
    """Read files again and compare them with what was recorded. Costs one reading of each, on every core.

    Args:
        store: where they lie.
        files: what was recorded of them.
        on_progress: told (files read, files in all).
    """
    wanted = list(files)
    faults: list[Fault] = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="valuestream-verify") as pool:
        for done, each in enumerate(as_completed(pool.submit(_fault_of, store, one) for one in wanted), 1):
            faults += each.result()
            if on_progress is not None:
                on_progress(done, len(wanted))
    return Verified(len(wanted), sum(one.bytes for one in wanted), tuple(sorted(faults, key=lambda one: one.file.path)))


def _fault_of(store: LocalStore, one: RecordedFile) -> Iterator[Fault]:
    return iter(tuple(_faults(store, one)))


def _faults(store: LocalStore, one: RecordedFile) -> Iterator[Fault]:
    again = (
        "put it back from a copy of the store, or ask the producer for the delivery again under a higher revision."
        if one.sealed
        else f"put it back from a copy of the store, or run `valuestream apply {one.feed} --key {one.key} --force`, which makes it "
        "again from its sealed bytes."
    )
    try:
        size = store.size(one.path)
        if size is None:
            yield Fault(one, "file_missing", "it is gone", again)
            return
        if size != one.bytes:
            yield Fault(one, "file_changed", f"it has {size} bytes, recorded are {one.bytes}", again)
            return
        with store.path(one.path).open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, StoreFailure) as error:
        why = error.message if isinstance(error, StoreFailure) else error.strerror or str(error)
        yield Fault(one, "file_unreadable", f"it cannot be read: {why}", "see that the disk and its permissions are right.")
        return
    if found != one.sha256:
        yield Fault(one, "file_changed", f"its sha256 is {found[:12]}, recorded is {one.sha256[:12]}", again)
