"""Start the explorer: a free port, an address to open, and a server until it is stopped."""

from __future__ import annotations

import errno
import socket
import webbrowser
from collections.abc import Callable
from contextlib import closing
from typing import Any

from confide.core.door import InputError, MissingExtra, check_range
from confide.explorer.guard import is_local, new_token
from confide.explorer.layout import Layout


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
        for line in lines(layout, address, token):
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
        raise refusal(host, port, error) from None


def refusal(host: str, port: int, error: OSError) -> InputError:
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


def lines(layout: Layout, address: str, token: str | None) -> list[str]:
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

    from confide.explorer import export
    from confide.explorer.opened import Explorer
    from confide.explorer.questions import ask

    name = target.removeprefix("fiftyone:") if target.startswith("fiftyone:") else None
    if name is None and Path(target).suffix[1:] not in export.FORMATS:
        raise InputError(f"--export must be a .csv or .parquet file, or fiftyone:NAME, got '{target}'")
    explorer = Explorer(layout)
    question = ask(explorer.table, [])
    rows = explorer.table.numbers("SELECT row FROM marks ORDER BY row")
    found = export.export_table(explorer.table, question, rows)
    if name is None:
        export.write_export(Path(target), found)
    else:
        export.to_fiftyone(found, rows, explorer.pictures, layout.tags.with_name("fiftyone"), name)
    return {"exported": target, "samples": len(rows)}
