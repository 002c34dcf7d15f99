"""The pipelines and model classes of `infra/config`, run in this process: real engines and expressions, no broker."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from schemas.base import Json
from schemas.graphs import OnFailure
from schemas.models import queues
from schemas.pipelines import StepSpec
from services.chassis.config.folder import load_folder
from services.chassis.expressions import compile_condition, compile_template
from services.worker.domain.engine import Call, Engine, EngineError, Result
from services.worker.engines.registry import build_engine

CONFIG = Path(__file__).parents[2] / "infra/config"


class Ended(NamedTuple):
    """How a run ended: its output, or the error of the step that failed it."""

    status: str
    output: Json
    steps: Mapping[str, Json]
    error: EngineError | None = None


class InProcess:
    """Runs the steps of a pipeline one after another, in the order they are written."""

    def __init__(self, home: Path) -> None:
        bundle, problems = load_folder(CONFIG)
        assert bundle is not None, problems
        self._pipelines = {pipeline.name: pipeline for pipeline in bundle.pipelines}
        self.engines: dict[str, Engine] = {
            queue.model_class: build_engine(
                queue.engine,
                slots=queue.slots,
                home=home,
                functions_folder=CONFIG / "functions",
                secret=lambda _: None,
            )
            for queue in queues(bundle.model_classes)
        }

    async def start(self) -> None:
        """Load every model; the indexes of a new home are really built."""
        for engine in self.engines.values():
            await engine.start()

    async def stop(self) -> None:
        """End every engine, children included."""
        for engine in self.engines.values():
            await engine.stop()

    async def call(self, model_class: str, given: Json) -> Json:
        """The output of one call; its EngineError is raised."""
        assert isinstance(given, dict)
        call = Call("task", "run", "step", 1, "default", None, given, deadline_s=60.0)
        (outcome,) = await self.engines[model_class].infer([call])
        if isinstance(outcome, Result):
            return outcome.output
        raise outcome

    async def run(self, name: str, given: Json) -> Ended:
        """One request."""
        pipeline = self._pipelines[name]
        ids = [step.id for step in pipeline.steps]
        outputs: dict[str, Json] = {}
        status = "succeeded"
        for step in pipeline.steps:
            if step.gate is not None and not compile_condition(step.gate, ids).evaluate(given, outputs):
                return Ended("blocked", None, outputs)
            if step.model_class is None or not _is_wanted(step, ids, given, outputs):
                continue
            try:
                asked = compile_template(step.input, ids).evaluate(given, outputs)
                outputs[step.id] = await self.call(step.model_class, asked)
            except EngineError as error:
                if step.on_failure is OnFailure.FAIL:
                    return Ended("failed", None, outputs, error)
                status = "partial"
        return Ended(status, compile_template(pipeline.output, ids).evaluate(given, outputs), outputs)


def _is_wanted(step: StepSpec, ids: list[str], given: Json, outputs: Mapping[str, Json]) -> bool:
    return step.when is None or compile_condition(step.when, ids).evaluate(given, outputs)
