"""Names in the Lua of the library: which are locals, which fields, and which nothing in the file declares.

Enough of the grammar of Lua 5.1 to tell these apart, since Lua itself finds a misspelled name only when it is used.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "jobs" / "store" / "lua"
#: Functions and tables of Lua and Redis that the library uses.
OFFERED = frozenset(
    [
        "cjson",
        "collectgarbage",
        "error",
        "ipairs",
        "math",
        "next",
        "pairs",
        "pcall",
        "rawget",
        "redis",
        "setmetatable",
        "string",
        "table",
        "tonumber",
        "tostring",
        "type",
        "unpack",
    ]
)
#: What jobs/store/server/library.py puts before the files, and the files that all others see.
GIVEN, SHARED = ("LIBRARY", "SETTINGS"), ("library", "clock")
_KEYWORDS = frozenset(
    [
        "and",
        "break",
        "do",
        "else",
        "elseif",
        "end",
        "false",
        "for",
        "function",
        "if",
        "in",
        "local",
        "nil",
        "not",
        "or",
        "repeat",
        "return",
        "then",
        "true",
        "until",
        "while",
    ]
)
_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<string>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.])"
)
_BINARY = frozenset(["+", "-", "*", "/", "^", "%", "..", "<", "<=", ">", ">=", "==", "~=", "and", "or"])
_ENDS = frozenset(("", "end", "else", "elseif", "until"))


@dataclass
class Definition:
    """A function at the top level of a file, with the names that it uses."""

    name: str
    text: str
    #: Of other functions of the library: `Subject.name`, or a plain name of this file or of the shared ones.
    uses: set[str] = field(default_factory=set)


@dataclass
class Names:
    """Names of a file."""

    file: str
    definitions: dict[str, Definition] = field(default_factory=dict)
    #: Locals at the top level.
    declared: set[str] = field(default_factory=set)
    #: Names that the file does not declare, with the lines where they are used.
    free: list[tuple[str, int]] = field(default_factory=list)
    #: `Subject.name` wherever it is used or defined.
    used: list[tuple[str, int]] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    #: Names on the server, each with the function that it calls and its flag.
    registered: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int
    at: int


def _tokens(text: str) -> list[Token]:
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match and match.lastgroup, f"line {line}: {text[at : at + 20]!r} is no Lua"
        kind = "keyword" if match[0] in _KEYWORDS else match.lastgroup
        if kind != "space":
            found.append(Token(kind, match[0], line, at))
        line += match[0].count("\n")
        at = match.end()
    return found


class _Reader:
    """Reads a file, and keeps which scopes are open."""

    def __init__(self, file: str, text: str) -> None:
        self.names = Names(file)
        self._text = text
        self._left = deque([*_tokens(text), Token("end", "", text.count("\n"), len(text))])
        self._scopes: list[set[str]] = [set()]
        self._current: Definition | None = None
        self._block()
        self.names.declared = self._scopes[0]

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _next(self, text: str = "") -> Token:
        token = self._left.popleft()
        assert text in ("", token.text), f"{self.names.file}:{token.line}: {token.text!r} instead of {text!r}"
        return token

    def _is(self, *texts: str) -> bool:
        return self._left[0].kind != "string" and self._left[0].text in texts

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._next()
            return True
        return False

    def _use(self, token: Token) -> None:
        known = any(token.text in scope for scope in self._scopes[1:])
        if self._current and not known:
            self._current.uses.add(token.text)
        if not known and token.text not in self._scopes[0]:
            self.names.free.append((token.text, token.line))

    # -- statements -------------------------------------------------------------------------------------------------

    def _block(self) -> None:
        while not self._is(*_ENDS):
            if self._accept("return"):
                if not self._is(*_ENDS, ";"):
                    self._expressions()
                self._accept(";")
                return
            self._statement()
            self._accept(";")

    def _scoped(self, names: set[str] | None = None) -> None:
        self._scopes.append(names or set())
        self._block()
        self._scopes.pop()

    def _statement(self) -> None:
        word = self._left[0].text
        read = getattr(self, f"_{word}", None) if self._left[0].kind == "keyword" else None
        if read:
            self._next()
            read()
        else:
            self._assignment_or_call()

    def _local(self) -> None:
        if self._accept("function"):
            begun = self._next()
            self._scopes[-1].add(begun.text)
            self._function_named(begun.text, begun)
            return
        names = [self._next().text]
        while self._accept(","):
            names.append(self._next().text)
        if self._accept("="):
            self._expressions()
        self._scopes[-1].update(names)

    def _function(self) -> None:
        begun = self._next()
        name = begun.text
        if self._accept("."):
            name = f"{name}.{self._next().text}"
            self.names.defined.add(name)
        self._function_named(name, begun)

    def _function_named(self, name: str, begun: Token) -> None:
        outer = self._current
        if outer is None:
            self._current = self.names.definitions[name] = Definition(name, "")
        self._body()
        if outer is None and self._current:
            self._current.text = self._text[begun.at : self._left[0].at]
        self._current = outer

    def _if(self) -> None:
        self._expression()
        self._next("then")
        self._scoped()
        while self._accept("elseif"):
            self._if_tail()
        if self._accept("else"):
            self._scoped()
        self._next("end")

    def _if_tail(self) -> None:
        self._expression()
        self._next("then")
        self._scoped()

    def _while(self) -> None:
        self._expression()
        self._next("do")
        self._scoped()
        self._next("end")

    def _for(self) -> None:
        names = [self._next().text]
        while self._accept(","):
            names.append(self._next().text)
        self._next()  # = or in
        self._expressions()
        self._next("do")
        self._scoped(set(names))
        self._next("end")

    def _do(self) -> None:
        self._scoped()
        self._next("end")

    def _break(self) -> None:
        pass

    def _assignment_or_call(self) -> None:
        subject = self._suffixed()
        while self._accept(","):
            self._suffixed()
        if self._accept("="):
            if subject:
                self.names.defined.add(subject)
            self._expressions()

    def _body(self) -> None:
        self._next("(")
        names = set()
        while not self._accept(")"):
            names.add(self._next().text)
            self._accept(",")
        self._scoped(names)
        self._next("end")

    # -- expressions ------------------------------------------------------------------------------------------------

    def _expressions(self) -> None:
        self._expression()
        while self._accept(","):
            self._expression()

    def _expression(self) -> None:
        while True:
            while self._is("not", "-", "#"):
                self._next()
            self._simple()
            if not self._is(*_BINARY):
                return
            self._next()

    def _simple(self) -> None:
        if self._left[0].kind in ("number", "string") or self._is("nil", "true", "false", "..."):
            self._next()
        elif self._accept("function"):
            self._body()
        elif self._is("{"):
            self._table()
        else:
            self._suffixed()

    def _suffixed(self) -> str:
        """Read a name with what follows it; return it if it is `Subject.name` alone."""
        subject = self._primary()
        path = []
        while True:
            if self._accept("."):
                path.append(self._next())
                if len(path) == 1 and _is_subject(subject):
                    self._use_of_subject(f"{subject}.{path[0].text}", path[0])
            elif self._accept("["):
                self._expression()
                self._next("]")
                path.append(Token("", "", 0, 0))
            elif self._is("("):
                self._arguments()
                self._name_registered(subject)
            else:
                return f"{subject}.{path[0].text}" if _is_subject(subject) and len(path) == 1 else ""

    def _primary(self) -> str:
        if self._accept("("):
            self._expression()
            self._next(")")
            return ""
        token = self._next()
        assert token.kind == "name", f"{self.names.file}:{token.line}: unexpected {token.text!r}"
        self._use(token)
        return token.text

    def _use_of_subject(self, name: str, token: Token) -> None:
        self.names.used.append((name, token.line))
        if self._current:
            self._current.uses.add(name)

    def _arguments(self) -> None:
        self._next("(")
        if not self._is(")"):
            self._expressions()
        self._next(")")

    def _table(self) -> None:
        self._next("{")
        while not self._accept("}"):
            if self._accept("["):
                self._expression()
                self._next("]")
                self._next("=")
            elif self._left[0].kind == "name" and self._left[1].text == "=":
                self._next()
                self._next("=")
            self._expression()
            self._accept(",")

    def _name_registered(self, called: str) -> None:
        if called == "register" and self.names.file not in SHARED:
            table = self._text[: self._left[0].at].rpartition("register(")[2]
            for name, function, flag in re.findall(r"\{ '(\w+)', (\w+)(?:, '([a-z-]+)')? \}", table):
                self.names.registered[name] = (function, flag)


def _is_subject(name: str) -> bool:
    return name[:1].isupper() and not name.isupper() and name != "State"


@cache
def files() -> dict[str, Names]:
    """Return the names of each file of the library."""
    return {path.stem: _Reader(path.stem, path.read_text()).names for path in sorted(FOLDER.glob("*.lua"))}


def registered() -> dict[str, str]:
    """Return the functions of the library by their names on the server, each with its flag."""
    return {name: flag for names in files().values() for name, (_, flag) in names.registered.items()}


def reached(name: str) -> list[Definition]:
    """Return the definitions that a function of the library may call, itself included, wherever they are."""
    file, handler = next((each, of.registered[name][0]) for each, of in files().items() if name in of.registered)
    found: dict[tuple[str, str], Definition] = {}
    left = [(file, handler)]
    while left:
        place = left.pop()
        definition = _definition(*place)
        if definition and place not in found:
            found[place] = definition
            left += [_place(place[0], used) for used in definition.uses]
    return list(found.values())


def _place(file: str, used: str) -> tuple[str, str]:
    """Return the file that defines a name which another one uses."""
    candidates = [file, *SHARED, *(each for each, names in files().items() if used in names.defined)]
    return next(((each, used) for each in candidates if used in files()[each].definitions), (file, used))


def _definition(file: str, name: str) -> Definition | None:
    return files()[file].definitions.get(name)
