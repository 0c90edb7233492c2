from types import TracebackType
from typing import SupportsIndex, final

@final
class Scope:
    """One stage or span, from begin to end."""

    tokens: int
    def __enter__(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def begin(self) -> Scope: ...
    def end(self, tokens: SupportsIndex | None = None) -> None: ...

@final
class Request:
    """One inference request."""

    @property
    def id(self) -> str: ...
    @property
    def hash(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def __enter__(self) -> Request: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def begin(self) -> Request: ...
    def end(self, outcome: str | int = "ok", output_tokens: SupportsIndex | None = None) -> None: ...
    def tokens(self, count: SupportsIndex, /) -> None: ...

def stage(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
) -> Scope: ...
def span(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
) -> Scope: ...
def span_begin(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
) -> None: ...
def span_end(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
) -> None: ...
def request(
    rid: str,
    *,
    endpoint: str = "",
    instance: str = "",
    model: str = "",
    traceparent: str = "",
    digest: str | int = "",
) -> Request: ...
def request_begin(
    rid: str,
    *,
    endpoint: str = "",
    instance: str = "",
    model: str = "",
    traceparent: str = "",
    digest: str | int = "",
) -> Request: ...
def request_end(rid: str, *, outcome: str | int = "ok", output_tokens: SupportsIndex = 0) -> None: ...
def tokens(count: SupportsIndex, *, request: Request | str | None = None) -> None: ...
def digest(*inputs: object) -> str: ...
def is_watched() -> bool: ...
def current_request() -> Request | None: ...
def request_hash(rid: str, /) -> int: ...
