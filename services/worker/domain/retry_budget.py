"""How many failures of one worker may be tried again."""

CAPACITY = 10.0
PER_ATTEMPT = 0.1


class RetryBudget:
    """A token bucket: every attempt earns a tenth of a retry, so retries stay near 10 % of attempts.

    When everything fails, retrying everything would triple the load on what is already down.
    """

    def __init__(self) -> None:
        self._tokens = CAPACITY

    def attempted(self) -> None:
        """An attempt reached the engine."""
        self._tokens = min(CAPACITY, self._tokens + PER_ATTEMPT)

    def spend(self) -> bool:
        """Whether one more failure may be retried; if so, it is paid for."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
