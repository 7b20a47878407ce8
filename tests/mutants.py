#!/usr/bin/env python3
"""Asks whether the tests notice a change of the code: the mutants of cargo-mutants, compiled all at once.

    tests/mutants.py prepare FOLDER      copies the repository to FOLDER, puts every mutant into its code, and builds the tests
    tests/mutants.py run FOLDER [K/N]    runs the tests against the mutants of part K of N, and writes FOLDER/results.jsonl
    tests/mutants.py report FOLDER       counts the results, and prints the mutants that survived and are not in mutants.txt

A mutant that cargo-mutants makes changes one place of one function. Here the body of a function becomes a `match` over the
number of the mutant, with one arm for each of its mutants and the body itself for every other number; the environment variable
ANNALS_MUTANT chooses it. So the engine is compiled once, and not once for each mutant. Mutants that do not compile are taken
out, round by round, as the errors of the compiler name their lines. Functions report that they were called, so a mutant is
tried by the tests that call its function, the quickest ones first.

Needed: cargo-mutants (`cargo install cargo-mutants --locked`).
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    "src/store/sqlite/**/*.rs", "src/store/memory/**/*.rs", "src/channel/list/**/*.rs", "src/channel/list.rs",
    "crates/annals-graph/src/exec/**/*.rs", "crates/annals-graph/src/run/**/*.rs",
]
# The packages whose tests are run: their unit tests and `it`.
PACKAGES = ["annals", "annals-graph"]
# Tests that take longer alone are left out: they draw at random or wait.
SLOW_TEST_S = 20.0
# The tests of one mutant take at most so long, as measured without a mutant.
BUDGET_S = float(os.environ.get("BUDGET_S", "60"))
# The switch, in the crate below all others.
SWITCH = '''
#[doc(hidden)]
pub mod mutants {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    static CHOSEN: AtomicU32 = AtomicU32::new(u32::MAX);
    static REPORTED: [AtomicBool; FUNCTIONS] = [const { AtomicBool::new(false) }; FUNCTIONS];
    static REPORTS: std::sync::OnceLock<Option<std::fs::File>> = std::sync::OnceLock::new();

    /// Returns the number of the mutant, or 0. Reports the call of a function.
    pub fn chosen(function: usize) -> u32 {
        let mut number = CHOSEN.load(Ordering::Relaxed);
        if number == u32::MAX {
            number = std::env::var("ANNALS_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            CHOSEN.store(number, Ordering::Relaxed);
        }
        if number == 0 && !REPORTED[function].swap(true, Ordering::Relaxed) {
            report(function);
        }
        number
    }

    #[cold]
    fn report(function: usize) {
        use std::io::Write;
        let open = || {
            let path = std::env::var_os("ANNALS_MUTANT_CALLS")?;
            std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
        };
        if let Some(mut file) = REPORTS.get_or_init(open).as_ref() {
            let _ = file.write_all(format!("{function}\\n").as_bytes());
        }
    }
}
'''


def listed():
    """The mutants of cargo-mutants, as it lists them."""
    command = ["cargo", "mutants", "--list", "--json", "--exclude", "**/tests/**"]
    for package in PACKAGES:
        command += ["--package", package]
    for file in FILES:
        command += ["--file", file]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def offset(starts, place):
    """The offset of a place, whose column counts characters from 1."""
    return starts[place["line"] - 1] + place["column"] - 1


def body_of(text, begin, end):
    """The offsets of the braces of a function's body, or None."""
    depth, at = 0, begin
    seen_name = False
    while at < end:
        rest = text[at:end]
        skipped = re.match(r'//[^\n]*|/\*.*?\*/|r?#*"(?:\\.|[^"\\])*"#*|\'(?:\\.|[^\\\'])\'', rest, re.S)
        if skipped:
            at += skipped.end()
            continue
        if re.match(r"fn\b", rest):
            seen_name = True
        if text[at] in "([":
            depth += 1
        elif text[at] in ")]":
            depth -= 1
        elif text[at] == "{" and depth == 0 and seen_name:
            return at, end - 1
        at += 1
    return None


class Functions:
    """The functions with their mutants."""

    def __init__(self, mutants, texts):
        self.functions = {}
        self.left_out = defaultdict(list)
        for number, mutant in enumerate(mutants, 1):
            text = texts[mutant["file"]]
            starts = [0]
            for line in text.split("\n"):
                starts.append(starts[-1] + len(line) + 1)
            function = mutant.get("function")
            if not function:
                self.left_out["not in a function"].append(number)
                continue
            begin, end = offset(starts, function["span"]["start"]), offset(starts, function["span"]["end"])
            body = body_of(text, begin, end)
            if body is None or text[body[1]] != "}":
                self.left_out["body not found"].append(number)
                continue
            signature = text[begin:body[0]]
            if re.search(r"\bconst fn\b", signature):
                self.left_out["const fn"].append(number)
                continue
            if re.search(r"->\s*impl\b", signature):
                self.left_out["returns impl"].append(number)
                continue
            first, last = offset(starts, mutant["span"]["start"]), offset(starts, mutant["span"]["end"])
            if first < body[0] or last > body[1] + 1:
                self.left_out["outside the body"].append(number)
                continue
            key = (mutant["file"], *body)
            self.functions.setdefault(key, []).append((number, first, last, mutant["replacement"]))
        # A function within another one is left as it is.
        for key in list(self.functions):
            file, begin, end = key
            if any(f == file and b < begin and end < e for f, b, e in self.functions):
                self.left_out["nested function"] += [one[0] for one in self.functions.pop(key)]
        self.numbers = {key: at for at, key in enumerate(sorted(self.functions))}


def mutated(text, functions, file, skip, crate):
    """The text of a file with its mutants, and the ranges of lines of each."""
    pieces, lines, at, line = [], [], 0, 1

    def push(piece):
        nonlocal line
        pieces.append(piece)
        line += piece.count("\n")

    for key in sorted(key for key in functions.functions if key[0] == file):
        _, begin, end = key
        mutants = [one for one in functions.functions[key] if one[0] not in skip]
        if not mutants:
            continue
        push(text[at:begin])
        body = text[begin:end + 1]
        push("{ match " + crate + "::mutants::chosen(" + str(functions.numbers[key]) + ") {\n")
        for number, first, last, replacement in mutants:
            start = line
            arm = text[begin:first] + replacement + text[last:end + 1]
            if not arm.startswith("{"):
                arm = "{" + arm + "}"
            push(f"{number} => {arm}\n")
            lines.append((start, line, number))
        push("_ => " + body + "\n} }")
        at = end + 1
    push(text[at:])
    return "".join(pieces), lines


def prepare(folder):
    folder.mkdir(parents=True, exist_ok=True)
    mutants = listed()
    files = sorted({mutant["file"] for mutant in mutants})
    texts = {file: (ROOT / file).read_text() for file in files}
    functions = Functions(mutants, texts)
    copy = folder / "source"
    shutil.rmtree(copy, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    for name in filter(None, tracked):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    base = copy / "crates/annals-base/src/lib.rs"
    base.write_text(base.read_text() + SWITCH.replace("FUNCTIONS", str(max(1, len(functions.functions)))))
    skip = {}
    for round_ in range(1, 40):
        ranges = {}
        for file in files:
            text, ranges[file] = mutated(texts[file], functions, file, skip, "annals_base" if file.startswith("src/") else "annals::base")
            if not (copy / file).exists() or (copy / file).read_text() != text:
                (copy / file).write_text(text)
        errors, found = check(copy, folder), 0
        for file, line, text in errors:
            for first, last, number in ranges.get(file, []):
                if first <= line < last or (first == last == line):
                    found += number not in skip
                    skip[number] = text
        print(f"round {round_}: {len(errors)} errors, {found} mutants taken out", flush=True)
        if not errors:
            break
        if not found:
            sys.exit("the compiler refuses lines without a mutant: " + json.dumps(errors[:3]))
    runners = build(copy, folder)
    tried = {number for key in functions.functions for number, *_ in functions.functions[key]} - set(skip)
    plan = {
        "mutants": {n: {"name": m["name"], "genre": m["genre"]} for n, m in enumerate(mutants, 1)},
        "tried": sorted(tried),
        "unviable": sorted(skip),
        "left_out": {why: numbers for why, numbers in functions.left_out.items()},
        "function": {n: functions.numbers[key] for key in functions.functions for n, *_ in functions.functions[key]},
        "runners": runners,
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    print(f"{len(mutants)} mutants: {len(tried)} compiled, {len(skip)} do not compile, "
          + ", ".join(f"{len(n)} {why}" for why, n in functions.left_out.items()))
    calls(folder, plan)


def environment(folder):
    return dict(os.environ, CARGO_TARGET_DIR=str(folder / "target"), CARGO_INCREMENTAL="0", RUSTFLAGS="--cap-lints allow",
                CARGO_PROFILE_DEV_DEBUG="0", RUST_MIN_STACK=str(1 << 27))


def cargo(copy, folder, *arguments):
    command = ["cargo", *arguments, "--message-format=json"]
    done = subprocess.run(command, cwd=copy, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def targets():
    return [argument for package in PACKAGES for argument in ("-p", package)]


def check(copy, folder):
    """The errors of the compiler, by file and line."""
    status, messages, stderr = cargo(copy, folder, "check", "--lib", "--keep-going", *targets())
    errors = []
    for message in messages:
        if message.get("reason") != "compiler-message" or message["message"]["level"] != "error":
            continue
        for span in message["message"]["spans"]:
            if span["is_primary"]:
                while span.get("expansion") and not (copy / span["file_name"]).exists():
                    span = span["expansion"]["span"]
                errors.append((span["file_name"], span["line_start"], message["message"]["message"]))
    if status and not errors:
        sys.exit(stderr)
    return errors


def build(copy, folder):
    """The test programs, with the folder in which each runs."""
    status, messages, stderr = cargo(copy, folder, "test", "--no-run", "--lib", "--test", "it", *targets())
    if status:
        sys.exit(stderr)
    found = []
    for message in messages:
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            found.append([message["executable"], str(Path(message["manifest_path"]).parent)])
    return found


def start(folder, runner, tests, **env):
    """Starts a test program. Its temporary files have a folder of their own: it may be killed before it removes them."""
    program, home = runner
    scratch = tempfile.mkdtemp()
    env = dict(environment(folder), CARGO_MANIFEST_DIR=home, RUST_BACKTRACE="0", TMPDIR=scratch, **env)
    process = subprocess.Popen([program, "--exact", "--test-threads=1", *tests], cwd=home, env=env, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process.scratch = scratch
    return process


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    shutil.rmtree(process.scratch, ignore_errors=True)


def calls(folder, plan):
    """Runs each test alone without a mutant: how long it takes, and which functions it calls."""
    tests = []
    work = []
    for at, (program, home) in enumerate(plan["runners"]):
        names = subprocess.run([program, "--list", "--format", "terse"], cwd=home, capture_output=True, text=True).stdout
        work += [(at, line.rsplit(":", 1)[0]) for line in names.splitlines() if line.endswith(": test")]
    lock = threading.Lock()

    def one(thread):
        report = folder / f"calls.{thread}"
        while True:
            with lock:
                if not work:
                    return
                at, name = work.pop()
            report.unlink(missing_ok=True)
            begin = time.monotonic()
            process = start(folder, plan["runners"][at], [name], ANNALS_MUTANT_CALLS=str(report))
            watchdog = threading.Timer(4 * SLOW_TEST_S, end, [process])
            watchdog.start()
            output = process.stdout.read()
            watchdog.cancel()
            took = time.monotonic() - begin
            end(process)
            called = sorted({int(line) for line in report.read_text().split()}) if report.exists() else []
            with lock:
                tests.append({"runner": at, "name": name, "s": took, "ok": " 1 passed" in output, "calls": called})

    threads = [threading.Thread(target=one, args=[n]) for n in range(os.cpu_count())]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    failed = [test["name"] for test in tests if not test["ok"] and test["s"] < SLOW_TEST_S]
    (folder / "tests.json").write_text(json.dumps(tests))
    print(f"{len(tests)} tests, {len(failed)} of which fail without a mutant: {' '.join(failed)}")


def verdict(folder, plan, number, tests, first, tried):
    """Runs the tests that call the function of a mutant, beginning with `first`, without the `tried` quickest ones. Returns
    `caught`, `hung`, `survived` or `uncalled`, by what test, and how many of the quickest ones have been tried."""
    if not tests:
        return "uncalled", "", 0
    spent = sum(test["s"] for test in tests[:tried])
    chosen = [test for test in first if test not in tests[:tried]]
    last = tried
    while last < len(tests) and (spent + tests[last]["s"] <= BUDGET_S or last == 0):
        spent += tests[last]["s"]
        chosen += [tests[last]] if tests[last] not in chosen else []
        last += 1
    # A few tests first: most mutants are caught by them, and the start of a program has a cost.
    for group in [chosen[:8], chosen[8:60], chosen[60:]]:
        by_runner = defaultdict(list)
        for test in group:
            by_runner[test["runner"]].append(test)
        for at, some in by_runner.items():
            limit = 8 + 8 * sum(test["s"] for test in some)
            process = start(folder, plan["runners"][at], [test["name"] for test in some], ANNALS_MUTANT=str(number))
            late = threading.Event()

            def stop():
                late.set()
                end(process)

            watchdog = threading.Timer(limit, stop)
            watchdog.start()
            failed, finished = "", False
            for line in process.stdout:
                if line.startswith("test ") and line.rstrip().endswith("FAILED"):
                    failed = line.split()[1]
                    break
                finished |= line.startswith("test result: ok")
            watchdog.cancel()
            end(process)
            if failed:
                return "caught", failed, last
            if late.is_set():
                return "hung", some[0]["name"], last
            if not finished:
                return "caught", "the process ended", last
    return "survived", "", last


def run(folder, part):
    plan, tests = json.loads((folder / "plan.json").read_text()), json.loads((folder / "tests.json").read_text())
    k, n = (int(number) for number in part.split("/"))
    results = folder / "results.jsonl"
    # A mutant that survived a smaller budget is tried again, by the tests that it has not seen.
    before = {line["number"]: line for line in read(results)}
    by_function = defaultdict(list)
    for test in sorted(tests, key=lambda test: test["s"]):
        if test["ok"] and test["s"] <= SLOW_TEST_S:
            for function in test["calls"]:
                by_function[function].append(test)
    by_name = {test["name"]: test for test in tests}
    # The tests that caught another mutant, by function and by file, the last one last.
    caught = defaultdict(list)

    def places(number):
        return plan["function"][str(number)], plan["mutants"][str(number)]["name"].split(":")[0]

    def note(number, by):
        for place in places(number):
            caught[place] = [test for test in caught[place] if test["name"] != by] + [by_name[by]]

    for line in before.values():
        if line["by"] in by_name and line["verdict"] == "caught":
            note(line["number"], line["by"])
    again = lambda line: line["verdict"] == "survived" and line["budget_s"] < BUDGET_S
    work = [number for number in plan["tried"] if number % n == k and (number not in before or again(before[number]))]
    work.reverse()
    lock = threading.Lock()

    def one():
        while True:
            with lock:
                if not work:
                    return
                number = work.pop()
                function, source = places(number)
                first = caught[function][::-1][:12]
                first += [test for test in caught[source][::-1] if function in test["calls"] and test not in first][:24]
                # A test in a module of a similar name aims at the file, and one that calls few functions aims at these.
                stem = next(part for part in Path(source).with_suffix("").parts[::-1] if part != "mod")[:4]
                named = lambda test: any(part.startswith(stem) for part in test["name"].split("::"))
                aimed = sorted(by_function[function], key=lambda test: (not named(test), len(test["calls"])))
                first += [test for test in aimed if test not in first][:60]
            begin = time.monotonic()
            tried = before[number]["tests"] if number in before else 0
            what, by, count = verdict(folder, plan, number, by_function[function], first, tried)
            line = {"number": number, "name": plan["mutants"][str(number)]["name"], "verdict": what, "by": by, "tests": count,
                    "s": round(time.monotonic() - begin, 1), "budget_s": BUDGET_S}
            with lock, results.open("a") as file:
                if what == "caught" and by in by_name:
                    note(number, by)
                file.write(json.dumps(line) + "\n")

    threads = [threading.Thread(target=one) for _ in range(int(os.environ.get("JOBS", os.cpu_count())))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    report(folder)


def read(results):
    """The last result of each mutant."""
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return list({line["number"]: line for line in lines}.values())


def report(folder):
    plan = json.loads((folder / "plan.json").read_text())
    lines = read(folder / "results.jsonl")
    counts = defaultdict(int)
    for line in lines:
        counts[line["verdict"]] += 1
    print(f"{len(lines)} of {len(plan['tried'])} mutants: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    named = Counter(line.split(" -- ")[0].strip() for line in (ROOT / "tests/mutants.txt").read_text().splitlines() if line[:1] != "#")
    unnamed = []
    for line in sorted(lines, key=lambda line: line["number"]):
        # A mutant is known by its file and its change, not by its line: one line of the file names one mutant.
        name = re.sub(r"^([^:]*):\d+:\d+:", r"\1:", line["name"])
        if line["verdict"] in ("survived", "uncalled"):
            if named[name]:
                named[name] -= 1
            else:
                unnamed.append(line)
    for line in unnamed:
        print(f"{line['verdict']}: {line['name']}")
    print(f"{len(unnamed)} mutants are neither noticed nor named")
    stale = [name for name, count in named.items() if name and count]
    if stale and len(lines) == len(plan["tried"]):
        print("named, but noticed or gone: " + "; ".join(stale))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run", "report"):
        sys.exit(__doc__)
    if sys.argv[1] == "prepare" and shutil.which("cargo-mutants") is None:
        sys.exit("cargo-mutants is not installed: cargo install cargo-mutants --locked")
    place = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "prepare":
        prepare(place)
    elif sys.argv[1] == "run":
        run(place, sys.argv[3] if len(sys.argv) > 3 else "0/1")
    else:
        report(place)
