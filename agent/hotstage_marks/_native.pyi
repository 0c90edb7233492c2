from collections.abc import Iterable
from types import TracebackType
from typing import Any, SupportsIndex, TypedDict, final

class Statistics(TypedDict):
    """Stages that this process has made up (name → id), and how much was left out."""

    stages: dict[str, int]
    stages_refused: int
    batches_nested: int
    batches_broken: int
    members_cut: int
    members_malformed: int
    embeddings_refused: int

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

@final
class Batch:
    """Work that several requests share on one thread, from begin to end."""

    def __enter__(self) -> Batch: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def begin(self) -> Batch: ...
    def end(self) -> None: ...

def batch(members: Iterable[Any] = (), *, modality: str | int = "mixed", spans: bool = True) -> Batch: ...
def embedding(
    vector: object = None,
    *,
    stage: str | int = "other",
    modality: str | int = "unknown",
    request: Request | str | None = None,
    address: SupportsIndex | None = None,
    dims: SupportsIndex = 0,
    dtype: object = None,
) -> bool: ...
def define_stage(name: str, /) -> int: ...
def statistics() -> Statistics: ...
def stage(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
    lora_rank: SupportsIndex = 0,
    lora_module: str | int | None = None,
) -> Scope: ...
def span(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
    lora_rank: SupportsIndex = 0,
    lora_module: str | int | None = None,
) -> Scope: ...
def span_begin(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
    lora_rank: SupportsIndex = 0,
    lora_module: str | int | None = None,
) -> None: ...
def span_end(
    name: str | int,
    *,
    modality: str | int = "unknown",
    tokens: SupportsIndex = 0,
    request: Request | str | None = None,
    lora_rank: SupportsIndex = 0,
    lora_module: str | int | None = None,
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
