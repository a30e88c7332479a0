"""The two kinds of landing place as one fixture, so that one contract is held by both."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from valuestream_dagster.stores.base import LandingPlace
from valuestream_dagster.stores.local import LocalLanding
from valuestream_dagster.stores.s3 import S3Landing
from valuestream_tests.s3_server import s3_client, s3_server

_numbers = itertools.count()


class Place(Protocol):
    """A landing place with its producer's side."""

    landing: LandingPlace

    def put(self, path: str, data: bytes) -> None:
        """Write or overwrite an object."""

    def take_away(self, path: str) -> None:
        """Delete an object."""


class Folder:
    """A local landing place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing: LandingPlace = LocalLanding(root)

    def put(self, path: str, data: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = self.root.parent / f"upload-{next(_numbers)}"
        aside.write_bytes(data)
        os.replace(aside, target)

    def take_away(self, path: str) -> None:
        (self.root / path).unlink()


class Bucket:
    """A landing place in S3."""

    def __init__(self, endpoint_url: str, *, versioned: bool = False) -> None:
        self.client: Any = s3_client(endpoint_url)
        self.bucket = f"bucket-{next(_numbers)}"
        self.client.create_bucket(Bucket=self.bucket)
        if versioned:
            self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})
        self.landing: LandingPlace = S3Landing(self.bucket, "in/box", endpoint_url, client=self.client)

    def put(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"in/box/{path}", Body=data)

    def take_away(self, path: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=f"in/box/{path}")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Folder(tmp_path / "landing")
    return Bucket(request.getfixturevalue("s3_endpoint"))
