"""Checksums as producers write them: hex in either case, or base64 exactly. Nothing about where they stand."""

from __future__ import annotations

import base64
import binascii

from valuestream_dagster.core.manifest import Checksum
from valuestream_dagster.manifests.strict_json import shown

_CHECKSUM_BYTES = {"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}
# Strongest first: an entry that gives several is held to the first of these.
STRENGTH = ("sha512", "sha256", "sha1", "md5")


def read_checksum(algorithm: str, value: str) -> Checksum | None:
    """Hex in either case, or base64 exactly."""
    found = Checksum.parse(algorithm, value)
    if found is not None:
        return found
    name = algorithm.lower().replace("-", "")
    try:
        digest = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
    exact = base64.b64encode(digest).decode("ascii") == value
    return Checksum(name, digest.hex()) if exact and len(digest) == _CHECKSUM_BYTES.get(name) else None


def checksum_fault(algorithm: str, value: str) -> str:
    """Why the value is no such checksum, and what it looks like instead (case 17)."""
    if algorithm.lower().replace("-", "") not in _CHECKSUM_BYTES:
        return f"the checksum algorithm {shown(algorithm)} is not one of {', '.join(_CHECKSUM_BYTES)}"
    others = [other for other in _CHECKSUM_BYTES if read_checksum(other, value) is not None]
    guess = f"; its length fits {others[0]}" if others else ""
    return f"{len(value)} characters that cannot be a {algorithm}{guess}"
