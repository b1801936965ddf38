"""Fake Docker engine with Compose for tests of deploy-cluster.sh: `python3 fake_docker.py PORT_FILE` serves bench.bash.

Each test has a folder. state.json contains the engine's state, and calls contains one line per call. After each call, a
line `SERVICE COUNT` for each stateless service is appended to serving. The state's `refuse` lists calls that fail, as
[part of the call, exit code, message]. This is a server, because starting Python for each of thousands of calls would
take minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import socket
import sys
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

LABEL = "com.docker.compose."
SERVICES = ("redis", "coordinator", "cpu-worker", "web", "nginx", "prometheus", "grafana", "redis-exporter")
COUNTS = {
    "coordinator": ("COORDINATORS", 2),
    "web": ("WEBS", 2),
    "cpu-worker": ("CPU_WORKERS", 1),
    "gpu-worker": ("GPU_WORKERS", 0),
    "cpu-worker-pool": ("AUTOSCALE_MAX", 10),
}
#: Services of each Compose profile.
PROFILES = {
    "gpu": ["gpu-worker"],
    "autoscale": ["cpu-worker-pool", "engine-proxy", "autoscaler"],
    "runner": ["runner-token", "runner"],
}
PORTS = {
    "nginx": [("HTTP_PORT", 80), ("COORDINATOR_PORT", 3000)],
    "grafana": [("GRAFANA_PORT", 3001)],
    "prometheus": [("PROMETHEUS_PORT", 9091)],
}
STATELESS = ("coordinator", "web")
UNCHECKED = ("redis-exporter",)


class Refused(Exception):
    """The call fails with this message on stderr."""


def options(words: list[str], name: str) -> Iterator[str]:
    """Return the values of an option that can be repeated."""
    return (value for word, value in pairwise(words) if word == name)


def template(words: list[str], default: str) -> str:
    return next(options(words, "--format"), default).removeprefix("table ")


class Workers:
    """Cluster that needs `need` workers, one in each container; `busy` and `draining` contain the IDs of workers."""

    def __init__(self, state: dict[str, Any], containers: list[str]) -> None:
        self.state = state
        self.containers = containers

    def status(self) -> dict[str, Any]:
        return {"desired_workers": {} if self.state["need"] is None else {"cpu": self.state["need"]}}

    def workers(self) -> list[dict[str, Any]]:
        return [self.row(one) for one in self.containers]

    def row(self, container: str) -> dict[str, Any]:
        name, busy = f"{container[:12]}-7", container in self.state["busy"]
        draining = name in self.state["draining"]
        state = ("draining" if busy else "drained") if draining else ("busy" if busy else "idle")
        return {"id": name, "live": True, "draining": draining, "state": state, "busy_lanes": int(busy)}

    def drain(self, worker: str, on: bool) -> None:
        if on:
            self.state["draining"].append(worker)
        else:
            self.state["draining"].remove(worker)


class Engine:
    def __init__(self, folder: Path, where: Path, variables: dict[str, str], given: str) -> None:
        self.file = folder / "state.json"
        self.where = where
        self.env_file = where / ".env"
        self.variables = variables
        self.given = given
        self.said = ""
        self.state: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else start_state()
        self.containers: list[dict[str, Any]] = self.state["containers"]
        self.project = self.setting("COMPOSE_PROJECT_NAME", "threads")

    def setting(self, name: str, default: Any) -> str:
        lines = self.env_file.read_text().splitlines() if self.env_file.is_file() else []
        found = [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]
        return self.variables.get(name) or (found[-1] if found else "") or str(default)

    def save(self) -> None:
        self.file.write_text(json.dumps(self.state))

    # -- the project

    def services(self, profiles: list[str]) -> list[str]:
        wanted = [*profiles, *self.setting("COMPOSE_PROFILES", "").split(",")]
        on = [name for name in PROFILES if {name, "*"} & set(wanted)]
        return [*self.state["services"], *(service for name in on for service in PROFILES[name])]

    def replicas(self, service: str) -> int:
        name, default = COUNTS.get(service, ("", 1))
        return int(self.setting(name, default)) if name else 1

    def hash(self, service: str) -> str:
        return f"{service}-{self.state['hashes'].get(service, 'h1')}"

    def image(self, service: str) -> str:
        return self.state["images"].get(service, f"sha256:{service}-1")

    def of(self, *services: str) -> list[dict[str, Any]]:
        mine = [one for one in self.containers if one["project"] == self.project]
        return [one for one in mine if not services or one["service"] in services]

    def create(self, service: str, number: int, started: bool = True) -> None:
        self.state["made"] += 1
        secrets = {"cluster_token": "", "secrets_key": "", "redis.acl": ""}
        for path in (self.where / "secrets" / name for name in secrets):
            secrets[path.name] = path.read_text() if path.is_file() else ""
        healthy = "-" if service in UNCHECKED else self.state["health"].get(service, "healthy")
        self.containers.append(
            {
                "id": f"{self.state['made']:012x}{self.state['made']:052x}",
                "project": self.project,
                "service": service,
                "number": number,
                "folder": str(self.where),
                "state": "running" if started else "created",
                "health": healthy,
                "hash": self.hash(service),
                "image": self.image(service),
                "secrets": secrets,
                "ports": [int(self.setting(*port)) for port in PORTS.get(service, [])],
            }
        )
        if service == "redis":
            self.state["volumes"] = sorted({*self.state["volumes"], "redis-data"})

    # -- what Compose does

    def converge(self, service: str, count: int, recreate: bool, started: bool = True, force: bool = False) -> None:
        have = sorted(self.of(service), key=lambda one: one["number"])
        for one in have[count:]:
            self.containers.remove(one)
        for one in have[:count]:
            changed = one["hash"] != self.hash(service) or one["image"] != self.image(service)
            if recreate and (force or changed):
                self.containers.remove(one)
                self.create(service, one["number"], started)
            elif started and one["state"] in ("created", "exited"):
                one["state"] = "running"
        top = max([one["number"] for one in have], default=0)
        for number in range(top + 1, top + 1 + count - len(have)):
            self.create(service, number, started)

    def up(self, words: list[str]) -> None:
        scales = dict(part.split("=") for part in options(words, "--scale"))
        valued = {"--scale", "--wait-timeout"}
        named = [word for before, word in pairwise(["", *words]) if not word.startswith("-") and before not in valued]
        for service in named or self.services([]):
            if service not in self.services([]):
                raise Refused(f"no such service: {service}")
            count = int(scales.get(service, self.replicas(service)))
            self.converge(service, count, "--no-recreate" not in words, force="--force-recreate" in words)
        wait = "--wait" in words and [one for one in self.of(*named) if one["health"] == "unhealthy"]
        if wait and not self.state["swallow"]:
            raise Refused(f"container threads-{wait[0]['service']}-{wait[0]['number']} is unhealthy")

    def compose(self, words: list[str]) -> str:
        profiles = []
        while words[0] in ("--profile", "--env-file"):
            if words[0] == "--profile":
                profiles.append(words[1])
            else:
                self.env_file = Path(words[1])
            words = words[2:]
        verb, rest = words[0], words[1:]
        said = {"version": self.state["compose"], "build": "built", "logs": self.state["logs"]}
        if verb in said:
            return str(said[verb])
        if verb == "config":
            return self.config(rest, profiles)
        if verb == "up":
            self.up(rest)
        elif verb == "create":
            self.converge(rest[0], self.replicas(rest[0]), True, started=False)
        elif verb == "stop":
            for one in self.of(*rest):
                one["state"] = "exited"
        else:
            self.remove(verb, rest)
        return ""

    def remove(self, verb: str, words: list[str]) -> None:
        for one in self.of(*(word for word in words if not word.startswith("-")) if verb == "rm" else ()):
            self.containers.remove(one)
        if verb == "down":
            self.state["volumes"] = []

    def config(self, words: list[str], profiles: list[str]) -> str:
        if words[:1] == ["--services"]:
            return "\n".join(self.services(profiles))
        if words[:1] == ["--hash"]:
            return f"{words[1]} {self.hash(words[1])}"
        lines = [f"name: {self.project}", "services:"]
        for service in self.services(profiles):
            lines += [f"  {service}:", "    deploy:"]
            lines += [f"      replicas: {self.replicas(service)}"] * (service in COUNTS)
            lines += ["    environment:", f"      CLUSTER_TOKEN: {self.setting('CLUSTER_TOKEN', 'none')}"]
            lines += [f"    image: threads/{service}:1"]
        return "\n".join([*lines, "networks:", "  frontend:", "    name: threads_frontend"])

    # -- what docker does

    def shown(self, one: dict[str, Any], wanted: str) -> str:
        labels = {
            "project": one["project"],
            "service": one["service"],
            "container-number": str(one["number"]),
            "config-hash": one["hash"],
            "project.working_dir": one["folder"],
        }
        text = re.sub(r'\{\{[^{}]* "com\.docker\.compose\.([a-z._-]+)"\}\}', lambda m: labels[m[1]], wanted)
        text = re.sub(r"\{\{if \.State\.Health\}\}.*?\{\{end\}\}", one["health"], text)
        values = {
            ".Names": f"{one['project']}-{one['service']}-{one['number']}",
            ".Status": one["state"],
            ".ID": one["id"],
            ".State.Status": one["state"],
            ".Image": one["image"],
            ".Config.Image": f"threads/{one['service']}:1",
            ".Config.User": "999:999",
        }
        return re.sub(r"\{\{(\.[A-Za-z.]+)\}\}", lambda m: values[m[1]], text)

    def inspected(self, one: dict[str, Any], wanted: str) -> str:
        # Docker reads raw JSON for .Id. The JSON has no health for containers without a health check.
        if "{{.Id}}" in wanted and one["health"] == "-":
            raise Refused('template parsing error: map has no entry for key "Health"')
        return self.shown(one, wanted.replace(".Id", ".ID"))

    def ps(self, words: list[str]) -> str:
        found = [one for one in self.containers if {"-a", "--all", "-aq"} & set(words) or one["state"] == "running"]
        for wanted in options(words, "--filter"):
            found = [one for one in found if self.fits(one, wanted)]
        return "\n".join(self.shown(one, template(words, "{{.ID}}")) for one in found)

    def fits(self, one: dict[str, Any], wanted: str) -> bool:
        kind, _, value = wanted.partition("=")
        if kind == "publish":
            return int(value) in one["ports"] and one["state"] == "running"
        name, _, value = value.removeprefix(LABEL).partition("=")
        return {"project": one["project"], "service": one["service"], "oneoff": "False"}[name] == value

    def by_id(self, words: list[str]) -> list[dict[str, Any]]:
        return [one for one in self.containers if one["id"] in words]

    def info(self, words: list[str]) -> str:
        return {
            "{{.NCPU}}": str(self.state["ncpu"]),
            "{{.DockerRootDir}}": self.state["root"],
            "{{json .Runtimes}}": json.dumps({name: {} for name in self.state["runtimes"]}),
        }.get(words[-1], "")

    def execute(self, words: list[str]) -> str:
        words = [word for word in words if word != "-i"]
        [one] = self.by_id(words[:1])
        if words[1] == "cat":
            return str(one["secrets"][words[2].rpartition("/")[2]])
        if words[1:3] == ["python3", "-"]:
            if words[3:4] == ["dump"]:
                return str(self.state["audit"])
            if words[3:4] and words[3] in ("step", "look", "release"):
                return self.autoscale(words[3:])
            if words[3:4] == ["runner-1"]:
                return self.runner_token(*words[4:])
            status = {"json": json.dumps(self.state["api"], separators=(",", ":")), "text": "workers    3 live"}
            return str(status.get(words[-1], self.state["figures"]))
        if words[1:3] == ["sh", "-s"]:
            self.said = self.state["facts"]
            return self.state["dump"]
        return str(self.state["redis"])

    def runner_token(self, kept: str, labels: str) -> str:
        """Create a token unless the token `kept` has these labels, and record which runner containers exist."""
        if self.state["tokens"].get(kept) == labels:
            return ""
        self.state["tokens"] = {f"{len(self.state['tokens']):010d}": labels}
        self.state["before_token"] = [one["service"] for one in self.of("runner", "runner-token")]
        return f"tc_{next(iter(self.state['tokens']))}_{'secret-of-a-runner-' * 2}\n"

    def autoscale(self, words: list[str]) -> str:
        """Answer like the checkout's autoscale.py, for the workers of these containers."""
        module = runpy.run_path(str(self.where / "deploy" / "docker" / "autoscale.py"))
        said, refused = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(refused):
            code = module["main"](words, Workers(self.state, [one["id"] for one in self.of("cpu-worker")]))
        if code:
            raise Refused(refused.getvalue().strip())
        return said.getvalue()

    def run(self, words: list[str]) -> str:
        if "python3" in words:
            self.state["loaded_audit"] = self.given
            return str(self.state["audit_answer"])
        self.state["loaded"] = self.given
        if self.state["broken_dump"]:
            raise Refused("error: this is not a complete RDB file")
        return "keys 3"

    def answer(self, words: list[str]) -> str:
        verb, rest = words[0], words[1:]
        if verb == "inspect":
            return "\n".join(self.inspected(one, rest[1]) for one in self.by_id(rest))
        if verb == "image":
            return self.image(rest[-1].removeprefix("threads/").removesuffix(":1"))
        if verb in ("stop", "rm"):
            for one in self.by_id(rest):
                one["state"] = "exited"
                if verb == "rm":
                    self.containers.remove(one)
            return "\n".join(rest)
        if verb == "volume":
            shown = template(rest, "{{.Name}}")
            return "\n".join(shown.replace("{{.Name}}", f"{self.project}_{name}") for name in self.state["volumes"])
        if verb == "logs":
            return self.state["logs"]
        named = {
            "version": lambda _: self.state["engine"],
            "info": self.info,
            "ps": self.ps,
            "exec": self.execute,
            "run": self.run,
            "compose": self.compose,
        }
        return named[verb](rest) if verb in named else ""


def start_state() -> dict[str, Any]:
    return {
        "engine": "26.1.0",
        "compose": "2.26.1",
        "ncpu": 8,
        "runtimes": ["runc"],
        "root": "/",
        "services": list(SERVICES),
        "hashes": {},
        "images": {},
        "health": {},
        "containers": [],
        "volumes": [],
        "made": 0,
        "refuse": [],
        "swallow": False,
        "logs": "a line of a log",
        "figures": "p95 of the API 12 ms",
        "api": {"version": "0.1.0", "jobs": {"queued": 0, "running": 0, "done": 3}},
        "redis": "Valkey server v=8.1.8",
        "dump": "REDIS0011 a dump",
        "facts": "",
        "broken_dump": False,
        "loaded": "",
        "need": 1,
        "busy": [],
        "draining": [],
        "tokens": {},
        "before_token": [],
        "audit": "",
        "audit_answer": "put back",
        "loaded_audit": "",
    }


def answer(folder: Path, where: Path, variables: dict[str, str], words: list[str], given: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of a call."""
    engine = Engine(folder, where, variables, given)
    if words[0] == "set":  # for tests: set NAME JSON
        engine.state[words[1]] = json.loads(words[2])
        engine.save()
        return 0, "", ""
    if words[0] == "tell":  # for tests: tell EXPRESSION, where s is the state
        told = eval(words[1], {"s": engine.state})  # noqa: S307
        engine.save()
        return 0, f"{told}\n", ""
    call = shlex.join(["docker", *words])
    with (folder / "calls").open("a") as calls:
        calls.write(f"{call}\n")
    code, out = 0, ""
    refusal = next((one for one in engine.state["refuse"] if one[0] in call), None)
    try:
        out = engine.answer(words) if refusal is None else ""
    except Refused as refused:
        refusal = ["", 1, str(refused)]
    if refusal:
        code, engine.said = refusal[1], f"{refusal[2]}\n"
    engine.save()
    with (folder / "serving").open("a") as serving:
        for service in STATELESS:
            good = [one for one in engine.of(service) if one["state"] == "running" and one["health"] == "healthy"]
            serving.write(f"{service} {len(good)}\n")
    if out and words[0] != "exec" and not out.endswith("\n"):
        out += "\n"
    return code, out, engine.said


def serve_one(link: socket.socket) -> None:
    """Serve a call: number of fields, the test's folder, current folder, stream files, variables, --, words."""
    received = b""
    while (head := received.split(b"\0", 1))[1:] == [] or head[1].count(b"\0") < int(head[0]):
        piece = link.recv(65536)
        if not piece:
            return
        received += piece
    folder, where, files, *rest = received.decode().split("\0")[1:-1]
    split = rest.index("--")
    stdin = Path(f"{files}.in")
    given = stdin.read_bytes().decode() if stdin.exists() else ""
    stdin.unlink(missing_ok=True)
    variables = dict(entry.split("=", 1) for entry in rest[:split])
    try:
        code, out, err = answer(Path(folder), Path(where), variables, rest[split + 1 :], given)
    except Exception:
        code, out, err = 99, "", traceback.format_exc()
    Path(f"{files}.out").write_text(out)
    Path(f"{files}.err").write_text(err)
    link.sendall(f"{code}\n".encode())


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Path(sys.argv[1]).write_text(f"{server.getsockname()[1]}\n")
        while os.getppid() != 1:
            server.settimeout(60)
            try:
                link, _ = server.accept()
            except TimeoutError:
                continue
            with link:
                serve_one(link)


if __name__ == "__main__":
    main()
