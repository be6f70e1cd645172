#!/usr/bin/env python3
"""libmuon beside torch: do they agree, and who is faster.

    scripts/test-peers --check     only whether they agree; less than a minute
    scripts/test-peers --bench     only the times
    scripts/test-peers             both

scripts/test-peers makes the Python environment this needs. bench/README.md says what the numbers
mean. Exits with 1 if a check fails; a speed is never a failure.
"""

import argparse
import json
import pathlib
import platform
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True

import torch

import agreement
import clib
import test_checkpoints
import test_files
import test_schemes
import timing

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="check agreement only")
    parser.add_argument("--bench", action="store_true", help="measure times only")
    parser.add_argument("--library", default=ROOT / "build/lib/libmuon.so", type=pathlib.Path)
    parser.add_argument("--muonctl", default=ROOT / "build/bin/muonctl", type=pathlib.Path)
    parser.add_argument("--threads", type=int, help="for both [default: as torch chooses]")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contender [9]")
    parser.add_argument("--json", metavar="FILE", help="write the times as JSON lines")
    parser.add_argument(
        "--bf16", action="store_true", help="wait for torch's bf16 on every shape (minutes each)"
    )
    return parser.parse_args()


def run_checks(env):
    passed = failed = 0
    modules = (agreement, test_files, test_checkpoints, test_schemes)
    for check in (check for module in modules for check in module.CHECKS):
        name = check.__name__.replace("_", " ")
        torch.manual_seed(0)
        try:
            print(f"ok    {name}: {check(env)}", flush=True)
            passed += 1
        except AssertionError as error:
            print(f"FAIL  {name}: {error}", flush=True)
            failed += 1
        except Exception:
            print(f"FAIL  {name}:\n{traceback.format_exc()}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed == 0


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "?")


def run_timing(env, json_path):
    print(f"\n{processor()}, {env.threads} threads, torch {torch.__version__}")
    print(f"best of {env.rounds} turns\n")
    print(f"{'problem':28}{'libmuon':20}{'peer':26}{'ms':>9}{'peer ms':>11}{'speedup':>9}  target")
    out = open(json_path, "w") if json_path else None
    for problem in timing.PROBLEMS:
        torch.manual_seed(0)
        for row in problem(env):
            goal = "" if row["target"] is None else f"{row['target']:.1f} "
            goal += {None: "", True: "met", False: "MISSED"}[row["met"]]
            print(
                f"{row['problem']:28}{row['libmuon']:20}{row['peer']:26}{1e3 * row['seconds']:9.1f}"
                f"{1e3 * row['peer_seconds']:11.1f}{row['speedup']:9.2f}  {goal}",
                flush=True,
            )
            if out:
                print(json.dumps(row), file=out, flush=True)


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    for path in (args.library, args.muonctl):
        if not path.exists():
            sys.exit(f"{path} is missing: run make first")
    args.library, args.muonctl = args.library.resolve(), args.muonctl.resolve()
    both = args.check == args.bench
    with tempfile.TemporaryDirectory() as scratch:
        env = argparse.Namespace(
            root=ROOT,
            library=clib.Library(args.library),
            muonctl=args.muonctl,
            scratch=pathlib.Path(scratch),
            threads=torch.get_num_threads(),
            rounds=args.rounds,
            bf16=args.bf16,
        )
        good = run_checks(env) if args.check or both else True
        if args.bench or both:
            run_timing(env, args.json)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
