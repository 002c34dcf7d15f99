"""The configuration in force, ready for use: nothing is compiled or resolved when a request comes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from schemas.base import Json
from schemas.config import Bundle, Revision
from schemas.graphs import Graph
from schemas.models import Queue, queues
from schemas.pipelines import PipelineSpec
from services.chassis.config.resolve import digest, resolve


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """One version of a pipeline."""

    spec: PipelineSpec
    graph: Graph
    digest: str
    _validator: Draft202012Validator

    @classmethod
    def of(cls, spec: PipelineSpec) -> "LivePipeline":
        """Resolves and compiles it. Raises ExpressionError when it was not checked."""
        graph = resolve(spec)
        return cls(spec, graph, digest(graph), Draft202012Validator(spec.input))

    def input_error(self, value: Json) -> str | None:
        """The first thing wrong with an input, naming its field and never repeating its value."""
        error = next(self._validator.iter_errors(value), None)
        return None if error is None else f"`{_path(error)}`: {_problem(error)}"


class LiveConfig:
    """One revision, indexed."""

    def __init__(self, revision: int, bundle: Bundle) -> None:
        self.revision = revision
        self.bundle = bundle
        self.queues: Mapping[tuple[str, str], Queue] = {
            (queue.model_class, queue.backend): queue for queue in queues(bundle.model_classes)
        }
        self.pipelines = [LivePipeline.of(spec) for spec in bundle.pipelines]
        self._by_reference = self._index()
        self._tenants = {topic: name for name, tenant in bundle.tenants.items() for topic in tenant.ingress_topics}

    @classmethod
    def of(cls, revision: Revision) -> "LiveConfig":
        """From its record."""
        return cls(revision.revision, revision.bundle)

    @property
    def ingress_topics(self) -> tuple[str, ...]:
        """The tenants' own ingress topics."""
        return tuple(sorted(self._tenants))

    def pipeline(self, reference: str) -> LivePipeline | None:
        """By `name` (its highest version) or `name@version`."""
        return self._by_reference.get(reference)

    def tenant_of(self, ingress_topic: str) -> str | None:
        """The tenant who owns an ingress topic; None for everyone's."""
        return self._tenants.get(ingress_topic)

    def _index(self) -> dict[str, LivePipeline]:
        found: dict[str, LivePipeline] = {}
        for pipeline in sorted(self.pipelines, key=lambda each: each.spec.version):
            found[pipeline.spec.name] = found[f"{pipeline.spec.name}@{pipeline.spec.version}"] = pipeline
        return found


def _path(error: ValidationError) -> str:
    """`input.a[0]`; for a missing property, the property itself."""
    path = "input" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    if error.validator == "required":
        required = cast("list[str]", error.validator_value)
        missing = [name for name in required if name not in cast("dict[str, Json]", error.instance)]
        return f"{path}.{missing[0]}" if missing else path
    return path[:200]


def _problem(error: ValidationError) -> str:
    """What the schema asks for. jsonschema's own message repeats the value, which may be a prompt."""
    asked = str(error.validator_value)[:200]
    return {
        "required": "is required",
        "type": f"must be of type {asked}",
        "minLength": f"must have at least {asked} characters",
        "maxLength": f"must have at most {asked} characters",
        "minimum": f"must be at least {asked}",
        "maximum": f"must be at most {asked}",
        "minItems": f"must have at least {asked} items",
        "maxItems": f"must have at most {asked} items",
        "enum": f"must be one of {asked}",
        "pattern": f"must match {asked}",
        "additionalProperties": "has a property that the pipeline does not know",
    }.get(str(error.validator), f"breaks `{error.validator}` of the pipeline's input schema")
