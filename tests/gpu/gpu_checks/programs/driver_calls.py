# SPDX-License-Identifier: Apache-2.0
"""A process that makes known numbers of driver calls, and says how many it made through each symbol."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

from gpu_checks.programs import exercises
from gpu_checks.programs.dialogue import Answer, serve
from gpu_checks.programs.driver import Driver, Pointer, Session, Size

DEADLINE_SECONDS = 60.0
COPY_BYTES = 4096


class Program:
    """The verbs of this program; each answers with `made`, the tally since its start."""

    def __init__(self) -> None:
        self._driver = Driver()
        self._mapped_ns = time.monotonic_ns()
        self._session: Session | None = None

    def start(self) -> Answer:
        """libcuda is mapped; nothing was called in it yet."""
        return {"pid": os.getpid(), "mapped_ns": self._mapped_ns}

    def open(self) -> Answer:
        """Initialise the driver and make the context: the first calls."""
        self._session = Session(self._driver)
        return self._tally(capability=self._session.capability())

    def tally(self) -> Answer:
        return self._tally()

    def exercise(self, symbol: str) -> Answer:
        """Use one symbol once, with what that needs."""
        use = exercises.exercise_of(symbol)
        if use is None or not self._driver.has(symbol):
            return self._tally(used=False)
        use(self._open_session(), symbol)
        return self._tally(used=True)

    def fail(self, allocations: int, frees: int) -> Answer:
        """Calls that the driver must refuse."""
        exercises.fail_to_allocate(self._open_session(), allocations)
        exercises.fail_to_free(self._open_session(), frees)
        return self._tally()

    def load(self, threads: int, launches: int, copies: int) -> Answer:
        """Launches, copies, waits and graph replays from several threads at once."""
        session, errors = self._open_session(), []
        executable = session.out(
            "cuGraphInstantiateWithFlags", session.capture(launches=5), ctypes.c_uint64(0)
        )

        def work() -> None:
            try:
                _work(session, executable, launches, copies)
            except Exception as error:  # told by the thread that asked
                errors.append(str(error))

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(DEADLINE_SECONDS)
        if errors or any(worker.is_alive() for worker in workers):
            raise RuntimeError(f"threads failed: {errors or 'not done in time'}")
        session.driver.call("cuGraphExecDestroy", executable)
        return self._tally()

    def cupti(self) -> Answer:
        """Have the injected library write its counts; `written` is None when none was injected."""
        path = os.environ.get("CUDA_INJECTION64_PATH")
        return self._tally(written=None if path is None else ctypes.CDLL(path).hotstage_cupti_write() == 0)

    def _open_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("`open` comes first")
        return self._session

    def _tally(self, **more: Any) -> Answer:
        return {"made": self._driver.made(), **more}


def _work(session: Session, executable: Pointer, launches: int, copies: int) -> None:
    """One thread's share, on a stream of its own."""
    session.driver.call("cuCtxSetCurrent", session.context)
    stream = session.new_stream()
    one, nothing = ctypes.c_uint(1), ctypes.c_uint(0)
    shape = (one, one, one, one, one, one, nothing, stream, None, None)
    device = session.out("cuMemAlloc_v2", Size(COPY_BYTES))
    host = session.out("cuMemHostAlloc", Size(COPY_BYTES), nothing)
    for _ in range(10):
        session.timed("cuLaunchKernel", launches // 10, session.kernel, *shape)
        session.timed("cuStreamSynchronize", 1, stream)
    session.timed("cuMemcpyHtoDAsync_v2", copies, device, host, Size(COPY_BYTES), stream)
    session.timed("cuMemcpyDtoHAsync_v2", copies, host, device, Size(COPY_BYTES), stream)
    session.timed("cuMemcpyHtoD_v2", copies, device, host, Size(COPY_BYTES))
    session.timed("cuMemcpyDtoH_v2", copies, host, device, Size(COPY_BYTES))
    session.timed("cuGraphLaunch", copies, executable, stream)
    session.timed("cuStreamSynchronize", 1, stream)
    session.driver.call("cuMemFreeHost", host)
    session.driver.call("cuMemFree_v2", device)
    session.driver.call("cuStreamDestroy_v2", stream)


def main() -> None:
    program = Program()
    serve(
        {
            "start": program.start,
            "open": program.open,
            "tally": program.tally,
            "exercise": program.exercise,
            "fail": program.fail,
            "load": program.load,
            "cupti": program.cupti,
        }
    )


if __name__ == "__main__":
    main()
