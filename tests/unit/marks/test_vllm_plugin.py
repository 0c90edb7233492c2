# SPDX-License-Identifier: Apache-2.0
"""vLLM's requests and stages as marks, on stand-ins with the signatures of its oldest and newest versions."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from hotstage.stages.stage import modality_name, stage_name
from hotstage_marks import _hooks, _vllm_batches, _vllm_requests, vllm_plugin

STAND_INS = Path(__file__).with_name("stand_ins")
IMAGE, AUDIO, VIDEO = (SimpleNamespace(modality=name) for name in ("image", "audio", "video"))
CONFIG = SimpleNamespace(
    model_config=SimpleNamespace(served_model_name=["vlm", "alias"], model="/models/vlm"),
    parallel_config=SimpleNamespace(data_parallel_size=1, data_parallel_rank=0),
)


class Vllm:
    """One stand-in version with the plug-in in it, and what a watcher was told."""

    def __init__(self, plugin, marks: ModuleType, seen) -> None:
        self.plugin, self._marks, self._seen = plugin, marks, seen
        scheduling = importlib.import_module(vllm_plugin.SCHEDULER)
        self.Request, self.Status = scheduling.Request, scheduling.RequestStatus
        self.scheduler = scheduling.Scheduler(CONFIG)
        self.runner = importlib.import_module(vllm_plugin.RUNNER).GPUModelRunner()
        self._names: dict[int, str] = {0: "-"}

    def add(self, rid: str, prompt: int = 10, max_tokens: int = 3, **inputs) -> None:
        self._names[self._marks.request_hash(rid)] = rid
        self.scheduler.add_request(self.Request(rid, prompt, max_tokens, **inputs))

    def step(self) -> None:
        output = self.scheduler.schedule()
        result = self.runner.execute_model(output)
        if hasattr(self.runner, "sample_tokens"):
            result = self.runner.sample_tokens(None)
        self.scheduler.update_from_output(output, result)

    @property
    def told(self) -> list[str]:
        """Each mark as words, in order; token counts only where there are some; a batch's end without any."""
        return [self._words(*mark) for mark in self._seen.marks]

    def about(self, rid: str) -> list[str]:
        return [line.removesuffix(f" {rid}") for line in self.told if line.endswith(f" {rid}")]

    def of_thread(self) -> list[str]:
        return [line for line in self.told if line.startswith(("stage", "batch"))]

    def shares(self) -> list[dict[str, tuple[str, int]]]:
        """Of each batch that has ended, request → (stage, tokens)."""
        told = []
        for part in self._seen.parts:
            members = part.member[: part.members]
            told.append(
                {self._names[each.request_hash]: (stage_name(each.stage), each.tokens) for each in members}
            )
        return told

    def _words(self, point: str, *values: int) -> str:
        if point in ("stage_begin", "stage_end", "span_begin", "span_end"):
            word, request, tokens = values[0], values[1], values[-1]
            what = f"{stage_name(word & 255)} {modality_name(word >> 8)}"
            return f"{point} {what}{f' {tokens}' if tokens else ''} {self._names[request]}"
        if point == "batch_begin":
            return f"{point} {stage_name(values[1] & 255)} {modality_name(values[1] >> 8)}"
        if point == "batch_end":
            return point
        count = f" {values[2]}" if point != "request_begin" else ""
        outcome = f" {('ok', 'error', 'cancelled', 'refused')[values[1]]}" if point == "request_end" else ""
        return f"{point}{outcome}{count} {self._names[values[0]]}"


@pytest.fixture
def watched() -> list[bool]:
    """Whether anybody listens."""
    return [True]


@pytest.fixture
def start(marks, seen, watched, monkeypatch) -> Iterator[Callable[[str], Vllm]]:
    """The stand-in of that version, imported after the plug-in was registered."""
    for module in (_hooks, _vllm_batches, _vllm_requests):
        monkeypatch.setattr(module, "marks", marks)
    monkeypatch.setattr(marks, "is_watched", lambda: watched[0])
    plugins = []

    def begin(version: str) -> Vllm:
        monkeypatch.syspath_prepend(str(STAND_INS / version))
        plugins.append(vllm_plugin.Plugin())
        plugins[0].install()
        return Vllm(plugins[0], marks, seen)

    yield begin
    for plugin in plugins:
        plugin.remove()
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.fixture(params=["old", "new"])
def vllm(request, start) -> Vllm:
    return start(request.param)


@pytest.fixture
def new(start) -> Vllm:
    return start("new")


def image_of(vllm: Vllm) -> dict[str, list]:
    """One image, the way this version carries it."""
    if "mm_features" in vllm.Request.__init__.__code__.co_varnames:
        return {"mm_features": [IMAGE]}
    return {"mm_inputs": [SimpleNamespace(modalities={"image"})]}


def test_a_text_request_goes_through_queue_prefill_and_decode(vllm):
    vllm.add("r-1")
    for _ in range(3):
        vllm.step()
    assert vllm.about("r-1") == [
        "request_begin",
        "span_begin queue text",
        "span_end queue text",
        "span_begin llm_prefill text",
        "span_end llm_prefill text 10",
        "span_begin llm_decode text",
        "tokens 1",
        "span_end llm_decode text 3",
        "request_end ok 3",
    ]


def test_an_image_is_encoded_between_queue_and_prefill(vllm):
    vllm.add("r-1", max_tokens=2, **image_of(vllm))
    vllm.step()
    vllm.step()
    assert vllm.about("r-1") == [
        "request_begin",
        "span_begin queue image",
        "span_end queue image",
        "span_begin vision_encode image 1",
        "span_end vision_encode image 1",
        "span_begin llm_prefill image",
        "span_end llm_prefill image 10",
        "span_begin llm_decode image",
        "tokens 1",
        "span_end llm_decode image 2",
        "request_end ok 2",
    ]


def test_the_workers_thread_is_in_the_stage_that_has_most_of_the_batch(new):
    new.add("long", prompt=20, max_tokens=9)
    new.step()
    new.add("short", prompt=1)
    new.add("photo", prompt=1, mm_features=[IMAGE])
    new.step()
    new.step()
    begun = [line for line in new.of_thread() if "begin" in line]
    assert begun == [
        "batch_begin llm_prefill text",
        "batch_begin sample text",
        "batch_begin llm_prefill mixed",
        "batch_begin vision_encode image",
        "batch_begin llm_prefill mixed",
        "batch_begin sample text",
        "batch_begin llm_decode mixed",
        "batch_begin sample text",
    ]
    assert new.of_thread() == [line for each in begun for line in (each, "batch_end")]


def test_a_step_is_shared_by_the_tokens_and_its_encoder_by_those_it_encodes_for(new):
    new.add("long", prompt=20, max_tokens=9)
    new.step()
    new.add("photo", prompt=5, mm_features=[IMAGE, IMAGE])
    new.step()
    step = {"long": ("llm_decode", 1), "photo": ("llm_prefill", 5)}
    assert new.shares()[:2] == [{"long": ("llm_prefill", 20)}, {"long": ("sample", 1)}]
    assert new.shares()[2:] == [
        step,
        {"photo": ("vision_encode", 2)},
        step,
        {"long": ("sample", 1), "photo": ("sample", 1)},
    ]


def test_sampling_inside_the_step_is_a_stage_of_its_batch(new):
    new.add("r-1")
    output = new.scheduler.schedule()
    book = new.plugin.batches
    step = book.executing(new.runner, (output,), {})
    book.sampled(new.runner, (), {}, book.sampling(new.runner, (), {}), None)
    book.executed(new.runner, (output,), {}, step, None)
    assert new.of_thread() == [
        "batch_begin llm_prefill text",
        "stage_begin sample text -",
        "stage_end sample text -",
        "batch_end",
    ]
    assert new.shares() == [{"r-1": ("llm_prefill", 10)}]


@pytest.mark.parametrize(
    ("features", "stage"),
    [
        ([AUDIO], "audio_encode audio 1"),
        ([VIDEO], "video_encode video 1"),
        ([AUDIO, IMAGE, IMAGE], "vision_encode mixed 3"),
    ],
)
def test_the_encoder_is_named_by_what_it_encodes(new, features, stage):
    new.add("r-1", mm_features=features)
    new.step()
    assert f"span_begin {stage}" in new.about("r-1")
    assert f"batch_begin {stage.rpartition(' ')[0]}" in new.of_thread()


def test_an_input_of_a_kind_made_up_since_is_other_work_of_an_unknown_modality(new):
    new.add("r-1", mm_features=[SimpleNamespace(modality="smell")])
    new.step()
    assert "span_begin other unknown 1" in new.about("r-1")


def test_the_newer_runner_tells_the_same_of_a_request(new):
    new.runner = importlib.import_module(vllm_plugin.NEW_RUNNER).GPUModelRunner()
    new.add("r-1", max_tokens=1, mm_features=[VIDEO])
    new.step()
    assert new.about("r-1")[3:] == [
        "span_begin video_encode video 1",
        "span_end video_encode video 1",
        "span_begin llm_prefill video",
        "span_end llm_prefill video 10",
        "request_end ok 1",
    ]
    assert "batch_begin sample text" in new.of_thread()


def test_an_encoder_that_had_it_all_in_its_cache_does_not_keep_the_prefill_from_being_seen(new):
    new.runner = importlib.import_module(vllm_plugin.NEW_RUNNER).GPUModelRunner()
    new.runner.is_encoder_cached = True
    new.add("r-1", max_tokens=1, mm_features=[IMAGE])
    new.step()
    assert new.about("r-1")[3:5] == ["span_begin llm_prefill image", "span_end llm_prefill image 10"]


def test_only_the_first_worker_tells_of_the_requests(new):
    new.runner.parallel_config.rank = 1
    new.add("r-1", mm_features=[IMAGE])
    new.step()
    assert not [line for line in new.about("r-1") if "vision_encode" in line]
    assert "batch_begin vision_encode image" in new.of_thread()
    assert {"r-1": ("vision_encode", 1)} in new.shares()


def test_a_prompt_in_chunks_is_one_prefill(vllm):
    vllm.add("r-1", prompt=250, max_tokens=1)
    for _ in range(3):
        vllm.step()
    prefill = [line for line in vllm.about("r-1") if "llm_prefill" in line]
    assert prefill == ["span_begin llm_prefill text", "span_end llm_prefill text 250"]


def test_a_preempted_request_waits_and_is_prefilled_again(new):
    new.add("r-1", max_tokens=4)
    new.step()
    new.scheduler._preempt_request(new.scheduler.requests["r-1"], 1.0)
    new.step()
    assert new.about("r-1")[7:] == [
        "span_end llm_decode text 1",
        "span_begin queue text",
        "span_end queue text",
        "span_begin llm_prefill text",
        "span_end llm_prefill text 11",
        "span_begin llm_decode text",
        "tokens 2",
    ]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("FINISHED_ABORTED", "cancelled 0"),
        ("FINISHED_IGNORED", "refused 0"),
        ("FINISHED_ERROR", "error 0"),
        ("FINISHED_REPETITION", "ok 0"),
    ],
)
def test_a_request_ends_as_the_engine_says_from_wherever_it_is(new, status, outcome):
    new.add("r-1")
    new.scheduler.finish_requests("r-1", new.Status[status])
    assert new.about("r-1")[2:] == ["span_end queue text", f"request_end {outcome}"]


def test_a_request_says_model_endpoint_instance_and_trace(new, seen, monkeypatch):
    monkeypatch.setenv("HOTSTAGE_INSTANCE", "i-7")
    new.add("chatcmpl-1", trace_headers={"traceparent": "00-ab-cd-01"})
    told = seen.request
    assert (told.id, told.model, told.endpoint) == (b"chatcmpl-1", b"vlm", b"/v1/chat/completions")
    assert (told.instance, told.traceparent) == (b"i-7", b"00-ab-cd-01")


def test_a_stage_ends_when_the_model_raises_and_the_engine_gets_its_error(new):
    new.add("r-1")
    new.runner.breaks = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
        new.step()
    assert new.of_thread() == ["batch_begin llm_prefill text", "batch_end"]


def test_results_and_signatures_are_the_engines_own(new):
    assert list(inspect.signature(type(new.scheduler).schedule).parameters) == ["self", "throttle_prefills"]
    new.add("r-1", max_tokens=1)
    output = new.scheduler.schedule(throttle_prefills=True)
    assert new.scheduler.update_from_output(output, model_runner_output=None) == {0: ["r-1"]}


def test_progress_is_told_at_most_every_tenth_of_a_second(new):
    new.add("r-1", max_tokens=50)
    for _ in range(40):
        new.step()
    assert 1 <= len([line for line in new.about("r-1") if line.startswith("tokens")]) < 20


def test_nothing_is_told_or_kept_while_nobody_watches(new, watched):
    new.add("r-1", mm_features=[IMAGE])
    new.step()
    told = len(new.told)
    watched[0] = False
    new.add("r-2")
    new.step()
    assert len(new.told) == told
    for book, kept in ((new.plugin.requests, "_tracked"), (new.plugin.batches, "_inputs")):
        assert book.is_empty
        assert not getattr(book, kept)
    watched[0] = True
    new.step()
    assert {line.split()[0] for line in new.told[told:]} == {"batch_begin", "batch_end"}


def test_a_hook_that_raises_is_counted_leaves_the_engine_alone_and_goes(new, caplog, monkeypatch):
    new.add("r-1", max_tokens=99)
    hook = type(new.scheduler).schedule.__hotstage_hook__
    original = type(new.scheduler).schedule.__wrapped__
    monkeypatch.setattr(new.plugin.requests, "_tracked", {"r-1": None, "unlike": "anything"})
    monkeypatch.setattr(_vllm_requests.marks, "span_end", None)
    with caplog.at_level(logging.WARNING, "vllm.plugins.hotstage_marks"):
        for _ in range(_hooks.MAX_FAILURES):
            new.plugin.requests._tracked["r-1"] = _vllm_requests._Tracked(SimpleNamespace())
            assert new.scheduler.schedule().num_scheduled_tokens
    assert hook.failures == _hooks.MAX_FAILURES
    assert not hook.is_on
    assert type(new.scheduler).schedule is original
    assert ["is off" in record.message for record in caplog.records] == [False, True]
    assert new.scheduler.schedule().num_scheduled_tokens


@pytest.mark.parametrize(
    ("version", "off"),
    [
        ("old", {"_preempt_request", "execute_mm_encoder", "sample_tokens|_sample", "execute_model"}),
        ("new", set()),
    ],
)
def test_what_a_version_does_not_have_stays_off_and_one_line_says_so(start, caplog, version, off):
    with caplog.at_level(logging.INFO, "vllm.plugins.hotstage_marks"):
        vllm = start(version)
        for module in (vllm_plugin.NEW_RUNNER, vllm_plugin.NEW_ENCODER):
            try:
                importlib.import_module(module)
            except ImportError:
                continue
    hooks = [hook for hook in vllm.plugin.hooks if not hook.is_on]
    assert {hook.name.rpartition(".")[2] for hook in hooks} == off
    said = {record.args[0] for record in caplog.records if "no hook on" in record.message}
    assert said == {hook.name for hook in hooks if hook.module in sys.modules}


def test_a_method_of_another_shape_is_left_alone():
    module = ModuleType("vllm.v1.core.sched.scheduler")

    class Scheduler:
        async def add_request(self, request):
            return request

        def schedule(self):
            yield 1

        def update_from_output(self, everything):
            return everything

        _free_request = 7

    module.Scheduler = Scheduler
    before = dict(Scheduler.__dict__)
    hooks = [hook for hook in vllm_plugin.Plugin().hooks if hook.module == vllm_plugin.SCHEDULER]
    assert all(hook.attach(module) for hook in hooks)
    assert dict(Scheduler.__dict__) == before
    assert all(hook.attach(ModuleType("empty")) for hook in hooks)


def test_registering_twice_hooks_once(new, monkeypatch):
    monkeypatch.setattr(vllm_plugin, "plugin", None)
    vllm_plugin.register()
    vllm_plugin.register()
    try:
        new.add("r-1")
        assert new.about("r-1").count("request_begin") == 1
    finally:
        vllm_plugin.plugin.remove()


@pytest.mark.parametrize(("name", "value"), [("HOTSTAGE_VLLM", "0"), (None, None)])
def test_it_can_be_switched_off_and_is_off_without_the_compiled_part(monkeypatch, name, value):
    monkeypatch.setattr(vllm_plugin, "plugin", None)
    if name:
        monkeypatch.setenv(name, value)
    else:
        monkeypatch.setattr(vllm_plugin.marks, "is_native", False)
    vllm_plugin.register()
    assert vllm_plugin.plugin is None
    assert not [finder for finder in sys.meta_path if isinstance(finder, _hooks.ImportWaiter)]


def test_a_flood_of_requests_is_bounded(new, monkeypatch):
    monkeypatch.setattr(_vllm_requests, "MAX_REQUESTS", 3)
    for number in range(5):
        new.add(f"r-{number}")
    assert new.plugin.requests.skipped == 2
    assert len([line for line in new.told if line.startswith("request_begin")]) == 3
