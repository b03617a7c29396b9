"""What this user wrote, told from what came from elsewhere: a signature by a key in the user's own config folder.

A run folder may be mailed. What it names is opened without a question only where its manifest was signed here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from pathlib import Path

from confide.files import disk
from confide.types import JsonObject

KEY_BYTES = 32


def config_folder() -> Path:
    """Where this user's settings for confide lie; it need not exist."""
    own = os.environ.get("APPDATA") if sys.platform == "win32" else os.environ.get("XDG_CONFIG_HOME")
    return Path(own or Path.home() / ".config") / "confide"


def sign(content: JsonObject) -> JsonObject:
    """The JSON object with its signature; without one where this user can keep no key."""
    key = _key(create=True)
    return dict(content) if key is None else {**content, "signature": _signature(content, key)}


def is_signed_here(content: JsonObject) -> bool:
    """Whether this user's key signed the JSON object, and nothing of it changed since."""
    key, signature = _key(create=False), content.get("signature")
    rest = {name: value for name, value in content.items() if name != "signature"}
    return (
        key is not None
        and isinstance(signature, str)
        and hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(rest, key).encode())
    )


def _signature(content: JsonObject, key: bytes) -> str:
    text = json.dumps(content, sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes | None:
    """The key of this user, made when first needed; None where there is none or it cannot be read."""
    try:
        path = config_folder() / "key"
        if create and not path.exists():
            disk.make_folder(path.parent)
            disk.new_private_file(path, secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes() if path.is_file() else b""
    except (OSError, RuntimeError):  # no home, no room, no rights, or another process makes the key just now
        return None
    return key if len(key) == KEY_BYTES else None
