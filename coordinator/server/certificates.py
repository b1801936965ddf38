"""Certificate under which a coordinator serves HTTPS by itself; its files are read again when they are renewed."""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from pathlib import Path

from jobs.settings import Settings

log = logging.getLogger(__name__)

#: Seconds after which a new certificate is in use at the latest.
LOOK_SECONDS = 2.0
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


class UnusableCertificate(ValueError):
    """TLS_CERTIFICATE or TLS_KEY cannot be used; the message says why."""


def check(settings: Settings) -> None:
    """Raise UnusableCertificate where the files are set and cannot be used."""
    if settings.tls_certificate:
        context(settings)


def context(settings: Settings) -> ssl.SSLContext:
    """Return what HTTPS is served with: TLS 1.2 or later. Raises UnusableCertificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        made.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        files = f"TLS_CERTIFICATE={settings.tls_certificate} and TLS_KEY={settings.tls_key}"
        raise UnusableCertificate(f"{files} cannot be used: {error}") from None
    return made


def authority(settings: Settings) -> str:
    """Return the certificate that ends the chain of TLS_CERTIFICATE, as PEM; empty: there is none."""
    try:
        chain = _CERTIFICATE.findall(Path(settings.tls_certificate).read_text()) if settings.tls_certificate else []
    except (OSError, ValueError):
        return ""
    return chain[-1] if len(chain) > 1 else ""


def served(settings: Settings) -> ssl.SSLContext:
    """Return the context, and have a thread read the files again once they have changed. Raises UnusableCertificate."""
    made = context(settings)
    threading.Thread(target=_follow, args=(made, settings), name="certificate", daemon=True).start()
    return made


def _follow(serving: ssl.SSLContext, settings: Settings) -> None:
    known = _written(settings)
    while True:
        time.sleep(LOOK_SECONDS)
        if (now := _written(settings)) != known:
            known = now if renew(serving, settings) else known


def _written(settings: Settings) -> tuple[int, ...]:
    """Return when each of the files was written; 0: it cannot be seen."""
    times = []
    for name in (settings.tls_certificate, settings.tls_key):
        try:
            times.append(Path(name).stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def renew(serving: ssl.SSLContext, settings: Settings) -> bool:
    """Have new connections get the certificate of the files; False, and a line in the log, where they are no pair."""
    try:
        context(settings)  # a half-written pair must not be what is served
        serving.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (UnusableCertificate, OSError) as error:
        log.error("the renewed certificate is not used: %s", error)
        return False
    log.info("serves a renewed certificate")
    return True
