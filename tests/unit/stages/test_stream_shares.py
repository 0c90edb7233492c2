# SPDX-License-Identifier: Apache-2.0
from hotstage.probes.maps.conflict import StreamUser
from hotstage.stages.stage import Stage
from hotstage.stages.stream_shares import shared_streams


def user(stream, text=(), image=(), *, text_launches=100, image_launches=50, first_ns=(10, 20)):
    masks = [sum(1 << stage for stage in stages) for stages in (text, image)]
    launches = (text_launches if text else 0, image_launches if image else 0)
    return StreamUser(
        7,
        stream,
        (*launches, 0, 0, 0, 0),
        (*first_ns, 0, 0, 0, 0),
        (90, 95, 0, 0, 0, 0),
        (*masks, 0, 0, 0, 0),
    )


def test_an_encoder_beside_the_language_model_is_told_with_launches_and_since_when():
    (found,) = shared_streams([user(5, [Stage.llm_prefill], [Stage.vision_encode])], {})
    assert (found["pid"], found["stream"], found["vision_beside_text"], found["since_ns"]) == (7, 5, True, 20)
    assert found["modalities"] == {
        "text": {"launches": 100, "first_ns": 10, "last_ns": 90, "stages": ["llm_prefill"]},
        "image": {"launches": 50, "first_ns": 20, "last_ns": 95, "stages": ["vision_encode"]},
    }


def test_prefill_of_images_on_the_language_models_stream_is_no_vision_beside_text():
    (found,) = shared_streams([user(5, [Stage.llm_prefill], [Stage.llm_prefill])], {})
    assert not found["vision_beside_text"]


def test_streams_of_their_own_and_a_handful_of_launches_are_not_told():
    streams = [
        user(1, [Stage.llm_prefill]),
        user(2, image=[Stage.vision_encode]),
        user(3, [Stage.llm_prefill], [Stage.vision_encode], image_launches=15),
    ]
    assert shared_streams(streams, {}) == []


def test_vision_beside_text_comes_first_and_own_stages_have_their_name():
    plain, mixed = user(1, [40], [41]), user(2, [Stage.llm_decode], [Stage.vision_encode])
    found = shared_streams([plain, mixed], {(7, 40): "plan"})
    assert [each["stream"] for each in found] == [2, 1]
    assert found[1]["modalities"]["text"]["stages"] == ["plan"]
