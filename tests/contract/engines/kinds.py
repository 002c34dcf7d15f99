"""Which kinds of engines there are, and what each has to pass."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple

import pytest

from tests.contract.engines import subjects
from tests.contract.engines.mlserver_subject import mlserver
from tests.contract.engines.subjects import Subject, Trait
from tests.contract.engines.triton_subject import triton
from tests.contract.engines.vllm_subject import openai_at_vllm, vllm

Running = Callable[[str], Awaitable[Subject]]
"""Starts a kind when it is first asked for."""


class Kind(NamedTuple):
    """How to start the subject of one kind, and what it is."""

    start: Callable[..., AbstractAsyncContextManager[Subject]]
    traits: Trait = Trait.PLAIN
    marks: tuple[pytest.MarkDecorator, ...] = ()
    beside: str | None = None
    """The kind whose server it shares: that one is started first."""


IN_VLLMS_ENVIRONMENT = (pytest.mark.vllm, pytest.mark.filterwarnings("default"))
"""It and torch warn of themselves."""
REMOTE = Trait.SERVER | Trait.OUTLIVED
KINDS = {
    "onnx": Kind(subjects.onnx, Trait.UNLOADS | Trait.NAMES_A_MODEL, (pytest.mark.models,)),
    # Before llamacpp restarts its server in another place.
    "openai_at_llamacpp": Kind(
        subjects.openai_at_llamacpp, Trait.STREAMS | Trait.MEASURED, (pytest.mark.models,), beside="llamacpp"
    ),
    "llamacpp": Kind(
        subjects.llamacpp,
        Trait.UNLOADS | Trait.NAMES_A_MODEL | Trait.SERVER | Trait.STREAMS | Trait.MEASURED,
        (pytest.mark.models,),
    ),
    "openai": Kind(subjects.openai, REMOTE | Trait.NAMES_A_MODEL | Trait.SCRIPTED | Trait.MEASURED),
    "http": Kind(subjects.http, REMOTE | Trait.SCRIPTED),
    "triton": Kind(triton, REMOTE | Trait.UNLOADS | Trait.NAMES_A_MODEL, (pytest.mark.triton,)),
    "triton_at_mlserver": Kind(mlserver, REMOTE | Trait.UNLOADS | Trait.NAMES_A_MODEL, (pytest.mark.mlserver,)),
    "vllm": Kind(
        vllm,
        Trait.UNLOADS | Trait.NAMES_A_MODEL | Trait.SERVER | Trait.STREAMS | Trait.MEASURED,
        IN_VLLMS_ENVIRONMENT,
    ),
    "openai_at_vllm": Kind(
        openai_at_vllm, REMOTE | Trait.NAMES_A_MODEL | Trait.STREAMS | Trait.MEASURED, IN_VLLMS_ENVIRONMENT
    ),
    "function": Kind(partial(subjects.function, "shout")),
    "function_in_a_thread": Kind(partial(subjects.function, "shout_in_a_thread")),
    "simulated": Kind(subjects.simulated, Trait.UNLOADS),
}
