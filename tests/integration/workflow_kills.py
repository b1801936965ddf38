"""A workflow under kills: `python -m tests.integration.workflow_kills KILLS [--seed N] [--redis 8]`.

Diamonds of programs with references, a foreach, an approval, an action that fails until it is retried. While it goes
on, the leading coordinator and Redis are each killed (-9) KILLS times at random moments, and for every five times the
leader is once stopped for 20 s. What comes of it must be what comes of it undisturbed: states, values, counts; each
action has one job, each job one end. When the workflow ends before all have been killed, it is submitted again.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx

from tests import fetch
from tests.integration.live import Live, until
from tests.redis_servers import VERSIONS, server_of
from tests.unit.workflow_bench import workflow_text

TOKEN = "t" * 40
ENDS = ("done", "failed", "cancelled")
#: Seconds within which a workflow must finish after the last kill.
PATIENCE_SECONDS = 120.0
#: Seconds that a leader is stopped: another one leads meanwhile, and this one believes for a moment that it still does.
FROZEN_SECONDS = 20.0
#: Number of diamonds in the workflow, and of items in its foreach.
LAYERS, ITEMS = 4, 5

#: Program that records its run, and returns the sum of its arguments plus one. The first argument is its name.
_SUM = (
    'echo "$CLUSTER_JOB_ID" >> {journal}; sleep 0.2; shift; s=1; for v in "$@"; do s=$((s+v)); done; '
    'echo $s > "$CLUSTER_RESULT"'
)


def text(folder: Path) -> str:
    """Return the workflow, whose programs record their runs in `folder`. One fails until the file `mended` exists."""
    script = _SUM.format(journal=folder / "journal")

    def program(name: str, *words: str, before: str = "", **more: str) -> str:
        given = ", ".join(f'"{word}"' for word in words)
        rest = "".join(f", {key}: {value}" for key, value in more.items())
        command = f"[sh, -c, '{script}', sh, {name}{', ' if given else ''}{given}]"
        return f"{name}, action_type: command, command: {command}, dependencies: [{before}]{rest}"

    actions = [program("first", "1")]
    last = "first"
    for layer in range(LAYERS):
        top, left, right, bottom = (f"{name}{layer}" for name in ("top", "left", "right", "bottom"))
        actions += [
            program(top, f"${{{last}.value}}"),
            program(left, "3", before=top),
            program(right, f"${{{top}.value}}", "4"),
            program(bottom, f"${{{left}.value}}", f"${{{right}.value}}"),
        ]
        last = bottom
    items = "[" + ", ".join(map(str, range(ITEMS))) + "]"
    numbers = (
        f"numbers, action_type: command, command: [sh, -c, 'echo \"{items}\" > $CLUSTER_RESULT'], dependencies: [top0]"
    )
    fails = f"test -e {folder / 'mended'} || exit 3"
    return workflow_text(
        *actions,
        numbers,
        program("each", "${item}", "${index}", foreach='"${numbers.value}"'),
        program("sum", *(f"${{each.results.{n}.value}}" for n in range(ITEMS))),
        f"flaky, action_type: command, command: [sh, -c, '{fails}'], dependencies: [top1]",
        program("behind", "1", before="flaky"),
        program("late", "${behind.value}"),
        program("tidy", "1", after_any="[behind]"),
        "ok, action_type: approve, dependencies: [left0]",
        f'publish, action_type: artifact_publish, name: under-kills, value: ["${{{last}.value}}", "${{sum.value}}"], '
        "dependencies: [ok]",
    )


#: Fields of a job that must be equal.
_FACTS = ("state", "done", "total")


@dataclass
class Outcome:
    """The parts of a workflow's outcome that must not depend on kills."""

    states: dict[str, str]
    errors: dict[str, str]
    #: States and numbers of units of the jobs, by action; of a foreach by ACTION/NUMBER.
    jobs: dict[str, tuple[str, ...]]
    published: Any
    counts: dict[str, int]


@dataclass
class Counts:
    """Counts and findings of a campaign."""

    workflows: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    #: Programs that ran a second time, since what they gave was not stored before their lease ended.
    repeated: int = 0
    findings: list[str] = field(default_factory=list)


class Strikes(threading.Thread):
    """Kills and stops leaders and Redis, in an order and at times determined by a seed."""

    def __init__(self, live: Live, kills: int, freezes: int, draw: random.Random, tally: Counts) -> None:
        super().__init__(name="strikes", daemon=True)
        self._live, self._draw, self._tally = live, draw, tally
        self._plan = [self._kill_leader] * kills + [self._kill_redis] * kills + [self._freeze_leader] * freezes
        draw.shuffle(self._plan)
        self._frozen: set[str] = set()
        self._thaws: list[threading.Timer] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for strike in self._plan:
                time.sleep(self._draw.uniform(0.1, 2.5))
                strike()
            for thawing in self._thaws:
                thawing.join()
        except BaseException as error:
            self.error = error

    def _leader(self) -> str:
        def leads() -> str:
            for number in range(len(self._live.ports)):
                name = f"coordinator-{number}"
                if name in self._live.processes and name not in self._frozen:
                    with suppress(httpx.HTTPError):
                        if re.search(r"^cluster_leader 1", self._live.metrics(number), re.MULTILINE):
                            return name
            return ""

        return str(until(leads, 60, every=0.05))

    def _kill_leader(self) -> None:
        leader = self._leader()
        self._live.kill(leader)
        self._note("coordinators killed")
        time.sleep(self._draw.uniform(0, 1.5))
        self._live.run_coordinator(int(leader[-1]))

    def _kill_redis(self) -> None:
        self._live.kill("redis")
        self._note("redis killed")
        time.sleep(self._draw.uniform(0, 1.5))
        self._live.start_redis()

    def _freeze_leader(self) -> None:
        if self._frozen:  # somebody must lead meanwhile
            for thawing in self._thaws:
                thawing.join()
        leader = self._leader()
        process = self._live.processes[leader]
        process.send_signal(signal.SIGSTOP)
        self._frozen.add(leader)
        self._note("coordinators stopped")

        def thaw() -> None:
            process.send_signal(signal.SIGCONT)
            self._frozen.discard(leader)

        self._thaws.append(threading.Timer(FROZEN_SECONDS, thaw))
        self._thaws[-1].start()

    def _note(self, what: str) -> None:
        self._tally.struck[what] += 1


class Campaign:
    """Submits the workflow again and again during the kills, and compares the outcomes."""

    def __init__(self, live: Live, folder: Path, tally: Counts) -> None:
        self._live, self._folder, self._tally = live, folder, tally
        self._text = text(folder)
        self._journal = folder / "journal"
        self._mended = folder / "mended"

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return the first response of any coordinator that does not indicate an outage."""

        def asked() -> httpx.Response | None:
            for number in range(len(self._live.ports)):
                with suppress(httpx.HTTPError):
                    headers = {**self._live.headers(), **more.get("headers", {})}
                    call = {**more, "headers": headers}
                    answer = fetch.request(method, self._live.url(number) + path, timeout=5, **call)
                    if answer.status_code not in (429, 503):
                        return answer
            return None

        return cast(httpx.Response, until(asked, PATIENCE_SECONDS, every=0.1))

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def play(self, key: str) -> Outcome:
        """Submit the workflow, and wait for its failure, its retry and its end."""
        self._mended.unlink(missing_ok=True)
        self._journal.write_text("")
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": key}
        answer = self.ask("POST", "/api/workflows", content=self._text.encode(), headers=headers)
        assert answer.status_code == 202, answer.text
        workflow = str(answer.json()["workflow_id"])
        failed = self._ended(workflow)
        if failed["state"] != "failed":
            self._tally.findings.append(f"{key}: it is {failed['state']} and not failed: {failed['counts']}")
        self._mended.touch()
        retried = self.ask("POST", f"/api/workflows/{workflow}/retry")
        assert retried.status_code in (200, 409), retried.text  # 409: the answer to a first call was lost
        return self._outcome(self._ended(workflow))

    def _ended(self, workflow: str) -> Any:
        def ended() -> Any:
            row = self.get(f"/api/workflows/{workflow}")
            if any(action["state"] == "approval" for action in row["actions"]):
                self.ask("POST", f"/api/workflows/{workflow}/actions/ok/approve")
            return row if row["state"] in ENDS else None

        return until(ended, PATIENCE_SECONDS + 10 * FROZEN_SECONDS, every=0.2)

    def _outcome(self, row: Any) -> Outcome:
        by_id = {action["action_id"]: action for action in row["actions"]}
        return Outcome(
            states={name: action["state"] for name, action in by_id.items()},
            errors={name: action["error"] for name, action in by_id.items() if action["error"]},
            jobs=self._jobs(row["workflow_id"], by_id),
            published=self._published(),
            counts=row["counts"],
        )

    def _jobs(self, workflow: str, by_id: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return the jobs of a workflow by action, from Redis: whoever else would say so is what is tested."""
        client = self._live.redis()
        found: dict[str, tuple[str, ...]] = {}
        began, ended = dict[str, int](), dict[str, int]()
        ran = Counter(self._journal.read_text().split())
        for job in client.zrange("ct:jobs", 0, -1):
            row = client.hmget(f"ct:job:{job.decode()}", "workflow", "action", "started", "ended", *_FACTS)
            of, name, start, end, *facts = ((value or b"").decode() for value in row)
            if of != workflow:
                continue
            if name in found:
                self._tally.findings.append(f"{name} of workflow {workflow} has two jobs, one of them {job.decode()}")
            found[name], action = tuple(facts), name.partition("/")[0]
            if start and end:  # of what was skipped or is still going on the states tell
                began[action] = min(began.get(action, int(start)), int(start))
                ended[action] = max(ended.get(action, 0), int(end))
            self._tally.repeated += max(0, ran[job.decode()] - 1)
        for action, start in began.items():
            for before in by_id[action]["dependencies"]:
                if ended.get(before, start) > start:
                    self._tally.findings.append(f"{action} of workflow {workflow} started before {before} had ended")
        return found

    def _published(self) -> Any:
        return self.get("/api/artifacts/under-kills")["artifact_id"]

    def totals(self) -> dict[str, int]:
        """Return the cluster's counts of finished jobs by outcome, and of units."""
        client = self._live.redis()
        return {
            f"{what} {name.decode()}": int(count)
            for what in ("ended", "units")
            for name, count in cast(dict[bytes, bytes], client.hgetall(f"ct:{what}")).items()
        }

    def compare(self, key: str, outcome: Outcome, wanted: Outcome) -> None:
        """Record where an outcome differs from the expected one."""
        for name in ("states", "errors", "jobs", "counts"):
            got, right = getattr(outcome, name), getattr(wanted, name)
            differing = {each: (got.get(each), right.get(each)) for each in {*got, *right}}
            if differing := {each: pair for each, pair in differing.items() if pair[0] != pair[1]}:
                self._tally.findings.append(f"{key}: {name} differ, (got, wanted): {differing}")
        if outcome.published != wanted.published:
            self._tally.findings.append(f"{key}: it published {outcome.published} and not {wanted.published}")


@contextmanager
def cluster(folder: Path, place: str, redis_server: str | None) -> Iterator[Live]:
    """Start two coordinators, and a runner with two slots that uses the first one."""
    live = Live(
        folder,
        workers=0,
        coordinators=2,
        redis_server=redis_server,
        CLUSTER_TOKEN=TOKEN,
        ARTIFACT_URL=f"file://{folder}/artifacts",
    )
    try:
        live.start_redis()
        live.start_coordinator(0)
        live.start_coordinator(1)
        live.start_runner(0, 2, RUNNER_DIR=place)
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


def run(kills: int, seed: int, *, freezes: int = 0, redis_server: str | None = None) -> Counts:
    """Run one campaign on its own cluster."""
    tally = Counts()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, tempfile.TemporaryDirectory(prefix="runner-") as place:
        for each in (folder, place):
            Path(each).chmod(0o711)
        notes = Path(folder) / "notes"
        notes.mkdir(mode=0o777)
        with cluster(Path(folder), place, redis_server) as live:
            _play(Campaign(live, notes, tally), Strikes(live, kills, freezes, random.Random(seed), tally), tally)
    return tally


def _play(campaign: Campaign, strikes: Strikes, tally: Counts) -> None:
    start = campaign.totals()
    wanted = campaign.play("undisturbed")
    after = campaign.totals()
    strikes.start()
    while strikes.is_alive() or not tally.workflows:
        tally.workflows += 1
        key = f"workflow {tally.workflows}"
        campaign.compare(key, campaign.play(key), wanted)
    strikes.join()
    if strikes.error:
        raise strikes.error
    each = {name: after[name] - start.get(name, 0) for name in after}
    right = {name: after[name] + tally.workflows * each[name] for name in after}
    if (got := campaign.totals()) != right:
        tally.findings.append(f"the cluster has counted {got}; right is {right}")


def main(given: Sequence[str]) -> int:
    """Run a campaign, print its statistics and findings, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.workflow_kills", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=10, help="of the leading coordinator, and of Redis")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redis", choices=VERSIONS, default="7")
    chosen = parser.parse_args(given)
    began = time.monotonic()
    tally = run(chosen.kills, chosen.seed, freezes=(chosen.kills + 4) // 5, redis_server=server_of(chosen.redis))
    struck = ", ".join(f"{count} {what}" for what, count in sorted(tally.struck.items()))
    print(
        f"seed {chosen.seed}, Redis {chosen.redis}: {tally.workflows} workflows in {time.monotonic() - began:.0f} s; "
        f"{struck}; {tally.repeated} programs ran again; {len(tally.findings)} findings"
    )
    print(*tally.findings, sep="\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
