"""The configuration as services take it: whole revisions on the compacted config topic."""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.base import Message, Name
from schemas.models import ModelClass, Spending
from schemas.pipelines import PipelineSpec, Written

DEFAULT_TENANT = "default"
CURRENT_KEY = b"current"
REVISIONS_KEPT = 50

TopicName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,199}$")]


class Tenant(Written):
    """Who may ask, and on which ingress topics of their own."""

    ingress_topics: tuple[TopicName, ...] = ()

    @model_validator(mode="after")
    def _topics_are_not_ours(self) -> Self:
        if "inference-requests" in self.ingress_topics:
            raise ValueError("`inference-requests` belongs to everyone: give the tenant a topic of its own")
        return self


class Bundle(Written):
    """Everything `config apply` publishes, checked as a whole."""

    pipelines: tuple[PipelineSpec, ...] = ()
    model_classes: dict[Name, ModelClass] = Field(default_factory=dict)
    tenants: dict[Name, Tenant] = Field(default_factory=dict)
    scaling: Spending = Spending()


class Revision(Message):
    """Key `revision/<n>`: one applied bundle, whole."""

    revision: int = Field(ge=1)
    bundle: Bundle
    comment: str = ""


class CurrentRevision(Message):
    """Key `current`: which revision is in force."""

    revision: int = Field(ge=1)


def revision_key(revision: int) -> bytes:
    """The key of a revision's record."""
    return b"revision/%d" % revision
