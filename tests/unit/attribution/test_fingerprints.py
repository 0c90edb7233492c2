# SPDX-License-Identifier: Apache-2.0
"""What is learned of a function, how sure that is, and that it survives a restart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hotstage.attribution.fingerprint_store import FILE_NAME, FingerprintFile
from hotstage.attribution.fingerprints import (
    COUNT_LIMIT,
    FUNCTIONS_LIMIT,
    FingerprintBook,
    FunctionCounts,
    confidence_of,
    verdict_of,
    wilson_lower,
)
from hotstage.probes.maps.layout import FunctionKind
from hotstage.stages.stage import Modality, Stage

DECODE, PREFILL, VISION = int(Stage.llm_decode), int(Stage.llm_prefill), int(Stage.vision_encode)
TEXT, IMAGE, UNKNOWN = int(Modality.text), int(Modality.image), int(Modality.unknown)


def counts(**launches: int) -> FunctionCounts:
    places = {"decode": (DECODE, TEXT), "prefill": (PREFILL, TEXT), "image": (VISION, IMAGE)}
    return FunctionCounts("gemm", {places[name]: count for name, count in launches.items()})


@pytest.mark.parametrize(
    ("launches", "kind"),
    [
        ({"decode": 49}, None),
        ({"decode": 50}, FunctionKind.ANCHOR),
        ({"decode": 95, "prefill": 5}, FunctionKind.ANCHOR),
        ({"decode": 94, "prefill": 6}, FunctionKind.SHARED),
    ],
)
def test_an_anchor_needs_fifty_launches_and_nineteen_of_twenty(
    launches: dict[str, int], kind: FunctionKind | None
) -> None:
    found = verdict_of(counts(**launches))
    assert (None if found is None else found.decision.kind) == kind


def test_a_shared_function_names_the_stages_that_launch_it() -> None:
    found = verdict_of(counts(decode=6000, prefill=4000, image=9))
    assert found is not None
    assert found.decision.stage_mask == 1 << DECODE | 1 << PREFILL, "nine of ten thousand are strays"


def test_the_modality_is_the_one_that_is_known_of_most() -> None:
    known = FunctionCounts("f", {(DECODE, TEXT): 95, (DECODE, UNKNOWN): 500, (DECODE, IMAGE): 5})
    both = FunctionCounts("f", {(DECODE, TEXT): 60, (DECODE, IMAGE): 60})
    found = [verdict_of(each) for each in (known, both)]
    assert [each.decision.modality for each in found if each] == [TEXT, int(Modality.mixed)]


def test_confidence_grows_with_launches_and_is_weighted_by_them() -> None:
    assert wilson_lower(1.0, 50) == pytest.approx(0.9287, abs=1e-4)
    assert wilson_lower(0.95, 100) == pytest.approx(0.8882, abs=1e-4)
    few, many = verdict_of(counts(decode=50)), verdict_of(counts(decode=5000))
    assert few and many
    together = confidence_of([few, many], DECODE)
    assert together == pytest.approx((few.confidence * 50 + many.confidence * 5000) / 5050)
    assert confidence_of([few], PREFILL) is None


def test_made_up_stages_are_not_learned_and_both_tables_are_bounded() -> None:
    book = FingerprintBook(2)
    book.learn("a", "a", 1, "f", (40, TEXT), 100)
    assert book.program("a") is None
    for name in ("a", "b", "a", "c"):
        book.learn(name, name, 1, "f", (DECODE, TEXT), 1)
    assert [key for key, _ in book.programs()] == ["a", "c"]
    for name_hash in range(FUNCTIONS_LIMIT + 5):
        book.learn("a", "a", name_hash, "f", (DECODE, TEXT), 1)
    program = book.program("a")
    assert program and len(program.functions) == FUNCTIONS_LIMIT


def test_what_a_program_does_now_outweighs_what_it_did() -> None:
    function = counts(decode=COUNT_LIMIT)
    for _ in range(40):
        function.add((PREFILL, TEXT), COUNT_LIMIT // 2)
    found = verdict_of(function)
    assert found and found.decision.stage == PREFILL


def test_the_file_holds_the_book_and_is_read_again(tmp_path: Path) -> None:
    book, again = FingerprintBook(8), FingerprintBook(8)
    book.learn("key", "python server", 2**64 - 1, "decode_attention", (DECODE, TEXT), 70)
    book.learn("key", "python server", 17, "gemm", (PREFILL, TEXT), 60)
    assert FingerprintFile(tmp_path).save(book)
    assert not book.has_moved
    assert FingerprintFile(tmp_path).load(again) == 1
    assert again.verdicts("key") == book.verdicts("key")
    assert not again.has_moved
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def body(launches: str, name_hash: str = f"{17:016x}") -> str:
    function = f'{{"name": "f", "launches": {launches}}}'
    return f'{{"version":1,"programs":{{"k":{{"name":"p","functions":{{"{name_hash}":{function}}}}}}}}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"version": 2, "programs": {}}',
        '{"version": 1, "programs": {"k": 3}}',
        "[" * 5000,
        body("[[13, 0, Infinity]]"),
        body("[[13, 0, 1e999]]"),
        body(f"[[13, 0, {10**400}]]"),
        body("[[13, 0, -5]]"),
        body("[[-5, 0, 100]]"),
        body("[[300, 0, 100]]"),
        body("[[13, 900, 100]]"),
        body("[[13, 0, 100]]", "f" * 40),
        body("[[13, 0, 100]]").replace('"f"', '"\\ud800"'),
    ],
)
def test_a_file_that_cannot_be_read_is_put_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    book = FingerprintBook(8)
    assert FingerprintFile(tmp_path).load(book) == 0
    assert list(book.programs()) == []
    assert (tmp_path / f"{FILE_NAME}.bad").read_text() == text


def test_a_disk_that_refuses_keeps_the_book_for_the_next_time(tmp_path: Path) -> None:
    book = FingerprintBook(8)
    book.learn("key", "p", 1, "f", (DECODE, TEXT), 70)
    file = FingerprintFile(tmp_path / "absent")
    assert not file.save(book)
    assert file.error
    assert book.has_moved
    (tmp_path / "absent").mkdir()
    assert file.save(book)
    assert file.error is None
    assert json.loads((tmp_path / "absent" / FILE_NAME).read_text())["programs"]["key"]["name"] == "p"


def test_what_stands_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes, a link to what never ends, a folder: the agent starts."""
    for place in ("pipe", "link", "folder"):
        folder = tmp_path / place
        folder.mkdir()
        path = folder / FILE_NAME
        if place == "pipe":
            os.mkfifo(path)
        elif place == "link":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        book = FingerprintBook(8)
        assert FingerprintFile(folder).load(book) == 0
        book.learn("key", "p", 1, "f", (DECODE, TEXT), 70)
        assert FingerprintFile(folder).save(book)
        assert FingerprintFile(folder).load(FingerprintBook(8)) == 1


def test_a_link_in_place_of_the_written_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "fingerprints.tmp").symlink_to(elsewhere)
    book = FingerprintBook(8)
    book.learn("key", "p", 1, "f", (DECODE, TEXT), 70)
    file = FingerprintFile(tmp_path)
    assert not file.save(book)
    assert file.error
    assert elsewhere.read_text() == "precious"


def test_a_book_that_is_too_large_for_the_file_loses_its_oldest_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotstage.attribution.fingerprint_store.BYTES_LIMIT", 1000)
    book, again = FingerprintBook(64), FingerprintBook(64)
    for number in range(40):
        book.learn(f"key-{number}", "p", number, "f", (DECODE, TEXT), 70)
    file = FingerprintFile(tmp_path)
    assert file.save(book)
    assert (tmp_path / FILE_NAME).stat().st_size <= 1000
    assert 1 < file.load(again) < 40
    assert [key for key, _ in again.programs()][-1] == "key-39"


def test_more_launches_at_once_than_a_function_may_have_are_read_again(tmp_path: Path) -> None:
    book, again = FingerprintBook(8), FingerprintBook(8)
    book.learn("key", "p", 1, "f", (DECODE, TEXT), COUNT_LIMIT * 1000)
    assert FingerprintFile(tmp_path).save(book)
    assert FingerprintFile(tmp_path).load(again) == 1


def test_what_a_program_says_moves_with_what_it_learns() -> None:
    book = FingerprintBook(8)
    book.learn("key", "p", 1, "f", (DECODE, TEXT), 49)
    assert (book.total("key"), dict(book.verdicts("key"))) == (49, {})
    book.learn("key", "p", 1, "f", (DECODE, TEXT), 1)
    assert book.total("key") == 50
    assert [each.decision.stage for each in book.verdicts("key").values()] == [DECODE]
    assert book.verdicts("key") is book.verdicts("key"), "not worked out for each process that asks"
