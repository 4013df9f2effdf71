"""A small server for trying the translator page on this machine, with the headers that allow threads."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tfexport.package_web import ISOLATION, SiteFiles, site_files
from tfexport_runtime.bundle import Bundle

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
BLOCK = 2**20


def open_server(bundle: Bundle, port: int, isolated: bool = True, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """A server of the site, to be run with `serve_forever`. Port 0 takes any free one. Raises UnavailableError."""
    handler = partial(_Handler, site_files(bundle), ISOLATION if isolated else {})
    return ThreadingHTTPServer((host, port), handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers with files that are listed, and with nothing else."""

    protocol_version = "HTTP/1.1"

    def __init__(self, files: SiteFiles, headers: dict[str, str], *connection: object) -> None:
        self._files = files
        self._headers = headers
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not of interest."""

    def _answer(self, with_body: bool) -> None:
        name = unquote(urlsplit(self.path).path).lstrip("/") or "index.html"
        content = self._files.get(name)
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES.get(Path(name).suffix, "application/octet-stream"))
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-cache")
        for header, value in self._headers.items():
            self.send_header(header, value)
        self.end_headers()
        if with_body:
            self._send(content)

    def _send(self, content: Path | bytes) -> None:
        try:
            if isinstance(content, bytes):
                self.wfile.write(content)
                return
            with open(content, "rb") as file:
                while block := file.read(BLOCK):
                    self.wfile.write(block)
        except ConnectionError:
            self.close_connection = True  # the browser went away
