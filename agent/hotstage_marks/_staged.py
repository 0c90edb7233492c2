# SPDX-License-Identifier: Apache-2.0
"""A function that is a stage: the decorator `staged`.

What is marked follows from what the function is, since only a thread that does not let go may hold a stage:

    def                 the thread's stage, and the request's, from call to return
    def with yield      the thread's stage while the body runs; the request's from the first step to the last
    async def           the request's only, from call to return, awaits included
    async def, yield    the request's only, from the first step to the last
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

import hotstage_marks as marks

Function = TypeVar("Function", bound=Callable[..., Any])


def staged(
    name: str,
    *,
    modality: str = "unknown",
    tokens: int = 0,
    request: Any = None,
    lora_rank: int = 0,
    lora_module: Any = None,
) -> Callable[[Function], Function]:
    """Each call of the function is the stage `name`, of the current request or the one that is named."""
    what = {"modality": modality, "tokens": tokens, "lora_rank": lora_rank, "lora_module": lora_module}
    scope = functools.partial(marks.span, name, **what, request=request)
    stage = functools.partial(marks.stage, name, **what)

    def decorate(function: Function) -> Function:
        if inspect.isasyncgenfunction(function):
            wrapper: Any = _async_generator(function, scope)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(function, scope)
        elif inspect.isgeneratorfunction(function):
            wrapper = _generator(function, scope, functools.partial(stage, request=""))
        else:
            wrapper = _plain(function, functools.partial(stage, request=request))
        return cast(Function, functools.wraps(function)(wrapper))

    return decorate


def _plain(function: Callable[..., Any], stage: Callable[[], Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with stage():
            return function(*args, **kwargs)

    return wrapper


def _coroutine(function: Callable[..., Any], scope: Callable[[], Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with scope():
            return await function(*args, **kwargs)

    return wrapper


def _generator(
    function: Callable[..., Any], scope: Callable[[], Any], stage: Callable[[], Any]
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = function(*args, **kwargs)
        step, value = body.send, None
        with scope():
            while True:
                try:
                    with stage():
                        item = step(value)
                except StopIteration as end:
                    return end.value
                try:
                    step, value = body.send, (yield item)
                except GeneratorExit:
                    with stage():
                        body.close()
                    raise
                except BaseException as error:
                    step, value = body.throw, error

    return wrapper


def _async_generator(function: Callable[..., Any], scope: Callable[[], Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = function(*args, **kwargs)
        step, value = body.asend, None
        with scope():
            while True:
                try:
                    item = await step(value)
                except StopAsyncIteration:
                    return
                try:
                    step, value = body.asend, (yield item)
                except GeneratorExit:
                    await body.aclose()
                    raise
                except BaseException as error:
                    step, value = body.athrow, error

    return wrapper
