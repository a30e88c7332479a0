"""A deployment folder's YAML as settings and feeds, or every finding of every file at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from valuestream_dagster.errors import ConfigurationFinding, ConfigurationInvalid, WrongUse
from valuestream_dagster.feeds.closed_model import ClosedModel, findings_of
from valuestream_dagster.feeds.declaration import FeedDeclaration
from valuestream_dagster.feeds.feed import Feed, to_feed
from valuestream_dagster.feeds.settings import Settings, SettingsDeclaration, to_settings
from valuestream_dagster.feeds.transforms import TransformUnusable
from valuestream_dagster.feeds.yaml_source import YamlDocument, read_yaml, read_yaml_file

SETTINGS_FILE = "valuestream.yaml"
FEEDS_FOLDER = "feeds"

ModelT = TypeVar("ModelT", bound=ClosedModel)


def load_deployment_files(folder: Path, environ: Mapping[str, str]) -> tuple[Settings, tuple[Feed, ...]]:
    """The settings and feeds (in order of name) of a deployment.

    Args:
        folder: the deployment.
        environ: values for ``${NAME}``.

    Raises:
        WrongUse: the folder is no deployment.
        ConfigurationInvalid: with every finding of every file.
    """
    root = Path(os.path.abspath(folder))
    if not root.is_dir():
        raise WrongUse(
            f"{folder} is no folder.",
            next_step="pass -d DIR, the folder of a deployment: it holds valuestream.yaml (which may be empty) and feeds/.",
        )
    if not (root / SETTINGS_FILE).is_file():
        raise WrongUse(
            f"{folder} is no deployment: no {SETTINGS_FILE} in it.",
            next_step=f"create an empty {SETTINGS_FILE} there, or pass -d DIR.",
        )
    findings: list[ConfigurationFinding] = []
    settings = _read_settings(root, environ, findings)
    feeds: list[tuple[Feed, int]] = []
    for path in _feed_files(root, findings):
        document = read_yaml_file(path, f"{FEEDS_FOLDER}/{path.name}", environ)
        declaration = _validated(FeedDeclaration, document, findings)
        if declaration is not None and (feed := _feed(declaration, document, root, findings)) is not None:
            feeds.append((feed, document.line_of(("source",))))
    findings += name_findings(feeds, settings)
    if findings or settings is None:
        raise ConfigurationInvalid(in_order(findings))
    return settings, tuple(sorted((feed for feed, _ in feeds), key=lambda feed: feed.name))


def parse_feed(text: str, file: str, *, deployment: Path, environ: Mapping[str, str]) -> Feed:
    """The feed that a feed file's text states.

    Args:
        text: YAML.
        file: the name that findings bear.
        deployment: folder from which a relative landing place is counted.
        environ: values for ``${NAME}``.

    Raises:
        ConfigurationInvalid: with every finding.
    """
    findings: list[ConfigurationFinding] = []
    document = read_yaml(text, file, environ)
    declaration = _validated(FeedDeclaration, document, findings)
    feed = _feed(declaration, document, deployment, findings) if declaration is not None and not findings else None
    if feed is None:
        raise ConfigurationInvalid(in_order(findings))
    return feed


def parse_settings(text: str, file: str, *, deployment: Path, environ: Mapping[str, str]) -> Settings:
    """The settings that a deployment file's text states.

    Args:
        text: YAML; empty for all defaults.
        file: the name that findings bear.
        deployment: folder from which relative paths are counted.
        environ: values for ``${NAME}``.

    Raises:
        ConfigurationInvalid: with every finding.
    """
    findings: list[ConfigurationFinding] = []
    declaration = _validated(SettingsDeclaration, read_yaml(text, file, environ), findings)
    if declaration is None or findings:
        raise ConfigurationInvalid(in_order(findings))
    return to_settings(declaration, deployment=deployment)


def feed_from_attributes(declaration: FeedDeclaration, deployment: Path, file: str) -> Feed:
    """The feed that a Dagster component's attributes state; the loader has validated them already."""
    try:
        return to_feed(declaration, deployment=deployment, file=file)
    except TransformUnusable as error:
        raise ConfigurationInvalid([ConfigurationFinding(file, 1, f"`transform`: {error.message}", error.instead)]) from error


def name_findings(feeds: Iterable[tuple[Feed, int]], settings: Settings | None) -> list[ConfigurationFinding]:
    """What the names of several feeds do wrong together; DuckDB and some file systems do not tell case apart.

    Args:
        feeds: each with the line of its ``source``.
        settings: the deployment's, for the catalogue's own name; None where they are not known.
    """
    findings = []
    names: dict[str, Feed] = {}
    sources: dict[str, Feed] = {}
    catalog = settings.catalog.stem.lower() if settings is not None else None
    for feed, line in feeds:
        first = names.setdefault(feed.name.lower(), feed)
        spelled = sources.setdefault(feed.source.lower(), feed)
        if first is not feed:
            how = "the same name as" if first.name == feed.name else "the same name but for case as"
            message = f"the feed {feed.name} has {how} {first.name} in {first.file}"
            findings.append(ConfigurationFinding(feed.file, line, message, "another source or dataset"))
        elif spelled.source != feed.source:
            message = f"the source `{feed.source}` is `{spelled.source}` in {spelled.file}, equal but for case"
            findings.append(ConfigurationFinding(feed.file, line, message, f"source: {spelled.source}"))
        if feed.source.lower() == catalog:
            message = f"the source `{feed.source}` is the catalogue file's name too, and SQL cannot tell them apart"
            findings.append(ConfigurationFinding(feed.file, line, message, f"source: {feed.source}_data"))
    return findings


def in_order(findings: Iterable[ConfigurationFinding]) -> list[ConfigurationFinding]:
    """The findings by file and line, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.file, finding.line))


def _read_settings(root: Path, environ: Mapping[str, str], findings: list[ConfigurationFinding]) -> Settings | None:
    document = read_yaml_file(root / SETTINGS_FILE, SETTINGS_FILE, environ)
    declaration = _validated(SettingsDeclaration, document, findings)
    return None if declaration is None else to_settings(declaration, deployment=root)


def _feed_files(root: Path, findings: list[ConfigurationFinding]) -> list[Path]:
    folder = root / FEEDS_FOLDER
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    for path in paths:
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            file = f"{FEEDS_FOLDER}/{path.name}"
            findings.append(ConfigurationFinding(file, 1, "only *.yaml files are feeds", f"the name {path.stem}.yaml"))
    return [path for path in paths if path.suffix == ".yaml"]


def _feed(
    declaration: FeedDeclaration, document: YamlDocument, deployment: Path, findings: list[ConfigurationFinding]
) -> Feed | None:
    try:
        return to_feed(declaration, deployment=deployment, file=document.file)
    except TransformUnusable as error:
        findings.append(document.finding(("transform",), error.message, error.instead))
        return None


def _validated(model: type[ModelT], document: YamlDocument, findings: list[ConfigurationFinding]) -> ModelT | None:
    findings += document.findings
    if document.unreadable:
        return None
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        findings += findings_of(error, document)
        return None
