"""A Python function as a model class: `callable: "greetings:greet"` in models.yaml."""

from typing import Literal

from pydantic import BaseModel, Field

from headway import StepContext, StepError

WORDS = {"en": "Hello", "fr": "Bonjour", "ko": "안녕하세요"}


class GreetingIn(BaseModel):
    """The step's input; what does not fit is refused with the name of the field."""

    name: str = Field(min_length=1, max_length=80)
    language: Literal["en", "fr", "ko"] = "en"


class GreetingOut(BaseModel):
    """The step's output: `steps.<id>.text` in expressions."""

    text: str
    language: str


async def greet(given: GreetingIn, ctx: StepContext) -> GreetingOut:
    """Called once for every attempt of a step. `ctx` has the deadline, the tenant and an idempotency key.

    Use `async def` for what waits (databases, HTTP); a plain `def` runs in a thread.
    """
    name = given.name.strip()
    if not name:
        raise StepError("there is nobody to greet: `name` is blank")
    return GreetingOut(text=f"{WORDS[given.language]}, {name}!", language=given.language)
