"""A model hub on this machine that holds nothing."""

from http.server import BaseHTTPRequestHandler, HTTPServer


class _NotFound(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *_):
        """Not into the tests' output."""


class EmptyHub(HTTPServer):
    """It notes what it was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _NotFound)
        self.asked = []
