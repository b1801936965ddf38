"""Server of a Dask replica. It runs a Dask worker until SIGTERM, and in the leading replica also the scheduler.

Environment variables contain the address, the key, and the address of the leader. All connections use TLS with one
certificate, which is derived from the leader's key, so clients without the key are rejected. The dashboard is served on
the leader's port to clients that send its key.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.request import ProxyHandler, build_opener

#: Interval in seconds between checks of the leader.
#: Number of failed checks after which a worker exits.
POLL_SECONDS, LOOKS = 2.0, 4
#: Modules of Dask that serve dashboard pages without plots.
_SHOWN = ["distributed.http.scheduler.info", "distributed.http.scheduler.json", "distributed.http.statics"]


def certificate(key: str) -> tuple[str, str]:
    """Derive a certificate and its private key in PEM from a replica's key. The same key gives the same certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    seed = HKDF(hashes.SHA256(), 32, salt=None, info=b"threads cluster: certificate of dask").derive(key.encode())
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dask")])
    named = x509.SubjectKeyIdentifier.from_public_key(public)
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    made = (
        x509.CertificateBuilder(
            name, name, public, 1, datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True)
        .add_extension(named, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(named), critical=False)
        .sign(private, None)
    )
    plain = serialization.NoEncryption()
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    return parser.parse_args()


class Replica:
    """Dask worker of this replica, and the Dask scheduler if this is the leading replica."""

    def __init__(self, asked: argparse.Namespace) -> None:
        from distributed.security import Security as Untyped

        self._asked, self._host = asked, os.environ["CLUSTER_ADDRESS"]
        lead = os.environ["CLUSTER_LEAD_ADDRESS"]
        self._lead = f"http://[{lead}]" if ":" in lead else f"http://{lead}"
        self._lead += f":{os.environ['CLUSTER_LEAD_PORT']}"
        self.leads = os.environ["CLUSTER_LEAD_KEY"] == os.environ["CLUSTER_KEY"]
        signed, key = certificate(os.environ["CLUSTER_LEAD_KEY"])
        sides = {
            f"tls_{side}_{what}": text
            for side in ("scheduler", "worker", "client")
            for what, text in (("cert", signed), ("key", key))
        }
        security: Any = Untyped
        self._security = security(tls_ca_file=signed, require_encryption=True, **sides)
        self._worker: Any = None
        self.address = ""
        #: Web application of the dashboard, or None if this replica does not lead or bokeh is not installed.
        self.pages: Any = None

    async def start(self) -> None:
        """Start the Dask worker, and in the leading replica also the scheduler."""
        from distributed import Nanny, Scheduler

        here: dict[str, Any] = {"host": self._host, "protocol": "tls://", "security": self._security}
        if self.leads:
            scheduler = await Scheduler(**here, port=0, dashboard_address=f"{self._host}:0", dashboard=False)
            self.address, self.pages = scheduler.address, _pages(scheduler)
        else:
            self.address = (await self._fetch("/address")).decode()
        self._worker = await Nanny(
            self.address,
            **here,
            nthreads=self._asked.threads,
            memory_limit=self._asked.memory << 20,
            name=os.environ["CLUSTER_JOB_ID"],
            local_directory=os.environ["HOME"],
            dashboard_address=f"{self._host}:0",
            dashboard=False,
        )

    @property
    def works(self) -> bool:
        """Return True if the Dask worker is running."""
        return self._worker is not None and self._worker.status.name == "running" and self._worker.is_alive()

    async def wait_for_loss(self) -> None:
        """Wait until the leading replica is unreachable. In the leading replica itself, wait forever."""
        failed = 0
        while self.leads or failed < LOOKS:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._fetch("/address")
                failed = 0
            except OSError:
                failed += 1

    async def _fetch(self, path: str) -> bytes:
        opener = build_opener(ProxyHandler({}))

        def ask() -> bytes:
            with opener.open(f"{self._lead}{path}", timeout=POLL_SECONDS) as answer:
                return bytes(answer.read(1000))

        return await asyncio.to_thread(ask)


def _pages(scheduler: Any) -> Any:
    """Return the web application of a scheduler's dashboard, or None if bokeh is not installed."""
    from distributed.http import routing, utils

    try:
        from distributed.dashboard import scheduler as dashboard
    except ImportError as error:
        print(f"the dashboard is not available: {error}", file=sys.stderr, flush=True)
        return None
    pages: Any = routing.RoutingApplication  # The package distributed does not annotate this class
    made = pages(utils.get_handlers(scheduler, _SHOWN), log_function=lambda _: None)
    connect: Any = dashboard.connect
    connect(made, scheduler.http_server, scheduler)
    return made


def listen(replica: Replica) -> None:
    """Serve health checks, the address of the scheduler, and the dashboard.

    The address alone does not allow a connection.
    """
    from tornado.httpserver import HTTPServer
    from tornado.routing import Router
    from tornado.web import Application, RequestHandler

    class Health(RequestHandler):
        def get(self) -> None:
            self.set_status(200 if replica.works else 503)

    class Address(RequestHandler):
        def get(self) -> None:
            self.set_status(200 if replica.leads and replica.address else 404)
            self.write(replica.address if replica.leads else "")

    class Missing(RequestHandler):
        def get(self) -> None:
            self.set_status(501)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.write("The dashboard requires bokeh in the Python of this runner: pip install bokeh\n")

    own = Application([("/health", Health), ("/address", Address)], log_function=lambda _: None)
    missing = Application([(".*", Missing)], log_function=lambda _: None)
    key = f"Bearer {os.environ['CLUSTER_KEY']}".encode()

    class Front(Router):
        """HTTP router that lets all clients request health and address, and clients with the key also the dashboard."""

        def find_handler(self, request: Any, **more: Any) -> Any:
            given = request.headers.get("Authorization", "").encode()
            is_own = request.path in ("/health", "/address") or not (replica.leads and replica.address)
            if is_own or not hmac.compare_digest(given, key):
                return own.find_handler(request, **more)
            return (replica.pages or missing).find_handler(request, **more)

    HTTPServer(Front()).listen(int(os.environ["CLUSTER_PORT"]), os.environ["CLUSTER_ADDRESS"])


async def run() -> int:
    replica, stop_requested = Replica(parse_arguments()), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    listen(replica)
    await replica.start()
    print(f"{'leads at' if replica.leads else 'works for'} {replica.address}", flush=True)
    lost, ended = asyncio.ensure_future(replica.wait_for_loss()), asyncio.ensure_future(stop_requested.wait())
    await asyncio.wait({lost, ended}, return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        return 0
    print("the leading replica is unreachable", file=sys.stderr, flush=True)
    return 1


def main() -> None:
    code = asyncio.run(run())
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
