# SPDX-License-Identifier: Apache-2.0
"""A server that marks its requests and launches for each: `marked_server.py LIBRARY`; 200 a second until its
stdin ends.
"""

from __future__ import annotations

import ctypes
import select
import sys

import hotstage_marks as marks

library = ctypes.CDLL(sys.argv[1])
number = 0
while not select.select([sys.stdin], [], [], 0.005)[0]:
    number += 1
    with (
        marks.request(f"r-{number}", endpoint="/v1/vision", instance="i-0", model="vlm"),
        marks.stage("vision_encode", modality="image", tokens=64),
    ):
        library.cuLaunchKernel(None)
        library.cuMemAlloc_v2(None, 4096)
