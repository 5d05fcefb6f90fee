"""The learning gates of all presets, and the only writer of what is stored about them.

    python bench/learn.py [PRESET …] [--seeds N] [--first SEED] [--jobs J] [--out DIR] [key=value …]

Trains and judges exactly as `rookery verify` does (rookery.studies.verify). With the gate's seeds from 0 on and no
overrides the figures go to src/rookery/zoo/results.json and the curves to docs/curves/.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rookery.studies.gates import EPISODES, GATES
from rookery.studies.verify import Options, Verdict, gate_of, summary_of, verify

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "src" / "rookery" / "zoo" / "results.json"
CURVES = ROOT / "docs" / "curves"


def measured(found: Verdict) -> dict[str, Any]:
    """The entry of results.json."""
    low, high = found.interval
    figures = {
        f"{found.gate.figure}_iqm": round(found.iqm, 2),
        "interval": [round(low, 2), round(high, 2)],
        "steps": found.runs[0].steps,
        "seeds": len(found.runs),
        "episodes": EPISODES,
        "mode": found.runs[0].mode,
        "gate": found.gate.wanted,
    }
    return {"status": "gold" if found.met and len(found.runs) >= 5 else "silver", "measured": figures}


def curves(found: Verdict) -> dict[str, Any]:
    """The file in docs/curves."""
    low, high = found.interval
    told = {"preset": found.preset, "iqm": found.iqm, "low": low, "high": high, "gate": found.gate.wanted}
    told |= {"met": found.met, "runs": [run.stored() for run in found.runs]}
    return told if found.gate.figure == "return" else told | {"figure": found.gate.figure}


def store(found: Verdict) -> None:
    """Figure into the zoo, curve into the docs."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results[found.preset] = measured(found)
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n", encoding="utf-8")
    CURVES.mkdir(parents=True, exist_ok=True)
    (CURVES / f"{found.preset}.json").write_text(json.dumps(curves(found)) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="presets and key=value overrides")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "learn")
    args = parser.parse_intermixed_args()  # overrides may stand behind the options
    overrides = [word for word in args.words if "=" in word]
    missed = []
    for preset in [word for word in args.words if "=" not in word] or list(GATES):
        gate = gate_of(preset)
        seeds = range(args.first, args.first + (args.seeds or gate.seeds))
        options = Options(lambda text: print(text, flush=True), args.jobs)
        found = verify(preset, overrides, seeds, args.out, options)
        print(*summary_of(found), sep="\n", flush=True)
        if not overrides and args.first == 0 and len(seeds) >= gate.seeds:
            store(found)
        if not found.met:
            missed.append(preset)
    if missed:
        raise SystemExit(f"gates missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
