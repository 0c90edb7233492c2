# SPDX-License-Identifier: Apache-2.0
"""Mangled names of kernels as people read them: `native::vectorized_elementwise_kernel<CUDAFunctor_add, …>`.

No demangler runs here: whoever launches a kernel chose its name, and this process has privileges. One pass
over at most 240 characters finds the function's own name, the namespace before it and the first template
argument that has a name of its own; the rest is elided. What it cannot read it shows as it is, or elides.
"""

from __future__ import annotations

import re
from contextlib import suppress

from hotstage.text import clean_name

LIMIT = 120
"""Characters of a shown name."""
_PART_LIMIT = 72
_DEPTH_LIMIT = 32
_ANONYMOUS = "_GLOBAL__N_"
_SUBSTITUTION = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_NUMBER = re.compile(r"[0-9]+")
_FLOAT = re.compile(r"DF[0-9]+[_bx]?")
_LAMBDA_END = re.compile(r"E?[0-9]*_")
_QUALIFIERS = "PROKVrCG"
_BUILT_IN = "vwbcahstijlmxynofdegz"
_SHORT_STD = "absiod"
"""After an S: std::allocator, basic_string, string, istream, ostream, iostream."""


def short_name(raw: bytes) -> str:
    """What a kernel is called, printable ASCII but for `…`, at most LIMIT characters; empty for no name."""
    text = clean_name(raw)
    if not text.startswith("_Z"):
        return _cut(text, LIMIT)
    reader = _Reader(text, 2)
    with suppress(_UnreadableError):  # what was read until then stands
        reader.read_function()
    if not reader.parts:
        return _cut(text, LIMIT)
    shown = "::".join(_cut(part, _PART_LIMIT) for part in reader.parts[-2:])
    if reader.is_template:
        shown += f"<{_cut(reader.telling, _PART_LIMIT)}, …>" if reader.telling else "<…>"
    return _cut(shown, LIMIT)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _UnreadableError(Exception):
    """Here the name is cut short, or of a form that is not read."""


class _Reader:
    """Names by the Itanium C++ ABI, "External names". Each step takes at least one character."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._depth = 0
        self._names: list[str] = []
        self.parts: list[str] = []
        """Of the function's own name, outermost first; without anonymous namespaces."""
        self.is_template = False
        self.telling = ""
        """The first template argument that is a named type outside of `std`, or that is local to a function:
        then that one's name.
        """

    def read_function(self) -> None:
        if self._takes("N"):
            while self._next() in _QUALIFIERS:
                self._at += 1
            while not self._takes("E"):
                self._component()
            return
        while self._peek() == "L" or self._text.startswith("St", self._at):
            self._component()
        self._component()
        if self._peek() == "I":
            self._component()

    def _component(self) -> None:
        char = self._next()
        if char.isdigit():
            self._add_part(self._source_name())
        elif self._takes("St"):
            self._add_part("std")
        elif char == "L":  # of internal linkage
            self._at += 1
        elif char == "I":
            self.is_template = True
            self._arguments()
        else:
            self._substitution()

    def _add_part(self, name: str) -> None:
        self.is_template, self.telling = False, ""
        if name and not name.startswith(_ANONYMOUS):
            self.parts.append(name)

    def _arguments(self) -> None:
        """From `I` or `J` to its E."""
        self._at += 1
        self._deeper()
        try:
            while not self._takes("E"):
                self._argument()
        finally:
            self._depth -= 1

    def _argument(self) -> None:
        if self._next() == "J":
            self._arguments()
        elif self._next() == "L":
            self._literal()
        else:
            self._names.append("")
            try:
                self._type()
            finally:  # a name that is cut short behind it is known all the same
                name = self._names.pop()
                if self._depth == 1 and name and not self.telling:
                    self.telling = name

    def _literal(self) -> None:
        self._at += 1
        if self._next() == "_":  # of a function: a mangled name of its own
            raise _UnreadableError
        self._type()
        end = self._text.find("E", self._at)
        if end < 0:
            raise _UnreadableError
        self._at = end + 1

    def _type(self) -> None:
        """Leaves its own name in `_names`, where it is no built-in one, none of `std` and no repeated one."""
        self._deeper()
        try:
            char = self._next()
            while char in _QUALIFIERS:
                self._at += 1
                char = self._next()
            self._plain_type(char)
        finally:
            self._depth -= 1

    def _plain_type(self, char: str) -> None:
        if self._takes("N"):
            self._nested()
        elif char.isdigit():
            self._note(self._source_name())
            self._own_arguments()
        elif self._takes("St"):
            self._source_name()
            self._own_arguments()
        elif char == "S" and self._text[self._at + 1 : self._at + 2] in _SHORT_STD:
            self._at += 2
            self._own_arguments()
        elif char in "ST":
            self._substitution()
            self._own_arguments()
        elif char == "Z":
            self._local()
        elif char in "DAFM":
            self._compound(char)
        elif char in _BUILT_IN:
            self._at += 1
        else:
            raise _UnreadableError

    def _note(self, name: str) -> None:
        if self._depth == 2 and self._names and not name.startswith(_ANONYMOUS):
            self._names[-1] = name

    def _compound(self, char: str) -> None:
        if match := _FLOAT.match(self._text, self._at):
            self._at = match.end()
        elif self._takes("Dp"):
            self._type()
        elif char == "D" and self._text[self._at + 1 : self._at + 2] in "hisuandef":
            self._at += 2
        elif char == "A":
            end = self._text.find("_", self._at)
            if end < 0:
                raise _UnreadableError
            self._at = end + 1
            self._type()
        elif char == "M":
            self._at += 1
            self._type()
            self._type()
        elif char == "F":
            self._at += 1
            while not self._takes("E"):
                self._type()
        else:
            raise _UnreadableError

    def _nested(self) -> None:
        """After its N, to its E."""
        is_std = False
        while not self._takes("E"):
            char = self._next()
            if char.isdigit():
                name = self._source_name()
                if not is_std:
                    self._note(name)
            elif char == "I":
                self._arguments()
            elif self._takes("St"):
                is_std = True
            elif char in "ST":
                self._substitution()
            elif char in "KVrRO":
                self._at += 1
            elif self._takes("Ul") or self._takes("Ut"):
                self._lambda()
            else:
                raise _UnreadableError

    def _lambda(self) -> None:
        while not (match := _LAMBDA_END.match(self._text, self._at)):
            self._type()
        self._at = match.end()

    def _local(self) -> None:
        """A type inside a function, mostly a lambda. The function's name is what tells; behind it nothing is
        read any more.
        """
        while self._takes("Z"):
            pass
        inner = _Reader(self._text, self._at)
        inner._depth = self._depth
        with suppress(_UnreadableError):
            inner.read_function()
        if inner.parts:
            self._note(inner.parts[-1])
        raise _UnreadableError

    def _own_arguments(self) -> None:
        if self._peek() == "I":
            self._arguments()

    def _substitution(self) -> None:
        match = _SUBSTITUTION.match(self._text, self._at)
        if not match:
            raise _UnreadableError
        self._at = match.end()

    def _source_name(self) -> str:
        match = _NUMBER.match(self._text, self._at)
        if not match or len(match[0]) > 4:
            raise _UnreadableError
        start, end = match.end(), match.end() + int(match[0])
        self._at = min(end, len(self._text))
        return self._text[start:end] + ("…" if end > len(self._text) else "")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _UnreadableError

    def _takes(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else self._unreadable()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _unreadable(self) -> str:
        raise _UnreadableError
