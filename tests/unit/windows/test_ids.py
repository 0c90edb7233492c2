# SPDX-License-Identifier: Apache-2.0
from hotstage.windows.ids import WindowIds


def test_ids_sort_by_time_even_when_chance_falls_and_the_clock_stands(clock):
    entropy = iter([b"\xff" * 10, b"\0" * 10, b"\x10" * 10, b"\0" * 10])
    ids = WindowIds(clock, lambda count: next(entropy))
    made = [ids(0), ids(0), ids(5_000_000), ids(5_000_000)]
    assert made == sorted(made) and len(set(made)) == 4
    assert all(len(each) == 26 and each.isalnum() and each.isupper() for each in made)


def test_chance_tells_two_agents_apart(clock):
    assert WindowIds(clock)(0) != WindowIds(clock)(0)
