"""A small Hugging Face hub on loopback, for hipvit and for the hub's library."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(BaseHTTPRequestHandler):
    """Answers for one repository, ``directory`` under the name ``model``."""

    protocol_version = "HTTP/1.1"
    directory: Path
    model: str

    def answer(self, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in (("Content-Length", str(len(body))), ("X-Repo-Commit", COMMIT), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path.startswith(f"/api/models/{self.model}"):
            files = [{"rfilename": path.name} for path in sorted(self.directory.iterdir())]
            if "/tree/" in self.path:
                tree = [
                    {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": self.etag(path.read_bytes())}
                    for path in sorted(self.directory.iterdir())
                ]
                return self.answer(json.dumps(tree).encode())
            return self.answer(json.dumps({"id": self.model, "sha": COMMIT, "siblings": files}).encode())
        file = self.directory / self.path.rsplit("/", 1)[1]
        if not file.is_file():
            return self.send_error(404)
        body = file.read_bytes()
        self.answer(body, ("ETag", f'"{self.etag(body)}"'))

    do_HEAD = do_GET

    def etag(self, body: bytes) -> str:
        """Large files are in Git LFS and have a SHA-256; others have the SHA-1 of their Git object."""
        if len(body) > 4096:
            return hashlib.sha256(body).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(directory: Path, model: str) -> Iterator[str]:
    """The hub's address while it runs."""
    handler = type("RepositoryHandler", (Handler,), {"directory": directory, "model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
