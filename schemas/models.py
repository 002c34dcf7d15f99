"""What users write in `models.yaml`: model classes, their backends, and how each is queued and scaled."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from schemas.base import Json, Name, Priority
from schemas.cron import Cron
from schemas.durations import Bytes, Duration
from schemas.pipelines import Written
from schemas.tasks import Price

MAX_PARTITIONS = 1_000
"""Partitions of one task topic: a bound on what a typo can ask of the broker."""
SPILL_AT = 0.8
"""The rest of the time a step has left is a reserve for a wait that was guessed too short."""


def _partitions(value: object) -> object:
    """`"0-3,8"`, `5` or `[0, 1]` → (0, 1, 2, 3, 8)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, str):
        return value
    found: list[int] = []
    for part in value.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ValueError(f"not a partition list: {value!r}; write one like 0-3 or 0-3,8")
        if int(last or first) >= MAX_PARTITIONS:
            raise ValueError(f"partition {last or first} in {value!r}: a topic has at most {MAX_PARTITIONS}")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


Partitions = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MAX_PARTITIONS)], ...],
    BeforeValidator(_partitions),
    PlainSerializer(list),
    Field(min_length=1),
]


class Lanes(Written):
    """The partitions of each lane of a task topic. Explicit lists: a count or a share would renumber the others."""

    interactive: Partitions = (0, 1, 2, 3)
    standard: Partitions = (4, 5, 6, 7)
    batch: Partitions = (8, 9)

    @model_validator(mode="after")
    def _are_disjoint(self) -> Self:
        listed = [partition for lane in Priority for partition in self.of(lane)]
        if len(listed) != len(set(listed)):
            raise ValueError("a partition stands in two lanes, or twice in one: every lane needs its own")
        if set(listed) != set(range(len(listed))):
            raise ValueError(f"the lanes leave a gap: together they must be 0-{len(listed) - 1}")
        return self

    def of(self, lane: Priority) -> tuple[int, ...]:
        """The partitions of one lane."""
        partitions: tuple[int, ...] = getattr(self, lane.value)
        return partitions

    @property
    def count(self) -> int:
        """Partitions of the topic."""
        return sum(len(self.of(lane)) for lane in Priority)


class OnnxEngine(Written):
    """A small model on a CPU, by onnxruntime in the worker process."""

    kind: Literal["onnx"]
    model: str
    threads: int = Field(default=1, ge=1, le=64)


class LlamaCppEngine(Written):
    """llama.cpp's own server as a child of the worker."""

    kind: Literal["llamacpp"]
    model: str
    context: int = Field(default=8_192, ge=512, le=1_048_576, description="Tokens, shared by the slots.")
    threads: int = Field(default=1, ge=1, le=256, description="More only on cores that are its own.")


VLLM_ARGUMENTS = {
    "model": "model",
    "max_model_len": "context",
    "tensor_parallel_size": "tensor_parallel",
    "gpu_memory_utilization": "gpu_memory",
    "max_num_seqs": "slots",
}
"""Arguments of vLLM that follow from what stands elsewhere."""


class VllmEngine(Written):
    """vLLM in the worker process."""

    kind: Literal["vllm"]
    model: Annotated[str, Field(min_length=1, max_length=1_024, description="A folder, or a name of Hugging Face's.")]
    context: int | None = Field(default=None, ge=64, description="Tokens of a prompt and its answer; unset, as made.")
    gpu_memory: float = Field(default=0.9, gt=0, le=1, description="The share of each GPU's memory that it takes.")
    tensor_parallel: int = Field(
        default=1, ge=1, le=1_024, description="GPUs that one replica's model is spread over."
    )
    sleep_level: Literal[1, 2] = Field(
        default=1, description="Asleep: 1 keeps the weights in the machine's memory, 2 reads them again."
    )
    options: dict[str, Json] = Field(
        default_factory=dict, max_length=64, description="Other engine arguments, by vLLM's own names."
    )

    @model_validator(mode="after")
    def _has_each_argument_once(self) -> Self:
        for name in VLLM_ARGUMENTS.keys() & self.options.keys():
            raise ValueError(f"options: {name} is told by `{VLLM_ARGUMENTS[name]}`")
        return self


Url = Annotated[str, Field(pattern=r"^https?://[^\s@]+$", description="Without credentials.")]
EnvName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$", description="The name of an environment variable.")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")]
JsonPointer = Annotated[str, Field(pattern=r"^(/([^~]|~[01])*)?$", description="RFC 6901: `/data/0`; empty is all.")]


class OpenAIEngine(Written):
    """Any OpenAI-compatible server."""

    kind: Literal["openai"]
    base_url: Url
    model: str
    api_key_env: EnvName | None = None


StatusMeaning = Literal["caller_fault", "too_large", "fail", "retry", "shed"]
"""The input is wrong, or too large; no repeat helps; another attempt may; the server wants less."""


class HttpEngine(Written):
    """Any function that takes and gives JSON over HTTP."""

    kind: Literal["http"]
    url: Url
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    header_env: dict[HeaderName, EnvName] = Field(
        default_factory=dict, max_length=16, description="Headers, by the variables that hold their whole values."
    )
    output: JsonPointer = Field(default="", description="What of the answer is the step's output.")
    input_tokens: JsonPointer | None = Field(default=None, description="Where the answer counts them.")
    output_tokens: JsonPointer | None = Field(default=None, description="Where the answer counts them.")
    timeout: Duration | None = Field(default=None, description="Of a call; unset, as long as its step has.")
    statuses: dict[Annotated[int, Field(ge=300, le=599)], StatusMeaning] = Field(
        default_factory=dict, max_length=64, description="What a status means, where it is not the usual."
    )
    health_input: dict[str, Json] = Field(description="The input of the health check's real call.")


class TritonEngine(Written):
    """A model of Triton or another server of the Open Inference Protocol, over gRPC."""

    kind: Literal["triton"]
    address: Annotated[str, Field(pattern=r"^[^\s@/]+:[0-9]{1,5}$", description="host:port, of gRPC.")]
    model: Annotated[str, Field(min_length=1, max_length=256)]
    version: Annotated[str, Field(pattern=r"^[0-9]{0,9}$", description="Empty: the server's choice.")] = ""
    tls: bool = False
    header_env: dict[HeaderName, EnvName] = Field(
        default_factory=dict, max_length=16, description="Metadata, by the variables that hold their whole values."
    )
    outputs: tuple[str, ...] = Field(default=(), max_length=64, description="Those wanted; unset, all.")
    model_control: Literal["none", "explicit"] = Field(
        default="none", description="As the server was started. `explicit`: the model is loaded, unloaded and healed."
    )
    health_input: dict[str, Json] | None = Field(default=None, description="Unset: zeros, as few as the model takes.")


class FunctionEngine(Written):
    """Python callables: one, or several chosen by `input.call`."""

    kind: Literal["function"]
    callable: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
    functions: dict[Name, Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = Field(default_factory=dict)
    health_input: Json = Field(default=None, description="Input of the health check's real call.")

    @model_validator(mode="after")
    def _names_functions(self) -> Self:
        if (self.callable is None) == (not self.functions):
            raise ValueError("a function engine has either `callable` or `functions`")
        return self


class Latency(Written):
    """A lognormal latency."""

    p50: float = Field(gt=0, description="Milliseconds.")
    p99: float = Field(gt=0, description="Milliseconds.")


class Outage(Written):
    """A scripted fault of a simulated engine."""

    after_s: float = Field(ge=0)
    for_s: float = Field(gt=0)
    kind: Literal["fail", "hang", "slow"]


class SimulatedEngine(Written):
    """Nothing behind it: seeded latency, cold starts and faults, for load tests."""

    kind: Literal["simulated"]
    latency_ms: Annotated[float, Field(ge=0)] | Latency = 5.0
    cold_start_ms: float = Field(default=0.0, ge=0)
    wake_ms: float | None = Field(default=None, ge=0, description="From asleep; unset: a tenth of a cold start.")
    error_rate: float = Field(default=0.0, ge=0, le=1)
    seed: int = 0
    outages: tuple[Outage, ...] = ()
    output: Json = None
    max_batch: int = Field(default=1, ge=1, le=1_024)


EngineConfig = Annotated[
    OnnxEngine
    | LlamaCppEngine
    | VllmEngine
    | OpenAIEngine
    | HttpEngine
    | TritonEngine
    | FunctionEngine
    | SimulatedEngine,
    Field(discriminator="kind"),
]


class Batch(Written):
    """Micro-batching: how many tasks one engine call may take, and how long the first waits for company."""

    max_size: int = Field(default=1, ge=1, le=1_024)
    max_wait: Duration = 2


class BreakerRules(Written):
    """When a worker's circuit breaker opens, and how it closes again."""

    error_rate: float = Field(default=0.5, gt=0, le=1, description="Share of failed calls that opens it.")
    slow_rate: float = Field(default=0.8, gt=0, le=1, description="Share of failed or slow calls that opens it.")
    min_calls: int = Field(default=5, ge=1, le=100_000, description="Fewer calls within the window open nothing.")
    window: Duration = 4_000
    slow_call: Duration | None = Field(default=None, description="Unset: five times the usual time of a call.")
    pause: Duration = 2_000
    """Open for so long, before a health check and then probes."""
    probes: int = Field(default=3, ge=1, le=1_000, description="Good answers in a row that close it.")


def _cron(text: str) -> str:
    Cron.parse(text)
    return text


def _timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"no such time zone: {name!r}; write one like UTC or Europe/Berlin") from None
    return name


WEEK_MS = 7 * 86_400_000


class ScheduleSpec(Written):
    """A floor by the clock of a place: from each time that `cron` fires there, for a while."""

    cron: Annotated[str, AfterValidator(_cron)]
    timezone: Annotated[str, AfterValidator(_timezone)] = "UTC"
    duration: Annotated[Duration, Field(le=WEEK_MS)]
    min_replicas: int = Field(ge=1, le=1_000)


class Scaling(Written):
    """How many replicas, and when."""

    tier: Literal["always", "standby", "zero"] = "always"
    min_replicas: int = Field(default=1, ge=0, le=1_000)
    max_replicas: int = Field(default=4, ge=1, le=1_000)
    target_drain: Duration = 10_000
    cooldown: Duration = 300_000
    schedules: tuple[ScheduleSpec, ...] = Field(default=(), max_length=16)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        floors = [("min_replicas", self.min_replicas)]
        floors += [(f"schedules: {each.cron}: min_replicas", each.min_replicas) for each in self.schedules]
        for name, floor in floors:
            if floor > self.max_replicas:
                raise ValueError(f"{name} {floor} > max_replicas {self.max_replicas}")
        return self


class Spending(Written):
    """What scaling may cost."""

    budget_usd_hour: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="For workers that sleep; unset: tiers decide."
    )


class Resources(Written):
    """What one replica takes from its host."""

    cpu: float = Field(default=0.1, gt=0)
    memory: Bytes = 256 << 20
    gpu: int = Field(default=0, ge=0)
    gpu_memory: Bytes | None = None
    labels: tuple[str, ...] = Field(default=(), max_length=16, description="That its host must have.")


class Backend(Written):
    """One way to serve a class: an engine with a queue of its own. Unset fields are the class's."""

    name: Name
    engine: EngineConfig
    price: Price = Field(default_factory=Price)
    spill_at: float = Field(
        default=SPILL_AT,
        ge=0,
        le=1,
        description="Tasks spill over to it once cheaper ones would use up this share of the time a step has left.",
    )
    slots: int | None = Field(default=None, ge=1, le=10_000)
    lanes: Lanes | None = None
    breaker: BreakerRules | None = None
    scaling: Scaling | None = None
    resources: Resources | None = None


class ModelClass(Written):
    """A kind of model that steps ask for by name."""

    backends: tuple[Backend, ...] = Field(min_length=1, max_length=16)
    slots: int = Field(default=4, ge=1, le=10_000, description="Tasks one worker runs at once.")
    rank: Literal["fast", "slow"] = Field(default="slow", description="Fast classes go first on a shared worker.")
    batch: Batch = Batch()
    lanes: Lanes = Lanes()
    breaker: BreakerRules = BreakerRules()
    scaling: Scaling = Scaling()
    resources: Resources = Resources()

    @model_validator(mode="before")
    @classmethod
    def _one_backend_may_stand_alone(cls, data: Any) -> Any:
        if isinstance(data, dict) and "engine" in data:
            raise ValueError("an engine stands in a backend: `backends: [{name: local, engine: {…}}]`")
        return data

    @model_validator(mode="after")
    def _backends_are_distinct(self) -> Self:
        names = [backend.name for backend in self.backends]
        if len(names) != len(set(names)):
            raise ValueError("two backends of one class have the same name")
        return self


class ModelsFile(Written):
    """`models.yaml`."""

    model_classes: dict[Name, ModelClass]
    scaling: Spending = Spending()


class Queue(Written):
    """One (class, backend) with every default resolved: a topic, its lanes, and who drains it."""

    model_class: str
    backend: str
    topic: str
    group: str
    engine: EngineConfig
    price: Price
    spill_at: float
    slots: int
    rank: Literal["fast", "slow"]
    batch: Batch
    lanes: Lanes
    breaker: BreakerRules
    scaling: Scaling
    resources: Resources

    @property
    def brings_its_engine(self) -> bool:
        """Whether each worker has an engine of its own; else all of them ask one server."""
        return not isinstance(self.engine, OpenAIEngine | HttpEngine | TritonEngine)

    @property
    def label(self) -> str:
        """`class` for the first backend, `class.backend` for another."""
        return self.group.removeprefix("headway-worker-")


def queues(model_classes: Mapping[str, ModelClass]) -> Iterator[Queue]:
    """Every queue of a configuration; the first backend of a class has the plain topic name."""
    for name, model_class in model_classes.items():
        for index, backend in enumerate(model_class.backends):
            label = name if index == 0 else f"{name}.{backend.name}"
            yield Queue(
                model_class=name,
                backend=backend.name,
                topic=f"inference-tasks-{label}",
                group=f"headway-worker-{label}",
                engine=backend.engine,
                price=backend.price,
                spill_at=backend.spill_at,
                slots=backend.slots or model_class.slots,
                rank=model_class.rank,
                batch=model_class.batch,
                lanes=backend.lanes or model_class.lanes,
                breaker=backend.breaker or model_class.breaker,
                scaling=backend.scaling or model_class.scaling,
                resources=backend.resources or model_class.resources,
            )
