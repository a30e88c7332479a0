"""``make bench``: every ratio in one run, under two minutes."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from valuestream_dagster.bench import catch_up, history, large_file

_PARTS = {
    "one large CSV: verified publication against an unsafe COPY (target 1.35, never over 1.6)": large_file.measure,
    "a year caught up as one range, with events (target 25 a second, never under 15)": catch_up.measure,
    "no-op apply and status after 100 and 10,000 deliveries (flat, and nothing written)": history.measure,
}


def main() -> None:
    """Measure and print; ``--json FILE`` keeps the numbers."""
    parser = argparse.ArgumentParser(prog="valuestream bench", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("bench-work"), help="folder for what is measured on")
    parser.add_argument("--json", type=Path, default=None, help="file to write the numbers to")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    answers: dict[str, object] = {}
    for title, measure in _PARTS.items():
        print(title, flush=True)
        answer = measure(asked.work.resolve())
        answers[measure.__module__.rpartition(".")[2]] = answer
        for name, value in answer.items():
            print(f"  {name:32} {value}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all.")
    if asked.json:
        asked.json.write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
