"""The guard of the server: who may ask. Host names, the token, requests from other sites, and safe headers."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

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
            await _answer(send, *reason)
            return
        entry = self._entry(scope)
        if entry is not None:
            await _answer(send, 303, "", [(b"location", entry), (b"set-cookie", self._cookie())])
            return
        if self.token is not None and not self._shown(headers):
            await _answer(send, 401, "This explorer needs the address with its token, shown where it was started.")
            return
        await self.app(scope, receive, _safe(send))

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


def _safe(send: Send) -> Send:
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return guarded


async def _answer(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *(more or [])]})
    await send({"type": "http.response.body", "body": text.encode()})
