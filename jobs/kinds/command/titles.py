"""Titles of command jobs: the name of the function, script or program, and the number of units."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.kinds.program_arguments import text_of

#: Interpreters, whose first argument that is not an option names the script.
_INTERPRETERS = re.compile(r"(python|pypy|ruby|perl|node|lua|php)[0-9.]*|Rscript|julia|(ba|da|k|z)?sh")
#: Programs that run another program, which follows their options and variables.
_WRAPPERS = frozenset({"env", "exec", "nice", "nohup", "time"})
_OPTION_OR_VARIABLE = re.compile(r"-.*|[A-Za-z_]\w*=.*", re.DOTALL)
_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
#: Shell keywords that precede a command.
_KEYWORDS = frozenset({"!", "{", "do", "else", "if", "then", "until", "while"})
#: Shell commands that only prepare other commands.
_PREPARATIONS = frozenset({"", ".", ":", "case", "cd", "export", "for", "mkdir", "set", "source", "trap", "ulimit"})
#: Number of characters at the start of a shell text in which its first command is searched.
_SEARCHED = 4000


def title(parameters: Mapping[str, Any]) -> str:
    """Return the name of what the job runs, followed by the number of units if there are several."""
    command = parameters["command"]
    name = _shell_name(command) if isinstance(command, str) else _name([text_of(each) for each in command])
    units = parameters.get("count") or len(parameters.get("items") or ())
    return f"{name} × {units}" if int(units) > 1 else name


def _name(words: Sequence[str]) -> str:
    """Return the name of the function, script, module or program that a command line runs."""
    program = _file_name(words[0])
    if program in _WRAPPERS:
        rest = [word for word in words[1:] if not _OPTION_OR_VARIABLE.fullmatch(word)]
        return _name(rest) if rest else program
    return _script_name(program, words[1:]) if _INTERPRETERS.fullmatch(program) else program


def _script_name(interpreter: str, words: Sequence[str]) -> str:
    for at, word in enumerate(words):
        following = words[at + 1 :]
        if word == "-m" and following:
            return following[0]
        if word in ("-c", "-e", "-ec", "-lc") and following:
            if interpreter.endswith("sh"):
                return _shell_name(following[0])
            # The function that `cluster map` calls follows the code
            return following[1] if following[1:] and _FUNCTION.fullmatch(following[1]) else interpreter
        if not word.startswith("-"):
            return _file_name(word)
    return interpreter


def _shell_name(text: str) -> str:
    """Return the name of the first command in a shell text that does more than prepare others."""
    commands = [words for words in _commands(text[:_SEARCHED]) if _file_name(words[0]) not in _PREPARATIONS]
    return _name(commands[0]) if commands else "sh"


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the commands in a shell text as lists of words, without keywords and variables before them."""
    words: list[str] = []
    for word in [*_split(text), ";"]:
        if set(word) <= set("();|&\n"):
            if words:
                yield words
            words = []
        elif words or not (word in _KEYWORDS or _OPTION_OR_VARIABLE.fullmatch(word)):
            words.append(word)


def _split(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        return list(lexer)
    except ValueError:  # A quote is not closed
        return text.split()


def _file_name(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2]
