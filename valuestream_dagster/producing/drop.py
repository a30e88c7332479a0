"""The folder into which a producer hands over: all is written aside, made durable, and named at once or not at all.

A name that is there already with the same bytes is left as it is; with other bytes it is never replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import ExitStack
from pathlib import Path

from valuestream_dagster.errors import ObjectExists
from valuestream_dagster.producing.statement import StatedFile, same_statement

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_COPY_BYTES = 1024 * 1024


class Drop:
    """One packing's work in a folder; what is not named when ``stack`` ends is removed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        folder.mkdir(parents=True, exist_ok=True)

    def temp(self, name: str) -> Path:
        """A fresh hidden path beside the final name."""
        temp = self.folder / f".{name}.{os.urandom(4).hex()}.part"
        self._stack.callback(temp.unlink, missing_ok=True)
        return temp

    def copy(self, source: Path, name: str) -> tuple[Path, str, int]:
        """Copy a file aside, durably: the copy, the sha256 and the number of its bytes.

        A file that lies under its final name already is only read.
        """
        target = self.folder / name
        if target.exists() and target.samefile(source):
            with target.open("rb") as file:
                return target, hashlib.file_digest(file, "sha256").hexdigest(), target.stat().st_size
        temp, digest, size = self.temp(name), hashlib.sha256(), 0
        with source.open("rb") as reading, temp.open("xb") as writing:
            while block := reading.read(_COPY_BYTES):
                digest.update(block)
                writing.write(block)
                size += len(block)
            writing.flush()
            os.fsync(writing.fileno())
        return temp, digest.hexdigest(), size

    def refuse_other_manifest(self, name: str, data: bytes) -> None:
        """Find out early that a manifest of that name states something else; ``put_manifest`` has the last word."""
        target = self.folder / name
        if target.exists() and not same_statement(target.read_bytes(), data):
            raise _other(target, "raise --revision: what was handed over once is never changed.")

    def put_payload(self, stated: StatedFile, temp: Path) -> None:
        """Give a payload file its name.

        Raises:
            ObjectExists: other bytes have it.
        """
        target = self.folder / stated.path
        if temp == target or _name(temp, target):
            return
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != stated.sha256:
                raise _other(target, "give the new file a name of its own, e.g. with --name-prefix.")

    def put_manifest(self, name: str, data: bytes) -> bool:
        """Name the manifest, after all that it names; False where it was there already.

        Raises:
            ObjectExists: a manifest of that name states something else.
        """
        target, temp = self.folder / name, self.temp(name)
        with temp.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if _name(temp, target):
            return True
        if not same_statement(target.read_bytes(), data):
            raise _other(target, "raise --revision: what was handed over once is never changed.")
        return False

    def sync(self) -> None:
        """Make the names given so far survive a power loss."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _name(temp: Path, target: Path) -> bool:
    """Give the temp its final name in one step; False where the name is taken."""
    try:
        os.link(temp, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():  # a file system without links cannot refuse by itself
            return False
        temp.replace(target)
    return True


def _other(target: Path, next_step: str) -> ObjectExists:
    return ObjectExists(f"{target} is there already with other content.", next_step=next_step)
