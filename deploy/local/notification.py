"""Notification of systemd that the cluster is ready (sd_notify(3))."""

from __future__ import annotations

import socket

from jobs.settings import notify_socket


def notify_ready() -> bool:
    """Report to systemd that the cluster is ready. Return False if systemd has not started this process."""
    address = notify_socket()
    if not address:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        notifier.send(b"READY=1")
    return True
