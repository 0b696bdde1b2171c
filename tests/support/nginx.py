"""A throw-away nginx on loopback: static files with ranges and ETags, TLS from a local CA, HTTP/2, rate limits.

with Nginx(root) as server:
    server.http + "/file"     server.https + "/file" (trust server.ca)     /slow/ /norange/ /gz/ are views of root
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import trustme

NGINX = "/usr/sbin/nginx"
_CONF = """
daemon off; worker_processes 1; pid {d}/nginx.pid; error_log {d}/error.log warn; {user}
events {{ worker_connections 1024; }}
http {{
  access_log {d}/access.log; default_type application/octet-stream; sendfile on; tcp_nopush on;
  keepalive_requests 1000000; types {{ application/pdf pdf; text/html html; text/plain txt; }}
  client_body_temp_path {d}/cb; proxy_temp_path {d}/px; fastcgi_temp_path {d}/fc; uwsgi_temp_path {d}/uw;
  scgi_temp_path {d}/sc;
  limit_req_zone $binary_remote_addr zone=rq:1m rate=5r/s;
  server {{
    listen {host}:{http}; listen {host}:{https} ssl http2;
    server_name localhost; ssl_certificate {d}/server.pem; ssl_certificate_key {d}/server.key;
    ssl_protocols TLSv1.2 TLSv1.3; root {root};
    location / {{ etag on; }}
    location /slow/ {{ alias {root}/; limit_rate {rate}; }}
    location /norange/ {{ alias {root}/; max_ranges 0; }}
    location /limited/ {{ alias {root}/; limit_req zone=rq burst=2 nodelay; limit_req_status 429; }}
    location /gz/ {{ alias {root}/; gzip on; gzip_types *; gzip_min_length 1; }}
    location = /reset {{ return 444; }}
  }}
}}
"""


class Nginx:
    """One nginx over one directory. `rate` is the limit of /slow/ per connection."""

    def __init__(self, root: Path, *, host: str = "127.0.0.1", rate: str = "1m") -> None:
        self.root = root
        self.host = host
        self.rate = rate
        self.home = Path(tempfile.mkdtemp(prefix="longshore-nginx-"))
        self.ca = self.home / "ca.pem"
        self._process: subprocess.Popen[bytes] | None = None
        self.http = self.https = ""

    def __enter__(self) -> Self:
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", self.host)
        authority.cert_pem.write_to_path(self.ca)
        certificate.private_key_pem.write_to_path(self.home / "server.key")
        (self.home / "server.pem").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        for _ in range(20):  # a free port may be taken by another worker before nginx binds it
            if self._start():
                return self
        raise RuntimeError((self.home / "error.log").read_text())

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        shutil.rmtree(self.home, ignore_errors=True)

    def requests(self) -> list[str]:
        """The access log's lines."""
        return (self.home / "access.log").read_text().splitlines()

    def _start(self) -> bool:
        plain, secure = _free_ports(self.host)
        user = "user root;" if os.geteuid() == 0 else ""
        names = {"d": self.home, "root": self.root, "host": self.host, "rate": self.rate, "user": user}
        (self.home / "nginx.conf").write_text(_CONF.format(http=plain, https=secure, **names))
        command = [NGINX, "-p", str(self.home), "-c", str(self.home / "nginx.conf"), "-e", str(self.home / "error.log")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while time.monotonic() < limit and process.poll() is None:
            if (self.home / "nginx.pid").exists() and _answers(self.host, plain) and _answers(self.host, secure):
                self._process = process
                self.http, self.https = f"http://{self.host}:{plain}", f"https://localhost:{secure}"
                return True
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
        process.wait()
        return False


def _free_ports(host: str) -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind((host, 0))
        two.bind((host, 0))
        return one.getsockname()[1], two.getsockname()[1]


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
