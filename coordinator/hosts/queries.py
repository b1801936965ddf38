"""Hosts as rows, and tokens of the workers of one that joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from coordinator.access.principal import Principal
from coordinator.fleet import hosts
from coordinator.hosts import serializers
from jobs import errors
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tokens import Credential, Tokens
from threads_protocol.answers import fleet as fleet_answers
from threads_protocol.answers import hosts as host_answers

#: A host that has joined uses its tokens at once: those that it has not used within this time have reached nobody.
BROKEN_MS = 60_000


def host_list(workers: Iterable[fleet_answers.Worker]) -> list[host_answers.Host]:
    """Return a row for each host, those that live first, then by name. A worker that names none is left out."""
    made = [serializers.serialize_host(name, of_it) for name, of_it in hosts.by_host(workers).items()]
    return sorted(made, key=lambda row: (not row["live"], row["host"]))


def host(workers: Iterable[fleet_answers.Worker], name: str) -> host_answers.HostDetail:
    """Return a host with its workers. NotFound for one on which none lives or was lost within the hour."""
    of_it = hosts.by_host(workers).get(name)
    if not of_it:
        raise errors.missing("host", name, "host")
    return serializers.serialize_details(serializers.serialize_host(name, of_it), of_it)


def join(store: Tokens, principal: Principal, host_name: str, names: Sequence[str]) -> list[Credential]:
    """Consume the principal's invitation and return a new token for each worker.

    Raises Conflict; Unauthorized if the invitation was used already.

    The invitation ends first, in one step of Redis: of two that use it at once, one is refused. Tokens that a join of
    this name has left which broke off end too.
    """
    left = _refuse_taken(store, names)
    if not store.revoke(principal.token, principal.actor):
        raise errors.Unauthorized("this invitation was used or has expired; ask for another", field="Authorization")
    minted: list[Credential] = []
    try:
        for name in names:
            minted.append(_create_credential(store, name, host_name, principal))
        _refuse_taken(store, names, {one.id for one in minted})
    except Exception:
        for one in minted:
            store.revoke(one.id, principal.actor)
        raise
    for token in left:
        store.revoke(token, principal.actor)
    return minted


def _refuse_taken(store: Tokens, names: Sequence[str], own: Set[str] = frozenset()) -> list[str]:
    """Raise Conflict where a worker of such a name has another token: two would take the name from each other.

    `own`: tokens that were just made; of two hosts that took a name at once, both are refused. Returns the tokens of
    these names that a join has left which broke off.
    """
    _, now = store.state()
    of_names = [one for one in store.all() if "worker" in one.scopes and one.id not in own and one.name in names]
    left = [one.id for one in of_names if one.host and not one.used and now - one.created > BROKEN_MS]
    if taken := sorted(one.name for one in of_names if one.id not in left):
        raise errors.Conflict(
            f"a worker {taken[0]} has joined before: `./deploy-cluster.sh leave` on that machine ends its token, or"
            " `cluster token revoke`; where a join broke off, try again in a minute; or join under another name: --name"
            " NAME",
            field="host",
        )
    return left


def _create_credential(store: Tokens, name: str, host_name: str, principal: Principal) -> Credential:
    minted = tokens.mint()
    how = store.create(
        minted,
        name=name,
        scopes=("worker",),
        tenant=principal.tenant,
        actor=principal.actor,
        labels=principal.labels,
        host=host_name,
    )
    if how == "missing":
        raise errors.UnknownTenant(principal.tenant)
    if how != "new":
        raise errors.Conflict(f"there are {tokens.MAX_TOKENS} tokens; revoke some", field="host")
    return minted
