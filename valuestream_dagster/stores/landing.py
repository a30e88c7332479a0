"""Which kind of landing place an address means. The one place that knows them all."""

from __future__ import annotations

from pathlib import Path

from valuestream_dagster.errors import WrongUse
from valuestream_dagster.feeds.settings import S3Settings
from valuestream_dagster.stores.base import LandingPlace
from valuestream_dagster.stores.local import LocalLanding
from valuestream_dagster.stores.s3 import S3Landing


def open_landing(address: str, s3: S3Settings) -> LandingPlace:
    """The landing place at a folder path or ``s3://bucket/prefix``. Opens nothing yet.

    Raises:
        WrongUse: an address of another scheme, or ``s3://`` without a bucket.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return LocalLanding(Path(address))
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise WrongUse(f"{scheme}:// names no landing place.", next_step="write a folder or s3://bucket/prefix.")
    return S3Landing(bucket, prefix, s3.endpoint_url, s3.region)
