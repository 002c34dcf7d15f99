"""A model that vLLM has loaded. The one module that imports vLLM: it is read when a class names it."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from vllm import AsyncEngineArgs, SamplingParams
from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMValidationError
from vllm.platforms import current_platform
from vllm.renderers.params import ChatParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from schemas import models
from schemas.usage import TokenUsage
from services.worker.domain.engine import (
    Call,
    CallerFault,
    ContentTooLarge,
    EngineEnded,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
    Load,
    Result,
)
from services.worker.engines.openai import Chat
from services.worker.engines.response_format import structure

_FOR_A_REPLY = ChatParams(chat_template_kwargs={"add_generation_prompt": True, "continue_final_message": False})
_TOO_LONG = ("input_tokens", "input_text")
"""What vLLM says is wrong about a prompt that does not fit."""
IDLE = Load(0, 0, 0.0)


class VllmModel:
    """AsyncLLM in a worker's words."""

    def __init__(self, llm: AsyncLLM, scheduler: "_Scheduler", *, can_sleep: bool) -> None:
        self._llm = llm
        self._scheduler = scheduler
        self.can_sleep = can_sleep
        self._closing = False
        self._context: int = llm.model_config.max_model_len

    @classmethod
    def loaded(cls, config: models.VllmEngine, calls: int) -> "VllmModel":
        """Blocks until vLLM has loaded it; raises whatever vLLM does."""
        scheduler, can_sleep = _Scheduler(), current_platform.is_sleep_mode_available()
        ours: dict[str, Any] = {
            "model": config.model,
            "max_model_len": config.context,
            "tensor_parallel_size": config.tensor_parallel,
            "gpu_memory_utilization": config.gpu_memory,
            "max_num_seqs": calls,
            "scheduling_policy": "priority",
            "enable_prefix_caching": True,
            "enable_sleep_mode": can_sleep,
            "disable_log_stats": True,  # but for the one given below
        }
        arguments = AsyncEngineArgs(**(ours | config.options))
        llm = AsyncLLM.from_engine_args(arguments, stat_loggers=[lambda *_: scheduler])
        return cls(llm, scheduler, can_sleep=can_sleep)

    @property
    def ended(self) -> bool:
        """Whether one of its processes is gone."""
        return bool(self._llm.errored)

    @property
    def load(self) -> Load:
        """By the scheduler's last step; once idle, it takes none that would say so."""
        return self._scheduler.load if self._llm.get_num_unfinished_requests() else IDLE

    async def answer(self, call: Call, chat: Chat, rank: int) -> Result:
        """Of one call; cancelling it aborts the request."""
        with self._faults(chat):
            prompt = await self._prompt(chat)
            wanted = self._wanted(chat, len(prompt["prompt_token_ids"]), streams=call.on_text is not None)
            answer = _Answer()
            async with aclosing(self._llm.generate(prompt, wanted, call.task_id, priority=rank)) as outputs:
                async for output in outputs:
                    answer.take(output)
                    if call.on_text is not None and (text := output.outputs[0].text):
                        call.on_text(text)
            return answer.result()

    async def _prompt(self, chat: Chat) -> Mapping[str, Any]:
        """The token ids of the conversation, by the model's own template."""
        messages = [message.model_dump() for message in chat.messages]
        try:
            _, (prompt,) = await self._llm.renderer.render_chat_async([messages], _FOR_A_REPLY)
        except VLLMValidationError as error:
            if error.parameter in _TOO_LONG:
                raise self._too_long() from None
            raise CallerFault("input.messages: not what the model's template takes") from None
        found: Mapping[str, Any] = prompt
        return found

    def _too_long(self) -> ContentTooLarge:
        return ContentTooLarge(f"input.messages: longer than the model's context of {self._context} tokens")

    def _wanted(self, chat: Chat, prompt_tokens: int, *, streams: bool) -> SamplingParams:
        """As many tokens as are asked for, or as the context has room for."""
        room = self._context - prompt_tokens
        if room < 1:
            raise self._too_long()
        kept_to = structure(chat)
        return SamplingParams(
            max_tokens=min(chat.max_tokens, room),
            temperature=chat.temperature,
            stop=chat.stop,
            structured_outputs=StructuredOutputsParams(**kept_to) if kept_to else None,
            output_kind=RequestOutputKind.DELTA if streams else RequestOutputKind.FINAL_ONLY,
        )

    @contextmanager
    def _faults(self, chat: Chat) -> Iterator[None]:
        """What vLLM raises, as an EngineError. Its own words may quote the input, and are not passed on."""
        try:
            yield
        except EngineError:
            raise
        except VLLMClientError:
            where = "input.response_format" if chat.response_format else "input"
            raise CallerFault(f"{where}: vLLM cannot keep to it") from None
        except GracefulHTTPError:
            raise EngineOverloaded("vLLM's queue is full") from None
        except Exception as error:
            if self._closing:
                raise EngineUnavailable("vLLM is unloaded") from None
            if self.ended or isinstance(error, EngineDeadError):
                raise EngineEnded("vLLM has ended") from None
            raise

    async def sleep(self, level: int) -> None:
        """What still runs is aborted."""
        await self._llm.sleep(level)

    async def wake(self, level: int) -> None:
        """After level 2 the weights are read again: where they were, there is nothing."""
        await self._llm.wake_up(["weights"])
        if level == 2:
            await self._llm.collective_rpc("reload_weights")
        await self._llm.wake_up(["kv_cache"])

    async def close(self) -> None:
        """What still runs fails. vLLM's own way to tell it so is an error in the log, with a stack."""
        self._closing = True
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()
        self._llm.output_processor.propagate_error(EngineDeadError())
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        """vLLM gives its processes five seconds, kills those that are left, and leaves it to others to bury them."""
        held = self._llm.engine_core.resources
        self._llm.shutdown()
        for process in held.engine_manager.processes:
            process.join()
        held.ctx.destroy(linger=0)


class _Scheduler(StatLoggerBase):  # type: ignore[misc]  # vLLM is not there to be checked
    """What vLLM's scheduler tells after each step."""

    def __init__(self) -> None:
        self.load = IDLE

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Called by AsyncLLM on the event loop."""
        if scheduler_stats is not None:
            waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            self.load = Load(scheduler_stats.num_running_reqs, waiting, scheduler_stats.kv_cache_usage)

    def log_engine_initialized(self) -> None:
        """Nothing to tell."""


class _Answer:
    """What a request has yielded: pieces, or one whole."""

    def __init__(self) -> None:
        self._text = ""
        self._tokens = 0
        self._last: Any = None

    def take(self, output: Any) -> None:
        """A RequestOutput."""
        said = output.outputs[0]
        self._text += said.text
        self._tokens += len(said.token_ids)
        self._last = output

    def result(self) -> Result:
        """When the request has ended."""
        reason = self._last and self._last.outputs[0].finish_reason
        if reason == "abort":
            raise EngineUnavailable("vLLM was put to sleep")
        if reason not in ("stop", "length"):
            raise EngineFailed(f"vLLM ended the answer: {reason}")
        usage = TokenUsage(
            input_tokens=len(self._last.prompt_token_ids),
            cached_tokens=self._last.num_cached_tokens or 0,
            output_tokens=self._tokens,
        )
        return Result({"text": self._text, "finish_reason": reason}, usage)
