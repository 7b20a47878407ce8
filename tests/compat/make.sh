#!/usr/bin/env sh
# Makes tests/compat/format-1.db, a file of the format with rows of each table, and format-1.json, what it shows. Run it
# with each change of the schema before the first release, and commit both. A released file is never made anew.
set -eu
cd "$(dirname "$0")/../.."
export ANNALS_COMPAT_FOLDER="$PWD/tests/compat"
cargo test -q -p annals --test it compat::a_file_with_the_content_of_the_stored_one_shows_the_same
