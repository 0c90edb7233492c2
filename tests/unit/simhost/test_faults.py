# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage.errors import ConfigError
from hotstage.simhost import faults
from hotstage.simhost.scenes import SCENES
from hotstage.simhost.service import COSTS
from hotstage.stages.stage import Stage


@pytest.mark.parametrize(
    ("spec", "start", "end", "severity"),
    [
        ("encoder-stall", 15, 30, 10),
        ("encoder-stall@5", 5, 20, 10),
        ("encoder-stall@5-7.5", 5, 7.5, 10),
        ("encoder-stall@5-7.5:3", 5, 7.5, 3),
        ("encoder-stall:3", 15, 30, 3),
        ("xid@1:48", 1, 16, 48),
        ("load-ramp", 15, 30, 2.5),
        ("idle@2-9", 2, 9, 0),
    ],
)
def test_a_spec_says_when_and_how_much(spec, start, end, severity):
    fault = faults.parse_spec(spec)
    assert (fault.start_seconds, fault.end_seconds, fault.severity) == (start, end, severity)


@pytest.mark.parametrize(
    ("spec", "thing", "remedy"),
    [
        ("encoder-stal", "encoder-stal", "did you mean 'encoder-stall'?"),
        ("quake", "quake", "one of: encoder-stall, hang, xid, token-conflict, shared-stream, cpu-starve, "),
        ("", "''", "one of:"),
        ("hang@x", "START 'x'", "seconds"),
        ("hang@5-", "END ''", "seconds"),
        ("hang@9-5", "ends at 5 s", "START < END"),
        ("hang@-5", "START ''", "seconds"),
        ("encoder-stall:0.5", "0.5", "1 or more"),
        ("encoder-stall:nan", "nan", "factors"),
        ("hang@5-inf", "END 'inf'", "seconds"),
        ("hang@1e400", "START '1e400'", "seconds"),
        ("hang@5-1e300", "ends at 1e+300 s", "END <= 1e+09"),
        ("encoder-stall:5000", "5000", "0 to 1000"),
        ("encoder-stall:", "SEVERITY ''", "factors"),
    ],
)
def test_a_bad_spec_is_refused_with_the_remedy(spec, thing, remedy):
    with pytest.raises(ConfigError) as caught:
        faults.parse_spec(spec)
    assert thing in caught.value.message
    assert remedy in caught.value.remedy


def read(tmp_path, text):
    path = tmp_path / "faults.toml"
    path.write_text(text)
    return faults.read_file(path)


def test_a_file_can_slow_any_stage_the_server_has(tmp_path):
    for stage in faults.SERVER_STAGES:
        (fault,) = read(
            tmp_path,
            f'[[fault]]\nname = "mine"\nstage = "{stage.name}"\nmodality = "video"\ninstance = "i-1"\n'
            'factor = 4\nshape = "ramp"\nstart = 3\nend = 13\n',
        )
        assert (fault.name, fault.kind, fault.stage) == ("mine", "stage_latency", stage.name)
        assert fault.slows(stage.name, "video", "i-1")
        assert not fault.slows(stage.name, "video", "i-0")
        assert not fault.slows(stage.name, "image", "i-1")


def test_a_file_may_use_the_known_names(tmp_path):
    hang, idle = read(
        tmp_path, '[[fault]]\nname = "hang"\ninstance = "i-1"\n[[fault]]\nname = "idle"\nend = 20\n'
    )
    assert (hang.kind, hang.instance) == ("alive_but_hung", "i-1")
    assert (idle.kind, idle.start_seconds, idle.end_seconds) == (None, 15, 20)


@pytest.mark.parametrize(
    ("text", "thing", "remedy"),
    [
        ("", "no [[fault]] table", "[[fault]]"),
        ("fault = 3", "no [[fault]] table", "[[fault]]"),
        ("fault = [3]", "fault 1", "[[fault]]"),
        ("[[fault", "not TOML", "[[fault]]"),
        ("[faults]", "'faults'", "[[fault]]"),
        ('[[fault]]\nname = "x"', "'x' is no known fault", "stage"),
        ("[[fault]]\nstage = 'queue'", "no name", "name"),
        ('[[fault]]\nname = "x"\nstage = "llm_prefil"', "'llm_prefil'", "did you mean 'llm_prefill'?"),
        ('[[fault]]\nname = "x"\nstage = "queue"', "'queue'", "one of: media_fetch"),
        ('[[fault]]\nname = "x"\nstage = "tokenize"\nmodality = "smell"', "'smell'", "one of: text"),
        ('[[fault]]\nname = "x"\nstage = "tokenize"\nshape = "stepp"', "'stepp'", "'step'"),
        ('[[fault]]\nname = "x"\nstage = "tokenize"\nfacter = 2', "'facter'", "'factor'"),
        ('[[fault]]\nname = "x"\nstage = "tokenize"\nfactor = "big"', "'big'", "factors"),
        ('[[fault]]\nname = "x"\nstage = "tokenize"\nfactor = true', "True", "factors"),
        ('[[fault]]\nname = "x"\nstage = 3', "stage is not a string", "stage"),
        ('[[fault]]\nname = "hang"\nstage = "tokenize"', "hang has no stage", "leave"),
    ],
)
def test_a_bad_file_is_refused_naming_thing_place_and_remedy(tmp_path, text, thing, remedy):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert thing in caught.value.message
    assert "faults.toml" in caught.value.message
    assert remedy in caught.value.remedy


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml"):
        faults.read_file(tmp_path / "none.toml")


def fault(shape, severity=11.0):
    return faults.Fault("f", "stage_latency", 10.0, 20.0, severity, shape, "vision_encode", "image")


def test_shapes_over_time():
    times = (9.9, 10.0, 11.0, 13.0, 16.0, 19.9, 20.0)
    assert [fault("step").factor_at(at) for at in times] == [1, 11, 11, 11, 11, 11, 1]
    assert [fault("ramp").factor_at(at) for at in times] == pytest.approx([1, 1, 1 + 10 / 6, 6, 11, 11, 1])
    on_off = [fault("intermittent").factor_at(10 + 0.5 * half) for half in range(8)]
    assert on_off == [11, 11, 1, 1, 11, 11, 1, 1]


def test_slowdowns_multiply_and_touch_their_stage_only():
    both = (fault("step", 3.0), fault("step", 2.0), faults.parse_spec("idle@0-100"))
    assert faults.slowdown(both, 12.0, "vision_encode", "image", "i-0") == 6
    assert faults.slowdown(both, 12.0, "vision_encode", "video", "i-0") == 1
    assert faults.slowdown(both, 12.0, "tokenize", "image", "i-0") == 1
    assert faults.slowdown(both, 30.0, "vision_encode", "image", "i-0") == 1


def test_load_moves_with_ramp_and_idle_alone():
    ramp, idle = faults.parse_spec("load-ramp@10-20"), faults.parse_spec("idle@30-40")
    load = [faults.load_factor((ramp, idle, fault("step")), at) for at in (5, 13, 18, 25, 35, 45)]
    assert load == [1.0, 1.75, 2.5, 1.0, 0.0, 1.0]


def test_hard_negatives_expect_no_window():
    assert {kind.name for kind in faults.FAULTS if kind.window is None} == {
        "load-ramp",
        "tokens-with-room",
        "tokens-in-one-piece",
        "cut-memory",
        "idle",
    }


def test_every_scene_is_a_fault_of_one_instance():
    kinds = {kind.name: kind for kind in faults.FAULTS}
    assert all(kinds[name].instance == "i-0" for name in SCENES)


def test_the_servers_stages_are_those_with_a_cost():
    assert set(faults.SERVER_STAGES) == set(COSTS) | {Stage.llm_decode}
