"""The Lua scripts on one Redis: loaded from `lua/`, filled in, called by name.

Every script is atomic and idempotent and uses the server's clock, so a call may be repeated after a lost reply.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from jobs import metrics, queues
from jobs.store.acknowledgement import Acknowledgement
from jobs.store.connection import Client, NoScriptError, ResponseError
from jobs.store.pruning import Statement, needed, statements, words

LEASE_TTL_MS = 3000
#: Of leases of programs: what runs may be cut off for that long before others begin it again.
PROGRAM_TTL_MS = 30_000
SLOT_TTL_MS = 3000
#: Of claims to GPUs: of GPU workers, and of runners, whose programs may be suspended on them for ten minutes while the
#: runner is cut off. A runner that leaves or is born again loses its claims at once.
GPU_TTL_MS = 5000
PROGRAM_GPU_TTL_MS = PROGRAM_TTL_MS + 620_000
WORKER_TTL_MS = 5000
#: Spans that are kept: with fewer, none was dropped but for its age.
SPANS_KEPT = 20_000


#: First argument of a script that stands for several calls, and calls that are one at most: Redis does nothing else
#: meanwhile, for 2 to 5 ms.
CALLS, TOGETHER = "several calls", 32
#: Statements outside of a script's inner level, which names most of them: Lua lets a function name 60 from outside.
OUTER = 32

_FOLDER = Path(__file__).parent / "lua"


@dataclass(frozen=True)
class Limits:
    """Deaths of lanes after which a range is halved, errors after which it is given up, and what one RETRY moves."""

    expiries: int = 3
    errors: int = 3
    #: Ranges of a program, in a few milliseconds.
    retried: int = 1000


LIMITS = Limits()


@cache
def _sources(clock: str | None, values: tuple[tuple[str, int | str], ...]) -> dict[str, str]:
    """Return each script whole: the prelude with its @NAME@ filled in, the body, the ending."""
    texts = {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.lua"))}
    prelude = texts.pop("prelude").replace("@CLOCK@", clock or texts["clock"])
    texts.pop("clock")
    for name, value in values:
        prelude = prelude.replace(f"@{name}@", str(value))
        texts = {script: text.replace(f"@{name}@", str(value)) for script, text in texts.items()}
    parts = _Parts(prelude, texts.pop("tenancy"), texts.pop("caps"), texts.pop("ties"), texts.pop("rarely"))
    ending = texts.pop("ending").replace("@CALLS@", CALLS)
    return {name: parts.of(f"local function script(ARGV)\n{body}\nend\n{ending}") for name, body in texts.items()}


class _Parts:
    """Parts that scripts share. Each gets what it needs: a call makes all of its script's functions anew."""

    def __init__(self, prelude: str, tenancy: str, caps: str, ties: str, rarely: str) -> None:
        self.prelude, self.tenancy, self.ties = statements(prelude), statements(tenancy), statements(ties)
        #: The one statement of caps.lua.
        self.caps = Statement(caps[caps.index("function") :])
        self.rarely, self.uses_rarely = rarely, words(rarely)
        self.pool = [*self.prelude, *self.tenancy, self.caps, *self.ties]

    def of(self, script: str) -> str:
        """Return a script with its parts. Those that mostly nobody needs are made by a call that does."""
        often = needed(self.pool, words(script))
        ever = needed(self.pool, words(script) | self.uses_rarely)
        prelude = [one.text for one in self.prelude if one in often]
        outer = min(len(prelude) // 2, OUTER)
        lines = [
            "local rarely, several, tenancy, further_caps, T, ties, K",
            *prelude[:outer],
            # Lua looks for a local that a function names through all that functions of the same level have named: with
            # two levels, making the functions takes a third of the time.
            "return (function()",
            *prelude[outer:],
            *self._tenancy(often),
            *self._ties(often),
            "function rarely()",
            *(one.text for one in self.prelude if one in ever and one not in often),
            self.rarely,
            *self._tenancy(ever),
            *self._ties(ever),
            "if T then T = tenancy() end",
            "if K then K = ties() end",
            "end",
            script,
            "end)()",
        ]
        return "\n".join(lines)

    def _tenancy(self, wanted: Set[Statement]) -> list[str]:
        functions = [one.text for one in self.tenancy if one in wanted]
        caps = [self.caps.text] if self.caps in wanted else []
        return ["function tenancy()", *functions, "return T", "end", *caps]

    def _ties(self, wanted: Set[Statement]) -> list[str]:
        return ["function ties()", *(one.text for one in self.ties if one in wanted), "return K", "end"]


class Scripts:
    """Calls of the scripts over one client.

    `replicas` of Redis must have what `kept` writes. `clock` (Lua text defining now()) and `limits` are replaced
    by tests only.
    """

    def __init__(
        self, client: Client, *, replicas: int = 0, clock: str | None = None, limits: Limits = LIMITS
    ) -> None:  # fmt: skip
        self.client = client
        self.replicas = replicas
        bounds = ", ".join(str(bound) for bound in metrics.SECONDS)
        names = ", ".join(f"'{name}'" for name in queues.ALL)
        values: dict[str, int | str] = {
            "MAX_EXPIRIES": limits.expiries, "MAX_ERRORS": limits.errors, "RETRIED": limits.retried, "BOUNDS": bounds,
            "QUEUES": names, "LEASE_TTL": LEASE_TTL_MS, "PROGRAM_TTL": PROGRAM_TTL_MS,
            "KERNEL_CLAIM_TTL": GPU_TTL_MS, "PROGRAM_CLAIM_TTL": PROGRAM_GPU_TTL_MS,
            "SLOT_TTL": SLOT_TTL_MS, "WORKER_TTL": WORKER_TTL_MS, "SPANS": SPANS_KEPT,
        }  # fmt: skip
        sources = _sources(clock, tuple(values.items()))
        self._scripts = {name: client.register_script(text) for name, text in sources.items()}

    def names(self) -> list[str]:
        """Return the names of all scripts."""
        return list(self._scripts)

    def sha(self, name: str) -> str:
        """Return the SHA-1 by which Redis knows a script."""
        return str(self._scripts[name].sha)

    def load(self, name: str) -> str:
        """Put a script into Redis and return its SHA-1."""
        return str(self.client.script_load(self._scripts[name].script))

    def run(self, name: str, *arguments: Any) -> Any:
        """Call a script and return its reply."""
        script = self._scripts[name]
        try:
            return self.client.execute_command("EVALSHA", script.sha, 0, *arguments)
        except NoScriptError:
            # Both in one packet: the server may forget it again between two calls. A full one would refuse MULTI.
            _, reply = self._pipelined(script.sha, [arguments], None, load=script.script)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def words(self, name: str, *arguments: Any) -> list[str]:
        """Call a script and return its reply, a list, as text."""
        return _texts(self.run(name, *arguments))

    def kept(self, name: str, *arguments: Any, repeatable: bool = True) -> Any:
        """Call a script and return its reply once `replicas` have what it wrote. Raises Unacknowledged.

        `repeatable`: the reply may speak of what an earlier call wrote, which replicas must then have, too.
        """
        asked = Acknowledgement(replicas=self.replicas, repeatable=repeatable)
        if not asked:
            return self.run(name, *arguments)
        [reply] = self.many(name, [arguments], asked)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def kept_words(self, name: str, *arguments: Any) -> list[str]:
        """Do the same and return the reply, a list, as text."""
        return _texts(self.kept(name, *arguments))

    def many(
        self,
        name: str,
        calls: Sequence[Sequence[Any]],
        asked: Acknowledgement | None = None,
        weights: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call one script many times in one round trip, TOGETHER at once. An error stands in the place of its reply.

        `weights`: for how many calls each stands. Raises Unacknowledged when what is `asked` for lacks the writes.
        """
        groups = _grouped(calls, weights or [1] * len(calls))
        script, joined = self._scripts[name], [_joined(group) for group in groups]
        alone = len(joined) == 1 and not asked
        replies = self._one(script.sha, joined[0]) if alone else self._pipelined(script.sha, joined, asked)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # A server knows the scripts that were loaded there: a replica that has become the master knows none.
            _, *replies = self._pipelined(script.sha, joined, asked, load=script.script)
        if asked and not all(isinstance(reply, Exception) for reply in replies[: len(groups)]):
            asked.check(replies[-1])
        return [
            each for group, reply in zip(groups, replies[: len(groups)], strict=True) for each in _apart(group, reply)
        ]

    def _one(self, sha: str, arguments: Sequence[Any]) -> list[Any]:
        """Make one call, which costs a pipeline twice the CPU; an error stands in the place of its reply."""
        try:
            return [self.client.execute_command("EVALSHA", sha, 0, *arguments)]
        except ResponseError as error:
            return [error]

    def _pipelined(
        self, sha: str, calls: Sequence[Sequence[Any]], asked: Acknowledgement | None, load: str = ""
    ) -> list[Any]:
        pipe = self.client.pipeline(transaction=False)
        if load:
            pipe.script_load(load)
        for arguments in calls:
            pipe.evalsha(sha, 0, *arguments)
        if asked:
            asked.ask(pipe)
        return cast(list[Any], pipe.execute(raise_on_error=False))

    def read(self, *commands: Sequence[str]) -> list[Any]:
        """Return replies of commands that only read, all at one moment, in a full Redis too. Raises the first error."""
        replies = self.replies(*commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def replies(self, *commands: Sequence[str]) -> list[Any]:
        """Return the same, with the errors in their places."""
        return cast(list[Any], self.run("read", json.dumps(commands)))


def _texts(reply: Sequence[Any]) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in reply]


def _grouped(calls: Sequence[Sequence[Any]], weights: Sequence[int]) -> list[Sequence[Sequence[Any]]]:
    """Return the calls in groups that weigh at most TOGETHER, but for one that weighs more by itself."""
    groups: list[list[Sequence[Any]]] = []
    room = 0
    for call, weight in zip(calls, weights, strict=True):
        if weight > room or not groups:
            groups.append([])
            room = TOGETHER
        groups[-1].append(call)
        room -= weight
    return list(groups)


def _joined(group: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the arguments of one call that stands for the calls of a group."""
    if len(group) == 1:
        return group[0]
    return [CALLS, *(argument for call in group for argument in (len(call), *call))]


def _apart(group: Sequence[Sequence[Any]], reply: Any) -> Sequence[Any]:
    """Return the replies of the calls of a group. What refuses the whole refuses each."""
    if len(group) == 1 or isinstance(reply, Exception):
        return [reply] * len(group)
    return cast(list[Any], reply)


class Part:
    """One subject of a Store. All parts share its scripts and its client."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @property
    def _client(self) -> Client:
        return self._scripts.client

    def _pipe(self) -> Any:
        """Return a pipeline without MULTI, which a full Redis refuses."""
        return self._client.pipeline(transaction=False)
