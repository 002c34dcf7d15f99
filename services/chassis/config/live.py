"""The configuration in force, ready for use: nothing is resolved or compiled when a request comes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.base import Json
from schemas.config import Bundle, Revision
from schemas.graphs import Graph
from schemas.models import Queue, queues
from schemas.pipelines import PipelineSpec
from services.chassis.config.folder import check_bundle
from services.chassis.config.input_schema import InputValidator
from services.chassis.config.problems import ConfigError, Severity
from services.chassis.config.resolve import digest, resolve


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """One version of a pipeline."""

    spec: PipelineSpec
    graph: Graph
    digest: str
    """Of the graph."""
    _input: InputValidator = field(repr=False)

    @classmethod
    def of(cls, spec: PipelineSpec) -> "LivePipeline":
        """Of a pipeline that was checked."""
        graph = resolve(spec)
        return cls(spec, graph, digest(graph), InputValidator(spec.input))

    def input_error(self, value: Json) -> str | None:
        """What is wrong with an input, naming its field and repeating nothing of it; None when nothing is."""
        return self._input.error(value)


class LiveConfig:
    """One revision, checked and indexed."""

    def __init__(self, revision: int, bundle: Bundle) -> None:
        """Raises ConfigError for a bundle with an error in it."""
        _require_usable(bundle)
        self.revision = revision
        self.bundle = bundle
        self.pipelines: Sequence[LivePipeline] = [LivePipeline.of(spec) for spec in bundle.pipelines]
        self.queues: Mapping[tuple[str, str], Queue] = {
            (queue.model_class, queue.backend): queue for queue in queues(bundle.model_classes)
        }
        """By model class and backend; a class's first backend comes first."""
        self._tenants = {topic: name for name, tenant in bundle.tenants.items() for topic in tenant.ingress_topics}
        self._by_reference: dict[str, LivePipeline] = {}
        for pipeline in sorted(self.pipelines, key=lambda pipeline: pipeline.spec.version):
            for reference in (pipeline.spec.name, f"{pipeline.spec.name}@{pipeline.spec.version}"):
                self._by_reference[reference] = pipeline

    @classmethod
    def of(cls, revision: Revision) -> "LiveConfig":
        """Raises ConfigError for a revision with an error in it."""
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


def _require_usable(bundle: Bundle) -> None:
    errors = [problem for problem in check_bundle(bundle) if problem.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
        raise ConfigError(f"{errors[0]}{more}")
