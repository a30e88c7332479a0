"""S3 over HTTP: pages, versions, and messages without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.stores.s3 import S3Landing
from valuestream_tests.s3_server import s3_client
from valuestream_tests.stores.conftest import Bucket


def test_a_listing_of_more_than_one_page_is_whole(s3_endpoint: str) -> None:
    place, pages = Bucket(s3_endpoint), []

    def ten_a_page(params: dict[str, Any], **_: object) -> None:
        params["MaxKeys"] = 10  # the server's own is 1,000, and putting as many takes a minute
        pages.append(params.get("ContinuationToken"))

    place.client.meta.events.register("provide-client-params.s3.ListObjectsV2", ten_a_page)
    for number in range(23):
        place.put(f"{number:05}", b"")
    assert [stat.path for stat in place.landing.list()] == [f"{number:05}" for number in range(23)]
    assert len(pages) == len(set(pages)) == 3


def test_neither_folder_markers_nor_a_longer_prefix_belong_to_the_place(s3_endpoint: str) -> None:
    place = Bucket(s3_endpoint)
    place.client.put_object(Bucket=place.bucket, Key="in/box/sub/", Body=b"")
    place.client.put_object(Bucket=place.bucket, Key="in/boxes/a.csv", Body=b"x")
    place.put("a.csv", b"x")
    assert [(stat.path, stat.stable) for stat in place.landing.list()] == [("a.csv", True)]


def test_the_version_of_the_bytes_comes_with_them(s3_endpoint: str) -> None:
    place = Bucket(s3_endpoint, versioned=True)
    place.put("a.csv", b"one")
    (stat,) = place.landing.list()
    found = place.landing.head("a.csv")
    assert found is not None
    with place.landing.open(stat) as opened:
        assert opened.version == found.version != ""


def test_a_bucket_that_is_not_there_is_named_by_code_and_without_a_url(s3_endpoint: str) -> None:
    landing = S3Landing("no-such-bucket", "", s3_endpoint, client=s3_client(s3_endpoint))
    with pytest.raises(StoreFailure, match="s3://no-such-bucket/: the store answered NoSuchBucket"):
        landing.list()


def test_a_store_that_does_not_answer_is_a_failure_without_address_key_or_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSECRET")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    landing = S3Landing("b", "p", "http://user:pw@127.0.0.1:9", "us-east-1")
    with pytest.raises(StoreFailure) as caught:
        landing.list()
    assert not any(word in str(caught.value) for word in ("AKIDSECRET", "verysecret", "pw@", "http:"))
    assert caught.value.__suppress_context__
