"""Coordinator of a local cluster that serves HTTPS to other machines.

Run it with `python -m deploy.local.joining.https_coordinator`. It opens its port at the first invitation and at each
later start of the cluster.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from deploy.local import port_list
from deploy.local.joining import authority
from jobs.network import exposure
from jobs.settings import LOCAL_FOLDER, override_settings

log = logging.getLogger("door")

#: File with the port and the names of the HTTPS endpoint, as of the first invitation.
FILE = LOCAL_FOLDER / "door.json"
#: Address at which the command `invite` checks that the port is open.
LOOPBACK = "127.0.0.1"
#: Interval in seconds at which the file is read again.
_AGAIN_SECONDS = 2.0
#: Name of the port in the list of ports.
PORT_NAME = "HTTPS for joined machines"


class Endpoint(NamedTuple):
    """Port of the HTTPS endpoint, and names under which other machines reach it."""

    port: int
    #: Names and addresses of this machine. The first one is used in invitations.
    names: list[str]


def load_endpoint() -> Endpoint | None:
    """Return the stored port and names of the HTTPS endpoint, or None before the first invitation."""
    try:
        read = json.loads(FILE.read_text())
        return Endpoint(int(read["port"]), [str(name) for name in read["names"]])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def store_endpoint(port: int, names: Sequence[str]) -> None:
    """Store the port and names of the HTTPS endpoint. The endpoint opens now and at later starts."""
    new = FILE.with_suffix(".new")
    new.write_text(json.dumps({"port": port, "names": list(names)}))
    new.replace(FILE)
    port_list.add(PORT_NAME, port)


def _renew_certificate(door: Endpoint) -> None:
    """Renew the certificate before it expires. Exit if the port changes, so that supervisord restarts this process."""
    while (now := load_endpoint() or door).port == door.port and _bind(now) == _bind(door):
        try:
            authority.certify([*now.names, LOOPBACK])
        except (OSError, ValueError) as error:
            log.error("Cannot renew the certificate: %s", error)
        time.sleep(_AGAIN_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _bind(door: Endpoint) -> str:
    """Return the address on which the endpoint listens. It is an IPv4 address unless a name is an IPv6 address.

    Some machines do not have IPv6 addresses.
    """
    return "" if any(":" in name for name in door.names) else "0.0.0.0"


def _build_installer() -> None:
    """Build the installer for other machines in a process, because it takes seconds of CPU time and many modules."""
    done = subprocess.run([sys.executable, "-m", "deploy.local.joining.installation"], check=False)
    if done.returncode:
        log.error("Cannot build the installer for other machines; see the lines above.")


def main() -> int:
    # Import only here, because the starter of the cluster uses this module and must not load the coordinator.
    from coordinator import __main__ as coordinator
    from deploy.local.joining import installation

    door = load_endpoint()
    if door is None:
        return exposure.REFUSED
    authority.certify([*door.names, LOOPBACK])
    override_settings(
        coordinator_port=door.port,
        bind=_bind(door),
        auth="required",
        metrics_port=0,
        grpc_port=0,
        tls_certificate=str(authority.CERTIFICATE),
        tls_key=str(authority.KEY),
        join_dir=str(installation.FOLDER),
    )
    installation.remove()
    threading.Thread(target=_build_installer, name="installer", daemon=True).start()
    threading.Thread(target=_renew_certificate, args=(door,), name="door", daemon=True).start()
    return coordinator.main()


if __name__ == "__main__":
    sys.exit(main())
