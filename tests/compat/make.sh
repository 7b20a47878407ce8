#!/usr/bin/env sh
# Makes tests/compat/format-N.db, the file of the present format N, and format-N.json, what it must show. Run it once when a
# format is final, before the first build that changes it, and commit both.
#
# format-1.db was written by the last build of format 1 (commit f3240ed): forks, range deletes, references, subgraphs,
# writes, interrupts, timers, key-value memory, index snapshots, and names of deleted threads. format-1.json is what that
# build showed of it. A migrated file shows the same, so the file of a later format is made by a migration.
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp tests/compat/format-1.db "$folder/store.db"
chmod 600 "$folder/store.db"
cargo run -q -p annals-cli --bin annals -- migrate --store "$folder/store.db"
format=$(od -An -tu1 -j63 -N1 "$folder/store.db" | tr -d ' ')
cp "$folder/store.db" "tests/compat/format-$format.db"
cp tests/compat/format-1.json "tests/compat/format-$format.json"
