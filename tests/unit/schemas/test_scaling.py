"""What `models.yaml` says of scaling: schedules, and a budget."""

import pytest
from pydantic import ValidationError

from schemas.models import ModelsFile, Scaling

OFFICE = {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "10h", "min_replicas": 2}


def test_a_schedule_is_read_as_written() -> None:
    (schedule,) = Scaling.model_validate({"schedules": [OFFICE]}).schedules
    assert (schedule.cron, schedule.timezone, schedule.min_replicas) == ("0 8 * * 1-5", "Europe/Berlin", 2)
    assert schedule.duration == 36_000_000


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cron": "0 25 * * *"}, "hour: '25' is not within 0-23"),
        ({"cron": "daily"}, "write five fields, like 0 8 "),
        ({"timezone": "Mars/Olympus"}, "no such time zone: 'Mars/Olympus'; write one like UTC or Europe/Berlin"),
        ({"timezone": "../../etc/passwd"}, "no such time zone"),
        ({"duration": "10"}, "not a duration"),
        ({"duration": "8d"}, "less than or equal to"),
        ({"min_replicas": 9}, "schedules: 0 8 . . 1-5: min_replicas 9 > max_replicas 4"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told_with_the_fix(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Scaling.model_validate({"schedules": [OFFICE | change]})


def test_a_budget_stands_beside_the_classes() -> None:
    classes = {"llm": {"backends": [{"name": "local", "engine": {"kind": "simulated"}}]}}
    written = ModelsFile.model_validate({"model_classes": classes, "scaling": {"budget_usd_hour": 1.5}})
    assert written.scaling.budget_usd_hour == 1.5
    assert ModelsFile.model_validate({"model_classes": classes}).scaling.budget_usd_hour is None
