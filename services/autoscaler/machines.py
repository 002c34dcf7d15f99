"""The hook for whoever can add and take away machines: told what finds no room, and which hosts have nothing to do.

    def scale(unplaced: Mapping[str, int], hosts: Mapping[str, Mapping[str, int]]) -> None: …

It is called in a thread, so it may block; one that is `async` may not, since it runs among everything else.
`unplaced` counts workers without a host, `hosts` those that each host is to have, both by queue label. It is told
again a minute later, if nothing has changed, and later each time while it fails. A new machine announces itself; one
that is to go is drained by whoever takes it away (SIGUSR1 to its host).
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import isawaitable
from pathlib import Path

from services.autoscaler.domain.control import Plan
from services.autoscaler.domain.hosts import Host
from services.chassis.aside import Aside
from services.chassis.logging import log, reason
from services.chassis.settings import SettingsError

Hook = Callable[[Mapping[str, int], Mapping[str, Mapping[str, int]]], Awaitable[None] | None]

SHORT_FOR_S = 10.0
"""Workers have found no room for so long: a drain or a rebalance ends sooner."""
EMPTY_FOR_S = 600.0
"""A machine takes minutes to come: one that has nothing to do may be wanted again."""
TIMEOUT_S = 30.0
AGAIN_S, MAX_DOUBLINGS = 60.0, 4
AGAIN_AT_MOST_S = AGAIN_S * 2**MAX_DOUBLINGS
CHECK_EVERY_S = 1.0


class Machines:
    """Watches every look, and tells the hook."""

    def __init__(self, hook: Hook, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hook = hook
        self._monotonic = monotonic
        self._aside = Aside()
        self._unplaced: Mapping[str, int] = {}
        self._hosts: Mapping[str, Mapping[str, int]] = {}
        self._short_since: float | None = None
        self._empty_since: dict[str, float] = {}
        self._not_before = 0.0
        self._failures = 0

    def on_look(self, plan: Plan, hosts: Sequence[Host]) -> None:
        """Notes since when something is short, or empty."""
        now = self._monotonic()
        self._unplaced = {each.label: each.warm + each.asleep for each in plan.layout.unplaced}
        self._hosts = {
            name: {label: placed.total for label, placed in queues.items()}
            for name, queues in plan.layout.hosts.items()
        }
        empty = {host.name for host in hosts if not host.running and not self._hosts.get(host.name)}
        self._short_since = (self._short_since or now) if self._unplaced else None
        self._empty_since = {name: self._empty_since.get(name, now) for name in empty}

    def on_end(self) -> None:
        """Another one leads, and tells."""
        self._short_since, self._empty_since = None, {}

    async def run(self) -> None:
        """A component."""
        while True:
            await self.tell()
            await asyncio.sleep(CHECK_EVERY_S)

    async def tell(self) -> None:
        """Calls the hook, if it is time and it has returned. What it raises is logged: nothing depends on it."""
        if self._aside.is_busy or not self._is_due():
            return
        try:
            async with asyncio.timeout(TIMEOUT_S):
                told = await self._aside.do(partial(self._hook, self._unplaced, self._hosts))
                if isawaitable(told):
                    await told
            self._failures = 0
        except Exception as error:
            self._failures += 1
            log.warning("scale_machines_failed", failures=self._failures, reason=reason(error) or repr(error))
        self._not_before = self._monotonic() + AGAIN_S * 2 ** min(self._failures, MAX_DOUBLINGS)

    def _is_due(self) -> bool:
        now = self._monotonic()
        short = self._short_since is not None and now - self._short_since >= SHORT_FOR_S
        empty = any(now - since >= EMPTY_FOR_S for since in self._empty_since.values())
        return now >= self._not_before and (short or empty)


def load_hook(path: str, folder: Path) -> Hook:
    """`module:function`, of `folder` or of an installed package. Raises SettingsError."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last: no file in it hides an installed package
    module, _, name = path.partition(":")
    try:
        hook: Hook = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"HEADWAY_AUTOSCALER_SCALE_MACHINES: {path} cannot be loaded: {error}") from error
    return hook
