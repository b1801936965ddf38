"""Read hosts for the API, and create tokens for the workers of a joining host."""

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

#: Age in milliseconds at which an unused token counts as left over from a failed join.
BROKEN_MS = 60_000


def host_list(workers: Iterable[fleet_answers.Worker]) -> list[host_answers.Host]:
    """Return all hosts, live ones first, then by name. Workers without a host name are left out."""
    made = [serializers.serialize_host(name, of_it) for name, of_it in hosts.by_host(workers).items()]
    return sorted(made, key=lambda row: (not row["live"], row["host"]))


def host(workers: Iterable[fleet_answers.Worker], name: str) -> host_answers.HostDetail:
    """Return a host with its workers. Raise NotFound if no worker of the host was seen within the last hour."""
    known = list(workers)
    hosts.require(known, name, "host")
    of_it = hosts.by_host(known)[name]
    return serializers.serialize_details(serializers.serialize_host(name, of_it), of_it)


def join(store: Tokens, principal: Principal, host_name: str, names: Sequence[str]) -> list[Credential]:
    """Consume the principal's invitation and return a new token for each worker.

    Raise Conflict if a worker name is taken, or Unauthorized if the invitation was already used. The invitation is
    revoked first, so that only one of two concurrent calls succeeds. Tokens left over from failed joins are revoked,
    too.
    """
    left = _check_names(store, names)
    if not store.revoke(principal.token, principal.actor):
        raise errors.Unauthorized(
            "this invitation was already used or has expired; ask for a new one", field="Authorization"
        )
    minted: list[Credential] = []
    try:
        for name in names:
            minted.append(_create_credential(store, name, host_name, principal))
        _check_names(store, names, {one.id for one in minted})
    except Exception:
        for one in minted:
            store.revoke(one.id, principal.actor)
        raise
    for token in left:
        store.revoke(token, principal.actor)
    return minted


def _check_names(store: Tokens, names: Sequence[str], own: Set[str] = frozenset()) -> list[str]:
    """Raise Conflict if a worker with one of these names has a token. Return the tokens left over from failed joins.

    `own` contains the tokens that the caller has just created. If two hosts claim a name at the same time, both fail.
    """
    _, now = store.state()
    of_names = [one for one in store.all() if "worker" in one.scopes and one.id not in own and one.name in names]
    left = [one.id for one in of_names if one.host and not one.used and now - one.created > BROKEN_MS]
    if taken := sorted(one.name for one in of_names if one.id not in left):
        raise errors.Conflict(
            f"worker {taken[0]} has already joined. Run `./deploy-cluster.sh leave` on its machine, revoke its token"
            " with `cluster token revoke`, or join under another name with --name NAME. If a join was interrupted, try"
            " again in a minute",
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
        raise errors.Conflict(
            f"the cluster has {tokens.MAX_TOKENS} tokens, the maximum; revoke one first", field="host"
        )
    return minted
