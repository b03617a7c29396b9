"""Start the explorer: a free port, an address to open, who may ask (host names, token, headers), and a server until
it
is stopped. Loads neither FastAPI nor DuckDB.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from confide.checks import InputError, MissingExtra, check_range
from confide.explorer.layout import Layout

# The guard of the server: who may ask. Host names, the token, requests from other sites, and safe headers.

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "confide_token"
LOCAL = ("127.0.0.1", "localhost", "::1")
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def is_local(host: str) -> bool:
    """Whether an address is this machine's own, reachable from nowhere else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """A token nobody guesses."""
    return secrets.token_urlsafe(32)


class Guard:
    """ASGI middleware. Without a token only local host names are answered; with one, only who shows it.

    A page of another site can make a browser send requests here. Against that: the Host header must be an address
    (a name that another site's DNS points here is refused), changes need the header `X-Confide` (which no form can
    send and no other site may), an Origin that is given must be ours, and the cookie is never sent from other sites.
    """

    def __init__(self, app: Any, host: str, token: str | None, explorer: Any = None) -> None:
        self.app, self.host, self.token, self.explorer = app, host, token, explorer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        reason = self._refusal(scope, headers)
        if reason:
            await _plain_response(send, *reason)
            return
        entry = self._entry(scope)
        if entry is not None:
            await _plain_response(send, 303, "", [(b"location", entry), (b"set-cookie", self._cookie())])
            return
        if self.token is not None and not self._shown(headers):
            await _plain_response(
                send, 401, "This explorer needs the address with its token, shown where it was started."
            )
            return
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._known(_without_port(host)):
            return 421, "This explorer does not answer to that host name."
        origin = headers.get("origin")
        if origin is not None and origin.split("://")[-1] != host:
            return 403, "Requests from other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and scope["path"] != "/":
            return 403, "Requests from other sites are refused."
        if scope["method"] not in ("GET", "HEAD") and headers.get("x-confide") != "1":
            return 403, "Changes must carry the header X-Confide: 1."
        return None

    def _known(self, name: str) -> bool:
        if name in LOCAL or name == self.host:
            return True
        if self.token is None:
            return is_local(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in (socket.gethostname(), socket.getfqdn())
        return True

    def _entry(self, scope: Scope) -> bytes | None:
        """The address without the token, when the right token came with it."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for key, value in pairs if key == "token"), None)
        if self.token is None or given is None or not hmac.compare_digest(given.encode(), self.token.encode()):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        return b"/" + (b"?" + rest.encode() if rest else b"")

    def _cookie(self) -> bytes:
        return f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()

    def _shown(self, headers: dict[str, str]) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        cookies.load(headers.get("cookie", ""))
        given = cookies[COOKIE].value if COOKIE in cookies else ""
        return hmac.compare_digest(given.encode(), (self.token or "").encode())


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _with_headers(send: Send) -> Send:
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return guarded


async def _plain_response(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *(more or [])]})
    await send({"type": "http.response.body", "body": text.encode()})


# Start the explorer: a free port, an address to open, and a server until it is stopped.


def check_packages() -> None:
    """The packages of the extra, or one line that names it."""
    for package in ("fastapi", "uvicorn", "duckdb"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "explore", "the explorer") from None


def serve(
    layout: Layout,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    browser: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a layout until interrupted.

    Args:
        host: an address other than this machine's own gets a token, which is said once.
        port: 0 takes any free one.
        browser: open a browser at the address.
        say: gets the lines for the terminal.
    """
    check_packages()
    import torch
    import uvicorn

    # Logits are read in small blocks beside DuckDB's own threads: more of torch's would wait for each other.
    torch.set_num_threads(1)
    with closing(bind(host, port)) as listening:
        from confide.explorer.server import create_app

        token = None if is_local(host) else new_token()
        app = create_app(layout, host, token)
        address = address_of(host, listening.getsockname()[1], token)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        app.explorer.warm_up()
        # The socket listens already: what asks from now on waits a moment and is answered.
        listening.listen(128)
        for line in start_lines(layout, address, token):
            say(line)
        if browser:
            webbrowser.open(address)
        try:
            server.run(sockets=[listening])
        finally:
            app.explorer.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, or one clear line."""
    check_range(port, "port", 0, 65535)
    found = None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
        return found
    except OSError as error:
        if found is not None:
            found.close()
        raise address_error(host, port, error) from None


def address_error(host: str, port: int, error: OSError) -> InputError:
    """Why an address cannot be had, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return InputError(
            f"port {port} must be free, but another program listens on it; choose another with --port, "
            "or --port 0 for any"
        )
    if error.errno == errno.EACCES:
        return InputError(f"port {port} must be one that you may open; choose one above 1023")
    return InputError(f"--host must be an address of this machine, got '{host}' ({error.strerror})")


def address_of(host: str, port: int, token: str | None) -> str:
    """The address to open."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def start_lines(layout: Layout, address: str, token: str | None) -> list[str]:
    """What the terminal says at the start."""
    told = [f"{m.what}: {m.why} ({m.command})" for m in layout.missing]
    told += [f"explorer: {address}"]
    if token:
        told.append(
            "The token is shown this once; your browser keeps it as a cookie. Anyone who has it can read and tag."
        )
    told.append(f"tags are kept in {layout.tags}; Ctrl-C stops")
    return told


def export_tags(layout: Layout, target: str) -> dict[str, Any]:
    """Write the tagged samples to .csv or .parquet, or to FiftyOne as `fiftyone:NAME`; no server is started."""
    check_packages()
    from pathlib import Path

    from confide.explorer import session
    from confide.explorer.queries import parse_question
    from confide.explorer.session import Explorer

    name = target.removeprefix("fiftyone:") if target.startswith("fiftyone:") else None
    if name is None and Path(target).suffix[1:] not in session.FORMATS:
        raise InputError(f"--export must be a .csv or .parquet file, or fiftyone:NAME, got '{target}'")
    explorer = Explorer(layout)
    question = parse_question(explorer.table, [])
    rows = explorer.table.numbers("SELECT row FROM marks ORDER BY row")
    found = session.export_table(explorer.table, question, rows)
    if name is None:
        session.write_export(Path(target), found)
    else:
        session.to_fiftyone(found, rows, explorer.pictures, layout.tags.with_name("fiftyone"), name)
    return {"exported": target, "samples": len(rows)}
