"""Folders: the landing place on a file system, and our own write-once store.

Landing: every component below the root is opened relative to its parent and without following links, so that no swap of a
folder for a link can lead outside. Store: write aside, fsync, link to the final name (which refuses to overwrite), fsync the
folder; nothing is ever changed in place.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import quote

from valuestream_dagster.errors import ObjectChanged, ObjectExists, ObjectMissing, StoreFailure
from valuestream_dagster.stores.base import ObjectStat, read_whole

DEPTH_LIMIT = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that a file was swapped for would wait for its writer for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LINK = {errno.ELOOP, errno.EMLINK}
# Inside a class with a method named ``list`` the built-in needs another name.
_Stats = list[ObjectStat]


def _failure(error: OSError, where: str) -> StoreFailure:
    reason = error.strerror or type(error).__name__
    refused = "give this user the right to read it, and to write if it is the store."
    step = refused if isinstance(error, PermissionError) else "see that the folder works."
    return StoreFailure(f"{where}: {reason}.", next_step=step)


def _stat_of(path: str, found: os.stat_result) -> ObjectStat:
    stamp = f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}-{found.st_ctime_ns}"
    if modes.S_ISREG(found.st_mode):
        return ObjectStat(path, found.st_size, stamp, found.st_mtime_ns)
    link = modes.S_ISLNK(found.st_mode)
    return ObjectStat(path, found.st_size, stamp, found.st_mtime_ns, is_link=link, is_special=not link)


class OpenFile:
    """A landing file being read, pinned by its descriptor and confirmed by its stamp."""

    version = ""

    def __init__(self, descriptor: int, stat: ObjectStat, uri: str) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self._stat = stat
        self._uri = uri

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer; bytes read, 0 at the end."""
        try:
            return self._file.readinto(buffer) or 0
        except OSError as error:
            raise _failure(error, self._uri) from error

    def confirm(self) -> None:
        """Raise ObjectChanged where the file's stamp is not the listing's."""
        if _stat_of(self._stat.path, os.fstat(self._file.fileno())) != self._stat:
            raise ObjectChanged(f"{self._uri} changed while it was looked at.", next_step="look again in a moment.")

    def close(self) -> None:
        """Release the descriptor."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalLanding:
    """A landing place that is a folder; the root itself may be a link, nothing below it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> list[ObjectStat]:
        """Everything below the root, sorted by path; a root that is not there lists as nothing."""
        found: _Stats = []
        try:
            descriptor = os.open(self.root, _FOLDER)
        except FileNotFoundError:
            return found
        except OSError as error:
            raise _failure(error, str(self.root)) from error
        self._collect(descriptor, "", found, DEPTH_LIMIT)
        found.sort(key=lambda stat: stat.path)
        return found

    def _collect(self, descriptor: int, prefix: str, found: _Stats, depth: int) -> None:
        """List one folder by its descriptor, which is closed, and those below it."""
        try:
            if depth == 0:
                raise StoreFailure(
                    f"{self.root / prefix} is more than {DEPTH_LIMIT} folders deep.",
                    next_step="point `landing` at the folder that holds the deliveries.",
                )
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below = self._open_folder(entry.name, descriptor, prefix)
                        if below is not None:
                            self._collect(below, f"{prefix}{entry.name}/", found, depth - 1)
                        continue
                    try:
                        found.append(_stat_of(prefix + entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:  # taken away between the name and the look
                        continue
        except OSError as error:
            raise _failure(error, str(self.root / prefix)) from error
        finally:
            os.close(descriptor)

    def _open_folder(self, name: str, parent: int, prefix: str) -> int | None:
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):  # taken away, or swapped for a link or file
            return None
        except OSError as error:
            if error.errno in _NO_LINK:
                return None
            raise _failure(error, str(self.root / prefix / name)) from error

    def absent(self) -> str | None:
        """A sentence where the folder is not there."""
        return None if self.root.is_dir() else f"the landing folder {self.root} does not exist yet"

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that holds ``path``, and the last name; no component may be a link."""
        *folders, name = path.split("/")
        descriptor = os.open(self.root, _FOLDER)
        try:
            for folder in folders:
                below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)

    def head(self, path: str) -> ObjectStat | None:
        """The file as it is now; None where it or a folder above it is not there, or a folder above is a link."""
        try:
            with self._folder_of(path) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _NO_LINK:
                return None
            raise _failure(error, str(self.root / path)) from error
        return None if modes.S_ISDIR(found.st_mode) else _stat_of(path, found)

    def open(self, stat: ObjectStat) -> OpenFile:
        """The file that the listing saw; every component is opened without following links."""
        where = str(self.root / stat.path)
        try:
            with self._folder_of(stat.path) as (folder, name):
                descriptor = os.open(name, _FILE, dir_fd=folder)
        except FileNotFoundError as error:
            raise ObjectMissing(f"{where} is not there any more.", next_step="look again in a moment.") from error
        except OSError as error:
            if error.errno in _NO_LINK | {errno.ENOTDIR, errno.ENXIO}:
                raise StoreFailure(
                    f"{where} is, or lies behind, a symbolic link or is no file.", next_step="deliver the file itself."
                ) from error
            raise _failure(error, where) from error
        opened = OpenFile(descriptor, stat, where)
        try:
            opened.confirm()
        except BaseException:
            opened.close()
            raise
        return opened

    def read(self, stat: ObjectStat, limit_bytes: int) -> bytes:
        """All bytes of the file that the listing saw, at most ``limit_bytes``."""
        return read_whole(self.open(stat), stat, limit_bytes, str(self.root / stat.path))

    def uri(self, path: str) -> str:
        """``file:`` address; names that are not valid UTF-8 are kept byte for byte, escaped."""
        return "file://" + quote(os.fsencode(os.path.join(os.path.abspath(self.root), path)))


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the store: its path relative to it, its bytes, and when they were written."""

    path: str
    bytes: int
    modified: datetime


class LocalStore:
    """Our own store in a folder: names are written once. Nothing is created before the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers = count()

    def path(self, rel: str) -> Path:
        """Where the object of that name is or would be."""
        return self.root / rel

    def size(self, rel: str) -> int | None:
        """Bytes of the object, or None where there is none."""
        try:
            return os.stat(self.root / rel).st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failure(error, str(self.root / rel)) from error

    def exists(self, rel: str) -> bool:
        """Whether the name is taken."""
        return self.size(rel) is not None

    def temp(self, suffix: str = "") -> Path:
        """A fresh path on the store's own file system, to write aside; the folder exists, the file does not."""
        folder = self.root / "tmp"
        self._guard(lambda: folder.mkdir(parents=True, exist_ok=True), folder)
        unique = f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}-{os.urandom(4).hex()}"
        return folder / (unique + suffix)

    def put_new(self, rel: str, temp: Path) -> None:
        """Make the temp the object of that name, durably. Raises ObjectExists where the name is taken; the temp stays."""
        if not self.link_new(rel, temp):
            raise ObjectExists(f"{self.root / rel} exists already and is never overwritten.")
        self.sync([rel])
        temp.unlink()

    def link_new(self, rel: str, temp: Path) -> bool:
        """Give the temp its final name, not yet durably and keeping the temp; False where the name is taken."""
        target = self.root / rel
        try:
            os.link(temp, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            self._guard(lambda: target.parent.mkdir(parents=True, exist_ok=True), target.parent)
            try:
                os.link(temp, target)
            except FileExistsError:
                return False
            except OSError as error:
                raise _failure(error, str(target)) from error
        except OSError as error:
            raise _failure(error, str(target)) from error
        return True

    def place(self, rel: str, data: bytes) -> None:
        """Write a small object under a name that says what is in it, not yet durably; a whole one that is there is kept."""
        if self.size(rel) == len(data):
            return
        temp = self.temp()
        try:
            with self.writing(temp) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            if not self.link_new(rel, temp):
                self.replace_torn(rel, temp)
        finally:
            temp.unlink(missing_ok=True)

    def replace_torn(self, rel: str, temp: Path) -> None:
        """Put whole bytes in place of a content-addressed object that a power loss left short (its name proves them equal)."""
        self._guard(lambda: os.replace(temp, self.root / rel), self.root / rel)

    def sync(self, names: Iterable[str]) -> None:
        """Make the objects' bytes and names durable, whoever wrote them; each folder is synced once."""
        folders: set[Path] = {self.root}
        for name in dict.fromkeys(names):
            path = self.root / name
            self._guard(partial(_fsync, path, os.O_RDONLY), path)
            folders.update(folder for folder in path.parents if self.root in folder.parents)
        for folder in folders:
            self._guard(partial(_fsync, folder, _FOLDER), folder)

    @contextmanager
    def writing(self, temp: Path) -> Iterator[BinaryIO]:
        """A new, unbuffered file at a temp path; whatever goes wrong with it is a StoreFailure that names the store."""
        try:
            with open(temp, "xb", buffering=0) as file:
                yield file  # type: ignore[misc, unused-ignore]
        except OSError as error:
            raise _failure(error, str(self.root)) from error

    def files(self) -> Iterator[StoredFile]:
        """Every file of the store, in no order; links are not followed. Raises StoreFailure where a folder cannot be read."""

        def fail(error: OSError) -> None:
            raise _failure(error, str(self.root)) from error

        if not self.root.exists():
            return
        for folder, _, names in os.walk(self.root, onerror=fail):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found = os.stat(path, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # somebody's temporary file
                relative = os.path.relpath(path, self.root)
                yield StoredFile(relative, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def delete(self, rel: str) -> None:
        """Take the object away; it need not be there."""
        self._guard(lambda: (self.root / rel).unlink(missing_ok=True), self.root / rel)

    def _guard(self, act: Callable[[], object], where: Path) -> None:
        try:
            act()
        except OSError as error:
            raise _failure(error, str(where)) from error
