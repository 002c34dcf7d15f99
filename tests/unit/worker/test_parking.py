from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from services.worker.domain.parking import Parking


def test_an_empty_lot_has_nothing() -> None:
    parking = Parking[str]()
    assert parking.peek(100.0) is None
    assert parking.due_in(0.0) is None


def test_a_task_stays_until_its_time() -> None:
    parking = Parking[str]()
    parking.park("a", 5.0)
    assert parking.peek(4.9) is None
    assert parking.due_in(4.0) == 1.0
    assert parking.peek(5.0) == "a"
    assert parking.due_in(6.0) == 0.0


class ParkingModel(RuleBasedStateMachine):
    """Against a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.parking = Parking[int]()
        self.model: list[tuple[float, int]] = []
        self.count = 0

    @rule(until=st.floats(0, 100))
    def park(self, until: float) -> None:
        self.count += 1
        self.parking.park(self.count, until)
        self.model.append((until, self.count))
        self.model.sort()

    @rule(now=st.floats(0, 100))
    def leave(self, now: float) -> None:
        task = self.parking.peek(now)
        if not self.model or self.model[0][0] > now:
            assert task is None
        else:
            assert task == self.parking.pop() == self.model.pop(0)[1]

    @rule()
    def clear(self) -> None:
        assert sorted(self.parking.clear()) == sorted(task for _, task in self.model)
        assert len(self.parking) == 0
        self.model = []


ParkingModel.TestCase.settings = settings(max_examples=50)
TestParking = ParkingModel.TestCase
