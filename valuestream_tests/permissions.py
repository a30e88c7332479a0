"""Being bound by file permissions, also as root: what a test of a read-only folder needs. Linux."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_OVERRIDING = 0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Take from this thread, and those that it starts, the power to pass over permissions; give it back in the end."""
    if os.geteuid() != 0:
        yield
        return
    header, data = _Header(_VERSION_3, 0), (_Data * 2)()
    _call(_libc.capget, header, data)
    before = data[0].effective
    data[0].effective &= ~_OVERRIDING
    _call(_libc.capset, header, data)
    try:
        yield
    finally:
        data[0].effective = before
        _call(_libc.capset, header, data)


def _call(function: object, *arguments: object) -> None:
    if function(*(ctypes.byref(one) for one in arguments)):  # type: ignore[operator,arg-type]
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
