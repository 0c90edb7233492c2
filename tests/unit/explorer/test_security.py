# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from hotstage_explorer import library
from hotstage_explorer.app import LIVE_PAGES, create_app
from hotstage_explorer.pages.live import Page
from hotstage_explorer.pages.shell import PAGES
from hotstage_explorer.picture import AGENT, Picture
from hotstage_explorer.questions import Answer, Question
from hotstage_explorer.security import is_allowed, own_names

LIVE = [page.path for page in LIVE_PAGES]


class QuietSource:
    address = "http://127.0.0.1:1"
    origin = AGENT

    def read(self, previous: Picture) -> Picture:
        return Picture(self.address, version=previous.version + 1, link="live")

    def answer(self, question: Question, previous: Answer) -> Answer:
        return previous


@pytest.fixture(scope="module")
def client() -> Iterator[FlaskClient]:
    app = create_app(QuietSource())
    with app.server.test_client() as made:
        yield made
    app.server.extensions["feed"].close()
    app.server.extensions["desk"].close()


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9179", "127.0.0.1:9179", "[::1]:9179", "10.0.0.7", "gpu-1.lan", "LOCALHOST"],
)
def test_own_names_and_addresses_are_answered(host: str) -> None:
    assert is_allowed(host, own_names("gpu-1.lan"))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "a@localhost",
        "[::1",
        "evil:99999",
    ],
)
def test_a_name_that_a_stranger_chose_is_not(host: str) -> None:
    assert not is_allowed(host, own_names("127.0.0.1"))


@pytest.mark.parametrize(
    "path",
    ["/", "/_dash-layout", "/healthz", "/assets/base.js", "/nothing", *LIVE, "/library/plotly-basic.min.js"],
)
def test_a_rebound_name_gets_nothing_from_any_path(client: FlaskClient, path: str) -> None:
    assert client.get(path, headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/", *LIVE])
def test_another_sites_page_may_not_run_callbacks(client: FlaskClient, path: str) -> None:
    answer = client.post(f"{path}_dash-update-component", json={}, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("origin", ["http://[", "null", "//", "http://127.0.0.1.evil"])
def test_an_origin_that_is_none_of_ours_is_refused(client: FlaskClient, origin: str) -> None:
    answer = client.post("/_dash-update-component", json={}, headers={"Origin": origin})
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/", *LIVE])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b'{"output": 5}',
        b'{"output": "x.y"}',
        b'{"a":' * 50_000,
        b'{"output": "..stages-shown.',
    ],
)
def test_what_no_page_asks_is_refused_without_a_traceback(
    client: FlaskClient, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post(f"{path}_dash-update-component", data=body, content_type="application/json")
    assert (answer.status_code, answer.text) == (400, "No page of this server asks that.\n")
    assert caplog.records == []


def test_a_call_with_too_few_inputs_and_an_unknown_library_are_refused(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    shown, kept = "requests-shown", "requests-kept"
    body = {
        "output": f"..{shown}.data...{kept}.data..",
        "outputs": [{"id": shown, "property": "data"}, {"id": kept, "property": "data"}],
        "inputs": [],
        "changedPropIds": [],
    }
    assert client.post("/requests/_dash-update-component", json=body).status_code == 400
    assert client.get("/_dash-component-suites/../../etc/passwd").status_code == 400
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/healthz", "/assets/explorer.css", *LIVE])
def test_every_answer_is_signed(client: FlaskClient, path: str) -> None:
    with client.get(path) as answer:
        headers = answer.headers
    policy = headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "unsafe" not in scripts
    assert "'self'" in scripts


@pytest.mark.parametrize("path", ["/", *LIVE])
def test_the_page_is_in_a_language_and_names_no_other_host(client: FlaskClient, path: str) -> None:
    page = client.get(path).text
    assert '<html lang="en">' in page
    sources = [part.split('"')[0] for part in page.split('src="')[1:]] + [
        part.split('"')[0] for part in page.split('href="')[1:]
    ]
    assert sources
    assert all(source.startswith("/") for source in sources)


def test_the_script_of_the_first_view_is_fetched_early_from_where_dash_takes_it(client: FlaskClient) -> None:
    page = client.get("/").text
    link = page.split('rel="preload" as="script" href="')[1].split('"')[0]
    with client.get(link) as answer:
        assert answer.status_code == 200
        assert answer.data == library.SCENES.file.read_bytes(), "our part of plotly.js, in place of the whole"


def test_health_is_ours_and_not_the_agents(client: FlaskClient) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json["status"] == "ok"
    assert answer.json["source"]["address"] == "http://127.0.0.1:1"


@pytest.mark.parametrize("page", LIVE_PAGES, ids=lambda page: page.key)
def test_each_page_is_reached_without_its_last_slash_and_by_deep_links(
    client: FlaskClient, page: Page
) -> None:
    assert client.get(page.path.rstrip("/")).headers["Location"] == page.path
    assert f"<title>{page.title} · hotstage</title>" in client.get(f"{page.path}any%2Fitem?a=b").text


def test_the_navigation_leads_to_every_page() -> None:
    assert [path for _, _, path in PAGES] == ["/", *LIVE]
