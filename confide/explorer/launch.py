"""Start the explorer: the address and its port, the server until it is stopped, the export of tags.

Neither FastAPI nor DuckDB is loaded before one of these functions is called.
"""

from __future__ import annotations

import errno
import html
import socket
import tempfile
import webbrowser
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confide.checks import InputError, MissingExtra, check_range, printable
from confide.explorer.layout import Layout, Missing
from confide.files.disk import atomic

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
    token: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a layout as a web page until interrupted.

    Args:
        layout: what to show, of `open_layout`.
        host: the address to listen on.
        port: 0 takes any free one.
        browser: open a browser at the address.
        token: only who shows the token in the printed address may look and tag; without one every user of this
            machine may. An address that other machines reach always needs it.
        say: gets the lines for the terminal.

    Returns:
        Nothing; it ends with Ctrl-C.

    Raises:
        InputError: where the port is taken, the address is not of this machine, or other machines reach it and no
            token is asked for.
        MissingExtra: without the packages of `confide[explore]`.

    Example:
        >>> from confide.explorer import open_layout, serve
        >>> serve(open_layout("runs/demo"), port=0, browser=True)  # doctest: +SKIP
    """
    check_packages()
    import torch
    import uvicorn

    from confide.explorer.access import is_local, new_token, server_config

    if not token and not is_local(host):
        raise InputError(
            f"an explorer that other machines reach must have a token, but --no-token came with --host {host}; "
            "leave out one of them"
        )
    # Logits are read in small blocks beside DuckDB's own threads: more of torch's would wait for each other.
    torch.set_num_threads(1)
    with closing(bind(host, port)) as listening:
        from confide.explorer.server import create_app
        from confide.explorer.session import Explorer

        secret = new_token() if token else None
        explorer = Explorer(layout)
        server = uvicorn.Server(server_config(create_app(explorer, host, secret)))
        address = address_of(host, listening.getsockname()[1], secret)
        explorer.warm_up()
        # The socket listens already: requests from now on wait a moment and are answered.
        listening.listen(128)
        for line in start_lines(layout, address, token):
            say(printable(line))
        with tempfile.TemporaryDirectory(prefix="confide-explore-") as folder:
            if browser:
                open_browser(address, Path(folder))
            try:
                server.run(sockets=[listening])
            finally:
                explorer.close()


def open_browser(address: str, folder: Path) -> None:
    """Open a browser by a file that only this user may read: every user sees the words a program is started with."""
    page = folder / "explorer.html"
    with atomic(page) as temporary:
        temporary.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">', encoding="utf-8")
    webbrowser.open(page.as_uri())


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


def start_lines(layout: Layout, address: str, token: bool) -> list[str]:
    """The lines for the terminal at the start."""
    pictures = [layout.data] if isinstance(layout.data, Missing) else []
    missing = [f"{m.what}: {m.why} ({m.command})" for m in (*layout.missing, *pictures)]
    shown_once = "The token is shown this once; your browser keeps it as a cookie. Anyone who has it can read and tag."
    no_token = "Without a token every user of this machine can read and tag."
    tags = f"tags are kept in {layout.tags}; Ctrl-C stops"
    return [*missing, f"explorer: {address}", shown_once if token else no_token, tags]


@dataclass(frozen=True)
class TagExport:
    """Where tagged samples were written, and how many."""

    exported: str
    samples: int


def export_tags(layout: Layout, target: str, *, top: int | None = None, sort: str | None = None) -> TagExport:
    """Write the tagged samples, or the first ones, with their columns, predictions and tags; no server is started.

    Args:
        layout: what was tagged, of `open_layout`.
        target: a .csv or .parquet file, or `fiftyone:NAME` for a dataset of FiftyOne.
        top: instead of the tagged ones, so many from the head of the explorer's order: the hardest, or the least sure.
        sort: with `top`, the column that orders them; `-name` from the largest.

    Returns:
        Where they were written, and how many there are.

    Raises:
        InputError: a target of another kind.

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
    if top is not None:
        check_range(top, "top", 1)
    explorer = session.Explorer(layout)
    query = parse_query(explorer.database, [] if sort is None else [("sort", sort)])
    rows = explorer.rows_to_export(query, "tags") if top is None else explorer.rows_to_export(query, "selection")[:top]
    table = session.export_table(explorer.database, query, rows)
    if name is None:
        session.write_export(Path(target), table)
    else:
        session.to_fiftyone(table, rows, explorer.pictures, layout.tags.with_name("fiftyone"), name)
    explorer.close()
    return TagExport(target, len(rows))
