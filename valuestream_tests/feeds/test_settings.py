"""The deployment file: empty is enough, paths are absolute, what is not built is said."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from valuestream_dagster.errors import ConfigurationInvalid
from valuestream_dagster.feeds.loading import parse_settings
from valuestream_dagster.feeds.settings import Limits, LimitsDeclaration, Retention, S3Settings, Settings

ROOT = Path("/srv/deployment")


def _settings(text: str) -> Settings:
    return parse_settings(text, "valuestream.yaml", deployment=ROOT, environ={"URL": "slack://a/b/c"})


def _only(text: str) -> str:
    with pytest.raises(ConfigurationInvalid) as raised:
        _settings(text)
    (finding,) = raised.value.findings
    return str(finding)


def test_an_empty_file_is_a_working_deployment() -> None:
    settings = _settings("")
    assert settings == Settings(
        deployment=ROOT,
        ledger=ROOT / "state/ledger.duckdb",
        store=ROOT / "state/store",
        catalog=ROOT / "state/catalog.duckdb",
        dagster_home=ROOT / "state/dagster",
        alerts=(),
        limits=Limits(
            manifest_bytes=16 * 1024 * 1024,
            manifest_entries=100_000,
            partitions_per_tick=2_000,
            keys_per_ledger_run=200,
            ledger_slice_seconds=0.5,
            tick_seconds=30,
            settle_seconds=2,
            run_attempts=3,
            gap_keys_listed=1_000,
            max_ratio=200,
        ),
        retention=Retention(input_days=None, superseded_days=None, reader_grace_minutes=60),
        s3=S3Settings(endpoint_url=None, region=None),
    )


def test_every_limit_can_be_set_and_every_setting_is_a_limit() -> None:
    assert set(LimitsDeclaration.model_fields) == {field.name for field in fields(Limits)}


def test_paths_are_relative_to_the_deployment_or_absolute() -> None:
    settings = _settings("store: ../store\ncatalog: /data/catalog.duckdb\n")
    assert settings.store == Path("/srv/store")
    assert settings.catalog == Path("/data/catalog.duckdb")


def test_everything_can_be_said() -> None:
    settings = _settings(
        "alerts: ['${URL}']\nlimits: {keys_per_ledger_run: 5, tick_seconds: 1.5}\n"
        "retention: {input_days: 30, superseded_days: 0, reader_grace_minutes: 5}\n"
        "s3: {endpoint_url: 'http://localhost:9000', region: eu-west-1}\n"
    )
    assert settings.alerts == ("slack://a/b/c",)
    assert (settings.limits.keys_per_ledger_run, settings.limits.tick_seconds) == (5, 1.5)
    assert settings.retention == Retention(input_days=30, superseded_days=0, reader_grace_minutes=5)
    assert settings.s3 == S3Settings(endpoint_url="http://localhost:9000", region="eu-west-1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ledger: postgresql://${URL}/db", "`postgresql://` is part of the design and not built in this version"),
        ("store: s3://bucket/prefix", "`s3://` is part of the design and not built in this version"),
        ("ledgr: x", "unknown field `ledgr`; did you mean `ledger`?"),
        ("limits: {key_per_ledger_run: 5}", "did you mean `keys_per_ledger_run`?"),
        ("limits: {run_attempts: 0}", "greater than or equal to 1"),
        ("limits: {tick_seconds: true}", "`tick_seconds` must be a number"),
        ("limits: {manifest_bytes: 1.5}", "`manifest_bytes`"),
        ("s3: {endpoint_url: localhost}", "no http(s) URL"),
        ("s3: {secret_access_key: abc}", "literal secret"),
        ("ledger: ''", "the path is empty"),
        ("alerts: [slack://a/b/c]", "literal secret"),
        ("- a", "must stand a mapping"),
    ],
)
def test_a_wrong_setting_is_one_sentence(text: str, words: str) -> None:
    finding = _only(text + "\n") if "secret_access" not in text else _first(text)
    assert words in finding
    assert finding.startswith("valuestream.yaml:1: ")


def _first(text: str) -> str:
    with pytest.raises(ConfigurationInvalid) as raised:
        _settings(text)
    return str(raised.value.findings[0])
