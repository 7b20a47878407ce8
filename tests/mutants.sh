#!/usr/bin/env sh
# Changes the code of the store, of lists and of the executor, one place at a time, and runs the unit tests and `it` of its
# crate after each change. A change that no test notices is a surviving mutant: it is printed, and tests/mutants.txt is for those that
# are equal to the code, each with the reason.
#
#   tests/mutants.sh [--shard K/N] [options of cargo-mutants]
#
# The whole run takes days of one core, so it is divided: --shard 0/200 is the first of 200 parts. The results are in
# target/mutants/mutants.out.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
-h | --help)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
if ! cargo mutants --version >/dev/null 2>&1; then
    echo "cargo-mutants is not installed: cargo install cargo-mutants --locked" >&2
    exit 3
fi
out=target/mutants
mkdir -p "$out"
rm -rf "$out/mutants.out"
status=0
cargo mutants --output "$out" --package annals --package annals-graph \
    --file 'src/store/sqlite/**/*.rs' --file 'src/store/memory/**/*.rs' --file 'src/channel/list/**/*.rs' \
    --file 'src/channel/list.rs' --file 'crates/annals-graph/src/exec/**/*.rs' --file 'crates/annals-graph/src/run/**/*.rs' \
    --exclude '**/tests/**' "$@" -- --lib --test it || status=$?
# 2: mutants survived, 3: a test did not end. Any other error means that the mutants were not tested.
case $status in
0 | 2 | 3) ;;
*)
    echo "cargo-mutants ended with status $status: see $out/mutants.out" >&2
    exit "$status"
    ;;
esac
count() { if [ -f "$out/mutants.out/$1.txt" ]; then wc -l <"$out/mutants.out/$1.txt" | tr -d ' '; else echo 0; fi; }
survivors() {
    if [ -f "$out/mutants.out/missed.txt" ]; then
        # A mutant is known by its file and its change, not by its line.
        sed 's/^\([^:]*\):[0-9]*:[0-9]*:/\1:/' "$out/mutants.out/missed.txt" >"$out/survivors"
        grep -v '^#' tests/mutants.txt | sed '/^ *$/d; s/  *-- .*$//' >"$out/equal"
        grep -v -x -F -f "$out/equal" "$out/survivors" || true
    fi
}
echo "caught $(count caught), survived $(count missed), did not end $(count timeout), did not compile $(count unviable)"
left=$(survivors)
if [ -n "$left" ]; then
    echo "surviving mutants:"
    echo "$left"
    exit 2
fi
