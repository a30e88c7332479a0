"""YAML text as plain values that remember their lines, with everything refused that two loaders could read differently.

Reading a file is here too, because it is one line; what the values mean is ``declaration``'s and ``settings``' matter.
Nothing from the environment and no literal secret ever enters a message: see ``YamlDocument.redact``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from valuestream_dagster.errors import ConfigurationFinding

BYTES_LIMIT = 1024 * 1024
DEPTH_LIMIT = 32
_PREFIX_HIDDEN = 6

Place = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_PLAIN_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PLAIN_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_LOOKS_OCTAL = re.compile(r"[-+]?0[0-9_]+|0o[0-7]+")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# What may stand where a secret belongs: our own reference, or Dagster's template in a defs.yaml.
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\{\{.*?\}\}")
_SECRET_KEY = re.compile(
    r"(^|[_-])(password|passwd|pwd|passphrase|secret|token|credentials?"
    r"|(access|secret|private|api|account)[_-]?key([_-]id)?)($|[_-])"
)
_URL_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:(?P<password>[^/\s]+)@")
_URL_WITH_SECRET_QUERY = re.compile(
    r"://.*[?&](password|pass|pwd|secret|token|api_?key|access_key)=(?!\$\{|\{\{)[^&]", re.IGNORECASE
)
# Notification services whose URL is the secret: the token stands in its path.
_URL_IS_SECRET = re.compile(
    r"(slack|discord|tgram|msteams|workflows?|gchat|pover|pbul|pagerduty|opsgenie|sendgrid|mailgun|twilio|ifttt|webex"
    r"|wxteams|mmosts?|zulip|gotifys?|splunk)://(?!\$\{|\{\{)\S",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML file's value, its lines and what was wrong with its text.

    Args:
        file: the name that findings bear.
        value: mappings, lists and scalars; an empty text is an empty mapping.
        lines: line (from 1) of every mapping key and list item, by its place.
        findings: what the text itself does wrong; ``value`` is as good as could be read.
        unreadable: whether ``value`` is no use because the text is no YAML at all.
        hidden: values taken from the environment, longest first, each with its name.
        faulty: the places of ``findings``, so that none is reported twice.
    """

    file: str
    value: object
    lines: Mapping[Place, int]
    findings: tuple[ConfigurationFinding, ...] = ()
    unreadable: bool = False
    hidden: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    faulty: frozenset[Place] = frozenset()

    def line_of(self, place: Place) -> int:
        """The line of the place, or of the nearest mapping or list around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def is_faulty(self, place: Place) -> bool:
        """Whether the text itself is wrong at the place."""
        return place in self.faulty

    def redact(self, text: str) -> str:
        """``text`` with every value that came from the environment written as its ``${NAME}`` again.

        Messages shorten what they quote, so beginnings of a value are looked for too.
        """
        for value, name in self.hidden:
            for length in range(len(value), min(len(value), _PREFIX_HIDDEN) - 1, -1):
                text = text.replace(value[:length], f"${{{name}}}")
        return text

    def finding(self, place: Place, message: str, instead: str = "") -> ConfigurationFinding:
        """A finding at the line of ``place``, without values from the environment."""
        return ConfigurationFinding(self.file, self.line_of(place), self.redact(message), self.redact(instead))


def read_yaml_file(path: Path, file: str, environ: Mapping[str, str]) -> YamlDocument:
    """Read one file of a deployment; never more than the limit and a byte.

    Args:
        path: where it is.
        file: the name that findings bear.
        environ: values for ``${NAME}``.
    """
    with path.open("rb") as stream:
        data = stream.read(BYTES_LIMIT + 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        fault = ConfigurationFinding(file, line, "the file is not UTF-8 text", "the file saved as UTF-8")
        return YamlDocument(file, {}, {}, (fault,), unreadable=True)
    return read_yaml(text, file, environ)


def read_yaml(text: str, file: str, environ: Mapping[str, str]) -> YamlDocument:
    """Read one YAML document strictly.

    Args:
        text: the file's text.
        file: the name that findings bear.
        environ: values for ``${NAME}``; a missing name is a finding.
    """
    fault = _fault_of_text(text, file)
    if fault is None:
        reader = _Reader(file, environ)
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            fault = _syntax_finding(error, text, file)
        else:
            value = {} if root is None else reader.value(root, ())
            return YamlDocument(
                file, value, reader.lines, tuple(reader.findings), hidden=reader.hidden, faulty=frozenset(reader.faulty)
            )
    return YamlDocument(file, {}, {}, (fault,), unreadable=True)


def check_scalars(text: str, file: str) -> tuple[ConfigurationFinding, ...]:
    """What the text does wrong whatever it means: YAML 1.1 scalars, duplicate keys, aliases, tags, literal secrets.

    For files that another loader reads (Dagster's ``defs.yaml``), so that both loaders see the same values (FACTS 16).
    Several documents in one text are all checked; ``${NAME}`` is left alone.
    """
    fault = _fault_of_text(text, file)
    if fault is not None:
        return (fault,)
    reader = _Reader(file, None)
    try:
        for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
            reader.value(root, ())
    except yaml.YAMLError as error:
        return (*reader.findings, _syntax_finding(error, text, file))
    return tuple(reader.findings)


def _fault_of_text(text: str, file: str) -> ConfigurationFinding | None:
    """What must be refused before nodes are built, because building them could cost or mislead without bound."""
    if len(text.encode("utf-8", "surrogatepass")) > BYTES_LIMIT:
        return ConfigurationFinding(file, 1, f"the file is larger than {BYTES_LIMIT // 1024} KiB", "a smaller file")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            if isinstance(event, yaml.AliasEvent):
                return ConfigurationFinding(
                    file, line, f"the alias `*{event.anchor}` is not allowed", "the value itself, once more"
                )
            if getattr(event, "tag", None) not in (None, "!"):
                return ConfigurationFinding(file, line, "tags (`!...`) are not allowed", "the value without its tag")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEPTH_LIMIT:
                    return ConfigurationFinding(
                        file, line, f"nested deeper than {DEPTH_LIMIT} levels", "a flatter document"
                    )
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError as error:
        return _syntax_finding(error, text, file)
    return None


def _syntax_finding(error: yaml.YAMLError, text: str, file: str) -> ConfigurationFinding:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        words = ", ".join(part for part in (error.context, error.problem) if part)
        if "single document" in words:
            return ConfigurationFinding(file, line, "a second YAML document begins here", "one document per file")
        return ConfigurationFinding(file, line, f"this is no YAML: {words}")
    position = getattr(error, "position", 0)
    return ConfigurationFinding(
        file, text.count("\n", 0, position) + 1, "a character that YAML does not allow", "the text without it"
    )


class _Reader:
    """Turns nodes into values, noting lines and findings on the way."""

    def __init__(self, file: str, environ: Mapping[str, str] | None) -> None:
        self.file = file
        self.environ = environ
        self.lines: dict[Place, int] = {}
        self.findings: list[ConfigurationFinding] = []
        self.faulty: set[Place] = set()
        self._hidden: dict[str, str] = {}

    @property
    def hidden(self) -> tuple[tuple[str, str], ...]:
        """Values taken from the environment, longest first, with their names."""
        return tuple(sorted(self._hidden.items(), key=lambda item: -len(item[0])))

    def value(self, node: yaml.Node, place: Place) -> object:
        """The plain value of a node."""
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*place, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*place, index)))
            return items
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, place)

    def _note(self, node: yaml.Node, place: Place, message: str, instead: str = "") -> None:
        self.faulty.add(place)
        self.findings.append(ConfigurationFinding(self.file, node.start_mark.line + 1, message, instead))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, place)
            if key is None:
                continue
            if key in result:
                first = self.lines[(*place, key)]
                self._note(
                    key_node, (*place, key), f"`{key}` stands twice here; the first is on line {first}", f"`{key}` once"
                )
                continue
            self.lines[(*place, key)] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, (*place, key))
        return result

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._note(node, place, "a key must be plain text, not a list or mapping")
            return None
        text = str(node.value)
        # `null` is a field of ours (payload.null), and every reader of these files takes the bare word for its name.
        if node.style is not None or node.tag == f"{_TAG}str" or text == "null":
            return text
        self._note(
            node,
            (*place, text),
            f"a key must be text, and YAML reads `{text}` as something else",
            f'"{text}" in quotes',
        )
        return text

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> object:
        text = str(node.value)
        if node.style is None:
            plain = self._plain(node, place, text)
            if plain is not text:
                return plain
        if _is_literal_secret(place, text):
            self._note(
                node, place, f"{_named(place)} holds a literal secret", "${NAME}, and set NAME in the environment"
            )
            return ""
        return self._interpolated(node, place, text)

    def _plain(self, node: yaml.ScalarNode, place: Place, text: str) -> object:
        """The value of an unquoted scalar; ``text`` itself where it is text in every loader."""
        kind = node.tag.removeprefix(_TAG)
        if kind == "null" and text in ("", "~", "null"):
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "int" and _PLAIN_INTEGER.fullmatch(text):
            return int(text)
        if kind == "float" and _PLAIN_FLOAT.fullmatch(text):
            return float(text)
        if kind != "str" or _LOOKS_OCTAL.fullmatch(text):
            instead = f'"{text}" in quotes' + (" (or true/false, if that is meant)" if kind == "bool" else "")
            self._note(node, place, f"`{text}` is read as something else by some YAML loaders{_as_what(kind)}", instead)
        return text

    def _interpolated(self, node: yaml.ScalarNode, place: Place, text: str) -> str:
        if "${" not in text or self.environ is None:
            return text
        if "${" in _VARIABLE.sub("", text):
            self._note(node, place, "`${` begins no variable name here", "${NAME}, with letters, digits and _ only")
            return text
        environ = self.environ
        for name in dict.fromkeys(_VARIABLE.findall(text)):
            if name not in environ:
                self._note(node, place, f"the environment variable {name} is not set; set it before running this")
            elif environ[name]:
                self._hidden.setdefault(environ[name], name)
        return _VARIABLE.sub(lambda found: environ.get(found[1], ""), text)


def _as_what(kind: str) -> str:
    words = {"bool": "true or false", "int": "an integer", "float": "a number", "timestamp": "a date", "null": "none"}
    return f" ({words[kind]})" if kind in words else ""


def _named(place: Place) -> str:
    return "`" + ".".join(str(part) for part in place) + "`" if place else "the document"


def _is_literal_secret(place: Place, text: str) -> bool:
    """Whether a value gives away what should come from the environment. A column may be called ``token``."""
    if not text or "columns" in place[:-1]:
        return False
    names = (part.lower() for part in reversed(place) if isinstance(part, str))
    if _SECRET_KEY.search(next(names, "")) and _REFERENCE.sub("", text):
        return True
    with_password = any(_REFERENCE.sub("", found["password"]) for found in _URL_WITH_PASSWORD.finditer(text))
    return with_password or bool(_URL_WITH_SECRET_QUERY.search(text) or _URL_IS_SECRET.match(text))
