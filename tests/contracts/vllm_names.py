# SPDX-License-Identifier: Apache-2.0
"""Whether a vLLM has every name that the plug-in of `hotstage-marks` hooks or reads; imports none of it.

    pip download --no-deps --only-binary=:all: vllm==X
    python tests/contracts/vllm_names.py vllm-X-*.whl [FOLDER …]

Run by hand when a vLLM comes out: the wheels are some 400 MB each. The README of the marks names the versions
that were looked at.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hotstage_marks._hooks import Hook
from hotstage_marks.vllm_plugin import Plugin

Read = Callable[[str], "str | None"]

REQUEST = ("vllm.v1.request", "Request")
OUTPUT = ("vllm.v1.core.sched.output", "SchedulerOutput")
NEW_REQUEST = ("vllm.v1.core.sched.output", "NewRequestData")
READ = (
    (*REQUEST, ("request_id",)),
    (*REQUEST, ("status",)),
    (*REQUEST, ("num_output_tokens",)),
    (*REQUEST, ("mm_features", "mm_inputs")),
    (*REQUEST, ("trace_headers",)),
    (*OUTPUT, ("scheduled_new_reqs",)),
    (*OUTPUT, ("num_scheduled_tokens",)),
    (*OUTPUT, ("total_num_scheduled_tokens",)),
    (*OUTPUT, ("scheduled_encoder_inputs",)),
    (*OUTPUT, ("scheduled_spec_decode_tokens",)),
    (*OUTPUT, ("finished_req_ids",)),
    (*NEW_REQUEST, ("req_id",)),
    (*NEW_REQUEST, ("mm_features", "mm_kwargs", "mm_inputs")),
)


def sources_of(path: Path) -> Read:
    """How to read a file of vLLM by its path; None for a file that it does not have."""
    if path.is_dir():
        return lambda name: (path / name).read_text() if (path / name).is_file() else None
    archive = zipfile.ZipFile(path)
    names = set(archive.namelist())
    return lambda name: archive.read(name).decode() if name in names else None


def class_of(read: Read, module: str, name: str) -> ast.ClassDef | None:
    text = read(module.replace(".", "/") + ".py")
    for node in ast.parse(text).body if text else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    return None


def missing_hook(read: Read, hook: Hook) -> str:
    """Why the hook would stay off, or ''."""
    owner = class_of(read, hook.module, hook.owner)
    if owner is None:
        return f"no {hook.module}.{hook.owner}"
    methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
    for attribute in hook.attributes:
        if attribute in methods:
            parameters = {each.arg for each in ast.walk(methods[attribute].args) if isinstance(each, ast.arg)}
            fits = not hook.parameter or hook.parameter in parameters
            return "" if fits else f"{hook.owner}.{attribute} has no parameter {hook.parameter}"
    return f"{hook.owner} has no {' or '.join(hook.attributes)}"


def attributes_of(owner: ast.ClassDef) -> set[str]:
    """Fields, properties and what is assigned to `self`."""
    found = {node.name for node in owner.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(owner):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def differences(read: Read) -> Iterator[str]:
    """One line for each name that this vLLM does not have."""
    for hook in Plugin().hooks:
        why_not = missing_hook(read, hook)
        if why_not:
            yield f"hook off: {why_not}"
    for module, name, either in READ:
        owner = class_of(read, module, name)
        if owner is None or not attributes_of(owner) & set(either):
            yield f"not there: {module}.{name}.{'|'.join(either)}"


def main(paths: Iterable[str]) -> int:
    for path in paths:
        found = list(differences(sources_of(Path(path))))
        print(path, *(found or ["every name is there"]), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
