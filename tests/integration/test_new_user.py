"""Tests the first hour of a new user in a fresh clone. `make new-user-walk` also tests the installation."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from tests import kernels, tiny_model
from tests.integration.live import TOP
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux"),
]

#: Shell commands that give a new clone the packages and pages of this checkout. Its first start still runs the
#: installation, which finds every package.
PREPARATION = """
set -e
{python} -m venv --without-pip .venv
echo {packages} > "$(echo .venv/lib/python*/site-packages)/packages.pth"
pwd > .venv/place
mkdir -p web/node_modules
[ ! -d {top}/web/dist ] || cp -R {top}/web/dist web/dist
for stamp in web/node_modules/.pages-stamp web/node_modules/.pages-stamp.lock .venv/documentation.stamp; do
  [ ! -f {top}/$stamp ] || cp {top}/$stamp $stamp
done
"""


def test_a_new_user_gets_results_keeps_them_and_leaves_nothing(tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    tiny_model.write(tmp_path / "model.gguf")
    command = [str(TOP / "tests/integration/new_user.sh"), str(TOP), str(tmp_path / "model.gguf")]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    own = {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PORT": str(free_port()),
        # The python3 of pyenv is a script, which would take most of the time of 1,000 short programs.
        "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}",
        # On a machine without a Docker engine, no command needs one.
        "DOCKER_HOST": f"unix://{tmp_path}/no-docker",
    }
    if "INSTALL" not in os.environ:
        own["NUMBA_CACHE_DIR"] = str(kernels.CACHE)
        paths = {
            "python": sys.executable,
            "packages": sysconfig.get_path("purelib"),
            "top": str(TOP),
        }
        command.append(PREPARATION.format_map({name: shlex.quote(path) for name, path in paths.items()}))
    with subprocess.Popen(command, env={**inherited, **own}, start_new_session=True) as script:
        try:
            assert script.wait() == 0, "see the output of the script"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGTERM)
