"""Start the explorer: the address and its port, who has access, the server until it is stopped, the export of tags.

Neither FastAPI nor DuckDB is loaded before one of these functions is called.
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
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from confide.checks import InputError, MissingExtra, check_range
from confide.explorer.layout import Layout

# Start.


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
    """Serve a layout as a web page until interrupted.

    Args:
        layout: what to show, of `open_layout`.
        host: an address other than this machine's own gets a token, which is shown once.
        port: 0 takes any free one.
        browser: open a browser at the address.
        say: gets the lines for the terminal.

    Returns:
        Nothing; it ends with Ctrl-C.

    Raises:
        InputError: where the port is taken or the address is not of this machine.
        MissingExtra: without the packages of `confide[explore]`.

    Example:
        >>> from confide.explorer import open_layout, serve
        >>> serve(open_layout("runs/demo"), port=0, browser=True)  # doctest: +SKIP
    """
    check_packages()
    import torch
    import uvicorn

    # Logits are read in small blocks beside DuckDB's own threads: more of torch's would wait for each other.
    torch.set_num_threads(1)
    with closing(bind(host, port)) as listening:
        from confide.explorer.server import create_app
        from confide.explorer.session import Explorer

        token = None if is_local(host) else new_token()
        explorer = Explorer(layout)
        app = create_app(explorer, host, token)
        address = address_of(host, listening.getsockname()[1], token)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        explorer.warm_up()
        # The socket listens already: requests from now on wait a moment and are answered.
        listening.listen(128)
        for line in start_lines(layout, address, token):
            say(line)
        if browser:
            webbrowser.open(address)
        try:
            server.run(sockets=[listening])
        finally:
            explorer.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, or one clear line."""
    check_range(port, "port", 0, 65535)
    listening = None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        return listening
    except OSError as error:
        if listening is not None:
            listening.close()
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
    """The lines for the terminal at the start."""
    missing = [f"{m.what}: {m.why} ({m.command})" for m in layout.missing]
    shown_once = "The token is shown this once; your browser keeps it as a cookie. Anyone who has it can read and tag."
    tags = f"tags are kept in {layout.tags}; Ctrl-C stops"
    return [*missing, f"explorer: {address}", *([shown_once] if token else []), tags]


@dataclass(frozen=True)
class TagExport:
    """Where tagged samples were written, and how many."""

    exported: str
    samples: int


def export_tags(layout: Layout, target: str) -> TagExport:
    """Write the tagged samples with their columns, predictions and tags; no server is started.

    Args:
        layout: what was tagged, of `open_layout`.
        target: a .csv or .parquet file, or `fiftyone:NAME` for a dataset of FiftyOne.

    Returns:
        Where they were written, and how many there are.

    Example:
        >>> import torch
        >>> from confide.explorer import export_tags, open_layout
        >>> confide.Predictions(torch.eye(3), torch.arange(3)).save("val.parquet")
        >>> export_tags(open_layout("val.parquet"), "tags.csv")
        TagExport(exported='tags.csv', samples=0)
    """
    check_packages()
    from confide.explorer import session
    from confide.explorer.queries import parse_query

    name = target.removeprefix("fiftyone:") if target.startswith("fiftyone:") else None
    if name is None and Path(target).suffix[1:] not in session.FORMATS:
        raise InputError(f"--export must be a .csv or .parquet file, or fiftyone:NAME, got '{target}'")
    explorer = session.Explorer(layout)
    query = parse_query(explorer.database, [])
    rows = explorer.rows_to_export(query, "tags")
    table = session.export_table(explorer.database, query, rows)
    if name is None:
        session.write_export(Path(target), table)
    else:
        session.to_fiftyone(table, rows, explorer.pictures, layout.tags.with_name("fiftyone"), name)
    explorer.close()
    return TagExport(target, len(rows))


# Access: host names, the token, requests from other sites, and safe headers.

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


class AccessControl:
    """ASGI middleware. Without a token only local host names are answered; with one, only who shows it.

    A page of another site can make a browser send requests here. Against that: the Host header must be an address
    (a name that another site's DNS points here is refused), changes need the header `X-Confide` (which no form can
    send and no other site may), an Origin that is given must be ours, and the cookie is never sent from other sites.
    """

    def __init__(self, app: Any, host: str, token: str | None) -> None:
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal:
            await _plain_response(send, *refusal)
            return
        address = self._address_without_token(scope)
        if address is not None:
            await _plain_response(send, 303, "", [(b"location", address), (b"set-cookie", self._cookie())])
            return
        if self.token is not None and not self._has_cookie(headers):
            await _plain_response(
                send, 401, "This explorer needs the address with its token, shown where it was started."
            )
            return
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_known_host(_without_port(host)):
            return 421, "This explorer does not answer to that host name."
        origin = headers.get("origin")
        if origin is not None and origin.split("://")[-1] != host:
            return 403, "Requests from other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and scope["path"] != "/":
            return 403, "Requests from other sites are refused."
        if scope["method"] not in ("GET", "HEAD") and headers.get("x-confide") != "1":
            return 403, "Changes must carry the header X-Confide: 1."
        return None

    def _is_known_host(self, name: str) -> bool:
        if name in LOCAL or name == self.host:
            return True
        if self.token is None:
            return is_local(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in (socket.gethostname(), socket.getfqdn())
        return True

    def _address_without_token(self, scope: Scope) -> bytes | None:
        """The address without the token, when the right token came with it."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = next((value for key, value in pairs if key == "token"), None)
        if self.token is None or shown is None or not hmac.compare_digest(shown.encode(), self.token.encode()):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        return b"/" + (b"?" + rest.encode() if rest else b"")

    def _cookie(self) -> bytes:
        return f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        cookies.load(headers.get("cookie", ""))
        shown = cookies[COOKIE].value if COOKIE in cookies else ""
        return hmac.compare_digest(shown.encode(), (self.token or "").encode())


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return send_with_headers


async def _plain_response(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *(more or [])]})
    await send({"type": "http.response.body", "body": text.encode()})
