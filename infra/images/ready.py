"""`ready.py [PORT...]`: exits 0 if the service of this container does its work, else prints what is missing.

A container runs one service. Its `/readyz` answers 200 while it is assigned and progresses. No package is imported:
this is run every few seconds, and takes 20 ms.
"""

import socket
import sys

PORTS = (9101, 9102, 9103, 9104)  # orchestrator, aggregator, autoscaler, host
TIMEOUT_S = 3


def main() -> int:
    """The exit code, by the first service that listens."""
    for port in map(int, sys.argv[1:] or PORTS):
        try:
            head, _, body = _answer(port).partition(b"\r\n\r\n")
        except ConnectionRefusedError:
            continue
        except OSError as error:
            print(f"port {port}: {error}")
            return 1
        print(body.decode(errors="replace"), end="")
        return 0 if b" 200 " in head.partition(b"\r\n")[0] else 1
    print("nothing listens yet")
    return 1


def _answer(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as door:
        door.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return b"".join(iter(lambda: door.recv(4096), b""))


if __name__ == "__main__":
    sys.exit(main())
