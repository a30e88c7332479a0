"""Dagster's real processes over a deployment, as `valuestream ui` starts them, and the calls that its UI makes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from valuestream_dagster.cli.act import ui_command, ui_environment
from valuestream_dagster.deployment import Deployment
from valuestream_dagster.orchestration.home import prepare_home

PATIENCE_SECONDS = 240
_FINISHED = ("SUCCESS", "FAILURE", "CANCELED")
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], patience_seconds: float = PATIENCE_SECONDS) -> T:
    """Look until there is something."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"not seen in {patience_seconds} s: {what}")


@dataclass(frozen=True, slots=True)
class Server:
    """A running UI with its daemon.

    Args:
        url: of the UI.
        opened: the deployment.
        instance: the deployment's Dagster instance, for looking.
    """

    url: str
    opened: Deployment
    instance: dg.DagsterInstance

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """One GraphQL call."""
        request = urllib.request.Request(
            f"{self.url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            document = json.loads(answer.read())
        assert "errors" not in document, document["errors"]
        data: dict[str, Any] = document["data"]
        return data

    # --- looking -----------------------------------------------------------------------------------------------------

    def runs(self, dataset: str) -> list[dg.DagsterRun]:
        """The feed's runs, oldest first."""
        found = self.instance.get_runs(limit=500)
        return [run for run in reversed(found) if dg.AssetKey(["acme", dataset]) in (run.asset_selection or ())]

    def finished(self, dataset: str) -> list[dg.DagsterRun]:
        """The feed's runs that are over, oldest first."""
        return [run for run in self.runs(dataset) if run.status.value in _FINISHED]

    def versions(self, dataset: str) -> list[tuple[str, str]]:
        """(partition, data version) of every materialization, oldest first."""
        records = self.instance.fetch_materializations(dg.AssetKey(["acme", dataset]), limit=1_000, ascending=True).records
        events = [record.asset_materialization for record in records]
        return [(e.partition or "", (e.tags or {}).get("dagster/data_version", "")) for e in events if e]

    def ticks(self, dataset: str) -> int:
        """How many times the feed's sensor has finished looking."""
        data = self.ask(_TICKS, selector=_selector(dataset))
        return sum(tick["status"] in ("SKIPPED", "SUCCESS") for tick in data["sensorOrError"]["sensorState"]["ticks"])

    def wait_ticks(self, *datasets: str, count: int = 2) -> None:
        """Wait until the sensors have looked that often again."""
        wanted = {dataset: self.ticks(dataset) + count for dataset in datasets}
        wait_for(f"{count} ticks of {datasets}", lambda: all(self.ticks(of) >= ticks for of, ticks in wanted.items()))

    def failure(self, run: dg.DagsterRun) -> dict[str, Any]:
        """Why a run's step failed: description and metadata, as the UI shows it."""
        for entry in self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
            assert entry.dagster_event is not None
            failure = entry.dagster_event.step_failure_data.user_failure_data
            assert failure is not None
            return {"description": failure.description, **{k: v.value for k, v in failure.metadata.items()}}
        raise AssertionError(f"no step of {run.run_id} failed")

    # --- doing what the UI does --------------------------------------------------------------------------------------

    def start_sensor(self, dataset: str) -> None:
        """The switch beside a feed's sensor, on."""
        self.ask(_START, selector=_selector(dataset))

    def stop_sensor(self, dataset: str, beside: str) -> None:
        """The switch beside a feed's sensor, off; returns when it looks no more.

        Dagster goes on with a tick that is queued or under way when it hears of the switch, and writes back the state that it
        read before: what is delivered right after the switch would be requested all the same. By the second tick of another
        sensor the queue from before is used up.

        Args:
            dataset: whose sensor.
            beside: a feed whose sensor goes on.
        """
        selector = _selector(dataset)

        def is_off() -> bool:
            state = self.ask(_TICKS, selector=selector)["sensorOrError"]["sensorState"]
            if state["status"] != "STOPPED":
                self.ask(_STOP, id=state["id"])
                return False
            return all(tick["status"] != "STARTED" for tick in state["ticks"])

        wait_for(f"the switch of {dataset}", is_off)
        self.wait_ticks(beside)
        wait_for(f"the last tick of {dataset}", is_off)

    def backfill(self, dataset: str, keys: Sequence[str]) -> str:
        """The button "Materialize..." over several partitions."""
        parameters = {"assetSelection": [{"path": ["acme", dataset]}], "partitionNames": list(keys)}
        answer = self.ask(_BACKFILL, parameters=parameters)["launchPartitionBackfill"]
        assert "backfillId" in answer, answer
        return str(answer["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        """How a backfill stands."""
        return str(self.ask(_BACKFILL_STATUS, id=backfill)["partitionBackfillOrError"]["status"])

    def wait_backfill(self, backfill: str) -> str:
        """How a backfill ended."""
        open_states = ("REQUESTED", "CANCELING", "FAILING")
        return wait_for(
            f"the end of backfill {backfill}",
            lambda: None if (status := self.backfill_status(backfill)) in open_states else status,
        )

    def launch(self, dataset: str, key: str) -> str:
        """The button "Materialize" over one partition; returns the run's id."""
        selector = {**LOCATION, "pipelineName": "__ASSET_JOB", "assetSelection": [{"path": ["acme", dataset]}]}
        tags = [{"key": "dagster/partition", "value": key}]
        answer = self.ask(_LAUNCH, parameters={
            "selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": tags},
        })["launchPipelineExecution"]  # fmt: skip
        assert "run" in answer, answer
        return str(answer["run"]["runId"])

    def wait_run(self, run_id: str) -> dg.DagsterRun:
        """A run, once it is over."""

        def over() -> dg.DagsterRun | None:
            run = self.instance.get_run_by_id(run_id)
            return run if run is not None and run.status.value in _FINISHED else None

        return wait_for(f"the end of run {run_id}", over)


@contextmanager
def serve(opened: Deployment, log: Path) -> Iterator[Server]:
    """Start UI, daemon and code server, wait until they answer, and end them."""
    home = prepare_home(opened)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = ui_environment(os.environ, home, opened.path)
    with log.open("wb") as output:
        process = subprocess.Popen(ui_command(port), env=environment, stdout=output, stderr=output, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            server = Server(url, opened, instance)
            wait_for(f"the UI at {url}, see {log}", lambda: process.poll() is not None or _answers(server))
            assert process.poll() is None, log.read_text("utf-8")
            yield server
    finally:
        _end(process)


def _selector(dataset: str) -> dict[str, str]:
    return {**LOCATION, "sensorName": f"acme__{dataset}__deliveries"}


def _answers(server: Server) -> bool:
    try:
        repositories = server.ask("{repositoriesOrError{... on RepositoryConnection{nodes{name location{name}}}}}")
    except (OSError, AssertionError):
        return False
    return bool(repositories["repositoriesOrError"].get("nodes"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C to all that we started, and after a while the kernel's word.

    Where nobody buries the orphans (process 1 of a container may not) the group outlives all of them, so patience is short.
    """
    for number, patience in ((signal.SIGINT, 8), (signal.SIGTERM, 4), (signal.SIGKILL, 2)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.2)


LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "valuestream_dagster.definitions"}
_TICKS = """query($selector: SensorSelector!) {sensorOrError(sensorSelector: $selector) {__typename
  ... on Sensor {sensorState {id status ticks(limit: 500) {status}}}}}"""
_START = "mutation($selector: SensorSelector!) {startSensor(sensorSelector: $selector) {__typename}}"
_STOP = "mutation($id: String!) {stopSensor(id: $id) {__typename}}"
_BACKFILL = """mutation($parameters: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $parameters) {__typename
  ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message} ... on PartitionKeysNotFoundError {message}}}"""
_BACKFILL_STATUS = """query($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}"""
_LAUNCH = """mutation($parameters: ExecutionParams!) {launchPipelineExecution(executionParams: $parameters) {__typename
  ... on LaunchRunSuccess {run {runId}} ... on PythonError {message}
  ... on RunConfigValidationInvalid {errors {message}}}}"""
