from types import TracebackType
from typing import Optional, SupportsIndex, Type, Union, final

@final
class Scope:
    """One stage or span, from begin to end."""

    tokens: int
    def __enter__(self) -> Scope: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
        /,
    ) -> None: ...
    def begin(self) -> Scope: ...
    def end(self, tokens: Optional[SupportsIndex] = None) -> None: ...

@final
class Request:
    """One inference request."""

    @property
    def id(self) -> str: ...
    @property
    def hash(self) -> int: ...
    def __enter__(self) -> Request: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
        /,
    ) -> None: ...
    def begin(self) -> Request: ...
    def end(
        self, outcome: Union[str, int] = "ok", output_tokens: Optional[SupportsIndex] = None
    ) -> None: ...
    def tokens(self, count: SupportsIndex, /) -> None: ...

def stage(
    name: Union[str, int],
    *,
    modality: Union[str, int] = "unknown",
    tokens: SupportsIndex = 0,
    request: Union[Request, str, None] = None,
) -> Scope: ...
def span(
    name: Union[str, int],
    *,
    modality: Union[str, int] = "unknown",
    tokens: SupportsIndex = 0,
    request: Union[Request, str, None] = None,
) -> Scope: ...
def request(
    rid: str, *, endpoint: str = "", instance: str = "", model: str = "", traceparent: str = ""
) -> Request: ...
def request_begin(
    rid: str, *, endpoint: str = "", instance: str = "", model: str = "", traceparent: str = ""
) -> Request: ...
def request_end(rid: str, *, outcome: Union[str, int] = "ok", output_tokens: SupportsIndex = 0) -> None: ...
def tokens(count: SupportsIndex, *, request: Union[Request, str, None] = None) -> None: ...
def current_request() -> Optional[Request]: ...
def request_hash(rid: str, /) -> int: ...
