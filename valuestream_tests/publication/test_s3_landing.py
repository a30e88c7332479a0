"""The whole way of a delivery whose landing place is a bucket, over real HTTP: waiting, versions, resends, and no answer."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.errors import StoreFailure
from valuestream_tests.producer import Producer, csv_text
from valuestream_tests.s3_server import s3_client, s3_server
from valuestream_tests.world import PERIODS, World, another

GOOD = [(1, "1.00", "U"), (2, "2.50", "U")]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


class Bucket:
    """A bucket that keeps versions, as its producer uses it; ``versions`` holds the last one of each path."""

    def __init__(self, endpoint: str) -> None:
        self.name = f"drops-{next(_numbers)}"
        self.client: Any = s3_client(endpoint)
        self.client.create_bucket(Bucket=self.name)
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        self.versions: dict[str, str] = {}

    def put(self, path: str, data: bytes) -> None:
        answer = self.client.put_object(Bucket=self.name, Key=f"acme/orders/{path}", Body=data)
        self.versions[path] = answer["VersionId"]


def a_world(root: Path, endpoint: str, bucket: str) -> World:
    feeds = {
        "orders.yaml": PERIODS.replace("landing/orders", f"s3://{bucket}/acme/orders/"),
        "returns.yaml": another(PERIODS, "returns"),
    }
    return World(root, feeds, settings=f"s3: {{endpoint_url: '{endpoint}', region: us-east-1}}\n")


def test_a_delivery_in_a_bucket_waits_is_applied_and_resent_and_its_versions_are_on_record(
    endpoint: str, tmp_path: Path
) -> None:
    bucket = Bucket(endpoint)
    world = a_world(tmp_path, endpoint, bucket.name)
    orders = Producer(bucket.put)
    two = orders.make(1, GOOD, parts=2)
    orders.hand_over(two.without_file("1-data-r1-2.csv"))
    assert world.apply() == [] and world.status().waiting == ("1",)
    assert "1-data-r1-2.csv" in world.last(Verdict.WAITING).detail

    bucket.put("1-data-r1-2.csv", two.files["1-data-r1-2.csv"])
    world.apply()
    assert world.amounts() == {1: "1.00", 2: "2.50"} and world.status().healthy
    assert world.query("SELECT object_uri, object_version FROM valuestream.lineage ORDER BY ALL") == [
        (f"s3://{bucket.name}/acme/orders/{path}", bucket.versions[path]) for path in sorted(two.files)
    ]

    before = world.seen()
    assert world.apply() == [], "listing the same objects again is no news"
    orders.hand_over(two.named("again"))
    world.apply()
    assert world.last(Verdict.DUPLICATE) and world.seen() == before


def test_an_object_that_was_overwritten_after_its_manifest_was_written_is_told_by_its_version(
    endpoint: str, tmp_path: Path
) -> None:
    """M5: the manifest pins a version, and a later one of equal size lies there."""
    bucket = Bucket(endpoint)
    world = a_world(tmp_path, endpoint, bucket.name)
    orders = Producer(bucket.put)
    delivery = orders.make(1, GOOD)
    (path,) = delivery.files
    bucket.put(path, delivery.files[path])
    pinned = delivery.with_entry(version_id=bucket.versions[path], sha256=None)
    bucket.put(path, csv_text([(1, "1.00", "U"), (2, "9.99", "U")]))
    bucket.put(delivery.manifest_path, pinned.manifest)
    world.apply()
    receipt = world.last(Verdict.REJECTED)
    assert receipt.code == "version_mismatch"
    assert receipt.findings[0]["expected"] == pinned.statement["files"][0]["version_id"]
    assert receipt.findings[0]["found"] == bucket.versions[path]
    orders.hand_over(orders.make(1, GOOD, revision=2))
    world.apply()
    assert world.by_key() == {"1": 2} and world.status().healthy


def test_a_landing_place_that_does_not_answer_is_a_clear_failure_and_other_feeds_go_on(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    world = a_world(tmp_path, nobody, "drops")
    world.producer("returns").deliver(1, GOOD)
    with pytest.raises(StoreFailure, match="s3://drops/acme/orders/") as failure:
        world.apply()
    assert failure.value.retryable and failure.value.next_step
    assert "testing" not in str(failure.value) and "127.0.0.1" not in str(failure.value)
    world.apply("acme/returns")
    assert world.amounts("acme/returns") == {1: "1.00", 2: "2.50"} and world.status("acme/returns").healthy


def test_a_bucket_that_is_not_there_is_named(endpoint: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, endpoint, "no-such-bucket")
    with pytest.raises(StoreFailure, match="no-such-bucket"):
        world.apply()
