"""Models whose every mistake is a sentence: unknown fields with the nearest known one, unbuilt ones by name.

All mistakes are said at once. The sentences are made inside pydantic, so that a feed file and Dagster's ``defs.yaml``
say the same. Which rules a model has is its own matter (``declaration``, ``settings``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, NoReturn, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails

from valuestream_dagster.errors import ConfigurationFinding, with_instead
from valuestream_dagster.feeds.yaml_source import Place, YamlDocument

_SHAPES = {
    "string_type": "text (in quotes where YAML would read something else)",
    "tuple_type": "a list, e.g. [a, b]",
    "list_type": "a list, e.g. [a, b]",
    "dict_type": "a mapping, e.g. {name: value}",
    "model_type": "a mapping, e.g. {name: value}",
    "model_attributes_type": "a mapping, e.g. {name: value}",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule that the values break: where, what, what to write instead, and which fields the rule read."""

    place: Place
    message: str
    instead: str = ""
    reads: tuple[str, ...] = ()


class Sentence(ValueError):
    """A refusal in people's words; an object, so that Dagster can raise pydantic's error anew and say the same."""

    def __init__(self, message: str, instead: str = "") -> None:
        super().__init__(with_instead(message, instead))
        self.message = message
        self.instead = instead


def refuse(message: str, instead: str = "") -> NoReturn:
    """Refuse a value from inside a field validator."""
    raise Sentence(message, instead)


def not_built(what: str) -> str:
    """The sentence for what the design names and this version does not do."""
    return f"`{what}` is part of the design and not built in this version; remove it"


class ClosedModel(BaseModel):
    """A frozen model without unknown fields, whose errors are sentences."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    not_built_fields: ClassVar[frozenset[str]] = frozenset()
    not_built_values: ClassVar[Mapping[str, frozenset[str]]] = {}

    def faults(self) -> Iterable[Fault]:
        """What the values do wrong together; each fault names the fields that it read."""
        return ()

    @classmethod
    def stand_ins(cls) -> Mapping[str, object]:
        """Harmless values for required fields, so that ``faults`` can be asked while one of them is missing."""
        return {}

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, Mapping) and None in data:
            # A YAML loader reads the bare key `null` as nothing; the field of that name is meant.
            data = {("null" if key is None else key): value for key, value in data.items()}
        try:
            model = handler(data)
        except ValidationError as error:
            details = [cls._sentence(detail) for detail in _causes(error)]
            details += cls._faults_despite(data, error, handler)
            raise ValidationError.from_exception_data(cls.__name__, details) from None
        faults = list(model.faults())
        if faults:
            raise ValidationError.from_exception_data(cls.__name__, [_detail(fault, data) for fault in faults])
        return model

    @classmethod
    def _faults_despite(
        cls, data: Any, error: ValidationError, handler: ModelWrapValidatorHandler[Self]
    ) -> list[InitErrorDetails]:
        """The faults among the fields that are right, where others are wrong."""
        if not isinstance(data, Mapping):
            return []
        wrong = {str(detail["loc"][0]) for detail in error.errors(include_url=False) if detail["loc"]}
        kept = {key: value for key, value in data.items() if key not in wrong}
        kept = {**{key: value for key, value in cls.stand_ins().items() if key not in kept}, **kept}
        try:
            faults = list(handler(kept).faults())
        except ValidationError:
            return []
        return [_detail(fault, data) for fault in faults if not wrong.intersection(fault.reads)]

    @classmethod
    def _sentence(cls, detail: ErrorDetails) -> InitErrorDetails:
        place = detail["loc"]
        name = str(place[-1]) if place else ""
        return _line_error(_kept(detail) or cls._worded(detail, name), place, detail["input"])

    @classmethod
    def _worded(cls, detail: ErrorDetails, name: str) -> Sentence:
        code = detail["type"]
        match code:
            case "extra_forbidden" if name in cls.not_built_fields:
                return Sentence(not_built(name))
            case "extra_forbidden":
                return _unknown("unknown field `{}`", name, cls._known_names())
            case "missing":
                return Sentence(f"the field `{name}` is missing", f"{name}: ...")
            case "literal_error" | "enum":
                return cls._wrong_word(detail, name)
            case "invalid_key":
                return Sentence("a name here must be text", "the name in quotes")
            case _ if code in _SHAPES:
                empty = " (nothing stands here)" if detail["input"] is None else ""
                what = f"`{_readable(detail['loc'])}` must be" if detail["loc"] else "here must stand"
                return Sentence(f"{what} {_SHAPES[code]}{empty}")
            case _:
                return Sentence(f"`{_readable(detail['loc'])}`: {detail['msg'][:1].lower()}{detail['msg'][1:]}")

    @classmethod
    def _wrong_word(cls, detail: ErrorDetails, name: str) -> Sentence:
        known = [word.strip("' ") for word in detail.get("ctx", {}).get("expected", "").replace(" or ", ",").split(",")]
        value = detail["input"]
        if isinstance(value, str) and value in cls.not_built_values.get(name, ()):
            return Sentence(not_built(f"{name}: {value}"), f"{name}: {known[0]}")
        return _unknown("`{}` is no value of `" + name + "`", str(value), known)

    @classmethod
    def _known_names(cls) -> list[str]:
        return [info.alias or name for name, info in cls.model_fields.items()]


def _unknown(sentence: str, name: str, known: list[str]) -> Sentence:
    said = sentence.format(name if len(name) <= 80 else name[:77] + "...")
    near = get_close_matches(name, known, 1, 0.6)
    if near:
        return Sentence(f"{said}; did you mean `{near[0]}`?", near[0])
    return Sentence(said, "one of " + ", ".join(known))


def _kept(detail: ErrorDetails) -> Sentence | None:
    error = detail.get("ctx", {}).get("error")
    return error if isinstance(error, Sentence) else None


def _line_error(sentence: Sentence, place: tuple[int | str, ...], value: object) -> InitErrorDetails:
    return InitErrorDetails(type="value_error", loc=place, input=value, ctx={"error": sentence})


def _detail(fault: Fault, data: object) -> InitErrorDetails:
    return _line_error(Sentence(fault.message, fault.instead), fault.place, data)


def _causes(error: ValidationError) -> list[ErrorDetails]:
    """The errors without those that only follow: a list is not too short because its one item was refused."""
    details = error.errors(include_url=False)
    inner = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in inner]


def _readable(place: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in place if not _is_marker(part))


def _is_marker(part: int | str) -> bool:
    """Whether it is a word of the model's own and no place in the text: ``[key]``, or which form of a field was meant."""
    return isinstance(part, str) and part.startswith("[") and part.endswith("]")


def findings_of(error: ValidationError, document: YamlDocument) -> tuple[ConfigurationFinding, ...]:
    """A model's refusal as findings with lines; places that the text itself got wrong are not reported twice."""
    findings = []
    for detail in error.errors(include_url=False):
        place = tuple(part for part in detail["loc"] if not _is_marker(part))
        sentence = _kept(detail) or Sentence(detail["msg"])
        if not any(document.is_faulty(place[:length]) for length in range(1, len(place) + 1)):
            findings.append(document.finding(place, sentence.message, sentence.instead))
    return tuple(findings)
