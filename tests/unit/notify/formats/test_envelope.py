# SPDX-License-Identifier: Apache-2.0
"""What an event's body must hold."""

from __future__ import annotations

import msgspec
import pytest

from hotstage.notify import formats
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import open_body


def test_data_is_passed_on_byte_for_byte():
    body = b'{"source":"u","time":"t","data":{"n":1.50,"big":12345678901234567890},"new_field":1}'
    assert bytes(open_body(body).data) == b'{"n":1.50,"big":12345678901234567890}'


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"source":1,"time":"t","data":{}}'])
def test_a_foreign_body_is_refused_by_every_format(held, body):
    for name in formats.FORMATS:
        with pytest.raises(msgspec.DecodeError):
            formats.render(name, held(body=body), Context("h"))
