"""Who may ask, and what a request may not do: host names, tokens, other sites, paths, injected names."""

from __future__ import annotations

import csv
import io
import json

import pytest

TOKEN = "a-token-for-tests"


def test_a_name_that_someone_elses_dns_points_here_is_refused(client):
    assert client.send("GET", "/api/about", headers={"Host": "evil.example"})[0] == 421
    assert client.send("GET", "/", headers={"Host": "evil.example:8765"})[0] == 421
    for good in ("127.0.0.1", "localhost:9", f"127.0.0.1:{client.port}", "[::1]:8765"):
        assert client.send("GET", "/api/about", headers={"Host": good})[0] == 200, good


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"X-Confide": "1", "Origin": "http://evil.example"},
        {"X-Confide": "1", "Origin": "null"},
        {"X-Confide": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-Confide": "1", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_site_cannot_tag(client, headers):
    status, _, _ = client.send("PUT", "/api/tag?row=0", {"action": "drop"}, headers)
    assert status == 403
    assert client.get("find")["tagged"] == 0


def test_another_site_cannot_read_by_an_image_or_a_script(client):
    assert client.send("GET", "/api/export?format=csv", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    status, headers, _ = client.send("GET", "/api/about")
    assert status == 200
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_every_answer_carries_the_policy(client):
    for path in ("/", "/assets/app.js", "/api/about", "/nothing"):
        _, headers, _ = client.send("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e/%2e%2e/store.py",
        "/assets//etc/passwd",
        "/assets/....//server.py",
        "/../../etc/passwd",
        "/assets/explorer.css/../../server.py",
        "/api/picture?row=../../etc/passwd",
        "/api/picture?row=-1",
        "/api/picture?row=1e3",
        "/api/picture?row=99999999",
    ],
)
def test_no_path_leads_out(client, path):
    status, _, content = client.send("GET", path)
    assert status in (400, 404)
    assert b"import" not in content
    assert b"root:" not in content


@pytest.mark.parametrize(
    "words",
    [
        "label=1%20OR%201%3D1",
        "difficulty=0..1)%20OR%20(1%3D1",
        "sort=difficulty;DROP%20TABLE%20samples",
        "c.camera=x'%20OR%20'1'%3D'1",
        "c.%22;DROP%20TABLE%20samples;--=1",
        "model=plain'--",
        "stage=..%2f..%2fmanifest",
        "cells=rw&with=plain;",
        "tag=drop'%20OR%201",
    ],
)
def test_nothing_of_a_request_becomes_sql(client, words):
    assert client.refused(f"find?{words}")
    assert client.get("find")["count"] == 180


def test_a_search_is_taken_as_it_is(client):
    assert client.get("find", search="%' OR '1'='1")["count"] == 0
    assert client.get("find", search="test-0")["count"] == 80


def test_the_database_reaches_no_file(serve, run_folder):
    import duckdb

    from confide.explorer import open_layout
    from confide.explorer.session import Explorer

    explorer = Explorer(open_layout(run_folder))
    with pytest.raises(duckdb.PermissionException):
        explorer.database.fetch("SELECT * FROM read_csv('/etc/passwd')")


def test_injected_names_stay_text(client):
    status, headers, content = client.send("GET", "/api/find?split=test")
    assert headers["content-type"] == "application/json"
    names = [v["name"] for v in json.loads(content)["facets"]["label"]["values"]]
    assert "<script>alert(1)</script>" in names
    assert status == 200


def test_no_cell_of_a_csv_is_a_formula(client):
    row = client.get("locate", split="test", id="test-003", **{"in": "test"})["row"]
    client.put(f"tag?row={row}", {"action": "keep", "note": "=HYPERLINK(1)"})
    _, _, content = client.send("GET", "/api/export?what=tags&format=csv")
    found = next(csv.DictReader(io.StringIO(content.decode())))
    assert found["note"] == "'=HYPERLINK(1)"
    assert found["label_name"] == "'=cmd()"


def test_another_address_needs_the_token(serve, run_folder):
    client = serve(run_folder, host="0.0.0.0", token=TOKEN)
    assert client.send("GET", "/")[0] == 401
    assert client.send("GET", "/api/about")[0] == 401
    assert client.send("GET", "/?token=wrong")[0] == 401
    assert client.send("GET", "/api/about", headers={"Cookie": f"confide_token_{client.port}=wrong"})[0] == 401
    status, headers, _ = client.send("GET", f"/?split=test&token={TOKEN}")
    assert (status, headers["location"]) == (303, "/?split=test")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    shown = {"Cookie": cookie.split(";")[0]}
    assert client.send("GET", "/api/about", headers=shown)[0] == 200
    assert client.send("PUT", "/api/tag?row=0", {"action": "drop"}, {**shown, "X-Confide": "1"})[0] == 200
    assert client.send("GET", "/api/about", headers={**shown, "Host": "evil.example"})[0] == 421
    assert client.send("GET", "/api/about", headers={**shown, "Host": "192.168.7.7:8765"})[0] == 200


def test_the_machines_own_addresses_are_known_and_tokens_differ():
    from confide.explorer.access import is_local, new_token

    assert all(map(is_local, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "192.168.1.4", "::", "example.org")))
    assert len({new_token() for _ in range(50)}) == 50
    assert len(new_token()) >= 40


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"action": "destroy"}, "action must be one of"),
        ({"action": "relabel", "new_label": 9}, "below 4"),
        ({"action": "relabel", "new_label": "1"}, "class index"),
        ({"action": "drop", "new_label": 1}, "relabel"),
        ({"note": "x" * 20_000}, "at most 10,000"),
        (["drop"], "JSON object"),
    ],
)
def test_a_tag_that_means_nothing_is_refused(client, body, says):
    status, _, content = client.send("PUT", "/api/tag?row=0", body, {"X-Confide": "1"})
    assert status == 400
    assert says in json.loads(content)["error"]
    assert client.get("find")["tagged"] == 0
