"""A model class that moves from one engine to another by `config apply`, while runs come and go."""

import asyncio
import json
import shutil
from asyncio import TaskGroup
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

import psutil

from headway.client import HeadwayClient, RequestOptions
from schemas.base import Json
from schemas.responses import InferenceResponse
from tests.e2e.commands import Cli
from tests.e2e.planes import CONFIG, RunningPlane

CHAT = Path(__file__).parent / "config-chat"
FEW, MANY = 4, 120
"""Tokens of an answer: of one that is soon there, and of one that takes longer than a worker may take to end."""
EVERY_S = 1.0
SLOTS = 4
WAIT_S = 60.0

Engine = Mapping[str, Json]


class Chat:
    """The class `chat` of a plane, beside its own classes, and a pipeline of one call of it."""

    def __init__(self, plane: RunningPlane, client: HeadwayClient, folder: Path, patience_s: float) -> None:
        self._plane = plane
        self._client = client
        self._folder = folder
        self.patience_s = patience_s
        """For an answer, and for workers to end."""
        self._served_by: object = None

    async def serve_by(self, name: str, engine: Engine, slots: int = SLOTS) -> None:
        """Applies a configuration in which the class has this one backend, unless it has."""
        backend = {"name": name, "engine": engine, "slots": slots}
        if self._served_by == backend:
            return
        for each in (CONFIG, CHAT):
            shutil.copytree(each, self._folder, dirs_exist_ok=True)
        with (self._folder / "models.yaml").open("a", encoding="utf-8") as models:
            chat = {"backends": [backend], "breaker": {"slow_call": "10m"}, "scaling": {"max_replicas": 1}}
            models.write(f"  chat: {json.dumps(chat)}\n")
        await apply(self._plane, self._folder)
        self._served_by = backend

    async def submit(self, tokens: int, **options: Unpack[RequestOptions]) -> str:
        """The id of a request that the broker has."""
        options = {"deadline_s": self.patience_s, **options}
        return (await self._client.submit("chat", {"tokens": tokens}, **options)).request_id

    async def answer(self, request_id: str) -> InferenceResponse:
        """Awaited."""
        return await self._client.wait(request_id, self.patience_s)

    async def ask(self, tokens: int) -> InferenceResponse:
        """A run, from its beginning to its end."""
        return await self.answer(await self.submit(tokens))

    def processes(self) -> list[psutil.Process]:
        """The class's workers, and what they have started."""
        host = psutil.Process(self._plane.endpoints.pids["host"])
        workers = [each for each in host.children(recursive=True) if _is_worker_of_chat(each)]
        return [process for worker in workers for process in (worker, *worker.children(recursive=True))]

    def doers(self) -> Mapping[str, list[str]]:
        """By run, the workers that did its task, as they have told their log. vLLM writes to it in its own way."""
        found = defaultdict(list)
        log = self._plane.home / "logs/worker-chat-0.log"
        lines = log.read_text(encoding="utf-8").splitlines()
        for line in (json.loads(line) for line in lines if line.startswith("{")):
            if line["event"] == "task" and line["outcome"] == "succeeded":
                found[line["run_id"]].append(line["instance"])
        return found

    async def responses(self, answers: Sequence[InferenceResponse]) -> list[int]:
        """How many stand in the log for each of these runs."""
        asked = {answer.request_id for answer in answers}
        records = await self._plane.read(
            "inference-responses", lambda found: asked <= {record.key.decode() for record in found}
        )
        found = Counter(record.key.decode() for record in records)
        return [found[request_id] for request_id in asked]


@asynccontextmanager
async def chatting(plane: RunningPlane, folder: Path, patience_s: float = WAIT_S) -> AsyncIterator[Chat]:
    """The class is gone again afterwards."""
    async with HeadwayClient(plane.endpoints.kafka) as client:
        try:
            yield Chat(plane, client, folder, patience_s)
        finally:
            await apply(plane, CONFIG)


async def apply(plane: RunningPlane, folder: Path) -> None:
    """`headway config apply`."""
    done = await Cli(plane.home)("config", "apply", str(folder))
    assert done.code == 0, done.err


async def move(chat: Chat, backend: str, engine: Engine, slots: int = SLOTS) -> Sequence[InferenceResponse]:
    """Replaces the backend that is at work, while runs come. Returns when its workers are gone and the runs have
    ended: first that which was under way when the configuration changed, and for some time after.
    """
    old = chat.processes()
    assert old, "there is nothing to be replaced"
    async with trickle(chat) as answers:
        long = await chat.submit(MANY)
        await chat.ask(FEW)
        await chat.serve_by(backend, engine, slots)
        _, left = await asyncio.to_thread(psutil.wait_procs, old, chat.patience_s)
        assert not left, "the old workers stay"
    return [await chat.answer(long), *answers]


@asynccontextmanager
async def trickle(chat: Chat) -> AsyncIterator[list[InferenceResponse]]:
    """Runs that come one after another, whatever becomes of those before; complete after the block."""
    answers: list[InferenceResponse] = []

    async def ask() -> None:
        answers.append(await chat.ask(FEW))

    async def go_on(group: TaskGroup) -> None:
        while True:
            group.create_task(ask())
            await asyncio.sleep(EVERY_S)

    async with TaskGroup() as group:
        going = group.create_task(go_on(group))
        yield answers
        going.cancel()


def _is_worker_of_chat(process: psutil.Process) -> bool:
    try:
        return "--model-class chat" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
