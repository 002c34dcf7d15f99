"""What the shape of a configuration does not show: names that lead nowhere, cycles, expressions, lanes too small."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from schemas.base import Json
from schemas.durations import parse_duration_ms
from schemas.models import Queue, queues
from schemas.tasks import Price
from schemas.topics import RESPONSES, all_topics
from services.chassis.config.draft import Draft, DraftPipeline, DraftStep, elements, mapping
from services.chassis.config.input_schema import schema_findings
from services.chassis.config.problems import Finding, Path, Severity
from services.chassis.expressions import (
    ExpressionError,
    compile_condition,
    compile_template,
    condition_errors,
    template_errors,
)
from services.chassis.expressions.errors import did_you_mean

FAILOVER_MS = 10_000
SHORT_TIMEOUT_MS = 15_000
RESERVED_IDS = frozenset({"true", "false", "null", "in"})
"""Words that CEL does not take after `steps.`."""


def findings(draft: Draft) -> Iterator[Finding]:
    """Everything wrong with a draft but its shape. Paths begin with `pipelines`, `models` or `tenants`."""
    for index, pipeline in enumerate(draft.pipelines):
        for finding in _pipeline(pipeline, draft):
            yield finding.under(("pipelines", index))
    yield from _duplicates(draft.pipelines)
    for finding in _models(draft):
        yield finding.under(("models",))
    for finding in _tenants(draft):
        yield finding.under(("tenants",))


# ---- pipelines ----


def _pipeline(pipeline: DraftPipeline, draft: Draft) -> Iterator[Finding]:
    yield from _ids(pipeline.steps)
    yield from _expressions(pipeline)
    for step in pipeline.steps:
        yield from _after(step, pipeline.step_ids)
        yield from _timeout(step)
        if draft.models is not None:
            yield from _targets(step, draft.backends)
    yield from _cycles(pipeline)
    if isinstance(schema := pipeline.raw.get("input"), dict):
        for finding in schema_findings(schema):
            yield finding.under(("input",))


def _duplicates(pipelines: list[DraftPipeline]) -> Iterator[Finding]:
    seen: dict[tuple[str, int], int] = {}
    for index, pipeline in enumerate(pipelines):
        name, version = pipeline.raw.get("name"), pipeline.raw.get("version", 1)
        if not isinstance(name, str) or not isinstance(version, int):
            continue
        first = seen.setdefault((name, version), index)
        if first != index:
            message = f"pipeline `{name}` version {version} is there twice"
            hint = f"the other is {pipelines[first].label}; give this one another `version`"
            yield Finding(("pipelines", index, "name"), message, hint)


def _ids(steps: Iterable[DraftStep]) -> Iterator[Finding]:
    seen: set[str] = set()
    for step in steps:
        path = (*step.path, "id")
        if step.id in RESERVED_IDS:
            yield Finding(path, f"a step cannot be named `{step.id}`", "expressions could not name it")
        if step.id in seen:
            yield Finding(path, f"the step id `{step.id}` is there twice", "every step needs an id of its own")
        if step.id is not None:
            seen.add(step.id)


def _expressions(pipeline: DraftPipeline) -> Iterator[Finding]:
    ids = pipeline.step_ids
    for step in pipeline.steps:
        for path, template in step.templates():
            yield from (_expression(path, error) for error in template_errors(template, ids))
        for path, text in step.conditions():
            yield from (_expression(path, error) for error in condition_errors(text, ids))
    yield from (_expression(("output",), error) for error in template_errors(pipeline.raw.get("output"), ids))


def _expression(path: Path, error: ExpressionError) -> Finding:
    return Finding((*path, *error.path), error.message, error.hint, offset=error.position)


def _after(step: DraftStep, ids: Collection[str]) -> Iterator[Finding]:
    for index, needed in enumerate(elements(step.raw.get("after"))):
        if isinstance(needed, str) and needed not in ids:
            yield Finding((*step.path, "after", index), f"unknown step `{needed}`", did_you_mean(needed, ids))


def _timeout(step: DraftStep) -> Iterator[Finding]:
    try:
        timeout = step.raw.get("timeout")
        timeout_ms = timeout if isinstance(timeout, int) else parse_duration_ms(timeout)
    except ValueError:  # absent, or told where the shape is checked
        return
    if timeout_ms < SHORT_TIMEOUT_MS:
        hint = f"a worker's failover takes {FAILOVER_MS // 1_000} s: give it 15s or more"
        yield Finding((*step.path, "timeout"), "the timeout is below 15 s", hint, Severity.WARNING)


def _targets(step: DraftStep, backends: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Class and backend of a step and of its fallbacks; a fallback has the step's class unless it names one."""
    own = step.text("model_class")
    links: list[tuple[Path, Json]] = [(step.path, step.raw)]
    links += [((*step.path, "fallback", i), link) for i, link in enumerate(elements(step.raw.get("fallback")))]
    for path, link in links:
        model_class = mapping(link).get("model_class", own)
        if "model_class" in mapping(link) and isinstance(model_class, str) and model_class not in backends:
            hint = did_you_mean(model_class, backends)
            yield Finding((*path, "model_class"), f"unknown model class `{model_class}`", hint)
        backend = mapping(link).get("backend")
        known = backends.get(model_class, ()) if isinstance(model_class, str) else ()
        if isinstance(backend, str) and known and backend not in known:
            message = f"the model class `{model_class}` has no backend `{backend}`"
            yield Finding((*path, "backend"), message, did_you_mean(backend, known))


def _cycles(pipeline: DraftPipeline) -> Iterator[Finding]:
    needs = {step.id: _needs(step, pipeline.step_ids) for step in pipeline.steps if step.id is not None}
    for cycle in find_cycles(needs):
        first = next(step for step in pipeline.steps if step.id == cycle[0])
        message = f"steps wait for each other: {' → '.join([*cycle, cycle[0]])}"
        yield Finding((*first.path, "id"), message, "each reads the next, or has it in `after`: break the circle")


def _needs(step: DraftStep, ids: Collection[str]) -> set[str]:
    """Steps it waits for, as far as its expressions can be read."""
    needed = {name for name in elements(step.raw.get("after")) if isinstance(name, str)}
    for _, template in step.templates():
        try:
            needed |= compile_template(template, ids).references()
        except ExpressionError:  # told where expressions are checked
            continue
    for _, text in step.conditions():
        try:
            needed |= compile_condition(text, ids).references()
        except ExpressionError:
            continue
    return needed.intersection(ids)


def find_cycles(needs: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Steps of which each needs the next, and the last the first: at least one for each knot."""
    done: set[str] = set()
    for start in needs:
        trail = {start: iter(sorted(needs[start]))} if start not in done else {}
        while trail:
            current = next(reversed(trail))
            following = next((step for step in trail[current] if step not in done), None)
            if following is None:
                done.add(current)
                del trail[current]
            elif following in trail:
                steps = list(trail)
                yield steps[steps.index(following) :]
            else:
                trail[following] = iter(sorted(needs[following]))


# ---- model classes ----


def _models(draft: Draft) -> Iterator[Finding]:
    for queue in queues(draft.model_classes()):
        yield from _lanes(queue, _written_path(queue, draft))
    for name, raw in (draft.models or {}).items():
        for index, backend in enumerate(elements(mapping(raw).get("backends"))):
            for key in mapping(mapping(backend).get("price")).keys() - Price.model_fields.keys():
                # A message's reader ignores what it does not know, but a typo must not make something free.
                path = (name, "backends", index, "price", key)
                yield Finding(path, f"unknown key `{key}`", did_you_mean(key, Price.model_fields))
    if draft.complete:
        used = _used_classes(draft)
        for name in draft.models or {}:
            if name not in used and draft.pipelines:
                yield Finding((name,), f"no pipeline uses the model class `{name}`", severity=Severity.WARNING)


def _lanes(queue: Queue, path: Path) -> Iterator[Finding]:
    replicas = queue.scaling.max_replicas
    for lane in ("interactive", "standard"):
        count = len(getattr(queue.lanes, lane))
        if count < replicas:
            message = f"a lane too small: `{lane}` of `{queue.label}` has {count} partitions for {replicas} replicas"
            hint = f"give it {replicas} partitions or more, or lower `max_replicas`"
            yield Finding(path, message, hint)


def _written_path(queue: Queue, draft: Draft) -> Path:
    """Where a queue's lanes are written, else its `max_replicas`, else its class."""
    raw = mapping((draft.models or {}).get(queue.model_class))
    backends = elements(raw.get("backends"))
    index = next(i for i, backend in enumerate(backends) if mapping(backend).get("name") == queue.backend)
    for prefix, level in (((queue.model_class, "backends", index), backends[index]), ((queue.model_class,), raw)):
        if "lanes" in level:
            return (*prefix, "lanes")
        if "max_replicas" in mapping(level.get("scaling")):
            return (*prefix, "scaling", "max_replicas")
    return (queue.model_class,)


def _used_classes(draft: Draft) -> set[str]:
    used = set()
    for pipeline in draft.pipelines:
        for step in pipeline.steps:
            for link in (step.raw, *elements(step.raw.get("fallback"))):
                used.add(str(mapping(link).get("model_class")))
    return used


# ---- tenants ----


def _tenants(draft: Draft) -> Iterator[Finding]:
    ours = {topic.name for topic in all_topics(draft.model_classes(), {})} | {
        f"{RESPONSES}-{t}" for t in draft.tenants
    }
    owners = Counter(
        topic
        for tenant in draft.tenants.values()
        for topic in elements(mapping(tenant).get("ingress_topics"))
        if isinstance(topic, str)
    )
    for name, tenant in draft.tenants.items():
        for index, topic in enumerate(elements(mapping(tenant).get("ingress_topics"))):
            path = (name, "ingress_topics", index)
            if topic in ours:
                yield Finding(path, f"`{topic}` is a topic of Headway's own", "name it inference-requests-<tenant>")
            if owners[topic] > 1:
                yield Finding(path, f"the ingress topic `{topic}` is there twice", "a topic tells one tenant")
