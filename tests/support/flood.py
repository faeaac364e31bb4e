"""Many large uploads at once, from a process of their own: ``python -m tests.support.flood PORT TOKEN…``."""

from __future__ import annotations

import socket
import sys
import threading

AT_ONCE = 4
SIZE = 10 * 1024 * 1024


def form(name: str, content: bytes) -> bytes:
    """A form of one file, as `send` posts it."""
    disposition = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    return f"--bbbb\r\n{disposition}\r\n\r\n".encode() + content + b"\r\n--bbbb--\r\n"


def send(port: int, token: str, body: bytes) -> bytes:
    """Post a form; the answer's status line."""
    head = (
        "POST /v1/media HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: multipart/form-data; boundary=bbbb\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(head.encode() + body)
        return connection.makefile("rb").readline()


def flood(port: int, tokens: list[str]) -> list[bytes]:
    """So many uploads at once with each token; the status lines."""
    answers: list[bytes] = []

    def upload(token: str, number: int) -> None:
        body = form(f"{number}.bin", bytes(SIZE))
        answers.append(send(port, token, body))

    threads = [
        threading.Thread(target=upload, args=(token, number)) for token in tokens for number in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


if __name__ == "__main__":
    for line in flood(int(sys.argv[1]), sys.argv[2:]):
        print(line.decode(), end="")
