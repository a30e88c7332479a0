"""Dagster's home: one per deployment, the same for command line and UI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from valuestream_dagster.orchestration.event_log import kept_open
from valuestream_dagster.orchestration.home import home_warning, instance_of, prepare_home
from valuestream_tests.orchestration import places

REPOSITORY = Path(__file__).resolve().parents[2]
OPEN_A_HOME = """
import sys
from valuestream_dagster.deployment import open_deployment
from valuestream_dagster.orchestration.home import instance_of
with instance_of(open_deployment(sys.argv[1], {})) as instance:
    print(instance.get_runs_count())
"""


def test_without_the_deployments_home_it_is_said_which_to_set(tmp_path: Path) -> None:
    opened = places.make_deployment(tmp_path, {})
    home = opened.settings.dagster_home
    said = home_warning(opened, {})
    assert said is not None
    assert f"Start it with DAGSTER_HOME={home}, or run `valuestream -d {tmp_path} ui`." in said
    assert "DAGSTER_HOME is not set" in said
    assert "DAGSTER_HOME is /elsewhere" in str(home_warning(opened, {"DAGSTER_HOME": "/elsewhere"}))
    assert home_warning(opened, {"DAGSTER_HOME": f"{home}/"}) is None


def test_the_deployments_configuration_is_laid_into_the_home_and_kept_up_to_date(tmp_path: Path) -> None:
    opened = places.make_deployment(tmp_path, {})
    shutil.rmtree(opened.settings.dagster_home)
    home = prepare_home(opened)
    assert (home / "dagster.yaml").read_text("utf-8") == places.QUIET_HOME
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    prepare_home(opened)
    assert (home / "dagster.yaml").read_text("utf-8") == "telemetry: {enabled: false}\n"
    (tmp_path / "dagster.yaml").unlink()
    prepare_home(opened)
    assert "telemetry: {enabled: false}" in (home / "dagster.yaml").read_text("utf-8")


@pytest.mark.slow
def test_processes_that_open_a_new_home_at_once_do_not_fail(tmp_path: Path) -> None:
    # Dagster itself fails with "table already exists" there.
    shutil.rmtree(places.make_deployment(tmp_path, {}).settings.dagster_home)
    command = [sys.executable, "-c", OPEN_A_HOME, str(tmp_path)]

    def opening(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(opening, range(2)))
    assert [(one.returncode, one.stdout) for one in done] == [(0, "0\n")] * 2, done


def test_a_home_that_is_kept_open_holds_the_same_and_is_let_go_of(tmp_path: Path) -> None:
    opened = places.make_deployment(tmp_path, {})
    with instance_of(opened) as instance, kept_open():
        for number in range(3):
            instance.report_runless_asset_event(dg.AssetMaterialization("x", partition=str(number)))
        logs = sorted(path.name for path in opened.settings.dagster_home.rglob("*.db-wal"))
        assert "index.db-wal" in logs
    assert list(opened.settings.dagster_home.rglob("*.db-wal")) == []
    with instance_of(opened) as instance:
        records = instance.fetch_materializations(dg.AssetKey("x"), limit=10).records
        assert [record.partition_key for record in records] == ["2", "1", "0"]


@pytest.mark.slow
def test_a_fresh_clone_loads_by_its_workspace_file_and_names_the_home(tmp_path: Path) -> None:
    # An empty deployment: no feeds, no state.
    home = tmp_path / "home"
    home.mkdir()
    places.make_deployment(tmp_path / "empty", {})
    dagster = Path(sys.executable).with_name("dagster")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "VALUESTREAM_DEPLOYMENT": str(tmp_path / "empty")}
    done = subprocess.run(
        [dagster, "definitions", "validate", "-w", str(REPOSITORY / "workspace.yaml")],
        check=False, capture_output=True, text=True, timeout=240, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = tmp_path / "empty" / "state" / "dagster"
    assert f"Start it with DAGSTER_HOME={expected}" in done.stdout + done.stderr


@pytest.mark.slow
def test_the_deployment_that_comes_with_the_project_loads_without_any_variable(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VALUESTREAM", "DAGSTER"))}
    program = "from valuestream_dagster.definitions import defs; d = defs(); print(sorted(s.name for s in d.sensors))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=240, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "valuestream_alerts" in done.stdout
    assert "DAGSTER_HOME is not set" in done.stderr + done.stdout
