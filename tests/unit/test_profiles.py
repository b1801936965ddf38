"""Tests profiles over HTTP on a real Redis: rejected requests, ownership, and the leader's handling of recordings."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.profiles.collection import SETTLE_MS, Collection
from jobs.store import keys
from jobs.store.profiles import PART_BYTES, Recording
from tests.unit.artifact_bench import Bench
from threads_cluster.cli import main as cli
from threads_cluster.cli import session
from threads_cluster.cli.commands import profile_commands
from threads_cluster.client import resource
from threads_cluster.errors import ApiError, BadArgument

HEAD = {
    "profile": 1,
    "id": "a" * 16,
    "host": "one",
    "hz": 10,
    "cores": 4,
    "devices": ["host:one"],
    "wall": 1000.0,
    "offset": 0,
}
ROWS = [HEAD, *({"t": number / 10, "cpu": number / 10, "m": 1 << 30} for number in range(101))]
DATA = gzip.compress("\n".join(map(json.dumps, ROWS)).encode())


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(any_redis_url, tmp_path / "store")
    yield made
    made.app.state.coordinator.cluster.store.client.close()
    made.close()


def begin(bench: Bench, name: str = "night", **more: Any) -> str:
    return str(bench.client.profiles.start(name, **more)["id"])


def recording(data: bytes = DATA, name: str = "w-1.1") -> Recording:
    return Recording(
        name=name,
        host="one",
        devices=("host:one",),
        samples=101,
        seconds=10.0,
        reason="stopped",
        size=len(data),
        sha=hashlib.sha256(data).hexdigest(),
    )


def send(bench: Bench, profile_id: str, data: bytes = DATA, said: Recording | None = None) -> str:
    """Report a recording once like a worker, and return what the response requests."""
    row = said or recording(data)
    wanted = bench.store.profiles.report(profile_id, "w-1", (), [row]).wanted[row.name]
    if wanted.isdigit():
        part = data[int(wanted) * PART_BYTES :][:PART_BYTES]
        bench.store.profiles.add_part(profile_id, "w-1", row.name, int(wanted), part)
    return wanted


def lead(bench: Bench) -> None:
    """Run one round of the leader."""
    Collection(bench.store, bench.trees).run_once()


def settled(bench: Bench, profile_id: str) -> None:
    """Let the time pass for which a leader waits for workers after the end."""
    bench.store.client.hincrby(keys.profile(profile_id), "collecting", -SETTLE_MS)


def brought(bench: Bench, name: str = "night", data: bytes = DATA) -> Any:
    """Return a finished profile with one recording."""
    profile_id = begin(bench, name)
    bench.client.profiles.stop(name)
    while send(bench, profile_id, data) != "kept":
        lead(bench)
    settled(bench, profile_id)
    lead(bench)
    return bench.client.profiles.get(name)


def test_what_comes_becomes_an_artifact_that_can_be_analysed(bench: Bench, tmp_path: Path) -> None:
    done = brought(bench)
    assert done["state"] == "done" and [row["state"] for row in done["recordings"]] == ["kept"]
    assert bench.client.artifacts.info("profile-night")["artifact_id"] == done["artifact_id"]
    found = bench.client.profiles.summary("night")
    assert found["name"] == "night" and found["devices"][0]["utilization"]["mean"] == pytest.approx(0.25)
    bench.client.profiles.delete("night")
    with pytest.raises(ApiError, match="no profile night"):
        bench.client.profiles.get("night")
    with pytest.raises(ApiError, match="artifact profile-night does not exist"):
        bench.client.artifacts.info("profile-night")


def test_a_recording_of_several_parts_comes_home_through_the_death_of_a_leader(bench: Bench) -> None:
    data = bytes(range(256)) * (PART_BYTES // 256) + b"and more"
    profile_id = begin(bench)
    bench.client.profiles.stop("night")
    assert send(bench, profile_id, data) == "0" and send(bench, profile_id, data) == "1"
    # It stored the first part and died before it recorded that.
    row = recording(data)
    bench.trees.transfers.put_part("default", row.sha, row.size, 0, data[:PART_BYTES])
    lead(bench)
    for number in range(2):  # the other died before it made the parts a file
        bench.store.profiles.keep_part(profile_id, row.name, number, row.sha)
    lead(bench)
    assert send(bench, profile_id, data) == "kept"


def test_bytes_that_are_not_what_was_said_are_asked_for_again(bench: Bench) -> None:
    profile_id = begin(bench)
    bench.client.profiles.stop("night")
    false = replace(recording(), sha="0" * 64)
    for _ in range(3):
        assert send(bench, profile_id, said=false) == "0"
        lead(bench)
    assert send(bench, profile_id, said=false) == "lost"
    settled(bench, profile_id)
    lead(bench)
    done = bench.client.profiles.get("night")
    assert (done["state"], done["artifact_id"], done["recordings"][0]["state"]) == ("done", None, "lost")


def test_a_tenant_without_room_is_told_and_its_recording_waits(bench: Bench) -> None:
    token = bench.token("small")
    bench.ask("PUT", "/api/tenants/small", {"weight": 1, "max_stored_bytes": 10})
    answer = bench.ask("POST", "/api/profiles", {"name": "night"}, token=token)
    profile_id = answer.json()["id"]
    bench.ask("POST", "/api/profiles/night/stop", token=token)
    send(bench, profile_id)
    lead(bench)
    settled(bench, profile_id)
    lead(bench)
    row = bench.ask("GET", "/api/profiles/night", token=token).json()
    assert row["state"] == "collecting" and "max_stored_bytes" in row["trouble"]
    assert brought(bench, "other")["state"] == "done", "another tenant's goes on beside it"
    bench.ask("PUT", "/api/tenants/small", {"weight": 1, "max_stored_bytes": 10**9})
    lead(bench)
    lead(bench)
    assert bench.ask("GET", "/api/profiles/night", token=token).json()["state"] == "done"


def test_a_profile_ends_with_its_time_and_with_its_job(bench: Bench) -> None:
    timed = begin(bench, "timed", seconds=1)
    job = bench.client.submit("collatz", {"start_number": 1, "number_count": 10**12})["job_id"]
    begin(bench, "job", job=job)
    lead(bench)
    assert {row["state"] for row in bench.client.profiles.list()} == {"recording"}
    bench.store.client.hset(keys.profile(timed), "until", 1)
    bench.client.cancel(job)
    lead(bench)
    assert {row["state"] for row in bench.client.profiles.list()} == {"collecting"}


def test_nobody_sees_or_stops_another_tenants(bench: Bench) -> None:
    begin(bench)
    token, reader = bench.token("other"), bench.token("default", "read")
    for method, path in (("GET", ""), ("POST", "/stop"), ("POST", "/recover"), ("DELETE", "")):
        assert bench.ask(method, f"/api/profiles/night{path}", token=token).status_code == 404
        assert bench.ask(method, f"/api/profiles/night{path}?tenant=default", token=token).status_code == 403
    assert bench.ask("GET", "/api/profiles", token=token).json() == {"profiles": []}
    assert bench.ask("POST", "/api/profiles/night/stop", token=reader).status_code == 403
    assert bench.client.profiles.get("night")["state"] == "recording"


def test_what_is_refused_names_its_field(bench: Bench) -> None:
    begin(bench)
    cases: list[tuple[Any, int, str]] = [
        ({"name": "night"}, 409, "name"),
        ({"name": "a/b"}, 422, "name"),
        ({"name": ".."}, 422, "name"),
        ({"name": "x" * 57}, 422, "name"),
        ({"name": "A"}, 422, "name"),
        ({}, 422, "name"),
        ({"name": "n", "hz": 0}, 422, "hz"),
        ({"name": "n", "hz": 101}, 422, "hz"),
        ({"name": "n", "hz": 9.5}, 422, "hz"),
        ({"name": "n", "seconds": 86_401}, 422, "seconds"),
        ({"name": "n", "hosts": ["nowhere"]}, 404, "hosts"),
        ({"name": "n", "hosts": ["a/b"]}, 422, "hosts"),
        ({"name": "n", "job_id": "none"}, 404, "job_id"),
        ({"name": "n", "what": 1}, 422, "what"),
    ]
    for body, status, field in cases:
        answer = bench.ask("POST", "/api/profiles", body)
        assert (answer.status_code, answer.json()["field"].partition(".")[0]) == (status, field), answer.text


def test_nan_is_no_number_of_samples(bench: Bench) -> None:
    answer = bench.ask(
        "POST", "/api/profiles", octets=b'{"name": "n", "hz": NaN}', **{"Content-Type": "application/json"}
    )
    assert 400 <= answer.status_code < 500 and bench.client.profiles.list() == []


def test_a_worker_over_http_claims_and_sends_as_one_with_redis(bench: Bench) -> None:
    body = {"name": "w-9", "scopes": ["worker"], "tenant": "default"}
    token = bench.ask("POST", "/api/tokens", body).json()["token"]
    profile_id = begin(bench)
    claim = {"profile_id": profile_id, "devices": ["host:one"], "recordings": []}
    assert bench.ask("POST", "/api/worker/report", claim, token=token).json()["answer"]["devices"] == ["host:one"]
    for wrong in ({"devices": ["disk:1"]}, {"profile_id": "x"}, {"recordings": [{"name": "../x"}]}):
        assert bench.ask("POST", "/api/worker/report", claim | wrong, token=token).status_code == 422
    part = {"profile_id": profile_id, "recording": "w-9.1", "number": 0, "data": "AAAA"}
    assert bench.ask("POST", "/api/worker/add-part", part, token=token).json() == {"answer": "gone"}
    assert bench.ask("POST", "/api/worker/add-part", part | {"data": "!"}, token=token).status_code == 422
    assert bench.ask("POST", "/api/worker/report", claim).status_code == 403


# -- the command ------------------------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the exit code, stdout and stderr of `cluster profile ...`."""
    monkeypatch.setattr(session.Session, "cluster", bench.client)

    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["profile", *map(str, arguments)])
        shown = capsys.readouterr()
        out = "".join(line for line in shown.out.splitlines(keepends=True) if "[info " not in line)
        return int(ended.value.code or 0), out, shown.err

    return ran


def test_a_profile_from_its_start_to_its_figures(run: Run, bench: Bench, tmp_path: Path) -> None:
    assert run("list") == (0, "", "No profiles. Start one with: cluster profile start\n")
    code, out, err = run("start", "dusk", "--hz", "25", "--for", "2m")
    assert code == 0 and out.startswith("dusk is recording 25 samples/s until ")
    assert err == "Stop it earlier with: cluster profile stop dusk\n"
    assert run("stop", "dusk", "--no-wait")[1] == "dusk collecting\n"
    brought(bench)
    code, out, err = run("status")
    assert code == 0 and out.splitlines()[0].split() == ["name", "night"] and " kept " in out
    code, out, err = run("analyze", "night")
    assert code == 0 and out.splitlines()[-1].split()[:4] == ["one", "101", "0", "25.0"]
    assert json.loads(run("analyze", "night", "--json")[1])["devices"][0]["samples"] == 101
    bench.client.profiles.fetch("night", tmp_path / "got")
    assert run("analyze", tmp_path / "got")[1] == out
    assert run("analyze", "--data", tmp_path / "got" / "w-1.1.jsonl.gz")[0] == 0
    assert run("recover") == (0, "", "No known recording is missing. Name a profile to search for unknown ones.\n")
    assert run("recover", "night")[1] == "night collecting\n"
    assert run("delete", "night") == (0, "night deleted\n", "")


def test_a_profile_without_a_name_is_named_after_the_time_and_can_be_stopped_without_a_name(
    run: Run, bench: Bench
) -> None:
    code, out, err = run("stop")
    assert (code, out) == (2, "") and "no profile is recording; start one with: cluster profile start" in err
    code, out, err = run("start", "--hz", "1")
    [row] = bench.client.profiles.list()
    assert code == 0 and out.startswith(f"{row['name']} is recording 1 samples/s"), err
    assert time.strptime(row["name"], "%Y-%m-%d-%H%M%S")
    bench.client.profiles.start("other")
    code, out, err = run("stop", "--no-wait")
    assert code == 2 and f"several profiles are recording: other, {row['name']}; stop one with" in err
    assert run("stop", "other", "--no-wait")[0] == 0
    assert run("stop", "--no-wait")[1] == f"{row['name']} collecting\n"


@pytest.fixture
def brings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a profile's recording arrive while a command waits for it."""

    def begin_to_bring(profile_id: str) -> None:
        def pause(_seconds: float) -> None:
            if send(bench, profile_id) == "kept":
                settled(bench, profile_id)
            lead(bench)

        monkeypatch.setattr(resource, "sleep", pause)

    return begin_to_bring


def test_what_was_stopped_can_be_analyzed_at_once(run: Run, bench: Bench, brings: Callable[[str], None]) -> None:
    """The analysis was once rejected while the profile was still being collected."""
    brings(begin(bench))
    code, out, err = run("stop", "night")
    assert (code, out) == (0, "night done\n") and "recordings have arrived" not in err, "it took no time"
    assert run("analyze", "night")[0] == 0


def test_a_profile_that_is_being_collected_is_waited_for(
    run: Run, bench: Bench, brings: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile_id = begin(bench)
    refused = run("analyze", "night")
    assert refused[0] == 2 and "night is still recording; stop it with: cluster profile stop night" in refused[2]
    assert run("stop", "night", "--no-wait")[1] == "night collecting\n"
    brings(profile_id)
    monkeypatch.setattr(profile_commands, "QUIET_SECONDS", 0.0)
    code, out, err = run("analyze", "night", "--json")
    assert code == 0 and json.loads(out)["devices"][0]["samples"] == 101
    assert "night is collecting: 0 of 0 recordings have arrived\n" in err


@pytest.mark.parametrize("command", ["stop", "analyze"])
def test_ctrl_c_while_a_profile_is_collected_says_how_to_go_on(
    run: Run, bench: Bench, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(bench)
    bench.client.profiles.stop("night")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(resource, "sleep", interrupt)
    code, out, err = run(command, "night")
    assert (code, out) == (130, "") and "cluster profile status night" in err
    assert bench.client.profiles.get("night")["state"] == "collecting"


def test_what_the_command_refuses(run: Run) -> None:
    cases: list[tuple[tuple[str, ...], str]] = [
        (("start", "n", "--hz", "0"), "--hz"),
        (("start", "n", "--hz", "nan"), "--hz"),
        (("start", "n", "--hz", "9.5"), "whole number"),
        (("start", "n", "--for", "x"), "--for"),
        (("start", "a/b"), "NAME"),
        (("stop", "none"), "no profile none; list them with cluster profile list"),
        (("analyze",), "must be the name of a profile"),
        (("analyze", "x", "--plot", "x.gif"), "must end with"),
        (("analyze", "no/such.jsonl"), "does not exist"),
        (("analyze", "none"), "no profile none"),
    ]
    for words, why in cases:
        code, out, err = run(*words)
        assert code == 2 and out == "" and why in err, (words, err)


def test_the_block_of_a_profile_stops_it_whatever_happens(bench: Bench) -> None:
    profile = bench.client.profile("block", hz=5)

    def fails() -> None:
        with profile:
            assert profile.status()["state"] == "recording"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert profile.status()["state"] == "collecting"
    with pytest.raises(BadArgument, match="is collecting"):
        bench.client.profiles.summary("block")
