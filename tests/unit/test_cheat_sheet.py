"""Tests that the commands and options of docs/cheat-sheet.md exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from threads_cluster.cli.main import commands

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cheat-sheet.md").read_text()
TYPED = sorted(set(re.findall(r"`((?:cluster|\./deploy-cluster\.sh) [^`]+)`", PAGE)) - {"cluster COMMAND --help"})


@pytest.mark.parametrize("typed", [each for each in TYPED if each.startswith("cluster ")])
def test_the_command_and_its_options_exist(typed: str) -> None:
    arguments = shlex.split(typed.partition(" -- ")[0])[1:]
    command: Any = commands()
    if arguments[0] in {option for parameter in command.params for option in parameter.opts}:
        del arguments[:2]
    while command.name != "submit" and arguments and arguments[0] in getattr(command, "commands", {}):
        command = command.commands[arguments.pop(0)]
    if command.name == "submit":
        return  # the cluster knows the options; tests/integration/test_coming_from.py runs such commands
    assert command.name != "main" and not getattr(command, "commands", None), f"{typed} names no command"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {each for each in arguments if each.startswith("-")} <= known


@pytest.mark.parametrize("typed", [each for each in TYPED if each.startswith("./")])
def test_the_script_has_the_command(typed: str) -> None:
    usage = subprocess.run([ROOT / "deploy-cluster.sh", "--help"], capture_output=True, text=True, check=True).stdout
    command, *options = [each for each in shlex.split(typed)[1:] if not each.isupper() and not each.isdigit()]
    assert re.search(rf"^  {command}\b", usage, re.MULTILINE)
    assert all(re.search(rf"^ +{option}\b", usage, re.MULTILINE) for option in options)
