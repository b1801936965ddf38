"""Update of the Redis users of a running cluster, because another release can need other permissions."""

from __future__ import annotations

import re

from deploy.local import cluster_programs, redis_server
from jobs.settings import LOCAL_FOLDER
from jobs.store import acl
from jobs.store.server import connection
from jobs.store.server.users import set_users

_PORT = re.compile(r"^port (\d+)$", re.MULTILINE)
_PASSWORD = re.compile(r"^user (\w+) on >(\w+) ", re.MULTILINE)


def renew() -> None:
    """Give the users of the running Redis the permissions of this release, with unchanged passwords."""
    text = (LOCAL_FOLDER / "redis.conf").read_text()
    port, passwords = int(_PORT.findall(text)[0]), cluster_programs.passwords() | dict(_PASSWORD.findall(text))
    redis_server.write_configuration(LOCAL_FOLDER, port, passwords)
    client = connection.connect(f"redis://operator:{passwords['operator']}@127.0.0.1:{port}/0", retries=1, timeout=3)
    set_users(client, acl.lines({name: f">{password}" for name, password in passwords.items()}))
