# SPDX-License-Identifier: Apache-2.0
"""`eager.py NAME SEED`: one program without CUDA graphs; `["steps", N]` lets it go on.

Which phase a step is of it tells by the entry of libcuda that its launches take (`simulated_launch_as`,
cudart.c), so that the probes themselves count what was told against what was true.
"""

import ctypes
import json
import random
import sys
from functools import partial

import torch
from eager_others import denoise, embed, encode_images, recommend, train
from eager_serving import DECODE, OTHER, PREFILL, Lengths, Load, encode_then_generate, generate, serve

PROGRAMS = {
    "loop, one sequence": generate,
    "loop, batch of 8": partial(generate, batch=8),
    "engine, 8 sequences": partial(serve, load=Load(8, asked=(50, 300))),
    "engine, 32 sequences": partial(serve, load=Load(32, asked=(50, 400))),
    "engine, 8, long prompts in chunks": partial(
        serve, load=Load(8, Lengths(2000, 30_000, 9, 0.8), asked=(50, 300))
    ),
    "engine, 16, short prompts": partial(serve, load=Load(16, Lengths(4, 200, 3.2, 0.9), asked=(30, 200))),
    "engine, one sequence": partial(serve, load=Load(1)),
    "engine, 8, chunks beside decode": partial(serve, load=Load(8, is_mixed=True)),
    "engine, 32, chunks beside decode": partial(serve, load=Load(32, step_tokens=512, is_mixed=True)),
    "encoder before each prompt": encode_then_generate,
    "image encoder": encode_images,
    "embeddings": embed,
    "embeddings, padded": partial(embed, is_padded=True),
    "classifier, padded": partial(embed, is_padded=True, is_classifier=True),
    "recommender": recommend,
    "denoising": denoise,
    "training": train,
}

name, seed = sys.argv[1], sys.argv[2]
launch_as = ctypes.CDLL(None).simulated_launch_as
ENTRIES = {OTHER: 0, PREFILL: 1, DECODE: 2}

torch.backends.cuda.enable_cudnn_sdp(False)
torch.set_grad_enabled(False)
launch_as(ENTRIES[OTHER])
steps = PROGRAMS[name](random.Random(f"{name} {seed}"), lambda phase: launch_as(ENTRIES[phase]))
torch.cuda.init()
print(json.dumps(torch.__version__), flush=True)
for line in sys.stdin:
    _, count = json.loads(line)
    for _ in range(count):
        next(steps)
    print(json.dumps(count), flush=True)
