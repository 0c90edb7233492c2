# SPDX-License-Identifier: Apache-2.0
"""An asyncio server with marks: many requests on one thread, the heavy work on others.

    python asyncio_server.py            # says its port, then serves; one request a connection
    printf 'req-1 an image' | nc 127.0.0.1 PORT

What to look at: `request` is a block around everything; waits are spans, because a thread that awaits is
nobody's; work on an executor's thread is a stage there, and says whose it is, because no context follows it.
`safety_check` is a stage of this server's own; its name is all there is to it. The features are told by where
they lie: nothing is copied, and they stay alive until the request ends.
"""

from __future__ import annotations

import asyncio
from array import array
from concurrent.futures import ThreadPoolExecutor

import hotstage_marks as marks

ENCODERS = ThreadPoolExecutor(max_workers=4)
GATE = asyncio.Semaphore(8)


@marks.staged("queue", modality="image")
async def admitted() -> None:
    await GATE.acquire()


def encode(image: bytes, request: marks.Request) -> int:
    with marks.stage("vision_encode", modality="image", tokens=len(image), request=request):
        # CUDA calls in here would count for vision_encode.
        features = array("f", map(float, image[:256].ljust(256, b"\0")))
        marks.embedding(features, stage="vision_encode", modality="image", request=request)
    with marks.stage("safety_check", modality="image", request=request):
        return int(sum(features))


@marks.staged("llm_decode", modality="image")
async def generate(features: int, request: marks.Request) -> int:
    count = 3 + features % 5
    for token in range(1, count + 1):
        await asyncio.sleep(0.001)
        request.tokens(token)
    return count


async def serve(rid: str, image: bytes) -> int:
    # The digest tells whether a retry brings the very same image; the image itself goes nowhere.
    with marks.request(rid, endpoint="/v1/describe", model="toy-vlm", digest=marks.digest(image)) as request:
        await admitted()
        try:
            loop = asyncio.get_running_loop()
            features = await loop.run_in_executor(ENCODERS, encode, image, request)
            return await generate(features, request)
        finally:
            GATE.release()


async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    rid, _, image = (await reader.read(65536)).partition(b" ")
    writer.write(b"%d\n" % await serve(rid.decode(errors="replace"), image))
    await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
