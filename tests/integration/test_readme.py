"""Tests every command of README.md and docs/quickstart.md on a real cluster with a CPU worker and a runner."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny_model
from tests.integration.live import TOP, Live

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TEXT = (TOP / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
#: `./deploy-cluster.sh local`, which tests/integration/test_local_cluster.py runs; this module uses `Live`.
START, HELLO, FILES, MODEL, RANGE = [text for language, text in BLOCKS if language == "sh"]
#: The page runs its commands in one shell. Blocks without a language start and stop the cluster.
QUICKSTART = "".join(
    re.findall(r"^```sh\n(.*?)^```", (TOP / "docs/quickstart.md").read_text(), re.MULTILINE | re.DOTALL)
)
[PYTHON] = [text for language, text in BLOCKS if language == "python"]
#: `cluster start` of an installation, which `make install-walk` runs, and a result.
INSTALL, RESULT = [text for language, text in BLOCKS if language == "text"]
TOKEN = "t" * 40


@pytest.fixture(scope="module")
def readme_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a coordinator that needs a token, a CPU worker and a runner."""
    folder = tmp_path_factory.mktemp("readme")
    with tempfile.TemporaryDirectory(prefix="runner-") as runner_folder:
        live = Live(folder, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", HOST_ID="host-0")
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_worker()
            live.start_runner(0, RUNNER_DIR=runner_folder)
            live.wait_ready(2)
            yield live
        finally:
            live.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the files that the commands use."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "logs").mkdir()
    for name in ("monday.log", "tuesday.log"):
        (folder / "logs" / name).write_text(name * 100)
    [function] = re.findall(r"`(def \w+\(n\)): (.+?)`, into `work\.py`", TEXT)
    (folder / "work.py").write_text("{}:\n    {}\n".format(*function))
    tiny_model.write(folder / "model.gguf")
    return folder


def environment(cluster: Live) -> dict[str, str]:
    return {
        "CLUSTER_URL": cluster.url(),
        "CLUSTER_TOKEN": TOKEN,
        "PYTHONPATH": str(TOP),
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
    }


def output(command: list[str], cluster: Live, folder: Path) -> str:
    finished = subprocess.run(
        command, cwd=folder, env=environment(cluster), capture_output=True, text=True, timeout=240, check=False
    )
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def shell(block: str, cluster: Live, folder: Path) -> str:
    """Return the output of a block of README.md. `set -e` makes any command's failure fail the block."""
    return output(["bash", "-ec", block.replace("http://127.0.0.1:3000", cluster.url())], cluster, folder)


def test_the_first_block_starts_a_local_cluster_with_a_runner() -> None:
    assert START == "./deploy-cluster.sh local\n"
    assert INSTALL.splitlines()[-1] == "cluster start"


def test_the_first_program_prints_hello(readme_cluster: Live) -> None:
    assert shell(HELLO, readme_cluster, TOP) == "hello\n"


def test_a_script_over_many_files_returns_their_outputs(readme_cluster: Live, folder: Path) -> None:
    shell(FILES, readme_cluster, folder)
    assert sorted(path.name for path in (folder / "logs").glob("*.gz")) == ["monday.log.gz", "tuesday.log.gz"]


def test_a_python_function_over_a_list_returns_its_values(readme_cluster: Live, folder: Path) -> None:
    printed = output([sys.executable, "-c", PYTHON], readme_cluster, folder)
    assert json.loads(printed) == [number**2 for number in range(100)]


def test_a_served_model_answers_a_chat(readme_cluster: Live, folder: Path) -> None:
    printed = shell(MODEL, readme_cluster, folder)
    assert json.loads(printed.splitlines()[-1])["choices"][0]["message"]["role"] == "assistant"


def test_a_kind_prints_its_result(readme_cluster: Live, folder: Path) -> None:
    assert shell(RANGE, readme_cluster, folder).startswith(RESULT.removesuffix("...\n"))


def test_the_quickstart_works(readme_cluster: Live, tmp_path: Path) -> None:
    printed = shell(QUICKSTART, readme_cluster, tmp_path)
    assert "hello from " in printed and "\n49\n" in printed
    assert "\n".join(str(number**2) for number in range(1, 11)) in printed
    assert re.search(r"count +1000000\n", printed)


def test_the_readme_stays_short() -> None:
    assert len(TEXT) <= 6000
