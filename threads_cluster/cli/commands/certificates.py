"""The command `cluster verify-certificate`, which recomputes blocks of a Collatz search and compares them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, Session

#: Number of blocks that are recomputed by default.
_SAMPLE = 40
#: Programs that recompute blocks, by device.
_PROGRAMS = {"cpu": "jobs.worker.certificates", "gpu": "gpu_worker.certificates"}
#: Seconds between messages about the progress.
_REPORT_SECONDS = 5.0


class Forged(errors.ClientError):
    """The certificate differs from what this machine computes."""

    exit_code = errors.ALTERED


class NotRecomputed(errors.ClientError):
    """The program that recomputes blocks failed."""

    exit_code = errors.FAULT


def add_commands(app: typer.Typer) -> None:
    app.command("verify-certificate")(verify_certificate)


def verify_certificate(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(metavar="JOB|FILE", help="The job's ID, or a file written by cluster result --json."),
    ],
    block: Annotated[
        list[int] | None, typer.Option(min=0, metavar="NUMBER", help="Recompute this block. Can be repeated.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help=f"Recompute random blocks. Default: {_SAMPLE} blocks.")
    ] = None,
    all_blocks: Annotated[bool, typer.Option("--all", help="Recompute all blocks.")] = False,
    device: Annotated[
        Literal["cpu", "gpu"], typer.Option(help="Recompute on the CPUs or the first GPU of this machine.")
    ] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Recompute blocks of a Collatz search of mode frontier on this machine, and compare them with its certificate.

    On CPUs, uses all cores, or WORKER_THREADS of them. Exits with 1 if the certificate is wrong, and names the block.
    """
    if sum((bool(block), sample is not None, all_blocks)) > 1:
        raise errors.BadArgument("choose one of --block, --sample and --all")
    chosen = {} if all_blocks else {"blocks": block} if block else {"sample": sample or _SAMPLE}
    answers = recompute({"result": _load(ctx.obj, source), **chosen}, device)
    _report(source, answers, is_random=not block, as_json=as_json)


def _load(session: Session, source: str) -> Any:
    """Return the result of a job, or the result in a file."""
    file = Path(source)
    if not file.is_file() and "/" not in source and not file.suffix:
        return session.cluster.result(source)["result"]
    try:
        saved = json.loads(file.read_bytes())
    except ValueError:
        raise errors.BadArgument(f"{source} is not JSON; write it with: cluster result JOB --json > FILE") from None
    return saved.get("result", saved) if isinstance(saved, dict) else saved


def recompute(question: dict[str, Any], device: str = "cpu") -> Iterator[dict[str, Any]]:
    """Run the program that recomputes blocks on a device, and yield its lines."""
    from threads_cluster import installation

    server = installation.find_server(installs=False)
    python = server / ".venv" / "bin" / "python"
    if not python.is_file():
        error = errors.Misconfigured(f"this machine has no packages to compute with: {python} does not exist")
        error.next = "start a cluster once with ./deploy-cluster.sh local"
        raise error
    environment = {"NUMBA_CACHE_DIR": str(settings.LOCAL_FOLDER / "cache" / "numba")} | settings.environment()
    words = [str(python), "-m", _PROGRAMS[device]]
    with subprocess.Popen(
        words, cwd=server, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout  # both are pipes
        try:
            with suppress(BrokenPipeError):  # the program rejected its settings, and printed why
                json.dump(question, program.stdin)
                program.stdin.close()
            yield from map(json.loads, program.stdout)
        finally:
            program.terminate()  # it waits for its threads otherwise
    if program.returncode > 0:
        raise NotRecomputed(f"the program that recomputes blocks failed with exit code {program.returncode}")


def _report(source: str, answers: Iterator[dict[str, Any]], *, is_random: bool, as_json: bool) -> None:
    """Print how many blocks match. Raises Forged."""
    plan: dict[str, Any] = {}
    matching: list[int] = []
    shown = time.monotonic()
    for answer in answers:
        if "failed" in answer:
            raise errors.Misconfigured(answer["failed"])
        if "refused" in answer:
            raise _refusal(source, answer["refused"], is_partial=len(plan.get("chosen", ())) < plan.get("of", 0))
        if "matches" in answer:
            matching.append(answer["matches"])
        plan = plan or answer
        if time.monotonic() - shown >= _REPORT_SECONDS:
            shown = time.monotonic()
            show.say(f"{len(matching):,} of {len(plan['chosen']):,} blocks match so far")
    if not plan or len(matching) < len(plan["chosen"]):
        raise NotRecomputed("the program that recomputes blocks ended early")
    _print(plan, matching, is_random=is_random, as_json=as_json)


def _refusal(source: str, reason: str, *, is_partial: bool) -> Forged:
    error = Forged(f"{source}: {reason}")
    if is_partial and not reason.startswith("block"):
        error.next = f"find the wrong block with: cluster verify-certificate {source} --all"
    return error


def _print(plan: dict[str, Any], matching: list[int], *, is_random: bool, as_json: bool) -> None:
    count, total = len(matching), plan["of"]
    probability = count / total if is_random else None
    if as_json:
        show.json_line({"bits": plan["bits"], "matching": matching, "of": total, "probability": probability})
        return
    show.line(f"{count:,} of {total:,} blocks match")
    if count == total:
        show.line(f"every number from 1 to 2^{plan['bits']} - 1 reaches 1")
    elif is_random:
        show.line(f"a sample of this size finds one forged block with probability {probability:.2%}")
