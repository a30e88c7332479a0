"""The deployment file as a model, and the settings that it states with every path absolute. An empty file is valid."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictFloat, StrictInt

from valuestream_dagster.feeds.closed_model import ClosedModel, not_built, refuse
from valuestream_dagster.feeds.field_values import NotificationUrls


def _local(text: str) -> str:
    scheme, found, _ = text.partition("://")
    if found:
        refuse(not_built(f"{scheme}://"), "a path, relative to the deployment or absolute")
    if not text.strip() or "\x00" in text:
        refuse("the path is empty", "a path, relative to the deployment or absolute")
    return text


def _endpoint(text: str) -> str:
    if not re.match(r"https?://[^\s/]+", text):
        refuse("the endpoint is no http(s) URL", "e.g. https://s3.example.org")
    return text


LocalPath = Annotated[str, AfterValidator(_local)]
Count = Annotated[StrictInt, Field(ge=1, le=10**12)]
Seconds = Annotated[StrictFloat, Field(gt=0, le=86_400)]
Days = Annotated[StrictInt, Field(ge=0, le=36_500)]


class LimitsDeclaration(ClosedModel):
    """Bounds on work and size, each with its unit."""

    manifest_bytes: Count = Field(default=16 * 1024 * 1024, description="Largest manifest, in bytes.")
    manifest_entries: Count = Field(default=100_000, description="Most entries in one manifest.")
    partitions_per_tick: Count = Field(default=2_000, description="Most partitions that one sensor tick registers.")
    keys_per_ledger_run: Count = Field(default=200, description="Most keys that become visible together.")
    ledger_slice_seconds: Seconds = Field(default=0.5, description="How long the ledger is held at most, in seconds.")
    tick_seconds: Seconds = Field(default=30, description="Seconds between two looks of the sensor.")
    settle_seconds: Seconds = Field(
        default=2, description="Seconds for which an unreadable manifest must stay unchanged."
    )
    run_attempts: Annotated[StrictInt, Field(ge=1, le=20)] = Field(
        default=3, description="Attempts at an interrupted key."
    )
    gap_keys_listed: Count = Field(default=1_000, description="Most missing keys that a report names.")
    max_ratio: Count = Field(default=200, description="Unpacked bytes per packed byte at which a payload is refused.")


class RetentionDeclaration(ClosedModel):
    """For how long what nothing visible names is kept; left out: for ever."""

    input_days: Days | None = Field(
        default=None, description="Days for which sealed inputs of invisible deliveries stay."
    )
    superseded_days: Days | None = Field(default=None, description="Days for which superseded publications stay.")
    reader_grace_minutes: Annotated[StrictInt, Field(ge=0, le=525_600)] = Field(
        default=60, description="Minutes for which readers may still read files that are visible no more."
    )


class S3Declaration(ClosedModel):
    """Where S3 is; credentials come from the environment, as the AWS tools read them."""

    endpoint_url: Annotated[str, AfterValidator(_endpoint)] | None = Field(default=None, description="URL, if not AWS.")
    region: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(default=None, description="Region name.")


class SettingsDeclaration(ClosedModel):
    """``valuestream.yaml``."""

    not_built_values: ClassVar[Mapping[str, frozenset[str]]] = {}

    ledger: LocalPath = Field(default="state/ledger.duckdb", description="The ledger's file.")
    store: LocalPath = Field(default="state/store", description="Folder of sealed and published files.")
    catalog: LocalPath = Field(default="state/catalog.duckdb", description="The catalogue that readers attach.")
    dagster_home: LocalPath = Field(default="state/dagster", description="Dagster's home.")
    alerts: NotificationUrls = Field(default=(), description="Notification URLs for every feed.")
    limits: LimitsDeclaration = Field(default=LimitsDeclaration(), description="Bounds on work and size.")
    retention: RetentionDeclaration = Field(default=RetentionDeclaration(), description="What is kept for how long.")
    s3: S3Declaration = Field(default=S3Declaration(), description="Where S3 is.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on work and size; see ``LimitsDeclaration`` for their meaning."""

    manifest_bytes: int
    manifest_entries: int
    partitions_per_tick: int
    keys_per_ledger_run: int
    ledger_slice_seconds: float
    tick_seconds: float
    settle_seconds: float
    run_attempts: int
    gap_keys_listed: int
    max_ratio: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how long what nothing visible names is kept; None: for ever."""

    input_days: int | None
    superseded_days: int | None
    reader_grace_minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where S3 is; None: as the AWS tools find it."""

    endpoint_url: str | None
    region: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A deployment's settings; every path is absolute."""

    deployment: Path
    ledger: Path
    store: Path
    catalog: Path
    dagster_home: Path
    alerts: tuple[str, ...]
    limits: Limits
    retention: Retention
    s3: S3Settings


def to_settings(declaration: SettingsDeclaration, *, deployment: Path) -> Settings:
    """The settings that a valid declaration states.

    Args:
        declaration: as the model accepted it.
        deployment: folder from which relative paths are counted.
    """
    root = Path(os.path.abspath(deployment))

    def absolute(text: str) -> Path:
        return Path(os.path.abspath(root / text))

    return Settings(
        deployment=root,
        ledger=absolute(declaration.ledger),
        store=absolute(declaration.store),
        catalog=absolute(declaration.catalog),
        dagster_home=absolute(declaration.dagster_home),
        alerts=declaration.alerts,
        limits=Limits(**declaration.limits.model_dump()),
        retention=Retention(**declaration.retention.model_dump()),
        s3=S3Settings(**declaration.s3.model_dump()),
    )
