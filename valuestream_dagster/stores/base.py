"""What a landing place can be asked: list, look, read pinned bytes. Writing is only done to our own store (``stores.local``).

The rule of safety: an object is opened *as the listing saw it*. If it is another object by now, opening it or confirming it
after the last byte raises ``ObjectChanged``; nobody is ever handed bytes of a mixture. Symbolic links are never followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from valuestream_dagster.errors import StoreFailure


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One object as one listing saw it.

    Args:
        path: below the landing root, with forward slashes.
        bytes: size.
        stamp: opaque; differs whenever the object may have changed.
        modified_ns: time of the last change in nanoseconds since 1970, where the place tells.
        version: the object version, where the listing tells (opening it may tell more).
        stable: objects of this place appear whole or not at all (S3), so that a short one is never "still arriving".
        is_link: a symbolic link, to be refused.
        is_special: a socket, pipe or device, to be refused.
    """

    path: str
    bytes: int
    stamp: str
    modified_ns: int | None
    version: str = ""
    stable: bool = False
    is_link: bool = False
    is_special: bool = False

    @property
    def modified_at(self) -> datetime | None:
        """Time of the last change (UTC), or None where the place does not tell or no calendar holds it."""
        try:
            return None if self.modified_ns is None else datetime.fromtimestamp(self.modified_ns / 1e9, UTC)
        except (OverflowError, ValueError, OSError):
            return None


class OpenObject(Protocol):
    """One object being read. ``version`` is the version that is really read, where the place has versions."""

    @property
    def version(self) -> str:
        """The object version of the bytes, or ``""``."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from its start; the number of bytes, 0 at the end. Raises StoreFailure."""

    def confirm(self) -> None:
        """To be called after the last byte: raises ObjectChanged if the object is not what was opened any more."""

    def close(self) -> None:
        """Release the object."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LandingPlace(Protocol):
    """Where one or more producers put their deliveries. Never written to here."""

    def list(self) -> list[ObjectStat]:
        """Everything below the root at any depth, sorted by path, in one pass; links are reported, never followed.

        A root that does not exist yet lists as nothing (``absent`` says so). Raises StoreFailure naming what could not be read.
        """

    def absent(self) -> str | None:
        """Why there can be nothing to list, as a sentence, or None where the root is there."""

    def head(self, path: str) -> ObjectStat | None:
        """The object as it is now, or None."""

    def open(self, stat: ObjectStat) -> OpenObject:
        """The object that the listing saw. Raises ObjectChanged, ObjectMissing, StoreFailure (a link among others)."""

    def read(self, stat: ObjectStat, limit_bytes: int) -> bytes:
        """All its bytes, confirmed. Raises StoreFailure where there are more than ``limit_bytes``, and as ``open``."""

    def uri(self, path: str) -> str:
        """The object's address, for people and lineage; never with credentials."""


def read_whole(opened: OpenObject, stat: ObjectStat, limit_bytes: int, uri: str) -> bytes:
    """All bytes of an open object, confirmed and never more than ``limit_bytes``; closes it."""
    with opened:
        if stat.bytes > limit_bytes:
            raise StoreFailure(
                f"{uri} is {stat.bytes} bytes, more than the limit of {limit_bytes}.",
                next_step="ask its producer what it is, or raise the limit.",
            )
        buffer = bytearray(stat.bytes + 1)
        view, filled = memoryview(buffer), 0
        while filled < len(buffer) and (count := opened.readinto(view[filled:])):
            filled += count
        opened.confirm()
        return bytes(view[: min(filled, stat.bytes)])
