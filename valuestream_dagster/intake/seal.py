"""Take a complete delivery's bytes into our own store under their sha256, checked in the same pass. The only reader of payload.

One pass: what is hashed is what is kept, and the landing place is never asked again (M6). Every entry is checked before anything
gets its final name; of a delivery with one wrong byte nothing is bound or used (S2), and its bytes stay as evidence. A file that
changes while it is copied makes the delivery wait, not wrong. Names are given at once and made durable beside the caller's work
(``made_durable``): record nothing before ``wait_durable``.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Entry, SealedFile, digest_of
from valuestream_dagster.errors import Broken, ObjectChanged, ObjectMissing, StoreFailure
from valuestream_dagster.intake.completion import Resolved, size_mismatch, version_mismatch
from valuestream_dagster.stores.base import LandingPlace, ObjectStat, OpenObject
from valuestream_dagster.stores.local import LocalStore

# Measured on 150 MB: 256 KiB to 1 MiB are the fastest (0.13-0.16 s); above, the buffers fall out of the processor's cache.
BUFFER_BYTES = 512 * 1024
_BUFFERS = 4


class _Durability:
    """Makes sealed names durable in a thread beside the caller's work."""

    def __init__(self, store: LocalStore, names: Sequence[str]) -> None:
        self._failure: StoreFailure | None = None
        self._work = threading.Thread(target=self._sync, args=(store, names), name="valuestream-fsync", daemon=True)
        self._work.start()

    def _sync(self, store: LocalStore, names: Sequence[str]) -> None:
        try:
            store.sync(names)
        except StoreFailure as error:
            self._failure = error

    def wait(self) -> None:
        """Wait until it is done; raises what went wrong."""
        self._work.join()
        if self._failure is not None:
            raise self._failure


@dataclass(frozen=True, slots=True)
class Sealed:
    """A delivery in our own store: its files in the manifest's order, where their bytes are, and its digest."""

    files: tuple[SealedFile, ...]
    paths: tuple[Path, ...]
    digest: Digest
    _durability: _Durability | None = None

    def made_durable(self, store: LocalStore, also: Sequence[str] = ()) -> Sealed:
        """The same, while a thread makes its bytes, and the other named objects, durable."""
        names = [*(sealed_name(file.sha256) for file in self.files), *also]
        return replace(self, _durability=_Durability(store, names) if names else None)

    def wait_durable(self) -> None:
        """Return when the bytes and names would survive a power loss. Call before recording. Raises StoreFailure."""
        if self._durability is not None:
            self._durability.wait()


def sealed_name(sha256: str) -> str:
    """Where in the store bytes of that digest are."""
    return f"sealed/{sha256[:2]}/{sha256}"


def place_manifest(store: LocalStore, data: bytes) -> str:
    """Keep the producer's own words, byte for byte, under their digest (M9), not yet durably; their name."""
    name = sealed_name(hashlib.sha256(data).hexdigest())
    store.place(name, data)
    return name


def keep_manifest(store: LocalStore, data: bytes) -> None:
    """The same, durably; nothing where no byte could be read."""
    if data:
        store.sync([place_manifest(store, data)])


def from_store(store: LocalStore, files: Sequence[SealedFile]) -> Sealed:
    """A delivery that was sealed before, read again byte by byte: what is used is what was checked then (M6).

    Raises:
        StoreFailure: bytes are missing, or are not those any more.
    """
    for file in files:
        path = store.path(sealed_name(file.sha256))
        try:
            with path.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            found = error.strerror or type(error).__name__
        if found != file.sha256:
            raise StoreFailure(
                f"the sealed bytes of {file.path} ({path.name[:12]}) are gone or changed: {found[:12]}.",
                next_step="put the file back from a copy of the store, or ask the producer for the delivery again.",
            )
    paths = tuple(store.path(sealed_name(file.sha256)) for file in files)
    return Sealed(tuple(files), paths, digest_of(files))


@dataclass(frozen=True, slots=True)
class _Copy:
    """One entry's bytes taken in; ``temp`` is None where the store has them already."""

    sha256: str
    bytes: int
    version: str
    temp: Path | None


def seal(
    landing: LandingPlace, resolved: Resolved, store: LocalStore, *, buffer: int = BUFFER_BYTES
) -> Sealed | Invalid | Incomplete:
    """Copy, hash and compare every entry, then give the bytes their names.

    Args:
        landing: where the resolved objects are.
        resolved: entries with the objects that they are.
        store: our own store.
        buffer: bytes read at a time.

    Returns:
        Sealed; or Invalid with every difference from the manifest; or Incomplete where a file changed or went away meanwhile.

    Raises:
        StoreFailure: the landing place or the store failed.
    """
    moving: list[str] = []
    findings: list[Finding] = []
    copies: list[tuple[Entry, ObjectStat, _Copy]] = []
    next_step = f"ask {resolved.source or 'the producer'} for a resend."
    with ExitStack() as temps:
        for entry, stat in resolved.entries:
            try:
                copy, declared = _take(landing, entry, stat, store, buffer, temps)
            except ObjectChanged:
                moving.append(f"{entry.path} (changed while it was read)")
                continue
            except ObjectMissing:
                moving.append(entry.path)
                continue
            if entry.version_id is not None and copy.version and copy.version != entry.version_id:
                findings.append(version_mismatch(entry, copy.version, next_step))
            else:
                findings += _differences(entry, copy, declared, next_step)
            copies.append((entry, stat, copy))
        if moving:
            return Incomplete(tuple(moving))
        names = [_name(copy, store) for _, _, copy in copies]
    files = tuple(
        SealedFile(
            role=entry.role,
            path=entry.path,
            sha256=copy.sha256,
            bytes=copy.bytes,
            uri=landing.uri(stat.path),
            version=copy.version,
            rows=entry.rows,
        )
        for entry, stat, copy in copies
    )
    if findings:
        store.sync(names)
        return Invalid(tuple(findings), kept=files)
    return Sealed(files, tuple(store.path(name) for name in names), digest_of(files))


def _name(copy: _Copy, store: LocalStore) -> str:
    """Give the bytes their name; bytes that are there already are kept, and a torn file of that name is made whole."""
    name = sealed_name(copy.sha256)
    if copy.temp is None or store.link_new(name, copy.temp):
        return name
    if store.size(name) != copy.bytes:
        store.replace_torn(name, copy.temp)
    return name


def _differences(entry: Entry, copy: _Copy, declared: str | None, next_step: str) -> list[Finding]:
    """How the bytes differ from the entry; a wrong size says it all."""
    if entry.bytes is not None and entry.bytes != copy.bytes:
        return [size_mismatch(entry, copy.bytes, next_step)]
    if entry.checksum is None or entry.checksum.hex == declared:
        return []
    detail = f"the bytes are not those of the manifest ({entry.checksum.algorithm})"
    return [
        Finding("checksum_mismatch", detail, next_step, file=entry.path, expected=entry.checksum.hex, found=declared)
    ]


def _take(
    landing: LandingPlace, entry: Entry, stat: ObjectStat, store: LocalStore, buffer: int, temps: ExitStack
) -> tuple[_Copy, str | None]:
    """Copy and hash one object; the copy, and its hex digest by the algorithm that the entry declares.

    Where the declared sha256 is sealed already, the object is hashed all the same and not copied again, unless it proves to be
    other bytes: those are evidence, and read once more for it.
    """
    algorithm = entry.checksum.algorithm if entry.checksum else "sha256"
    known = entry.checksum.hex if entry.checksum and algorithm == "sha256" else None
    if known is not None and store.size(sealed_name(known)) == stat.bytes:
        copy, hexes = _hashed(landing, stat, {"sha256"}, buffer, None)
        if copy.sha256 == known:
            return copy, hexes[algorithm]
    temp = store.temp()
    temps.callback(temp.unlink, missing_ok=True)
    with store.writing(temp) as file:
        copy, hexes = _hashed(landing, stat, {"sha256", algorithm}, buffer, file)
    return replace(copy, temp=temp), hexes[algorithm]


def _hashed(
    landing: LandingPlace, stat: ObjectStat, algorithms: set[str], buffer: int, file: BinaryIO | None
) -> tuple[_Copy, dict[str, str]]:
    """Read one object once, into ``file`` if there is one; what it is, and its hex digest by each algorithm."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}

    def digest(view: memoryview) -> None:
        for each in hashes.values():
            each.update(view)

    with landing.open(stat) as opened:
        size = _pump(opened, stat, digest, file, buffer)
        version = opened.version or stat.version
    hexes = {name: each.hexdigest() for name, each in hashes.items()}
    return _Copy(hexes["sha256"], size, version, None), hexes


def _pump(
    opened: OpenObject, stat: ObjectStat, digest: Callable[[memoryview], None], file: BinaryIO | None, buffer: int
) -> int:
    """Move every byte once from the object to the digest and the file, then confirm the object; the number of bytes."""
    if stat.bytes <= buffer:
        size = _pump_alone(opened, digest, file, memoryview(bytearray(max(stat.bytes, 1) + 1)))
    else:
        size = _pump_beside(opened, digest, file, buffer)
    opened.confirm()
    if size != stat.bytes:
        raise ObjectChanged(f"{stat.path} has {size} bytes and was listed with {stat.bytes}.")
    return size


def _pump_alone(
    opened: OpenObject, digest: Callable[[memoryview], None], file: BinaryIO | None, view: memoryview
) -> int:
    size = 0
    while count := opened.readinto(view):
        digest(view[:count])
        if file is not None:
            _write(file, view[:count])
        size += count
    return size


def _pump_beside(opened: OpenObject, digest: Callable[[memoryview], None], file: BinaryIO | None, buffer: int) -> int:
    """As above with the hashing in a thread beside reading and writing; the buffers bound what is in memory."""
    free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    full: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
    for _ in range(_BUFFERS):
        free.put(memoryview(bytearray(buffer)))

    def hash_all() -> None:
        while (item := full.get()) is not None:
            view, count = item
            digest(view[:count])
            free.put(view)

    hashing = threading.Thread(target=hash_all, name="valuestream-hash", daemon=True)
    hashing.start()
    size = 0
    try:
        while count := opened.readinto(view := free.get()):
            full.put((view, count))
            if file is not None:
                _write(file, view[:count])
            size += count
    finally:
        full.put(None)
        hashing.join()
    return size


def _write(file: BinaryIO, view: memoryview) -> None:
    """Write all of it; a raw file may take less at a time."""
    while view:
        count = file.write(view)
        if not count:
            raise Broken("the store took no bytes and reported no error")
        view = view[count:]
