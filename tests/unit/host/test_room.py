"""What finds room beside what runs: memory counts, the machine's and that of its GPUs."""

from typing import Any

from schemas.fleet import Capacity
from schemas.models import ModelsFile, Queue, queues
from services.host.domain.room import full_for
from services.host.domain.wishes import Wish

GIB = 1 << 30


def queue(label: str, **resources: Any) -> Queue:
    backends = [{"name": "local", "engine": {"kind": "simulated"}}]
    classes = {label: {"backends": backends, "resources": resources}}
    (queue,) = queues(ModelsFile.model_validate({"model_classes": classes}).model_classes)
    return queue


def test_a_queue_is_full_when_the_memory_for_one_more_worker_is_missing() -> None:
    llm, embedding = queue("llm", memory="3GiB"), queue("embedding", memory="1GiB")
    there = Capacity(cpu=1, memory=4 * GIB)
    assert full_for([llm, embedding], [], there) == set()
    assert full_for([llm, embedding], [Wish(llm)], there) == {"llm"}
    assert full_for([llm, embedding], [Wish(llm), Wish(embedding)], there) == {"llm", "embedding"}
    assert full_for([llm, embedding], [Wish(llm, asleep=True)], there) == {"llm"}


def test_cpu_is_shared_for_a_while() -> None:
    llm = queue("llm", cpu=8)
    assert full_for([llm], [Wish(llm), Wish(llm)], Capacity(cpu=2, memory=4 * GIB)) == set()


def test_memory_of_gpus_is_held_by_what_is_awake() -> None:
    llm, small = queue("llm", gpu=1), queue("small", gpu=1, gpu_memory="8GiB")
    there = Capacity(memory=4 * GIB, gpus=2, gpu_memory=32 * GIB)
    assert full_for([llm, small], [Wish(llm)], there) == set()
    assert full_for([llm, small], [Wish(llm), Wish(small)], there) == {"llm"}, "it takes a whole one"
    assert full_for([llm, small], [Wish(llm), Wish(llm)], there) == {"llm", "small"}
    assert full_for([llm, small], [Wish(llm, asleep=True), Wish(llm)], there) == set()
