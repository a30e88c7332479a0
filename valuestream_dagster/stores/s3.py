"""A landing place that is a bucket and prefix. Reading is pinned to the ETag that the listing saw.

Listing is ``list_objects_v2`` alone: one request per 1,000 objects, whether or not the bucket keeps versions (listing versions
would cost one more per 1,000 *old* versions). The version of the bytes comes free with the response that delivers them.
Messages carry error codes, bucket and key; never a URL with a query, a header or a credential, so causes are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from valuestream_dagster.errors import ObjectChanged, ObjectMissing, StoreFailure
from valuestream_dagster.stores.base import ObjectStat, read_whole

_MISSING = {"404", "NoSuchKey", "NotFound"}
_CHANGED = {"412", "PreconditionFailed"}


def _code_of(error: Exception) -> str:
    """The service's error code, or the exception's name where the service did not answer."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code) if code else type(error).__name__


def _failure(error: Exception, uri: str) -> StoreFailure:
    code = _code_of(error)
    if code in _CHANGED:
        return ObjectChanged(f"{uri} changed while it was looked at.", next_step="look again in a moment.")
    if code in _MISSING:
        return ObjectMissing(f"{uri} is not there any more.", next_step="look again in a moment.")
    return StoreFailure(f"{uri}: the store answered {code}.", next_step="check bucket, endpoint and access rights.")


def _stamp(etag: str, size: int, modified: datetime) -> str:
    """ETag first, so that it can be read back to pin a request; whole seconds, for HEAD tells no more."""
    return f"{etag} {size} {int(modified.timestamp())}"


class OpenS3Object:
    """An object being received; the service itself holds it still."""

    def __init__(self, body: Any, version: str, uri: str) -> None:
        self._body = body
        self._uri = uri
        self.version = version

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer; bytes read, 0 at the end."""
        try:
            data: bytes = self._body.read(len(buffer))
        except Exception as error:  # noqa: BLE001 - the library raises its own, urllib3's and the socket's
            raise _failure(error, self._uri) from None
        buffer[: len(data)] = data
        return len(data)

    def confirm(self) -> None:
        """Nothing to confirm: one response holds one version."""

    def close(self) -> None:
        """Give up the connection."""
        self._body.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class S3Landing:
    """A landing place in S3 or anything that speaks it. The client is made at first use (importing it costs 0.2 s).

    Args:
        bucket: the bucket.
        prefix: below it; paths are relative to the prefix.
        endpoint_url: another endpoint than Amazon's, then addressed by path.
        region: region name, or None for the environment's.
        client: a client to use instead of a new one.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        endpoint_url: str | None = None,
        region: str | None = None,
        client: Any = None,
    ) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._endpoint_url = endpoint_url
        self._region = region
        self._made_client = client

    @property
    def _client(self) -> Any:
        if self._made_client is None:
            import boto3  # type: ignore[import-untyped, unused-ignore]
            from botocore.config import Config  # type: ignore[import-untyped, unused-ignore]

            config = Config(
                connect_timeout=10,
                read_timeout=60,
                retries={"mode": "standard", "max_attempts": 3},
                s3={"addressing_style": "path"} if self._endpoint_url else {},
            )
            self._made_client = boto3.client(
                "s3", endpoint_url=self._endpoint_url, region_name=self._region, config=config
            )
        return self._made_client

    def _ask(self, request: Callable[[], dict[str, Any]], uri: str) -> dict[str, Any]:
        """The response, or our own error in place of the library's (whose text may hold a URL)."""
        try:
            return request()
        except StoreFailure:
            raise
        except Exception as error:  # noqa: BLE001 - the library raises its own, urllib3's and the socket's
            raise _failure(error, uri) from None

    def list(self) -> list[ObjectStat]:
        """Every object below the prefix, sorted by path; empty "folder" objects are not objects."""
        found: list[ObjectStat] = []
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self.prefix}
        while True:
            page = self._ask(lambda: self._client.list_objects_v2(**arguments), self.uri(""))
            found.extend(
                self._stat(item["Key"], item["ETag"], item["Size"], item["LastModified"])
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")
            )
            if not page.get("IsTruncated"):
                break
            arguments["ContinuationToken"] = page["NextContinuationToken"]
        found.sort(key=lambda stat: stat.path)
        return found

    def _stat(self, key: str, etag: str, size: int, modified: datetime, version: str = "") -> ObjectStat:
        nanoseconds = int(modified.timestamp()) * 1_000_000_000
        path = key[len(self.prefix) :]
        return ObjectStat(path, size, _stamp(etag, size, modified), nanoseconds, version=version, stable=True)

    def absent(self) -> str | None:
        """None: a bucket that is not there is an error of ``list``, and a prefix always exists."""
        return None

    def head(self, path: str) -> ObjectStat | None:
        """The object as it is now, with its version where the bucket keeps them; None where there is none."""
        key = self.prefix + path
        try:
            found = self._ask(lambda: self._client.head_object(Bucket=self.bucket, Key=key), self.uri(path))
        except ObjectMissing:
            return None
        version = _version(found)
        return self._stat(key, found["ETag"], found["ContentLength"], found["LastModified"], version)

    def open(self, stat: ObjectStat) -> OpenS3Object:
        """The object that the listing saw, by its ETag (and by its version where that is known)."""
        arguments = {"Bucket": self.bucket, "Key": self.prefix + stat.path, "IfMatch": stat.stamp.split(" ", 1)[0]}
        if stat.version:
            arguments["VersionId"] = stat.version
        uri = self.uri(stat.path)
        found = self._ask(lambda: self._client.get_object(**arguments), uri)
        return OpenS3Object(found["Body"], _version(found), uri)

    def read(self, stat: ObjectStat, limit_bytes: int) -> bytes:
        """All bytes of the object that the listing saw, at most ``limit_bytes``."""
        return read_whole(self.open(stat), stat, limit_bytes, self.uri(stat.path))

    def uri(self, path: str) -> str:
        """``s3://bucket/key``."""
        return f"s3://{self.bucket}/{self.prefix}{path}"


def _version(response: dict[str, Any]) -> str:
    """The version of a response; buckets without versions answer none or ``null``."""
    version = response.get("VersionId")
    return "" if version in (None, "null") else str(version)
