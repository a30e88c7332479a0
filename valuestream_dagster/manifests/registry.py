"""The manifest formats by name. A format is a module with ``parse`` and ``identify``; the registry only lists them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Protocol

from valuestream_dagster.core.manifest import Kind, Manifest, UnusableManifest
from valuestream_dagster.core.pattern import Named
from valuestream_dagster.core.sequence import Sequence
from valuestream_dagster.errors import WrongUse
from valuestream_dagster.manifests import native


class ManifestParser(Protocol):
    """What every manifest format can do; neither call raises, whatever the bytes are."""

    def parse(
        self,
        data: bytes,
        *,
        sequence: Sequence,
        source: str,
        dataset: str,
        default_kind: Kind,
        entries_limit: int,
        allowed_kinds: frozenset[Kind] = ...,
        allow_empty: bool = ...,
        named: Named | None = ...,
    ) -> Manifest | UnusableManifest:
        """The delivery that the bytes state, or every fault of the statement."""

    def identify(self, data: bytes) -> tuple[str, str] | None:
        """(source, dataset), if the bytes tell."""


PARSERS: Mapping[str, ManifestParser] = MappingProxyType({"native": native})


def parser_of(name: str) -> ManifestParser:
    """The parser of a format.

    Raises:
        WrongUse: no such format; names the nearest one.
    """
    if name not in PARSERS:
        nearest = get_close_matches(name, PARSERS, n=1) or sorted(PARSERS)
        raise WrongUse(f"{name!r} is no manifest format.", next_step=f"write {nearest[0]}.")
    return PARSERS[name]
