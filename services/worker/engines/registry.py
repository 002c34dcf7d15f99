"""From a backend's `engine` in models.yaml to the engine that serves it."""

from collections.abc import Callable
from pathlib import Path

from schemas import models
from services.worker.domain.engine import Engine


def build_engine(
    config: models.EngineConfig,
    *,
    slots: int,
    home: Path,
    functions_folder: Path,
    secret: Callable[[str], str | None],
) -> Engine:
    """The engine of a backend, not started. `secret` reads an API key by the name of its variable.

    Each kind is imported where it is named, so that a worker carries the memory of its own kind alone.
    """
    match config:
        case models.OnnxEngine():
            from services.worker.engines.onnx import OnnxEngine

            return OnnxEngine(config.model, threads=config.threads)
        case models.LlamaCppEngine():
            from services.worker.engines.llamacpp import LlamaCppEngine

            return LlamaCppEngine(config.model, slots=slots, context=config.context, threads=config.threads)
        case models.VllmEngine():
            from services.worker.engines.vllm import VllmEngine

            return VllmEngine(config, slots=slots)
        case models.OpenAIEngine() | models.HttpEngine() | models.TritonEngine():
            return _client(config, secret)
        case models.FunctionEngine():
            from services.worker.engines.function import FunctionEngine

            return FunctionEngine(
                config.callable or config.functions,
                slots=slots,
                home=home,
                folder=functions_folder,
                health_input=config.health_input,
            )
        case models.SimulatedEngine():
            from services.worker.engines.simulated import SimulatedEngine

            return SimulatedEngine(config)


def _client(
    config: models.OpenAIEngine | models.HttpEngine | models.TritonEngine, secret: Callable[[str], str | None]
) -> Engine:
    """Of a server that runs somewhere else."""
    match config:
        case models.OpenAIEngine():
            from services.worker.engines.openai import OpenAIEngine

            key_env = config.api_key_env
            key = secret(key_env) if key_env else None
            return OpenAIEngine(config.base_url, config.model, api_key=key, api_key_env=key_env)
        case models.HttpEngine():
            from services.worker.engines.http import HttpEngine

            return HttpEngine(config, {name: secret(env) for name, env in config.header_env.items()})
        case models.TritonEngine():
            from services.worker.engines.triton import TritonEngine

            return TritonEngine(config, {name: secret(env) for name, env in config.header_env.items()})
