# SPDX-License-Identifier: Apache-2.0
"""Hooks around other people's methods, put there when their module is imported, and gone when they misbehave.

A hook never changes what a method takes, returns or raises. It looks at the arguments before and at the
result after; an exception of its own is counted and goes nowhere, and after `MAX_FAILURES` of them the method
is what it was before. While nobody watches, the original is called straight away. Nothing here imports the
hooked module.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

import hotstage_marks as marks

MAX_FAILURES = 10

Before = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
After = Callable[[Any, Sequence[Any], dict[str, Any], Any, Any], None]


class Hook:
    """One method of one class, by name.

    `attributes` are its names from version to version; the first that the class has is taken. `parameter` is
    an argument that the method must have, else it is another method than the one meant. `before(self, args,
    kwargs)` returns a note for `after(self, args, kwargs, note, result)`, which is called with result None
    when the method raised, if `even_on_error`. `memory` is emptied once nobody watches any more.
    """

    def __init__(
        self,
        module: str,
        owner: str,
        attributes: Sequence[str],
        *,
        parameter: str = "",
        before: Optional[Before] = None,  # noqa: UP045 - read by Python 3.9
        after: Optional[After] = None,  # noqa: UP045
        even_on_error: bool = False,
        memory: Optional[Memory] = None,  # noqa: UP045
    ) -> None:
        self.module, self.owner, self.attributes = module, owner, tuple(attributes)
        self.parameter, self.before, self.after = parameter, before, after
        self.even_on_error, self.memory = even_on_error, memory or Memory()
        self.is_on = False
        self.failures = 0
        self._undo: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        return f"{self.module}.{self.owner}.{'|'.join(self.attributes)}"

    def attach(self, module: ModuleType) -> str:
        """Put the hook into the module's class; returns why not, or ''."""
        owner = getattr(module, self.owner, None)
        if not inspect.isclass(owner):
            return f"{self.module} has no class {self.owner}"
        for attribute in self.attributes:
            method = owner.__dict__.get(attribute)
            if method is not None:
                break
        else:
            return f"{self.owner} has no {' or '.join(self.attributes)}"
        if getattr(method, "__hotstage_hook__", None) is not None:
            return "it is hooked already"
        why_not = self._unlike(method)
        if not why_not:
            self._replace(owner, attribute, method)
        return why_not

    def _unlike(self, method: Any) -> str:
        if not inspect.isfunction(method) or inspect.iscoroutinefunction(method):
            return f"{method!r} is no plain method"
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            return f"{method!r} is a generator"
        if self.parameter and self.parameter not in inspect.signature(method).parameters:
            return f"{method.__qualname__} has no parameter {self.parameter}"
        return ""

    def _replace(self, owner: type, attribute: str, method: Any) -> None:
        wrapper = _wrapped(self, method)
        setattr(owner, attribute, wrapper)
        self.is_on = True

        def undo() -> None:
            if owner.__dict__.get(attribute) is wrapper:  # else somebody has wrapped it in turn
                setattr(owner, attribute, method)

        self._undo = undo

    def detach(self) -> None:
        """The method is what it was before; a wrapper that others hold calls it straight away."""
        self.is_on = False
        self._undo()

    def failed(self, logger: logging.Logger) -> None:
        """Count the exception that is being handled; too many of them end the hook."""
        self.failures += 1
        if self.failures == 1:
            logger.warning("hotstage marks: %s failed; the engine goes on", self.name, exc_info=True)
        if self.failures >= MAX_FAILURES and self.is_on:
            self.detach()
            logger.warning("hotstage marks: %s is off after %d failures", self.name, self.failures)


class Memory:
    """What hooks remember between calls; forgotten when nobody watches any more."""

    is_empty = True

    def forget(self) -> None:
        self.is_empty = True


def _wrapped(hook: Hook, method: Callable[..., Any]) -> Callable[..., Any]:
    before, after, memory, is_watched = hook.before, hook.after, hook.memory, marks.is_watched

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not hook.is_on or not is_watched():
            if not memory.is_empty:
                _guarded(hook, memory.forget)
            return method(self, *args, **kwargs)
        note = _guarded(hook, before, self, args, kwargs)
        try:
            result = method(self, *args, **kwargs)
        except BaseException:
            if hook.even_on_error:
                _guarded(hook, after, self, args, kwargs, note, None)
            raise
        _guarded(hook, after, self, args, kwargs, note, result)
        return result

    wrapper.__hotstage_hook__ = hook  # type: ignore[attr-defined]
    return wrapper


def _guarded(hook: Hook, function: Optional[Callable[..., Any]], *values: Any) -> Any:  # noqa: UP045
    try:
        return function(*values) if function is not None else None
    except Exception:  # whatever it is, it is not the engine's
        hook.failed(LOGGER)
        return None


LOGGER = logging.getLogger("vllm.plugins.hotstage_marks")


class ImportWaiter(MetaPathFinder):
    """Attaches hooks to modules as they are imported, or at once if they have been."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._waiting: dict[str, list[Hook]] = {}
        for hook in hooks:
            self._waiting.setdefault(hook.module, []).append(hook)

    def install(self) -> None:
        for name in list(self._waiting):
            module = sys.modules.get(name)
            if module is not None:
                self._attach(module)
        if self._waiting:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Optional[ModuleType] = None) -> Any:  # noqa: UP045
        """The others' spec, with a loader that tells us when it is done."""
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)

        def exec_module(module: ModuleType) -> None:
            execute(module)  # type: ignore[misc]
            self._attach(module)

        try:
            if execute is not None:
                loader.exec_module = exec_module
        except Exception as error:
            LOGGER.info("hotstage marks: %s stays as it is: its loader takes no hook (%s)", spec.name, error)

    def _attach(self, module: ModuleType) -> None:
        for hook in self._waiting.pop(module.__name__, []):
            try:
                why_not = hook.attach(module)
            except Exception as error:
                why_not = repr(error)
            if why_not:
                LOGGER.info("hotstage marks: no hook on %s: %s", hook.name, why_not)
        if not self._waiting:
            self.remove()
