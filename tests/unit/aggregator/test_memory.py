"""What is remembered, and for how long."""

from services.aggregator.domain.memory import Memory


def empty() -> Memory[str]:
    """Remembers for 100 ms."""
    return Memory(100)


def test_a_key_is_remembered_for_the_whole_window() -> None:
    memory = empty().remember("a", "x", 1_000)
    assert memory.get("a", 1_100) == "x"
    assert memory.get("a", 1_101) is None
    assert memory.get("b", 1_000) is None


def test_a_key_outlives_a_change_of_generations_within_its_window() -> None:
    memory = empty().remember("a", "x", 1_000).remember("b", "y", 1_099).remember("c", "z", 1_150)
    assert memory.get("b", 1_199) == "y"


def test_old_generations_are_dropped_whole() -> None:
    memory = empty()
    for now in range(1_000, 3_000, 10):
        memory = memory.remember(f"k{now}", "x", now)
    assert len(memory) <= 2 * 11 + 2


def test_a_forgotten_key_is_gone_from_either_generation() -> None:
    memory = empty().remember("a", "x", 1_000).remember("b", "y", 1_101)
    assert memory.forget("a").get("a", 1_050) is None
    assert memory.forget("b").get("b", 1_150) is None
    assert memory.forget("unknown").get("b", 1_150) == "y"


def test_an_older_version_does_not_see_what_came_later() -> None:
    before = empty()
    before.remember("a", "x", 1_000)
    assert before.get("a", 1_000) is None
