//! `annals migrate`, `annals compact` and `annals recover`.

use super::*;
use std::time::Duration;

const OLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/compat/format-1.db");

pub(super) fn older(bench: &Bench) -> PathBuf {
    let path = bench.path("store.db");
    fs::copy(OLDER, &path).unwrap();
    path
}

#[test]
fn an_older_file_is_migrated_on_demand() {
    let bench = Bench::new();
    let path = older(&bench);
    let refused = bench.annals(&["threads", "--json"]);
    assert_eq!((code(&refused), &document(&refused.stderr)["error"]["code"]), (6, &json!("older_format")));
    assert!(fs::read(&path).unwrap() == fs::read(OLDER).unwrap(), "it is not changed");
    let done = bench.json(&["migrate", "--retain"]);
    assert_eq!((&done["from"], &done["to"], &done["problems"]), (&json!(1), &json!(2), &json!([])));
    assert!(done["retained"].as_str().unwrap().ends_with("store.db.format-1"), "{done}");
    assert!(bench.text(&["migrate"]).contains("the newest format already"));
    assert!(bench.text(&["check"]).contains("no problems"));
    let names: Vec<String> = bench.disk().into_keys().collect();
    assert_eq!(names, ["store.db", "store.db.format-1"]);
}

#[test]
fn several_processes_migrate_a_store_once() {
    for n in 0..cases(3, 8) {
        let bench = Bench::new();
        older(&bench);
        let migrate = || {
            Command::new(env!("CARGO_BIN_EXE_annals"))
                .args(["migrate", "--retain", "--json", "--store", "store.db"])
                .current_dir(bench.folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..4).map(|_| migrate()).collect();
        for child in children {
            let done = child.wait_with_output().unwrap();
            assert_eq!(code(&done), 0, "{n}: {done:?}");
        }
        assert!(bench.text(&["check"]).contains("no problems"), "{n}");
        let names: Vec<String> = bench.disk().into_keys().collect();
        assert_eq!(names, ["store.db", "store.db.format-1"], "{n}");
    }
}

#[test]
fn a_killed_migration_leaves_the_older_or_the_newer_format_whole() {
    let expected = Bench::new();
    older(&expected);
    expected.json(&["migrate"]);
    let threads = expected.json(&["threads"])["threads"].clone();
    for n in (0..24).step_by(cases(3, 1)) {
        let bench = Bench::new();
        older(&bench);
        let mut child = Command::new(env!("CARGO_BIN_EXE_annals"))
            .args(["migrate", "--store", "store.db"])
            .current_dir(bench.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(n * 6));
        child.kill().unwrap();
        child.wait().unwrap();
        let again = bench.annals(&["migrate", "--json"]);
        assert_eq!(code(&again), 0, "{n}: {again:?}");
        assert!(bench.text(&["check"]).contains("no problems"), "{n}");
        assert_eq!(bench.json(&["threads"])["threads"], threads, "{n}");
        let names: Vec<String> = bench.disk().into_keys().collect();
        assert_eq!(names, ["store.db"], "{n}: no copy is left behind");
    }
}

#[test]
fn a_compacted_store_is_told_by_its_sizes() {
    let bench = Bench::ran();
    let done = bench.json(&["compact"]);
    assert_eq!((&done["free_pages"], &done["log_copied"]), (&json!(0), &json!(true)));
    assert!(bench.text(&["compact"]).contains(" before, "));
}

#[test]
fn a_damaged_store_is_recovered_to_a_new_one() {
    let bench = Bench::ran();
    let whole = bench.json(&["threads"])["threads"].clone();
    let sound = bench.annals(&["recover", "store.db", "sound.db"]);
    assert_eq!(code(&sound), 0, "{sound:?}");
    assert!(String::from_utf8(sound.stdout).unwrap().contains("nothing was lost"));
    let mut bytes = fs::read(bench.path("store.db")).unwrap();
    let middle = bytes.len() / 4_096 / 2 * 4_096;
    bytes[middle..middle + 4_096].fill(0);
    fs::write(bench.path("store.db"), &bytes).unwrap();
    let lossy = bench.annals(&["recover", "store.db", "lossy.db", "--json"]);
    let report = document(&lossy.stdout);
    assert_eq!(code(&lossy), i32::from(report["lost_count"] != 0), "{report}");
    assert_eq!(code(&bench.annals_on("lossy.db", &["check"])), 0);
    let again = bench.annals_on("sound.db", &["threads", "--json"]);
    assert_eq!(document(&again.stdout)["threads"].as_array().unwrap().len(), whole.as_array().unwrap().len());
    let taken = bench.annals(&["recover", "store.db", "sound.db"]);
    assert_eq!(code(&taken), 2, "{taken:?}");
}

#[test]
fn a_view_of_another_program_is_named_and_one_that_is_missing_is_made_anew() {
    let bench = Bench::ran();
    let change = |statement: &str| {
        let conn = annals::rusqlite::Connection::open(bench.path("store.db")).unwrap();
        conn.execute_batch(statement).unwrap();
    };
    change("CREATE VIEW mine AS SELECT 1; DROP VIEW v_facts");
    for command in [&["threads", "--json"][..], &["doctor", "--fix", "--json"]] {
        let refused = bench.annals(command);
        let error = &document(&refused.stderr)["error"];
        assert_eq!((code(&refused), &error["code"]), (4, &json!("schema_changed")), "{error}");
        assert_eq!(error["hint"], "DROP VIEW \"mine\"");
        assert!(!error["message"].as_str().unwrap().contains("damaged"), "{error}");
    }
    change("DROP VIEW \"mine\"");
    let refused = bench.annals(&["threads", "--json"]);
    assert_eq!(document(&refused.stderr)["error"]["hint"], "annals doctor --fix makes it anew");
    assert_eq!(bench.json(&["doctor", "--fix"])["rebuilt"], json!(["view v_facts"]));
    assert_eq!(bench.json(&["doctor"])["rebuilt"], json!([]));
    assert!(bench.text(&["doctor", "--fix"]).contains("nothing was missing in the schema"));
    bench.text(&["threads"]);
}

#[cfg(unix)]
#[test]
fn a_hint_does_not_say_to_delete_what_was_not_looked_into() {
    let bench = Bench::new();
    let fifo = bench.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink("nowhere", bench.path("link")).unwrap();
    fs::write(bench.path("empty"), "").unwrap();
    fs::write(bench.path("emptied"), "").unwrap();
    fs::write(bench.path("emptied-wal"), "frames").unwrap();
    for store in ["fifo", "/dev/zero", "link", "empty", "emptied"] {
        for command in [&["threads"][..], &["update", "t", "--set", "a=1"], &["migrate"]] {
            let refused = bench.annals_on(store, command);
            assert!(code(&refused) > 1, "{store}: {refused:?}");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!said.contains("delete"), "{store}: {said}");
        }
    }
}
