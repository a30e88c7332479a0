"""What Dagster really does and this project relies on; an upgrade that changes one of these says so here.

Each test names the decision that it serves.
"""

# No `from __future__ import annotations` here: Dagster reads the assets' annotations as they are.
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

PARTITIONS = dg.DynamicPartitionsDefinition(name="keys")
KEY = dg.AssetKey("fact")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(
    asset: dg.AssetsDefinition,
    instance: dg.DagsterInstance,
    keys: tuple[str, str] | str | None = None,
    **resources: Any,
) -> dg.ExecuteInProcessResult:
    """Materialize one key, a range, or an unpartitioned asset."""
    tags = {}
    if isinstance(keys, tuple):
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    defs = dg.Definitions(assets=[asset], resources=resources, executor=dg.in_process_executor)
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        partition_key=keys if isinstance(keys, str) else None,
        asset_selection=[asset.key],
        tags=tags,
        raise_on_error=False,
    )


def materialized(instance: dg.DagsterInstance) -> list[tuple[str | None, str | None]]:
    """(partition, data version), oldest first."""
    records = instance.fetch_materializations(KEY, limit=100, ascending=True).records
    events = [record.asset_materialization for record in records]
    return [(event.partition, (event.tags or {}).get("dagster/data_version")) for event in events if event]


@dg.asset(name="fact", partitions_def=PARTITIONS, backfill_policy=dg.BackfillPolicy.single_run(), output_required=False)
def logs_each_key(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
    """As a feed's range: one event per key, no output."""
    for key in context.partition_keys:
        if key == "bad":
            raise dg.Failure("no", allow_retries=False, metadata={"reason": "gap"})
        context.log_event(dg.AssetMaterialization(KEY, partition=key, tags={"dagster/data_version": f"v-{key}"}))
    yield from ()


def test_a_range_follows_the_order_of_registration(instance: dg.DagsterInstance) -> None:
    # So `partition_rule.ranges` cuts where the two orders differ, and the body sorts by the sequence's own.
    instance.add_dynamic_partitions("keys", ["1", "3", "4", "2"])
    assert run(logs_each_key, instance, ("1", "4")).success
    assert sorted(key or "" for key, _ in materialized(instance)) == ["1", "3", "4"]
    result = run(logs_each_key, instance, ("2", "4"))
    assert [event.materialization.partition for event in result.get_asset_materialization_events()] == []


def test_a_logged_materialization_carries_its_data_version_and_stays_when_the_run_fails(
    instance: dg.DagsterInstance,
) -> None:
    # So a range that is stopped half way keeps what came before (decision 0001).
    instance.add_dynamic_partitions("keys", ["1", "2", "bad", "3"])
    result = run(logs_each_key, instance, ("1", "3"))
    assert not result.success
    assert materialized(instance) == [("1", "v-1"), ("2", "v-2")]
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None and failure.metadata["reason"].value == "gap"


def test_a_run_without_an_output_is_green_and_materializes_nothing(instance: dg.DagsterInstance) -> None:
    # So a refusal must raise: yielding nothing would say nothing.
    @dg.asset(name="fact", output_required=False)
    def silent() -> Iterator[dg.Output[None]]:
        yield from ()

    assert run(silent, instance).success
    assert materialized(instance) == []


@pytest.mark.parametrize("allowed", [True, False])
def test_a_failure_that_allows_no_retries_is_not_retried(instance: dg.DagsterInstance, *, allowed: bool) -> None:
    # So refusals end at once, whatever retry policy a user puts on the code location.
    attempts: list[int] = []

    @dg.asset(name="fact", retry_policy=dg.RetryPolicy(max_retries=2))
    def refuses(context: dg.AssetExecutionContext) -> None:
        attempts.append(context.retry_number)
        raise dg.Failure("no", allow_retries=allowed)

    assert not run(refuses, instance).success
    assert attempts == ([0, 1, 2] if allowed else [0])


def test_check_results_yielded_before_a_failure_are_stored(instance: dg.DagsterInstance) -> None:
    # So a red run's checks say why, and the alert sensor finds them.
    spec = dg.AssetCheckSpec("fixity", asset=KEY)

    @dg.asset(name="fact", check_specs=[spec], output_required=False)
    def checked() -> Iterator[Any]:
        yield dg.AssetCheckResult(passed=False, check_name="fixity", description="short")
        raise dg.Failure("no", allow_retries=False)

    result = run(checked, instance)
    assert [one.passed for one in result.get_asset_check_evaluations()] == [False]
    history = instance.event_log_storage.get_asset_check_execution_history(spec.key, limit=10)
    evaluations = [r.event.dagster_event.asset_check_evaluation_data for r in history if r.event and r.event.dagster_event]
    assert [one.description for one in evaluations] == ["short"]
    assert [record.id for record in history] == sorted((record.id for record in history), reverse=True)


class Adding(dg.ConfigurableIOManager):
    """Adds metadata as `handle_output` of ours does, or fails."""

    fails: bool = False

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if self.fails:
            raise dg.Failure("kept", allow_retries=False, metadata={"reason": "full"})
        context.add_output_metadata({"revision": 7})

    def load_input(self, context: dg.InputContext) -> object:
        raise NotImplementedError


@dg.asset(name="fact", partitions_def=PARTITIONS, output_required=False)
def hands_on(context: dg.AssetExecutionContext) -> Iterator[dg.Output[str]]:
    """As a feed's single key."""
    yield dg.Output("x", data_version=dg.DataVersion("r1-abc"))
    found = context.instance.fetch_materializations(KEY, limit=5).records
    context.log.info("seen after the yield: %s", len(found))
    assert found, "the materialization is logged before the body goes on"


def test_what_handle_output_adds_reaches_the_materialization_before_the_body_goes_on(instance: dg.DagsterInstance) -> None:
    # So the ledger's note that Dagster knows of a publication is made after the fact.
    instance.add_dynamic_partitions("keys", ["1"])
    result = run(hands_on, instance, "1", io_manager=Adding())
    assert result.success
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["revision"].value == 7
    assert materialized(instance) == [("1", "r1-abc")]


def test_a_failure_in_handle_output_keeps_its_words(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("keys", ["1"])
    result = run(hands_on, instance, "1", io_manager=Adding(fails=True))
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None and (failure.description, failure.metadata["reason"].value) == ("kept", "full")
    assert materialized(instance) == []


def test_an_earlier_run_of_whatever_end_blocks_its_run_key_for_ever(instance: dg.DagsterInstance) -> None:
    # So the attempt's number is part of the key (FACTS 5). The daemon finds earlier runs by this very tag.
    tags = {"dagster/run_key": "k#0"}
    instance.add_run(dg.DagsterRun("job", "abcdefgh", status=dg.DagsterRunStatus.FAILURE, tags=tags))
    assert instance.get_runs_count(dg.RunsFilter(tags=tags)) == 1
    request = dg.RunRequest(run_key="k#0", tags={"a": "b"})
    assert request.run_key == "k#0" and "dagster/run_key" not in request.tags


def test_an_unpartitioned_consumer_is_told_every_partition_and_known_by_its_step(instance: dg.DagsterInstance) -> None:
    # So `load_input` asks the step whether the consumer has partitions; `has_asset_partitions` alone would mislead.
    seen: list[tuple[bool, bool, list[str]]] = []

    class Looking(dg.ConfigurableIOManager):
        def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

        def load_input(self, context: dg.InputContext) -> object:
            partitioned = context.step_context.entity_partitions_def is not None
            seen.append((context.has_asset_partitions, partitioned, list(context.asset_partition_keys)))
            return None

    @dg.asset(partitions_def=PARTITIONS)
    def upstream() -> int:
        return 1

    @dg.asset
    def whole(upstream: object) -> None: ...

    @dg.asset(partitions_def=PARTITIONS)
    def part(upstream: object) -> None: ...

    instance.add_dynamic_partitions("keys", ["1", "2"])
    for asset, key in ((whole, None), (part, "2")):
        result = dg.materialize(
            [upstream, asset], selection=[asset], instance=instance, partition_key=key, resources={"io_manager": Looking()}
        )
        assert result.success
    assert seen == [(True, False, ["1", "2"]), (True, True, ["2"])]


def test_equal_resource_names_merge_only_if_they_are_one_object() -> None:
    # So what components share is made once per deployment.
    def defs(resource: object) -> dg.Definitions:
        return dg.Definitions(resources={"shared": resource}, executor=dg.in_process_executor)

    one, other = Adding(), Adding()
    merged = dg.Definitions.merge(defs(one), defs(one))
    assert (merged.resources or {})["shared"] is one
    with pytest.raises(dg.DagsterInvariantViolationError, match="different resources with same key"):
        dg.Definitions.merge(defs(one), defs(other))


def test_a_runs_asset_selection_names_what_the_ui_asked_for(instance: dg.DagsterInstance) -> None:
    # So the sensor waits for runs that others asked for, and the alert sensor knows whose run failed.
    instance.add_dynamic_partitions("keys", ["1"])
    result = run(logs_each_key, instance, "1")
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None and stored.asset_selection == {KEY}
