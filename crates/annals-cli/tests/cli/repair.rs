//! `annals compact` and `annals recover`.

use super::*;
#[test]
fn a_file_of_a_build_before_the_first_release_is_refused_by_name() {
    let bench = Bench::ran();
    let path = bench.path("store.db");
    // The application id of those builds, and their last format.
    let mut bytes = fs::read(&path).unwrap();
    bytes[68..72].copy_from_slice(b"annl");
    bytes[60..64].copy_from_slice(&[0, 0, 0, 2]);
    fs::write(&path, &bytes).unwrap();
    let refused = bench.annals(&["threads", "--json"]);
    let error = &document(&refused.stderr)["error"];
    assert_eq!((code(&refused), &error["code"]), (6, &json!("unreleased_format")));
    assert!(error["message"].as_str().unwrap().contains("unreleased format 2"), "{error}");
    assert!(fs::read(&path).unwrap() == bytes, "it is not changed");
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
        for command in [&["threads"][..], &["update", "t", "--set", "a=1"], &["compact"]] {
            let refused = bench.annals_on(store, command);
            assert!(code(&refused) > 1, "{store}: {refused:?}");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!said.contains("delete"), "{store}: {said}");
        }
    }
}
