"""Tasks that another worker holds, in memory: they wait outside the slots, each lane by itself."""

from collections.abc import Sequence

from schemas.base import Priority
from schemas.events import StepCompleted
from schemas.tasks import InferenceTask
from services.worker.domain.ports import LEASE_S, Answer, Claim, Verdict
from tests.pipeline.test_worker_wiring import Plane, Worker, claim_of, queue_of, until

INTERACTIVE, _, BATCH = Priority


class Parked:
    """What the claims of a worker were told: another one has it."""

    def __init__(self, worker: Worker) -> None:
        self.held: set[Claim] = set()
        self._claim = worker.claims.claim
        worker.claims.claim = self._watched  # type: ignore[method-assign]

    async def _watched(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        answers = await self._claim(claims)
        self.held |= {claim for claim, answer in zip(claims, answers, strict=True) if answer.verdict is Verdict.HELD}
        return answers

    async def until(self, task: InferenceTask) -> None:
        """It is parked."""
        await until(lambda: claim_of(task) in self.held)


async def test_a_parked_task_waits_for_no_slot_of_another_lane() -> None:
    plane = Plane(queue_of("llm", slots=4, latency_ms=1))
    low, top = plane.task(1, lane=BATCH), plane.task(2, lane=INTERACTIVE)
    hanging = [plane.task(n, lane=BATCH, input={"simulate": {"hang": True}}) for n in range(10, 13)]
    for task in (low, top):
        plane.shelf.put(claim_of(task), "worker-0", LEASE_S)
    async with plane.worker() as worker:
        parked = Parked(worker)
        plane.put(low)
        await parked.until(low)
        plane.put(*hanging)
        await until(lambda: len(worker.engines["llm"].asked) == len(hanging))
        plane.put(top)
        await parked.until(top)
        for task in (low, top):
            plane.shelf.put(claim_of(task), "worker-0", 0.0)
        assert isinstance(await plane.event(top), StepCompleted)
        assert low.task_id not in worker.engines["llm"].asked
