"""Who may ask, and how much: host names, the token, requests from other sites, safe headers; connections and headers
are limited in number, size and time.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import socket
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

# Host names, the token, requests from other sites.

RequestHeaders = dict[str, list[str]]

COOKIE = "confide_token"
LOCAL = ("127.0.0.1", "localhost", "::1")
ONCE = ("host", "origin", "sec-fetch-site", "x-confide")
"""Headers that decide who may ask: given twice, another program may read the other one."""
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
        headers: RequestHeaders = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        refusal = self._refusal(scope, headers)
        if refusal:
            await _plain_response(send, *refusal)
            return
        address = self._address_without_token(scope)
        if address is not None:
            # A redirect of a link on another site, such as a terminal in a browser, would not send the cookie.
            status, name = (200, b"refresh") if _from_elsewhere(headers) else (303, b"location")
            address = b"0; url=" + address if status == 200 else address
            await _plain_response(send, status, "", [(name, address), (b"set-cookie", self._cookie(scope))])
            return
        if self.token is not None and not self._has_cookie(scope, headers):
            await _plain_response(
                send, 401, "This explorer needs the address with its token, shown where it was started: open that one."
            )
            return
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: RequestHeaders) -> tuple[int, str] | None:
        if any(len(headers.get(name, ())) > 1 for name in ONCE):
            return 400, f"Each of {', '.join(ONCE)} may be given once."
        host = headers.get("host", [""])[0]
        if not self._is_known_host(_without_port(host)):
            return 421, "This explorer does not answer to that host name."
        origin = headers.get("origin", [None])[0]
        if origin is not None and origin.split("://")[-1] != host:
            return 403, "Requests from other sites are refused."
        if _from_elsewhere(headers) and scope["path"] != "/":
            return 403, "Requests from other sites are refused."
        if scope["method"] not in ("GET", "HEAD") and headers.get("x-confide") != ["1"]:
            return 403, "Changes must carry the header X-Confide: 1."
        return None

    def _is_known_host(self, name: str) -> bool:
        if name in LOCAL or name == self.host:
            return True
        if is_local(self.host):
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

    def _cookie(self, scope: Scope) -> bytes:
        return f"{_cookie_name(scope)}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()

    def _has_cookie(self, scope: Scope, headers: RequestHeaders) -> bool:
        """Whether one of the cookies is the token; what other programs of this host name keep there is passed over."""
        pairs = (pair.partition("=") for line in headers.get("cookie", ()) for pair in line.split(";"))
        shown = [value.strip() for name, _, value in pairs if name.strip() == _cookie_name(scope)]
        return any(hmac.compare_digest(value.encode(), (self.token or "").encode()) for value in shown)


def _cookie_name(scope: Scope) -> str:
    """Browsers keep cookies by host name alone: explorers on several ports need a name each."""
    return f"{COOKIE}_{scope['server'][1]}"


def _from_elsewhere(headers: RequestHeaders) -> bool:
    return headers.get("sec-fetch-site", ["none"])[0] not in ("none", "same-origin")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.get("headers", [])
            # A page may have a policy of its own, as strict.
            message["headers"] = [*own, *(pair for pair in HEADERS if pair[0] not in {name for name, _ in own})]
        await send(message)

    return send_with_headers


async def _plain_response(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text.encode()))]
    headers = [*kind, (b"cache-control", b"no-store"), *HEADERS, *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


# Limits on connections.

MAX_CONNECTIONS = 256
REQUEST_SECONDS = 10.0
"""A connection must have sent the head of a request by then, from its start and from the end of a response."""


class LimitedConnection(H11Protocol):  # type: ignore[misc]  # uvicorn is not installed where types are checked
    """A connection that is closed when there are too many, or when no whole head of a request comes in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_request()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(error)

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server_config(app: Any) -> uvicorn.Config:
    """How the app is served: limited connections, no web sockets, no trust in what a proxy says."""
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=2,
    )
