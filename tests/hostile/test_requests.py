"""Requests that are forged, huge, slow, or no requests at all: none is answered with more than one line."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import resource
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import quote

import pyarrow as pa
import pytest

from confide.checks import InputError
from confide.explorer.access import AccessControl
from tests.hostile.conftest import ask, ask_all

pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")
TOKEN = "a-token-for-tests"


# The token.


@pytest.fixture
def locked(serve, copied):
    """An explorer on this machine's own address, with a token, on a socket."""
    return serve(copied(), token=TOKEN)


def with_token(client, more: str = "") -> dict[str, str]:
    return {"Cookie": f"confide_token_{client.port}={TOKEN}{more}"}


def test_another_user_of_this_machine_neither_reads_nor_tags_without_the_token(locked):
    assert locked.send("GET", "/")[0] == 401
    assert locked.send("GET", "/api/about")[0] == 401
    assert locked.send("PUT", "/api/tag?row=0", {"action": "drop"}, {"X-Confide": "1"})[0] == 401
    assert locked.send("GET", "/?token=")[0] == 401
    assert locked.send("GET", "/?token=%F0%9F%98%80")[0] == 401
    assert locked.send("GET", "/api/about", headers={"Cookie": "confide_token_1=" + TOKEN})[0] == 401
    assert locked.send("GET", "/api/about", headers=with_token(locked))[0] == 200
    status, headers, _ = locked.send("GET", f"/?token={TOKEN}&split=test")
    assert (status, headers["location"]) == (303, "/?split=test")
    assert headers["set-cookie"].startswith(f"confide_token_{locked.port}={TOKEN}; HttpOnly; SameSite=Strict")


@pytest.mark.parametrize(
    "foreign", ['prefs={"a":"b"}', "a=b; a=b", "=x", ";;;", 'x="unclosed', "name", "é=ü", "confide_token_1=x", "\t"]
)
def test_cookies_of_other_programs_lock_nobody_out(locked, foreign):
    own = with_token(locked)["Cookie"]
    for line in (f"{foreign}; {own}", f"{own}; {foreign}"):
        assert locked.send("GET", "/api/about", headers={"Cookie": line})[0] == 200, line


def test_a_link_from_another_site_keeps_its_cookie(locked):
    # A redirect would be followed without a cookie that is sent from this site only.
    status, headers, _ = locked.send("GET", f"/?token={TOKEN}&label=1", headers={"Sec-Fetch-Site": "cross-site"})
    assert (status, headers["refresh"]) == (200, "0; url=/?label=1")
    assert "set-cookie" in headers


@pytest.mark.parametrize("name", ["Host", "Origin", "Sec-Fetch-Site", "X-Confide"])
def test_a_header_that_decides_may_come_once(app, locked, name):
    value = {"Host": "127.0.0.1", "Origin": "http://127.0.0.1", "Sec-Fetch-Site": "none", "X-Confide": "1"}[name]
    host = "" if name == "Host" else "Host: 127.0.0.1\r\n"
    request = f"GET /api/about HTTP/1.1\r\n{host}{name}: {value}\r\n{name}: evil.example\r\n\r\n"
    assert answer(locked.port, request.encode()).split(b" ", 2)[1] == b"400"


def test_the_command_line_prints_an_address_with_a_token(copied):
    command = [sys.executable, "-m", "confide", "explore", str(copied()), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        started.kill()
    assert re.fullmatch(r"explorer: http://127\.0\.0\.1:\d+/\?token=[\w-]{43}\n", line)


def test_other_machines_are_never_let_in_without_a_token(whole_run):
    from confide.explorer import open_layout, serve

    with pytest.raises(InputError, match="must have a token, but --no-token came with --host"):
        serve(open_layout(whole_run), host="0.0.0.0", port=0, token=False)


def test_a_browser_is_started_without_the_token_in_its_arguments(monkeypatch, tmp_path):
    from confide.explorer import launch

    opened: list[str] = []
    monkeypatch.setattr(launch.webbrowser, "open", opened.append)
    launch.open_browser("http://127.0.0.1:1/?token=secret&x=1", tmp_path)
    assert "secret" not in opened[0]
    assert 'url=http://127.0.0.1:1/?token=secret&amp;x=1"' in (tmp_path / "explorer.html").read_text()


# Sizes and times.


def answer(port: int, content: bytes, seconds: float = 10) -> bytes:
    """What comes back for raw bytes, until the other side closes or the time is over."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        received = b""
        try:
            connection.sendall(content)
            while part := connection.recv(1 << 16):
                received += part
                if b"\r\n\r\n" in received:
                    break
        except OSError:
            pass
        return received


def change_head(client) -> str:
    cookie = with_token(client)["Cookie"]
    return f"PUT /api/tag?row=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Confide: 1\r\nCookie: {cookie}\r\n"


def test_a_body_is_refused_by_its_size_before_it_is_read(locked):
    head = (
        f"PUT /api/tag?row=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Confide: 1\r\nCookie: {with_token(locked)['Cookie']}\r\n"
    )
    large = 600_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    received = answer(locked.port, f"{head}Content-Length: {large}\r\n\r\n".encode() + b"{" + b" " * 200_000)
    assert received.split(b" ", 2)[1] == b"413"
    chunk = b"20000\r\n" + b" " * 0x20000 + b"\r\n"
    received = answer(locked.port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 40)
    assert received == b"" or received.split(b" ", 2)[1] == b"413"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
    assert locked.send("GET", "/api/alive", headers=with_token(locked))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 20_000,
        b'{"note": ' + b"9" * 5000 + b"}",
        b'{"note": "\\ud800"}',
        b'{"split": "\\udfff", "id": "\\ud800"}',
        b"\xff\xfe",
        b"",
        b"null",
        b'{"action": {"a": 1}}',
        b'{"new_label": 1e999}',
        b'{"note": {"deep": [1, 2]}}',
        b'{"action": "relabel", "new_label": 99999999999999999999999}',
        b'{"name": "\\u0000", "query": 5}',
    ],
)
@pytest.mark.parametrize("route", ["PUT /api/tag?row=0", "PATCH /api/tag", "PUT /api/view"])
def test_a_body_that_means_nothing_is_one_line(app, route, body):
    method, target = route.split()
    reply = ask(app, target, method, body, x_confide="1")
    assert reply.status in (200, 400), reply
    if reply.status == 400:
        assert "\n" not in reply.json["error"]


ODD = ("²", "٣", "9" * 5000, "-1", "1e9", "\x00", "%ff", "\ud800", "🙂", "a" * 20_000, "nan", "..", "1..²", "-..", "")


def test_no_value_of_a_filter_is_a_server_error(app):
    filters = ["label", "prediction", "difficulty", "confidence", "c.camera", "search", "tag", "sort", "model", "stage"]
    others = (
        "picture?row=",
        "sample?row=",
        "rows?count=1&from=",
        "rows?from=0&count=",
        "classes?text=",
        "export?what=",
    )
    routes = [*(f"/api/find?{key}=" for key in filters), *(f"/api/{route}" for route in others)]
    targets = [route + (value if "%" in value else quote(value, errors="replace")) for route in routes for value in ODD]
    replies = ask_all(app, targets)
    bad = [(t[:60], r) for t, r in zip(targets, replies, strict=True) if r.status not in (200, 400, 404)]
    assert bad == []


def test_a_connection_that_sends_no_request_is_closed(locked, monkeypatch):
    from confide.explorer import access

    monkeypatch.setattr(access, "REQUEST_SECONDS", 0.3)
    for start in (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "):
        began = time.monotonic()
        connection = socket.create_connection(("127.0.0.1", locked.port), timeout=20)
        with connection, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(closed_by_the_other_side, connection)
            with suppress(OSError):
                while not waiting.done():  # a byte now and then does not keep it open
                    connection.sendall(start)
                    start = start and b"a"
                    time.sleep(0.05)
            assert waiting.result()
        assert time.monotonic() - began < 5


def closed_by_the_other_side(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_slow_body_is_given_up(locked, monkeypatch):
    from confide.explorer import server

    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)
    head = (
        f"PUT /api/tag?row=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Confide: 1\r\nCookie: {with_token(locked)['Cookie']}\r\n"
    )
    received = answer(locked.port, f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert received.split(b" ", 2)[1] == b"408"


def test_connections_are_limited_and_the_rest_is_still_answered(locked, monkeypatch):
    from confide.explorer import access

    monkeypatch.setattr(access, "MAX_CONNECTIONS", 5)
    held = [socket.create_connection(("127.0.0.1", locked.port), timeout=10) for _ in range(5)]
    try:
        with socket.create_connection(("127.0.0.1", locked.port), timeout=10) as one_more:
            assert closed_by_the_other_side(one_more)
    finally:
        for connection in held:
            connection.close()
    for _ in range(50):  # until the server has seen them close
        try:
            status = locked.send("GET", "/api/alive", headers=with_token(locked))[0]
            break
        except (ConnectionError, http.client.HTTPException):
            time.sleep(0.02)
    assert status == 200


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://evil.example/api/about HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ],
)
def test_what_is_no_request_of_ours_is_refused(locked, content, capfd):
    received = answer(locked.port, content, seconds=5)
    assert received == b"" or received.split(b" ", 2)[1] in (b"400", b"401", b"403", b"404", b"405", b"421", b"431")
    assert locked.send("GET", "/api/alive", headers=with_token(locked))[0] == 200
    assert "Traceback" not in capfd.readouterr().err


# What leaves: cells that a spreadsheet would run.


@pytest.mark.parametrize(
    "cell",
    [
        "=1",
        "+cmd",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\n=1",
        "\r=1",
        "\t=1",
        " =1",
        "\u00a0=1",
        "\ufeff=1",
        "＝1",
        "-1\n=1",
    ],
)
def test_no_cell_of_an_export_is_a_formula(cell):
    from confide.explorer.session import as_bytes

    text = as_bytes(pa.table({cell: [cell, "plain"]}), "csv").decode()
    assert text.count("'" + cell) == 2


def test_numbers_and_words_leave_as_they_are():
    from confide.explorer.session import as_bytes

    words = ["-1.5", "+3e-2", ".5", "a-b", "1=1", "O'Hara", ""]
    rows = as_bytes(pa.table({"x": words}), "csv").decode().splitlines()[1:]
    assert [json.loads(row) for row in rows] == words


@pytest.mark.slow
def test_a_browser_comes_in_by_the_file_that_holds_the_address(browser, locked, monkeypatch, tmp_path):
    from confide.explorer import launch

    opened: list[str] = []
    monkeypatch.setattr(launch.webbrowser, "open", opened.append)
    launch.open_browser(f"http://127.0.0.1:{locked.port}/?token={TOKEN}&split=test", tmp_path)
    context = browser.new_context()
    page = context.new_page()
    page.goto(opened[0])
    page.wait_for_selector("#cells li:not(.sk):not([hidden]) button[data-row]")
    assert page.url == f"http://127.0.0.1:{locked.port}/?split=test"
    page.reload()  # by the cookie alone
    page.wait_for_selector("#cells li:not(.sk):not([hidden]) button[data-row]")
    context.close()


@pytest.mark.parametrize(("kind", "reaches"), [("lifespan", True), ("websocket", False)])
def test_only_requests_and_the_servers_own_start_reach_the_explorer(kind, reaches):
    """A socket of a page would be answered without its headers having been looked at."""
    reached = []

    async def app(scope, receive, send):
        reached.append(scope["type"])

    asyncio.run(AccessControl(app, "127.0.0.1", "right")({"type": kind}, None, None))
    assert reached == [kind] * reaches
