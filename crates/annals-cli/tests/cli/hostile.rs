//! Files of strangers: every command that reads ends with a documented exit code, in bounded time, and prints no
//! control characters of the file.

use std::fs;
use std::time::{Duration, Instant};

use annals::rusqlite::Connection;
use annals::rusqlite::config::DbConfig;

use super::{Bench, cases, code};

/// A command that does not end is past this limit. The tests of the library bound the time of each call on a processor.
const SLOW: Duration = Duration::from_secs(120);

const COMMANDS: &[&[&str]] = &[
    &["threads"],
    &["log", "research:notes"],
    &["show", "research:notes", "--writes"],
    &["show", "research:notes~1", "report"],
    &["diff", "research:notes~1", "research:notes"],
    &["export", "research:notes", "--channel", "sources", "--damaged"],
    &["stats"],
    &["check"],
];

#[test]
#[allow(clippy::disallowed_methods, reason = "the time of a command is measured")]
fn hostile_files_end_every_command_with_a_documented_code() {
    let bench = Bench::ran();
    let harms = [
        "UPDATE thread SET public_id = char(27, 91, 51, 49, 109) || public_id",
        "UPDATE checkpoint SET parent = 0",
        "UPDATE checkpoint SET parent = seq - (SELECT max(seq) FROM checkpoint)",
        "UPDATE checkpoint SET tasks = zeroblob(3)",
        "UPDATE checkpoint SET created_at = 9223372036854775807",
        "UPDATE checkpoint SET metadata = '[' WHERE seq > 2",
        "UPDATE branch SET parent = id, upto = 1",
        "UPDATE version SET value = X'FFFFFFFFFFFFFFFF7F00' WHERE kind = 2",
        "UPDATE version SET value = X'91919191' WHERE kind = 1",
        "UPDATE payload SET data = zeroblob(100000)",
        "UPDATE payload SET form = 9223372036854775807",
        "UPDATE name SET text = char(27) || text",
        "UPDATE item SET slot = 9223372036854775807 - slot WHERE slot >= 0",
        "UPDATE write SET part = 9223372036854775807 - part",
        "DELETE FROM name",
        "DELETE FROM branch",
        "CREATE TRIGGER evil AFTER INSERT ON payload BEGIN DELETE FROM thread; END",
        "DROP VIEW v_threads",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 7",
    ];
    for harm in harms.into_iter().step_by(cases(5, 1)) {
        let path = bench.path("hostile.db");
        fs::copy(bench.path("store.db"), &path).unwrap();
        let conn = Connection::open(&path).unwrap();
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
        conn.execute_batch(harm).unwrap_or_else(|error| panic!("{harm}: {error}"));
        drop(conn);
        for command in COMMANDS {
            let began = Instant::now();
            let output = bench.annals_on("hostile.db", command);
            let took = began.elapsed();
            assert!(took < SLOW, "{harm}, {command:?}: {took:?}");
            assert!(matches!(code(&output), 0 | 1 | 3 | 4 | 6), "{harm}, {command:?}: {output:?}");
            for text in [&output.stdout, &output.stderr] {
                assert!(!text.iter().any(|byte| *byte < 32 && *byte != b'\n'), "{harm}, {command:?}: {output:?}");
            }
        }
        let checked = bench.annals_on("hostile.db", &["check"]);
        assert!(matches!(code(&checked), 4 | 6), "{harm}: {checked:?}");
    }
}
