# SPDX-License-Identifier: Apache-2.0
"""The setting `prometheus_selector`: label matchers that narrow every query and can do no more. Pure."""

from __future__ import annotations

import re

from hotstage_explorer.sources.base import SettingError

DEFAULT_SELECTOR = 'job="hotstage"'
MAX_CHARACTERS = 500

# PromQL knows more escapes in strings; these are enough, and cannot end one.
_MATCHER = re.compile(
    r"\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)"
    r'\s*(?P<value>"(?:[^"\\\x00-\x1f\x7f]|\\["\\n])*")\s*'
)


def matchers(text: str) -> str:
    """`job="hotstage", env=~"prod|test"` → the same in one spelling; "" matches every series.

    Raises SettingError for anything but label matchers with double-quoted values.
    """
    if len(text) > MAX_CHARACTERS:
        raise SettingError(f"prometheus_selector has more than {MAX_CHARACTERS} characters")
    found: list[str] = []
    at = 0
    while text[at:].strip():
        if found:
            if text[at] != ",":
                raise _refusal(text)
            at += 1
        match = _MATCHER.match(text, at)
        if match is None or match["label"] == "__name__":
            raise _refusal(text)
        found.append(match["label"] + match["operator"] + match["value"])
        at = match.end()
    return ",".join(found)


def _refusal(text: str) -> SettingError:
    return SettingError(
        f"prometheus_selector {text!r} is not a list of label matchers like {DEFAULT_SELECTOR}; "
        'values stand in double quotes, and "__name__" is not among them'
    )
