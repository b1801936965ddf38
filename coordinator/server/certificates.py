"""Load the TLS certificate of a coordinator that serves HTTPS, and reload it when its files change."""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from pathlib import Path

from jobs.settings import Settings

log = logging.getLogger(__name__)

#: Interval in seconds between two checks for a renewed certificate.
CHECK_SECONDS = 2.0
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


class UnusableCertificate(ValueError):
    """TLS_CERTIFICATE or TLS_KEY cannot be used. The message contains the reason."""


def check(settings: Settings) -> None:
    """Raise UnusableCertificate if TLS_CERTIFICATE is set and the files cannot be used."""
    if settings.tls_certificate:
        create_context(settings)


def create_context(settings: Settings) -> ssl.SSLContext:
    """Return a TLS context for TLS 1.2 or later. Raise UnusableCertificate if the files cannot be used."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        made.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except OSError as error:  # includes ssl.SSLError
        files = f"TLS_CERTIFICATE={settings.tls_certificate} and TLS_KEY={settings.tls_key}"
        raise UnusableCertificate(f"{files} cannot be used: {error}") from None
    return made


def read_authority(settings: Settings) -> str:
    """Return the last certificate of the chain in TLS_CERTIFICATE, as PEM.

    Return an empty string if the file has no chain or cannot be read.
    """
    try:
        chain = _CERTIFICATE.findall(Path(settings.tls_certificate).read_text()) if settings.tls_certificate else []
    except (OSError, ValueError):
        return ""
    return chain[-1] if len(chain) > 1 else ""


def create_reloading_context(settings: Settings) -> ssl.SSLContext:
    """Return a TLS context, and start a thread that reloads the certificate files when they change.

    Raise UnusableCertificate if the files cannot be used.
    """
    context = create_context(settings)
    threading.Thread(target=_watch, args=(context, settings), name="certificate", daemon=True).start()
    return context


def _watch(context: ssl.SSLContext, settings: Settings) -> None:
    known = _modification_times(settings)
    while True:
        time.sleep(CHECK_SECONDS)
        if (now := _modification_times(settings)) != known:
            known = now if reload(context, settings) else known


def _modification_times(settings: Settings) -> tuple[int, ...]:
    """Return the modification time of each file in nanoseconds, or 0 if the file cannot be accessed."""
    times = []
    for name in (settings.tls_certificate, settings.tls_key):
        try:
            times.append(Path(name).stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def reload(context: ssl.SSLContext, settings: Settings) -> bool:
    """Use the certificate in the files for new connections. Log an error and return False if they do not match."""
    try:
        create_context(settings)  # checks the files first, because they may be half written
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (UnusableCertificate, OSError) as error:
        log.error("the renewed certificate was not loaded: %s", error)
        return False
    log.info("loaded the renewed certificate")
    return True
