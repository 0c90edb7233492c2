# SPDX-License-Identifier: Apache-2.0
"""A host's id stays the same and is not its machine id."""

from __future__ import annotations

from hotstage.host import identity


def test_the_id_is_stable_and_hides_the_machine_id(tmp_path, monkeypatch):
    file = tmp_path / "machine-id"
    monkeypatch.setattr(identity, "_MACHINE_ID", file)
    file.write_text("0123456789abcdef0123456789abcdef\n")
    made = identity.host_id()
    assert made == identity.host_id()
    assert len(made) == 32 and "0123456789abcdef" not in made
    file.write_text("f" * 32)
    assert identity.host_id() != made


def test_a_host_without_a_machine_id_still_has_one(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_MACHINE_ID", tmp_path / "none")
    assert len(identity.host_id()) == 32
