"""Exit codes, and how an error becomes one clear line for a person and a code for a script."""

from enum import IntEnum


class Exit(IntEnum):
    """What a script may tell apart."""

    OK = 0
    PROBLEMS = 1
    """The command worked and found something wrong, or the plane cannot go on."""
    USAGE = 2
    """An argument, a file, a setting or the configuration is wrong."""
    PARTIAL = 3
    """The run ended `partial`."""
    NOT_SUCCEEDED = 4
    """The run ended failed, blocked, expired or cancelled."""
    UNREACHABLE = 5
    """No plane, or no broker."""
    TIMED_OUT = 6
    """Nothing came in time; what was published still runs."""
    NOT_FOUND = 7
    """No such run, pipeline, topic or model class."""
    UNEXPECTED = 70
    """A bug: the line names a file with the traceback."""
    INTERRUPTED = 130


class CliError(Exception):
    """One clear line that ends with the fix, and how to exit."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


_KNOWN = {
    "headway.client.InvalidRequestError": Exit.USAGE,
    "headway.client.NoResponseError": Exit.TIMED_OUT,
    "headway.client.HeadwayError": Exit.UNREACHABLE,
    "headway.plane.errors.PlaneError": Exit.PROBLEMS,
    "services.chassis.config.live.ConfigError": Exit.USAGE,
    "services.chassis.settings.SettingsError": Exit.USAGE,
    "services.chassis.kafka.types.KafkaError": Exit.UNREACHABLE,
    "aiokafka.errors.KafkaConnectionError": Exit.UNREACHABLE,
}
"""Errors whose message is already the line. By name: nothing is imported to catch what was never loaded."""


def expected(error: Exception) -> Exit | None:
    """The code of an error that is no bug; None for one that is."""
    if isinstance(error, CliError):
        return error.code
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return next((_KNOWN[name] for name in names if name in _KNOWN), None)
