# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import hotstage_explorer
from hotstage_explorer.components.node import node


def test_a_tree_becomes_plain_lists() -> None:
    tree = node("p", "a ", node("code", "b", title="t"), None, cls="soft", aria_hidden="true", data_sort=None)
    assert tree.to_json() == [
        "p",
        {"aria-hidden": "true", "class": "soft"},
        "a ",
        ["code", {"title": "t"}, "b"],
    ]
    assert tree.text() == "a b"


def test_every_tag_that_a_panel_uses_is_one_that_the_browser_grows() -> None:
    home = Path(hotstage_explorer.__file__).parent
    used = set()
    for source in (*(home / "components").glob("*.py"), *(home / "pages").glob("*.py")):
        used |= set(re.findall(r'\bnode\(\s*"([a-z0-9]+)"', source.read_text()))
    script = (home / "assets" / "base.js").read_text()
    listed = re.search(r"const TAGS = new Set\(\((.*?)\)\.split", script, re.S)
    assert listed
    allowed = set(" ".join(re.findall(r'"([^"]*)"', listed.group(1))).split())
    assert used
    assert used <= allowed
    assert not allowed & {"script", "iframe", "img", "form", "object", "style"}


def test_a_link_leads_to_a_page_of_this_server_only() -> None:
    script = (Path(hotstage_explorer.__file__).parent / "assets" / "base.js").read_text()
    own = re.search(r"const OWN_PATH = /(.*?)/;", script)
    assert own
    path = re.compile(own.group(1).replace(r"\/", "/"))
    assert path.match("/requests/17")
    for href in ("//evil.example", "/\\evil.example", "javascript:alert(1)", "https://evil.example", ""):
        assert not path.match(href)
