# SPDX-License-Identifier: Apache-2.0
"""Whatever a real preprocessor would open, in whatever disguise, is refused; plain programs are not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hotstage.errors import ConfigError
from hotstage.probes.custom.preprocessing import preprocess

SECRET = "SECRET_OF_ANOTHER_FILE"
DISGUISES = (
    '#include "{0}"',
    "#include <{0}>",
    '#inc\\\nlude "{0}"',
    '#\\\ninc\\  \nlude "{0}"',
    '\\\n#include "{0}"',
    '%:include "{0}"',
    '%:inc\\\nlude "{0}"',
    '/* a */ # /* b */ include /* c */ "{0}"',
    '/*\n*/#include "{0}"',
    '/* \\\n*\\\n/ #include "{0}"',
    'char *a = "/*";\n#include "{0}"\nchar *b = "*/";',
    "int a = '\"';\n#include \"{0}\"\nint b = '\"';",
    'char *a = "\\"/*";\n#include "{0}"\n/* */',
    '#define FILE "{0}"\n#include FILE',
    '// a comment\r#include "{0}"',
    '\f#include "{0}"',
    '\v#include "{0}"',
    '#\v\finclude "{0}"',
    '\x00#include "{0}"',
    '\ufeff#include "{0}"',
    '#import "{0}"',
    '#include_next "{0}"',
    '??=include "{0}"',
    '// a comment ??/\n#include "{0}"',
    '/* a \r\n */\r\n#inc\\\r\nlude "{0}"\r\n',
    '#if 0\n#elif 1\n#include "{0}"\n#endif',
)
"""Of each, `{0}` is the path of a file that is no kernel header."""


@pytest.mark.skipif(shutil.which("clang") is None, reason="compares with clang's preprocessor")
@pytest.mark.parametrize("disguise", DISGUISES)
def test_no_disguise_of_an_include_passes(disguise: str, tmp_path: Path) -> None:
    (tmp_path / "other.h").write_text(SECRET)
    source = disguise.format(tmp_path / "other.h")
    (tmp_path / "x.c").write_text(source, newline="")
    command = ["clang", "-E", "-trigraphs" if "??" in source else "-w", str(tmp_path / "x.c")]
    opened = SECRET in subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert opened or "??/" in source  # the disguise is real: in a comment a trigraph only hides the line
    with pytest.raises(ConfigError):
        preprocess("x", source)


@pytest.mark.parametrize(
    "source",
    [
        '#if __has_include("/etc/shadow")\n#endif\n',
        '__asm__(".incbin \\"/etc/shadow\\"");\n',
        '#define P(a, b) a##b\nP(as, m)(".incbin \\"/etc/shadow\\"");\n',
        "#define P(a, b) a%:%:b\n",
        '_Pragma("GCC dependency \\"/etc/shadow\\"")\n',
        '#pragma GCC dependency "/etc/shadow"\n',
        '#embed "/etc/shadow"\n',
        "#define TRACE_INCLUDE_PATH /etc\n#include <trace/define_trace.h>\n",
        '# 1 "/etc/shadow"\n',
        'char *a = R"(\n)";\n',
        "int a = 1; \\u0061sm();\n",
        '\u00a0#include "/etc/shadow"\n',
        'char *open = "\n',
        "/* open\n",
    ],
)
def test_other_ways_to_a_file_or_around_the_check_are_refused(source: str) -> None:
    with pytest.raises(ConfigError):
        preprocess("x", source)


def test_lines_keep_their_numbers() -> None:
    with pytest.raises(ConfigError, match=r"^x:8: `#include \"a\.h\"`"):
        preprocess("x", '/* 1\n2 */\n#define A \\\n  4 \\\n  5\nint a = 6; // \u2028 "\n\n#include "a.h"\n')


def test_an_ordinary_program_passes_with_its_comments_and_literals_blanked() -> None:
    source = (
        "#include <linux/sched.h>\n#ifdef A\n#pragma unroll\n#endif\n"
        '// naïve: "#include \'x\'\n#define LOG(x) bpf_trace_printk("/* %d */ \\"", x)\n'
        "int f(void) { return 'a' + '\\''; }\n"
    )
    code = preprocess("x", source).code
    assert code.count("\n") == source.count("\n")
    assert "naïve" not in code
    assert "return 0 + 0;" in code
    assert 'bpf_trace_printk("", x)' in code
