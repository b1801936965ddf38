"""Contexts, which give names to clusters, and the choice of the cluster that a client uses.

The order is: the caller's address or context, CLUSTER_URL, the cluster of the client's checkout, the selected context.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from threads_cluster import settings
from threads_cluster.client import checkouts, private_files
from threads_cluster.client.checkouts import Checkout
from threads_cluster.errors import ClientError, Misconfigured

#: Characters that a name cannot contain. They are replaced in names that come from folders and addresses.
_ODD = re.compile(r"[^\w.:@-]+")
_LONGEST_NAME = 64


@dataclass(frozen=True)
class Context:
    """Cluster with its address. Without a name, the user chose the cluster by its address."""

    url: str
    name: str = ""
    #: Data folder of a local cluster, which contains its current address and its token. Empty for other clusters.
    folder: str = ""
    #: Path of the only trusted certificate authority. Empty to trust the authorities of the system.
    authority: str = ""

    def __str__(self) -> str:
        return f"context {self.name} ({self.url})" if self.name else self.url

    def token_file(self, stated: settings.Settings) -> Path | None:
        """Return the file that stores the token of the cluster, or None without a home directory."""
        return Path(self.folder) / "token" if self.folder else stated.logins_file()

    def current(self) -> Context:
        """Return the context with the present address of its cluster. Raises NotRunning for a stopped local cluster."""
        if not self.folder:
            return self
        if not Path(self.folder).is_dir():
            error = Misconfigured(f"the folder {self.folder} of context {self.name} does not exist any more")
            error.next = f"delete the context: cluster context delete {self.name}"
            raise error
        return replace(self, url=Checkout(Path(self.folder)).running_url())


@dataclass
class Contexts:
    """Contexts of a user by name."""

    by_name: dict[str, Context] = field(default_factory=dict)
    #: Name of the context that clients use if nothing else chooses a cluster. Empty if there is none.
    selected: str = ""

    def named(self, name: str) -> Context:
        """Return a context. Raises Misconfigured if the name is unknown."""
        if name in self.by_name:
            return self.by_name[name]
        error = Misconfigured(f"no context has the name {name}")
        error.next = "list the contexts with: cluster context list"
        raise error

    def of_cluster(self, url: str, folder: str = "") -> Context | None:
        """Return the context of a local cluster with this data folder, or of another cluster with this address."""
        several = self.by_name.values()
        return next((each for each in several if each.folder == folder and (folder or each.url == url)), None)

    def free_name(self, wanted: str) -> str:
        """Return a valid name that no context has, such as `wanted` or `wanted-2`."""
        plain = valid_name(wanted)
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(self.by_name) + 2))
        return next(name for name in numbered if name not in self.by_name)


def valid_name(text: str) -> str:
    """Convert a text into a valid name of a context."""
    return _ODD.sub("-", text).strip("-.:")[: _LONGEST_NAME - 4] or "cluster"


def check_name(name: str) -> str:
    """Return the name of a context that a user wants. Raises Misconfigured if it is invalid."""
    if _ODD.search(name) or not 0 < len(name) <= _LONGEST_NAME or name[0] in "-.":
        rule = "up to 64 letters, digits and . : @ _ -, and does not start with . or -"
        raise Misconfigured(f"{name!r} cannot be the name of a context: a name has {rule}")
    return name


def load(stated: settings.Settings) -> Contexts:
    """Return the stored contexts of this user. Raises UnusableFile."""
    file = stated.contexts_file()
    known = private_files.read_json(file, private_files.check_unchangeable) if file else None
    if file is None or known is None:
        return Contexts()
    try:
        by_name = {str(name): _context(str(name), fields) for name, fields in known["contexts"].items()}
        selected = str(known["selected"])
        return Contexts(by_name, selected if selected in by_name else "")
    except (LookupError, TypeError, AttributeError):
        raise private_files.foreign(file) from None


def _context(name: str, fields: dict[str, Any]) -> Context:
    return Context(str(fields["url"]), name, str(fields.get("folder", "")), str(fields.get("authority", "")))


def change(stated: settings.Settings, edit: Callable[[Contexts], None]) -> None:
    """Let `edit` change the stored contexts while no other process can change them. Raises Misconfigured.

    Without contexts, no file is kept, unless it is a symbolic link of the user.
    """
    file = stated.contexts_file()
    if file is None:
        error = Misconfigured("contexts cannot be stored because this user has no home directory")
        error.next = "set HOME or XDG_CONFIG_HOME to a directory, or choose a cluster with CLUSTER_URL"
        raise error
    with private_files.locked(file):
        known = load(stated)
        edit(known)
        selected = known.selected if known.selected in known.by_name else ""
        if known.by_name or file.is_symlink():
            private_files.write_json(file, {"selected": selected, "contexts": _fields(known)})
        else:
            private_files.delete(file)


def _fields(known: Contexts) -> dict[str, dict[str, str]]:
    names = ("url", "folder", "authority")
    return {
        name: {each: value for each in names if (value := getattr(context, each))}
        for name, context in known.by_name.items()
    }


def keep(context: Context, stated: settings.Settings, *, select: bool) -> Context:
    """Store a context, and return it with its name. A cluster that already has a context keeps its name.

    If no other context is selected, the new context becomes the selected one, even without `select`.
    """
    kept: list[Context] = []

    def edit(known: Contexts) -> None:
        before = known.of_cluster(context.url, context.folder)
        name = context.name or (before.name if before else known.free_name(_proposed_name(context)))
        if before and before.name != name:
            known.selected = name if known.selected == before.name else known.selected
            del known.by_name[before.name]
        known.by_name[name] = replace(context, name=name)
        known.selected = name if select or not known.selected else known.selected
        kept.append(known.by_name[name])

    change(stated, edit)
    return kept[0]


def _proposed_name(context: Context) -> str:
    return Path(context.folder).parent.name if context.folder else urlsplit(context.url).netloc


def select(name: str, stated: settings.Settings) -> None:
    """Select a context. Raises Misconfigured if the name is unknown."""

    def edit(known: Contexts) -> None:
        known.selected = known.named(name).name

    change(stated, edit)


def delete(name: str, stated: settings.Settings) -> None:
    """Delete a context. Its token stays where it is. Raises Misconfigured if the name is unknown."""

    def edit(known: Contexts) -> None:
        del known.by_name[known.named(name).name]

    change(stated, edit)


def delete_matching(matches: Callable[[Context], bool], stated: settings.Settings) -> None:
    """Delete the contexts for which `matches` returns True."""

    def edit(known: Contexts) -> None:
        known.by_name = {name: each for name, each in known.by_name.items() if not matches(each)}

    if any(map(matches, load(stated).by_name.values())):
        change(stated, edit)


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(stated: settings.Settings, url: str | None = None, name: str | None = None) -> Context:
    """Return the cluster to use: `url`, the context `name`, CLUSTER_URL, the own checkout, or the selected context.

    Raises NotRunning if this is a local cluster that is not running, and Misconfigured if nothing chooses a cluster.
    """
    if url and name is not None:
        raise Misconfigured("an address and a context cannot be combined; use one of them")
    if name is not None:
        return load(stated).named(name).current()
    if address := url or stated.coordinator_url.rstrip("/"):
        return of_address(address, stated)
    return of_own_checkout(stated) or _selected(stated)


def of_address(url: str, stated: settings.Settings) -> Context:
    """Return the cluster at an address, with the certificate authority that a stored context has for it."""
    plain = url.rstrip("/")
    known = _known(stated).of_cluster(plain)
    with suppress(ClientError):  # Another user owns the checkout
        joined = _own_membership(stated)
        known = joined if joined and joined.url == plain else known
    return Context(url, authority=known.authority if known else "")


def of_own_checkout(stated: settings.Settings) -> Context | None:
    """Return the cluster of the checkout that contains this client, or None if it has none.

    Raises NotRunning if a local cluster was started there before and is not running.
    """
    checkout = checkouts.own()
    if not checkout.url() and (joined := _own_membership(stated)):
        return joined
    if not checkout.has_cluster():
        return None
    known = _known(stated).of_cluster("", str(checkout.folder))
    name = known.name if known else valid_name(checkout.folder.parent.name)
    return Context(checkout.running_url(), name, str(checkout.folder))


def preferred(stated: settings.Settings, name: str) -> str:
    """Return a description of the cluster that takes precedence over a context, or an empty string if none does."""
    if stated.coordinator_url:
        return "CLUSTER_URL"
    checkout, context = checkouts.own(), load(stated).by_name.get(name)
    if context and (context.folder == str(checkout.folder) or context.url == checkout.url()):
        return ""
    joined = _own_membership(stated)
    if context and joined and joined.url == context.url:
        return ""
    return f"the cluster of the checkout {checkout.folder.parent}" if joined or checkout.has_cluster() else ""


def _own_membership(stated: settings.Settings) -> Context | None:
    """Return the cluster that the own checkout has joined, or None."""
    checkout = checkouts.own()
    url = checkout.membership().get("url", "")
    if not url:
        return None
    known = _known(stated).of_cluster(url)
    return Context(url, known.name if known else valid_name(urlsplit(url).netloc), "", checkout.authority())


def _known(stated: settings.Settings) -> Contexts:
    """Return the stored contexts. A file that cannot be used matters only if a context is chosen by its name."""
    try:
        return load(stated)
    except ClientError:
        return Contexts()


def _selected(stated: settings.Settings) -> Context:
    known = load(stated)
    if known.selected:
        return known.by_name[known.selected].current()
    if known.by_name:
        names = ", ".join(sorted(known.by_name))
        raise Misconfigured(f"no cluster is chosen; select a context with cluster context use NAME ({names})")
    raise Misconfigured(
        "no cluster is chosen; start a local cluster with ./deploy-cluster.sh local, log in with cluster login URL, or"
        " set CLUSTER_URL"
    )
