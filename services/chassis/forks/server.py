"""`python -m services.chassis.forks.server FD MODULE…`: imports modules, and forks to run the first one's `main`.

The imports are most of what a small service computes at its start: 0.5 s of CPU for a worker, of which one run may
start five at once. What they leave in memory is shared by all forks.

It has no event loop and no second thread, as neither survives a fork. It alone knows which process ids are still its
children's, so signals go through it. Its children die with it, and it dies with its parent.
"""

import gc
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import setproctitle

from services.chassis.app import DIE_WITH_PARENT, die_with_parent
from services.chassis.forks.messages import ORDER, Ended, Fork, Forked, News, NotForked, Order, line
from services.chassis.settings import adopt

IGNORED = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C reaches a whole process group: the children end in their own time, and until then their parent must live."""
CHUNK = 65_536


def main(fd: int, module: str, *more: str) -> NoReturn:
    """Serves on the socket `fd` until its other end is closed; in a fork, runs what it is for to its end.

    `more` is imported, too, where it is installed.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent()
    run: Callable[[Sequence[str]], int] = import_module(module).main
    for name in more:
        with suppress(Exception):  # one that is missing or broken is told by those who need it, and harms nobody else
            import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of what is here, and so copy it
    with socket.socket(fileno=fd) as channel:
        order = _ForkServer(channel).serve()
    if order is None:
        sys.exit(0)
    setproctitle.setproctitle(order.title)
    sys.exit(run(order.arguments))


class _ForkServer:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._children: set[int] = set()
        """Not waited for yet, so that their ids are theirs."""

    def serve(self) -> Fork | None:
        """Returns in every fork, with its order; in the server itself when the channel is closed, without one."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # any handler: only then does a child's end wake `_lines`
        with suppress(ConnectionError):  # who asked is gone
            for text in _lines(self._channel):
                self._tell_of_ends()
                if text and (order := self._follow(ORDER.validate_json(text))):
                    return order
        return None

    def _follow(self, order: Order) -> Fork | None:
        """The order, in the child that it makes."""
        if isinstance(order, Fork):
            return self._fork(order)
        if order.pid in self._children:
            os.kill(order.pid, order.signal)
        return None

    def _fork(self, order: Fork) -> Fork | None:
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)  # until the child ignores them no more
        try:
            child = os.fork()
            if not child:
                _hear_signals_again()
        except OSError as error:
            self._tell(NotForked(not_forked=str(error)))
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        if not child:
            _begin_anew(order, parent)
            return order
        self._children.add(child)
        self._tell(Forked(forked=child))
        return None

    def _tell_of_ends(self) -> None:
        with suppress(ChildProcessError):  # there is no child
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                self._children.discard(pid)
                self._tell(Ended(ended=pid, exit_code=os.waitstatus_to_exitcode(status)))

    def _tell(self, news: News) -> None:
        self._channel.sendall(line(news))


def _lines(channel: socket.socket) -> Iterator[bytes]:
    """What comes on the channel until it ends, and an empty line whenever a child may have ended."""
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    rest = b""
    with woken, waker, selectors.DefaultSelector() as selector:
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for readable in (channel, woken):
            selector.register(readable, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(CHUNK)
                yield b""
            if channel in ready:
                chunk = channel.recv(CHUNK)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines


def _hear_signals_again() -> None:
    signal.set_wakeup_fd(-1)
    for number in (*IGNORED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _begin_anew(order: Fork, parent: int) -> None:
    """In a child: as if it had been started by itself."""
    if order.log is not None:
        with order.log.open("ab") as log:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log.fileno(), stream.fileno())
    adopt(order.environment | {DIE_WITH_PARENT: str(parent)})
    die_with_parent()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
