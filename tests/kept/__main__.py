"""`python -m tests.kept [FAMILY ...]`: write the kept numbers anew."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from tests.kept.entries import worked_out
from tests.kept.families import FAMILIES

for family in sys.argv[1:] or FAMILIES:
    began, numbers = time.process_time(), {}
    for name, make in FAMILIES[family]():
        own = time.process_time()
        try:
            numbers[name] = worked_out(make)
        except Exception:
            print(family, name, " | ".join(traceback.format_exc(limit=-2).splitlines()[1:])[-400:])
        if time.process_time() - own > 1:
            print(f"  {family}/{name}: {time.process_time() - own:.1f} s")
    text = (
        "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in numbers.items()) + "\n}\n"
    )
    (Path(__file__).parent / f"{family}.json").write_text(text, encoding="utf-8")
    print(f"{family}: {len(numbers)} entries, {time.process_time() - began:.1f} s, {len(text):,} bytes")
