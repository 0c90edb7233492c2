# SPDX-License-Identifier: Apache-2.0
"""Embeddings by reference: the address is told, nothing is copied, and the owner stays alive."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import weakref
from pathlib import Path

import numpy as np
import pytest

from hotstage_marks import _embedding

WORD = 8 | 1 << 8


@pytest.fixture(autouse=True)
def embedding(marks, monkeypatch):
    monkeypatch.setattr(_embedding, "marks", marks)
    monkeypatch.setattr(_embedding, "_tell", marks.embedding)
    return _embedding.embedding


def refused(marks):
    return marks.statistics()["embeddings_refused"]


def tell(marks, vector=None, **what):
    return _embedding.embedding(vector, stage="vision_encode", modality="image", request="r-1", **what)


@pytest.mark.parametrize(("dtype", "code"), [(np.float32, 0), (np.float16, 1), (np.float64, 3)])
def test_an_array_is_told_by_its_address(marks, seen, dtype, code):
    vector = np.arange(768, dtype=dtype)
    assert tell(marks, vector) is True
    shape = 768 | code << 32
    assert seen.marks == [("embedding", marks.request_hash("r-1"), WORD, vector.ctypes.data, shape)]


def test_one_row_of_a_matrix_and_a_read_only_array_are_vectors_too(marks, seen):
    matrix = np.zeros((4, 16), np.float32)
    matrix.flags.writeable = False
    assert tell(marks, matrix[2]) and tell(marks, matrix[1:2])
    assert [mark[3] - matrix.ctypes.data for mark in seen.marks] == [2 * 64, 64]


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros((4, 16), np.float32),
        np.zeros(32, np.float32)[::2],
        np.zeros(8, ">f4"),
        np.zeros(8, np.int32),
        np.zeros(8, np.complex64),
        np.zeros(0, np.float32),
        np.float32(1),
        b"bytes",
        "text",
        None,
        object(),
        array.array("i", [1]),
    ],
    ids=repr,
)
def test_what_is_no_vector_is_refused_and_counted(marks, seen, vector):
    before = refused(marks)
    assert tell(marks, vector) is False
    assert (seen.marks, refused(marks)) == ([], before + 1)


def test_memory_may_be_named_by_its_address(marks, seen):
    memory = (ctypes.c_uint16 * 64)()
    where = ctypes.addressof(memory)
    for name, code in (("bfloat16", 2), ("torch.float16", 1), (np.dtype("float16"), 1)):
        assert tell(marks, memory, address=where, dims=64, dtype=name)
        assert seen.marks[-1][3:] == (where, 64 | code << 32)


def test_memory_that_the_host_cannot_read_is_refused(marks, seen):
    before = refused(marks)
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=0)  # as a device's memory: reserved, and not to be read
    lines = Path("/proc/self/maps").read_text().splitlines()
    address = next(int(line.split("-")[0], 16) for line in lines if line.split()[1] == "---s")
    assert not tell(marks, page, address=address, dims=64, dtype="float32")
    assert not tell(marks, address=8, dims=64, dtype="float32")
    assert not tell(marks, address=2**64 - 16, dims=64, dtype="float32")
    assert (seen.marks, refused(marks)) == ([], before + 3)


@pytest.mark.parametrize(
    "what",
    [
        {"address": "here", "dims": 4, "dtype": "float32"},
        {"address": 4096, "dims": 4, "dtype": "int8"},
        {"address": 4096, "dims": 4},
        {"address": 4096, "dims": -4, "dtype": "float32"},
        {"address": 4096, "dims": 2**40, "dtype": "float32"},
        {"address": 4096, "dtype": "float32"},
    ],
    ids=repr,
)
def test_nonsense_is_refused_and_raises_nothing(marks, seen, what):
    assert tell(marks, **what) is False
    assert not seen.marks


class Device:
    def __init__(self, kind):
        self.type = kind


class Tensor:
    """What is asked of a tensor, and nothing else."""

    dtype = "torch.bfloat16"

    def __init__(self, shape, kind="cpu", contiguous=True):
        self.memory = (ctypes.c_uint16 * 4096)()
        self.shape, self.device, self.contiguous = shape, Device(kind), contiguous

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return int(np.prod(self.shape))

    def is_contiguous(self):
        return self.contiguous


def test_a_tensor_on_the_host_is_told(marks, seen):
    tensor = Tensor((1, 512))
    assert tell(marks, tensor)
    assert seen.marks[0][3:] == (tensor.data_ptr(), 512 | 2 << 32)


@pytest.mark.parametrize(
    "tensor", [Tensor((512,), "cuda"), Tensor((512,), contiguous=False), Tensor((2, 256)), Tensor("?")]
)
def test_a_tensor_elsewhere_or_with_gaps_is_refused(marks, seen, tensor):
    before = refused(marks)
    assert not tell(marks, tensor)
    assert (seen.marks, refused(marks)) == ([], before + 1)


def test_no_request_is_no_embedding(marks, seen):
    before = refused(marks)
    assert not _embedding.embedding(np.zeros(4, np.float32))
    assert refused(marks) == before + 1


def kept_until(vector):
    """A reference that tells whether somebody still holds the array."""
    holder = vector.view()
    return weakref.ref(holder), holder


@pytest.mark.parametrize("by", ["current", "object", "id"])
def test_the_owner_lives_until_the_request_ends(marks, seen, by):
    request = marks.request_begin("r-2")
    alive, vector = kept_until(np.zeros(16, np.float32))
    if by == "current":
        request.end()
        with request:
            assert _embedding.embedding(vector)
            del vector
            assert alive() is not None
    else:
        assert _embedding.embedding(vector, request=request if by == "object" else "r-2")
        del vector
        assert alive() is not None
        request.end() if by == "object" else marks.request_end("r-2")
    assert alive() is None


@pytest.mark.parametrize("by", ["object", "id"])
def test_the_owner_lives_until_the_next_embedding(marks, seen, by):
    request = marks.request_begin("r-3")
    name = request if by == "object" else "r-3"
    alive, vector = kept_until(np.zeros(16, np.float32))
    _embedding.embedding(vector, request=name)
    del vector
    _embedding.embedding(np.ones(16, np.float32), request=name)
    assert alive() is None
    marks.request_end("r-3")


def test_a_request_that_is_dropped_takes_its_embedding_back(marks, seen):
    request = marks.request_begin("r-4")
    alive, vector = kept_until(np.zeros(16, np.float32))
    _embedding.embedding(vector, request=request)
    hash_ = request.hash
    del vector, request
    gc.collect()
    assert alive() is None
    assert seen.marks[-1] == ("embedding", hash_, 17 | 5 << 8, 0, 0)


def test_what_is_kept_for_ids_is_bounded_and_taken_back(marks, seen):
    vectors = [np.zeros(4, np.float32) for _ in range(1030)]
    for number, vector in enumerate(vectors):
        _embedding.embedding(vector, request=f"kept-{number}")
    back = [mark[1] for mark in seen.marks if mark[3] == 0]
    assert back[-6:] == [marks.request_hash(f"kept-{number}") for number in range(6)]
    for number in range(1030):
        marks.request_end(f"kept-{number}")


def test_the_server_can_still_resize_what_was_told(marks, seen):
    numbers = array.array("f", [0.0] * 8)
    assert tell(marks, numbers)
    numbers.append(1.0)


def test_a_servers_errno_is_left_alone(seen):
    library = ctypes.CDLL(seen.library._name, use_errno=True)
    ctypes.set_errno(17)
    numbers = [ctypes.c_uint64(number) for number in (1, 8, 1)]
    told = library.hotstage_embedding(*numbers, ctypes.c_void_p(8), ctypes.c_uint32(4), ctypes.c_uint32(0))
    assert (told, ctypes.get_errno()) == (0, 17)


def test_nobody_listening_means_that_nothing_is_kept(unwatched):
    alive, vector = kept_until(np.zeros(16, np.float32))
    with unwatched.request("r-5"):
        assert unwatched.embedding(vector) is False
        del vector
        assert alive() is None
