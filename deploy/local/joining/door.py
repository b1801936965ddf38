"""The local cluster's door for other machines: `python -m deploy.local.joining.door`. A coordinator that serves HTTPS.

It opens at the first invitation, and at each later start.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from coordinator import __main__ as coordinator
from deploy.local.joining import authority
from jobs.network import exposure
from jobs.settings import LOCAL_FOLDER, give

log = logging.getLogger("door")

#: What was said at the first invitation; the door stays open over later starts.
FILE = LOCAL_FOLDER / "door.json"
#: Where `invite` looks whether it is open.
LOOPBACK = "127.0.0.1"
#: How often what was said is read again.
_AGAIN_SECONDS = 2.0


class Door(NamedTuple):
    """Where other machines reach this cluster."""

    port: int
    #: Names and addresses of this machine, the one that invitations name first.
    names: list[str]


def kept() -> Door | None:
    """Return what was said; None before the first invitation."""
    try:
        read = json.loads(FILE.read_text())
        return Door(int(read["port"]), [str(name) for name in read["names"]])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def keep(port: int, names: Sequence[str]) -> None:
    """Have the door open at this port, now and at later starts."""
    new = FILE.with_suffix(".new")
    new.write_text(json.dumps({"port": port, "names": list(names)}))
    new.replace(FILE)


def _follow(door: Door) -> None:
    """Renew the certificate in time, and end this process when another port was asked for: supervisord starts it."""
    while (now := kept() or door).port == door.port and _bind(now) == _bind(door):
        try:
            authority.certify([*now.names, LOOPBACK])
        except (OSError, ValueError) as error:
            log.error("the certificate is not looked after: %s", error)
        time.sleep(_AGAIN_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _bind(door: Door) -> str:
    """Return where it listens: everywhere; at addresses of IPv6, which a machine may not have, where one was named."""
    return "" if any(":" in name for name in door.names) else "0.0.0.0"


def main() -> int:
    door = kept()
    if door is None:
        return exposure.REFUSED
    authority.certify([*door.names, LOOPBACK])
    give(
        coordinator_port=door.port,
        bind=_bind(door),
        auth="required",
        metrics_port=0,
        grpc_port=0,
        tls_certificate=str(authority.CERTIFICATE),
        tls_key=str(authority.KEY),
    )
    threading.Thread(target=_follow, args=(door,), name="door", daemon=True).start()
    return coordinator.main()


if __name__ == "__main__":
    sys.exit(main())
