# SPDX-License-Identifier: Apache-2.0
import numpy as np

from hotstage.stages.spans import modality_of_masks
from hotstage.stages.stage import Modality, Stage


def test_a_request_is_of_the_modality_of_its_encoder():
    masks = [
        1 << Stage.tokenize,
        1 << Stage.vision_encode | 1 << Stage.tokenize,
        1 << Stage.audio_encode,
        1 << Stage.video_encode,
        1 << Stage.vision_encode | 1 << Stage.audio_encode,
    ]
    assert modality_of_masks(np.array(masks, np.uint64)).tolist() == [
        Modality.text,
        Modality.image,
        Modality.audio,
        Modality.video,
        Modality.mixed,
    ]
