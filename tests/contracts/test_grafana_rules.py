# SPDX-License-Identifier: Apache-2.0
"""Rules, alerts, runbook, routing: one says what the other says, and the real tools accept all of it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from support.alert_faults import AFTER, AT_ONCE, BY_SCENES_ALONE, LAST, ON_FIVE_HOSTS, ONE_AFTER_THE_OTHER
from support.dashboards import DASHBOARDS, ROOT, selected

from generate.alert import filled
from generate.recording import RECORDINGS
from generate.rule_files import ALERTS, DATASOURCE_UID, GROUPS, Addresses, rule_tests
from hotstage.cli.main import cli
from hotstage.sinks.metrics import METRICS

PROMETHEUS = ROOT / "deploy/prometheus"
RUNBOOK = (ROOT / "grafana/RUNBOOK.md").read_text(encoding="utf-8")
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
EXPORTED = {metric.name + suffix: metric for metric in METRICS for suffix in SUFFIXES[metric.kind]}
RECORDED = {each.name for each in RECORDINGS}

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])


def run(*command: str) -> str:
    """Standard output and error of a tool that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@cache
def document(path: str):
    """A YAML file of the repository; not to be changed."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def shipped(path: str) -> dict[str, dict]:
    """Alert rules of a Prometheus rule file, by name."""
    groups = document(path)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_prometheus_accepts_its_configuration_and_the_rules():
    assert "SUCCESS" in run("promtool", "check", "config", "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in run(
        "promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules/alerts.yml"
    )


def test_every_alert_fires_in_its_scene_and_stays_quiet_in_the_other():
    run("promtool", "test", "rules", "tests/alerts.yml")


def test_recording_rules_say_what_was_worked_out_by_hand():
    run("promtool", "test", "rules", "tests/recording.yml")


def test_every_recording_rule_has_a_case_worked_out_by_hand():
    text = (PROMETHEUS / "tests/recording.yml").read_text(encoding="utf-8")
    assert [name for name in RECORDED if name not in text] == []


@pytest.mark.parametrize(("wrong", "verdict"), [("vector(0) > 1", "fires"), ("vector(1)", "stays quiet")])
def test_the_tests_of_alerts_would_see_a_rule_that_never_or_always_fires(tmp_path, wrong, verdict):
    """A few of them: promtool evaluates every rule of a file in every test."""
    names = [alert.name for alert in ALERTS[:5]]
    rules = [{"alert": name, "expr": wrong} for name in names]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    tests = yaml.safe_load(rule_tests(Addresses()))
    tests["rule_files"] = ["alerts.yml"]
    tests["tests"] = [each for each in tests["tests"] if each["name"].split()[0] in names]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    command = ["promtool", "test", "rules", "tests.yml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    failed = re.findall(r"name: (Hotstage\w+ (?:fires|stays quiet))", done.stdout + done.stderr)
    assert {f"{name} {verdict}" for name in names} <= set(failed)


def test_vmalert_accepts_the_same_files():
    for name in ("recording", "alerts"):
        run(
            "vmalert", "-dryRun", f"-rule=rules/{name}.yml",
            "-datasource.url=http://127.0.0.1:1", "-notifier.url=http://127.0.0.1:1",
        )  # fmt: skip


def test_alertmanager_accepts_the_sample_and_routes_pages_apart_from_tickets():
    assert "SUCCESS" in run("amtool", "check-config", "alertmanager.yml")
    for severity, receiver in (("critical", "page"), ("warning", "ticket")):
        command = ("amtool", "config", "routes", "test", "--config.file=alertmanager.yml")
        assert run(*command, f"severity={severity}").splitlines()[0] == receiver


def test_inhibitions_name_alerts_that_exist():
    names = {alert.name for alert in ALERTS}
    for rule in document("deploy/prometheus/alertmanager.yml")["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            named = re.findall(r"Hotstage[A-Z]\w+", matcher)
            assert set(named) <= names, matcher


@every_alert
def test_an_alert_says_what_to_do_and_where_to_look(alert):
    rule = shipped("deploy/prometheus/rules/alerts.yml")[alert.name]
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert len(told["summary"]) < 110 and len(told["description"]) > 30
    assert rule["labels"]["severity"] in {"critical", "warning"}
    dashboard = re.search(r"/d/([a-z-]+)", told["dashboard_url"])[1]
    assert dashboard in {each["uid"] for each in DASHBOARDS.values()}
    assert told["runbook_url"].startswith("grafana/RUNBOOK.md#")


@every_alert
def test_an_alert_waits_for_two_scrapes_at_least(alert):
    number, unit = re.fullmatch(r"(\d+)([smh])", alert.hold).groups()
    assert int(number) * {"s": 1, "m": 60, "h": 3600}[unit] >= 2 * 15


@every_alert
def test_an_alert_reads_metrics_that_exist_by_labels_that_they_have(alert):
    for each in selected(alert.expression):
        if each.name in RECORDED or each.name == "up":
            continue
        metric = EXPORTED[each.name]
        assert {matcher.rstrip("=!~") for matcher in each.matchers} <= set(metric.labels)
        if metric.kind == "gauge":
            assert not {"rate", "increase"} & set(each.inside)


@pytest.mark.parametrize("rule", RECORDINGS, ids=[rule.name for rule in RECORDINGS])
def test_a_recording_rule_is_named_by_level_metric_operation(rule):
    level, metric, operation = rule.name.split(":")
    assert level.startswith("job") and metric.startswith("hotstage_") and operation and rule.purpose
    for each in selected(rule.expression):
        assert each.name in EXPORTED or each.name in RECORDED


def test_two_of_three_pages_speak_of_what_users_feel_and_no_self_check_pages_but_the_last():
    pages = {alert.name for alert in ALERTS if alert.severity == "critical"}
    assert pages == {
        "HotstageStageSlow", "HotstageServerHung", "HotstageProcessDied", "HotstageRequestErrors",
        "HotstageBreakerOpen", "HotstageGpuXid", "HotstageGpuLost", "HotstageAbsent",
    }  # fmt: skip


def test_grafana_is_given_the_same_rules():
    prometheus = shipped("deploy/prometheus/rules/alerts.yml")
    groups = document("grafana/provisioning/alerting/hotstage.yaml")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [group["name"] for group in groups] == list(GROUPS)
    assert len({rule["uid"] for rule in rules}) == len(rules) == len(ALERTS)
    for rule in rules:
        query, condition = rule["data"]
        same = prometheus[rule["title"]]
        assert query["model"]["expr"] == same["expr"] and rule["for"] == same["for"]
        assert rule["labels"] == same["labels"]
        assert "$" not in str(rule["labels"]), "Grafana fills labels from its environment"
        assert len(rule["uid"]) <= 40 and rule["noDataState"] == "OK"
        assert (query["datasourceUid"], condition["datasourceUid"]) == (DATASOURCE_UID, "__expr__")
        assert rule["condition"] == condition["refId"] and "$A" in condition["model"]["expression"]
        plain = {
            name: text.replace("$values.A.Value", "$value") for name, text in rule["annotations"].items()
        }
        assert plain == same["annotations"]


def test_grafana_has_the_data_source_that_the_rules_name():
    sources = document("grafana/provisioning/datasources/hotstage.yaml")["datasources"]
    assert DATASOURCE_UID in {source["uid"] for source in sources}
    assert all(source["type"] == "prometheus" for source in sources)
    assert sum(source.get("isDefault", False) for source in sources) == 1


def sections() -> dict[str, str]:
    parts = re.split(r"^### (\S+)$", RUNBOOK, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_runbook_has_one_section_an_alert_in_the_same_order():
    assert list(sections()) == [alert.name for alert in ALERTS]


@every_alert
def test_a_section_says_what_it_means_where_to_look_and_what_to_do(alert):
    section = sections()[alert.name]
    assert [section.count(f"**{part}**") for part in ("Means", "Look", "Do")] == [1, 1, 1]


def test_every_alert_is_fired_by_a_real_fault_or_said_not_to_be():
    fired = {*ONE_AFTER_THE_OTHER, *AT_ONCE, *AFTER, *BY_SCENES_ALONE, *ON_FIVE_HOSTS, *LAST}
    assert fired == {alert.name for alert in ALERTS}


def test_the_table_of_faults_one_after_the_other_is_what_that_test_waits_for():
    text = (ROOT / "tests/integration/monitoring/test_faults.py").read_text()
    assert set(re.findall(r'wait_told\("(\w+)"', text)) == ONE_AFTER_THE_OTHER.keys()


def commands_named(text: str) -> set[tuple[str, ...]]:
    """`hotstage a b …` in back quotes → its words before the first option or argument in capitals."""
    found = set()
    for command in re.findall(r"`hotstage ([^`]+)`", text):
        words = [word for word in command.split() if re.fullmatch(r"[a-z]+", word)]
        found.add(tuple(words))
    return found


def test_commands_that_alerts_and_the_runbook_name_exist():
    texts = [RUNBOOK, *(alert.summary + alert.description for alert in ALERTS)]
    named = set().union(*(commands_named(text) for text in texts))
    assert ("breakers", "history") in named
    for words in named:
        command: click.Command = cli
        with click.Context(cli) as context:
            for word in words:
                assert isinstance(command, click.Group), words
                command = command.get_command(context, word)
                assert command is not None, words


def test_settings_that_the_runbook_names_exist():
    example = (ROOT / "deploy/hotstage.example.toml").read_text(encoding="utf-8")
    for section, key in re.findall(r"`\[(\w+)\] (\w+)", RUNBOOK):
        body = example.partition(f"\n[{section}]\n")[2].partition("\n[")[0]
        assert re.search(rf"^# {key} =", body, re.MULTILINE), (section, key)


def test_a_text_may_only_name_labels_that_its_alert_has():
    alert = replace(ALERTS[0], summary="{{ $labels.colour }}")
    with pytest.raises(KeyError):
        filled(alert.summary, alert.fires.labels, "")


def test_the_readme_names_what_is_there():
    text = (ROOT / "grafana/README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / "grafana" / target).resolve().exists(), target
    for file in (Path("tests/contracts/test_grafana_dashboards.py"), Path("tests/integration/monitoring")):
        assert str(file) in text and (ROOT / file).exists()
