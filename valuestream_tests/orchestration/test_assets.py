"""A feed's asset in runs of this process: what is green, what is red, and what the checks and materializations say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.component import deployment_definitions
from valuestream_dagster.orchestration.home import instance_of
from valuestream_dagster.publication.locks import run_lock
from valuestream_tests.builders import NOON
from valuestream_tests.orchestration import places


@pytest.fixture
def opened(tmp_path: Path) -> Deployment:
    return places.make_deployment(tmp_path, {"a": places.feed_text("a", places.CHAINED)})


def run(opened: Deployment, first: int, last: int | None = None) -> dg.ExecuteInProcessResult:
    """Materialize a key, or a range, as the UI's button does in a worker."""
    job = deployment_definitions(opened).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": str(first), "dagster/asset_partition_range_end": str(last)}
    with instance_of(opened) as instance:
        keys = [str(key) for key in range(first, (last or first) + 1)]
        known = instance.get_dynamic_partitions("acme/a")
        instance.add_dynamic_partitions("acme/a", [key for key in keys if key not in known])
        return job.execute_in_process(
            instance=instance, raise_on_error=False, partition_key=None if last else str(first), tags=tags if last else {}
        )


def failure(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None, event.step_failure_data.error
    return {name: value.value for name, value in data.metadata.items()}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def test_one_key_is_materialized_once_with_all_that_its_revision_is(opened: Deployment) -> None:
    (delivery,) = places.deliver(opened, "a", 1)
    result = run(opened, 1)
    assert result.success
    assert places.versions_seen(opened, "a") == [("1", places.version_of(delivery))]
    (event,) = result.get_asset_materialization_events()
    metadata: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
    assert metadata["revision"] == 1
    assert metadata["rows"] == metadata["dagster/partition_row_count"] == 2
    assert metadata["position"] == "1" and metadata["previous_key"] == "none"
    assert metadata["totals"] == {"amount": "1.60"}
    assert "never shows that the business data is complete" in metadata["what_the_checksum_means"]  # M7
    assert len(metadata["digest"]) == 64 and metadata["epoch"] == 1 and metadata["ledger_run"]
    assert all((opened.settings.store / path).is_file() for path in metadata["files"])
    assert checks(result) == dict.fromkeys(("complete", "fixity", "counts_and_controls", "unique_key", "no_conflict"), True)


@pytest.mark.parametrize("last", [None, 2], ids=["one key", "a range"])
def test_trouble_while_recording_is_told_in_words(opened: Deployment, last: int | None) -> None:
    """M7, S9: also where the IO manager records a single key, which Dagster calls after the asset's own code."""
    places.deliver(opened, "a", 1, 2)
    (opened.settings.store / "owner.json").parent.mkdir(parents=True, exist_ok=True)
    (opened.settings.store / "owner.json").write_text("no mark")
    told = failure(run(opened, 1, last))
    assert "owner mark" in told["detail"] and "cannot be read" in told["detail"]
    assert told["next_step"] == "put it back from a copy of the store."


def test_a_range_and_single_keys_say_the_same_of_a_revision(opened: Deployment) -> None:
    deliveries = places.deliver(opened, "a", 1, 2, 3)
    result = run(opened, 1, 3)
    assert result.success
    expected = [(one.key, places.version_of(one)) for one in deliveries]
    assert places.versions_seen(opened, "a") == expected
    positions = [e.materialization.metadata["position"].value for e in result.get_asset_materialization_events()]
    assert positions == ["1", "2", "3"]
    assert len(result.get_asset_check_evaluations()) == 5
    again = run(opened, 2)  # nothing new: told once more, by an equal version
    assert again.success
    assert places.versions_seen(opened, "a") == [*expected, expected[1]]


def test_a_range_that_fails_half_way_keeps_what_came_before(opened: Deployment) -> None:
    good = places.deliver(opened, "a", 1, 2)
    places.producer(opened, "a").hand_over(places.damaged(opened, "a", 3))
    places.deliver(opened, "a", 4)
    result = run(opened, 1, 4)
    assert not result.success
    assert places.versions_seen(opened, "a") == [(one.key, places.version_of(one)) for one in good]
    told = failure(result)
    assert told["reason"] == "checksum_mismatch" and told["refused_keys"] == "3, 4"
    assert checks(result) == {
        "complete": True, "fixity": False, "counts_and_controls": True, "unique_key": True, "no_conflict": True,
    }  # fmt: skip


def test_a_conflict_fails_its_check_and_keeps_the_applied_bytes(opened: Deployment) -> None:
    # S5, M15
    (first,) = places.deliver(opened, "a", 1)
    assert run(opened, 1).success
    other = places.producer(opened, "a").make(1, places.rows_of(9)).named("other")
    places.producer(opened, "a").hand_over(other)
    result = run(opened, 1)
    assert not result.success
    assert [name for name, passed in checks(result).items() if not passed] == ["no_conflict"]
    assert failure(result)["reason"] == "digest_conflict"
    assert places.versions_seen(opened, "a") == [("1", places.version_of(first))]


def test_a_correction_is_a_new_data_version_of_its_partition(opened: Deployment) -> None:
    (first,) = places.deliver(opened, "a", 1)
    assert run(opened, 1).success
    (second,) = places.deliver(opened, "a", 1, revision=2)
    assert run(opened, 1).success
    assert places.versions_seen(opened, "a") == [("1", places.version_of(first)), ("1", places.version_of(second))]


@pytest.mark.parametrize(
    ("given", "code", "detail"),
    [
        ("nothing", "nothing_delivered", "no complete delivery of it is at the landing place"),
        ("busy", "feed_busy", "acme/a is being run by"),
        ("paused", "not_applied", "acme/a is paused"),
        ("vanished", "wrong_use", "there is no feed acme/a"),
        ("misspelt", "configuration_invalid", "feeds/a.yaml"),
    ],
)
def test_what_cannot_be_run_is_red_and_says_why_and_what_to_do(
    opened: Deployment, given: str, code: str, detail: str
) -> None:
    file = opened.path / "feeds" / "a.yaml"
    if given != "nothing":
        places.deliver(opened, "a", 1)
    job = deployment_definitions(opened).resolve_implicit_global_asset_job_def()
    if given == "paused":
        file.write_text(places.feed_text("a", places.CHAINED, "paused: true\n"), "utf-8")
    if given == "vanished":
        file.unlink()
    if given == "misspelt":
        file.write_text(places.feed_text("a", places.CHAINED, "paused: NO\n"), "utf-8")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("acme/a", ["1"])
        if given == "busy":
            with run_lock(opened.publisher(opened.feed("acme/a")).locks, "acme/a", since=NOON):
                result = job.execute_in_process(instance=instance, raise_on_error=False, partition_key="1")
        else:
            result = job.execute_in_process(instance=instance, raise_on_error=False, partition_key="1")
        assert not result.success
        told = failure(result)
        assert (told["reason"], detail in told["detail"]) == (code, True), told
        assert told["next_step"]
        assert result.get_asset_materialization_events() == []


def test_a_partition_that_is_no_key_is_refused(opened: Deployment) -> None:
    job = deployment_definitions(opened).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("acme/a", ["yesterday"])
        result = job.execute_in_process(instance=instance, raise_on_error=False, partition_key="yesterday")
    assert failure(result)["reason"] == "wrong_use"
