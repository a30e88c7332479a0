"""Places that take notifications, for tests: a webhook and a mail server, each the least that speaks its protocol."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def webhook(port: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A port and the JSON documents that were posted to it."""
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", port), Handler)) as bound:
        yield bound, taken


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """A port and the messages that were sent to it."""
    taken: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 sink")
            while line := self.rfile.readline().strip():
                verb = line.split(b" ")[0].upper()
                if verb == b"DATA":
                    self._say("354 go on")
                    taken.append(self._message())
                self._say("221 bye" if verb == b"QUIT" else "250 ok")

        def _message(self) -> str:
            lines = []
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                lines.append(line.decode())
            return "".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as bound:
        yield bound, taken


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
