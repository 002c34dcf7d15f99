import pytest

from schemas.base import Json
from services.worker.domain.engine import CallerFault
from services.worker.engines.openai import Chat
from services.worker.engines.response_format import structure


def chat(response_format: dict[str, Json] | None) -> Chat:
    return Chat.model_validate({"messages": [{"role": "user", "content": "Hi"}], "response_format": response_format})


@pytest.mark.parametrize(
    ("response_format", "wanted"),
    [
        (None, {}),
        ({"type": "text"}, {}),
        ({"type": "json_object"}, {"json_object": True}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "array"}}},
            {"json": {"type": "array"}},
        ),
    ],
)
def test_a_response_format_is_what_the_answer_keeps_to(
    response_format: dict[str, Json] | None, wanted: dict[str, Json]
) -> None:
    assert structure(chat(response_format)) == wanted


@pytest.mark.parametrize(
    ("response_format", "where"),
    [
        ({}, "input.response_format.type: Field required"),
        ({"type": "xml"}, "input.response_format.type: Input should be 'text', 'json_object' or 'json_schema'"),
        ({"type": "json_schema"}, "input.response_format.json_schema: Field required"),
        ({"type": "json_schema", "json_schema": {"schema": "x"}}, "input.response_format.json_schema.schema: Input"),
    ],
)
def test_what_is_wrong_with_one_is_named(response_format: dict[str, Json], where: str) -> None:
    with pytest.raises(CallerFault) as fault:
        structure(chat(response_format))
    assert str(fault.value).startswith(where)
