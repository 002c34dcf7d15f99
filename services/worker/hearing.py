"""What an engine that streams says before it has answered."""

from collections.abc import Callable


def hearing(
    on_first: Callable[[float], None],
    monotonic: Callable[[], float],
    pass_on: Callable[[str], None] | None = None,
) -> Callable[[str], None]:
    """For one call, made as it is handed over.

    `on_first` is told how many seconds the first piece of text took, `pass_on` is given every piece.
    """
    handed_over: float | None = monotonic()

    def hear(text: str) -> None:
        nonlocal handed_over
        if handed_over is not None:
            on_first(monotonic() - handed_over)
            handed_over = None
        if pass_on is not None:
            pass_on(text)

    return hear
