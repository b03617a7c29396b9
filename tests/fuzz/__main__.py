"""`make fuzz MINUTES=30`: new damage to files for as long; what crashes is kept in the corpus."""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.targets import CORPUS, TARGETS, Crash, mutations, tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time, so that damage is new")
    args = parser.parse_args()
    # A file that makes a reader ask for more than it can need is a crash too.
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    end, crashes, count = time.monotonic() + 60 * args.minutes, {}, 0
    streams = {target: mutations(target, args.seed) for target in TARGETS}
    with TemporaryDirectory() as folder:
        while time.monotonic() < end:
            for target, contents in streams.items():
                content = next(contents)
                count += 1
                try:
                    tried(target, content, Path(folder))
                except (Crash, MemoryError) as error:
                    where = _last_line_of_ours(error)
                    if (target.name, where) not in crashes:
                        crashes[target.name, where] = error
                        kept = CORPUS / target.name / hashlib.sha256(content).hexdigest()[:8]
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        kept.write_bytes(content)
                        print(f"{error}\n  at {where}, kept as {kept}", flush=True)
    print(f"{count} files tried with seed {args.seed}, {len(crashes)} kinds of crash")
    return 1 if crashes else 0


def _last_line_of_ours(error: BaseException) -> str:
    trace, where = (error.__cause__ or error).__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{code.co_filename}:{trace.tb_lineno}" if "confide" in code.co_filename else where
        trace = trace.tb_next
    return where


if __name__ == "__main__":
    sys.exit(main())
