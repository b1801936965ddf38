"""Hosts as rows, and tokens of the workers of one that joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from coordinator.asker import Asker
from coordinator.fleet import hosts
from coordinator.fleet.rows import WorkerRow
from coordinator.hosts import rows
from coordinator.hosts.rows import HostDetailRow, HostRow
from jobs import errors
from jobs.store import tokens
from jobs.store.tokens import Credential, Tokens


def host_list(workers: Iterable[WorkerRow]) -> list[HostRow]:
    """Return a row for each host, those that live first, then by name. A worker that names none is left out."""
    made = [rows.host_row(name, of_it) for name, of_it in hosts.by_host(workers).items()]
    return sorted(made, key=lambda row: (not row["live"], row["host"]))


def host(workers: Iterable[WorkerRow], name: str) -> HostDetailRow:
    """Return a host with its workers. NotFound for one on which none lives or was lost within the hour."""
    of_it = hosts.by_host(workers).get(name)
    if not of_it:
        raise errors.NotFound(f"no host {name}; list them with GET /api/hosts", field="host")
    return rows.detail_row(rows.host_row(name, of_it), of_it)


def join(store: Tokens, asker: Asker, names: Sequence[str]) -> list[Credential]:
    """Use the asker's invitation up, and return a new token for each worker. Conflict, and Unauthorized for a used one.

    The invitation ends first, in one step of Redis: of two that use it at once, one is refused.
    """
    _refuse_taken(store, names)
    if not store.revoke(asker.token, asker.actor):
        raise errors.Unauthorized("this invitation was used or has expired; ask for another", field="Authorization")
    minted: list[Credential] = []
    try:
        for name in names:
            minted.append(_minted(store, name, asker))
        _refuse_taken(store, names, {one.id for one in minted})
    except Exception:
        for one in minted:
            store.revoke(one.id, asker.actor)
        raise
    return minted


def _refuse_taken(store: Tokens, names: Sequence[str], own: Set[str] = frozenset()) -> None:
    """Raise Conflict where a worker of such a name has another token: two would take the name from each other.

    `own`: tokens that were just made; of two hosts that took a name at once, both are refused.
    """
    workers = {token.name for token in store.all() if "worker" in token.scopes and token.id not in own}
    if taken := sorted(workers & set(names)):
        raise errors.Conflict(
            f"a worker {taken[0]} has joined before: `./deploy-cluster.sh leave` on that machine ends its token, or, as"
            " where a join broke off, `cluster token revoke`; or join under another name: --name NAME", field="host",
        )  # fmt: skip


def _minted(store: Tokens, name: str, asker: Asker) -> Credential:
    minted = tokens.mint()
    how = store.create(minted, name=name, scopes=("worker",), tenant=asker.tenant, actor=asker.actor,
                       labels=asker.labels)  # fmt: skip
    if how == "missing":
        raise errors.UnknownTenant(asker.tenant)
    if how != "new":
        raise errors.Conflict(f"there are {tokens.MAX_TOKENS} tokens; revoke some", field="host")
    return minted
