# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage_explorer.where import MAX_ADDRESS, Where, where


def test_an_address_says_the_item_and_the_choices() -> None:
    at = where("/requests/", "/requests/req-17?modality=image&outcome=error")
    assert (at.item, at.choice("modality"), at.choice("outcome")) == ("req-17", "image", "error")
    assert at.href() == "/requests/req-17?modality=image&outcome=error"


@pytest.mark.parametrize("item", ["a/b", "../etc", "a?b#c", "100 %", "ü", "<b>", "//evil.example", "%2F"])
def test_any_name_goes_into_an_address_and_comes_back(item: str) -> None:
    href = Where("/requests/", item, (("modality", "a&b=c"),)).href()
    assert href.startswith("/requests/")
    assert not href.startswith("//")
    again = where("/requests/", href)
    assert (again.item, again.choice("modality")) == (item, "a&b=c")


@pytest.mark.parametrize(
    "address",
    [
        None,
        7,
        "",
        "x" * (MAX_ADDRESS + 1),
        "/requests/?" + "&".join(f"a{n}=1" for n in range(99)),
        "//[",
        "/other/x",
    ],
)
def test_what_cannot_be_is_the_page_itself(address: object) -> None:
    at = where("/requests/", address)
    assert (at.item, at.choices) == ("", ())


def test_controls_and_long_values_are_cut() -> None:
    at = where("/requests/", f"/requests/a%00%1b[31mb?words={'x' * 900}&1a=2")
    assert at.item == "a[31mb"
    assert len(at.choice("words")) <= 160
    assert at.choice("1a") == ""


def test_a_choice_that_is_not_offered_is_the_default() -> None:
    at = Where("/r/", "", (("sort", "evil"), ("page", "-3"), ("n", "99999999999")))
    assert at.choice("sort", ("recent", "slow"), "recent") == "recent"
    assert at.number("page") == 0
    assert at.number("n") == 0


def test_another_choice_turns_back_to_the_first_page() -> None:
    at = Where("/r/", "7", (("page", "3"), ("modality", "image")))
    assert at.choosing(outcome="ok").href() == "/r/7?modality=image&outcome=ok"
    assert at.choosing(page="4").choice("page") == "4"
    assert at.choosing(modality="").href() == "/r/7"
    assert at.at("").href() == "/r/?page=3&modality=image"
