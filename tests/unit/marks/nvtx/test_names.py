# SPDX-License-Identifier: Apache-2.0
"""Names that are long, many, the same address for another text, or hostile."""

from __future__ import annotations

import ctypes
import threading

from tests.unit.marks.conftest import Recording
from tests.unit.marks.nvtx.conftest import ASCII, REGISTERED, Program


def stages(seen: Recording) -> list[int]:
    return [mark[1] & 0xFF for mark in seen.marks if mark[0] == "stage_begin"]


def test_another_text_at_the_same_address_is_another_name(program: Program, seen: Recording):
    buffer = ctypes.create_string_buffer(64)
    names = (b"llm_prefill", b"layer 3", b"llm_decode", b"llm_decoder", b"sample", b"llm_prefill")
    for name in names:
        buffer.value = name
        program.push_ex(program.event(ctypes.addressof(buffer), ASCII))
        program.pop()
    assert stages(seen) == [12, 13, 15, 12]


def test_the_same_text_in_another_domain_may_mean_something_else(program: Program, seen: Recording):
    text = ctypes.create_string_buffer(b"_schedule")
    engine, other = program.create(b"TensorRT-LLM"), program.create(b"app")
    for domain in (other, engine, other, engine):
        program.domain_push(domain, program.event(ctypes.addressof(text), ASCII))
        program.domain_pop(domain)
    assert stages(seen) == [5, 5]


def test_a_megabyte_is_read_to_its_256th_byte(program: Program, seen: Recording):
    for name in (b"gpu_model_runner: " + b"x" * 1_000_000, b"x" * 1_000_000 + b" decode"):
        program.push(name)
        program.pop()
    assert stages(seen) == [17], "the first begins like a name that is known, the other's end is not seen"


def test_tens_of_thousands_of_names_are_answered_right_in_fixed_memory(program: Program, seen: Recording):
    known, unknown = [b"w%xa llm_decode", b"w%xa llm_decoder"]
    for i in range(50_000):
        program.push(unknown % (i * 20 + 11))
        program.pop()
    assert seen.marks == []
    for i in range(2000):
        program.push(known % (i * 20 + 11))
        program.pop()
    assert len(stages(seen)) == 2000


def test_numbers_do_not_make_names_different_but_none_does(program: Program, seen: Recording):
    domain = program.create(b"TensorRT-LLM")
    batches = ("0 ctx reqs, 8 gen reqs", "3 ctx reqs, 8 gen reqs", "10 ctx reqs, 0 gen reqs")
    for requests in batches * 2:
        for step in (7, 170):
            program.domain_push(
                domain, program.event(f"[Executor] _forward_step {step}: {requests}".encode())
            )
            program.domain_pop(domain)
    assert stages(seen) == [13, 13, 12, 12, 12, 12] * 2


def test_ids_of_registered_requests_are_kept_for_the_last_thousands(program: Program, seen: Recording):
    domain = program.create(b"hotstage")
    handles = [program.register(domain, b"request r%d" % i) for i in range(5000)]
    for handle in (handles[0], handles[-1]):
        program.domain_push(domain, program.event(handle, REGISTERED))
        program.domain_pop(domain)
    assert [mark[0] for mark in seen.marks] == ["request_begin", "request_end"]
    assert seen.request.id == b"r4999", "of the first nothing is said, least of all another's id"


def test_more_domains_than_there_is_room_for_are_ignored_and_counted(fresh_program: Program, seen: Recording):
    for i in range(100):
        fresh_program.create(b"nccl %d" % i)
    domains = [fresh_program.create(b"many %d" % i) for i in range(40)]
    assert fresh_program.counters["too_many_domains"] == 40 - 31, "libraries take no room"
    for domain in (domains[30], domains[31]):
        fresh_program.domain_push(domain, fresh_program.event(b"llm_decode"))
        fresh_program.domain_pop(domain)
    assert stages(seen) == [13]


def test_many_threads_at_once_find_what_one_does(program: Program, seen: Recording):
    wrong: list[int] = []

    def work(salt: int) -> None:
        for i in range(3000):
            inside = program.push(b"t%da llm_decoder %d" % (salt, i))
            again = program.push(b"layer")
            wrong.extend(depth for depth, right in ((inside, 0), (again, 1)) if depth != right)
            program.pop(), program.pop()

    threads = [threading.Thread(target=work, args=(salt,)) for salt in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert seen.marks == []
