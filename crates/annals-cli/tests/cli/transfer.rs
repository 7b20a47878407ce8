//! Export and import of messages, and copies to a server.

#[cfg(feature = "postgres")]
#[path = "server.rs"]
mod server;

use std::fs;

use serde_json::json;

use super::{Bench, code, document, stderr};

#[test]
fn exported_messages_are_imported_again() {
    let bench = Bench::new();
    let chat = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello\u{1b}"}, 5]);
    fs::write(bench.path("chat.json"), chat.to_string()).unwrap();
    let imported = bench.annals(&["import", "chat.json", "--format", "openai", "--name", "chat"]);
    assert_eq!((code(&imported), String::from_utf8_lossy(&imported.stdout).as_ref()), (0, "chat\n"));
    assert!(stderr(&imported).contains("3 messages imported\n1 were not understood"), "{}", stderr(&imported));

    let exported = bench.annals(&["export", "chat", "--format", "openai"]);
    assert!(!exported.stdout.contains(&0x1b), "no character controls the terminal");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&exported.stdout).unwrap(), chat);
    assert!(stderr(&exported).contains("the format has no field for: id (2)"), "{}", stderr(&exported));

    let report = bench.json(&["export", "chat", "--lines", "--out", "chat.jsonl"]);
    assert_eq!((&report["messages"], &report["kept"], &report["left_out"]), (&json!(3), &json!(1), &json!({})));
    let text = fs::read_to_string(bench.path("chat.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 3);
    let again = bench.json(&["import", "chat.jsonl", "--name", "again"]);
    assert_eq!((&again["messages"], &again["ids_given"]), (&json!(3), &json!(1)));
    assert_eq!(bench.text(&["export", "again", "--lines"]).lines().count(), 3);
}

#[test]
fn a_thread_in_a_file_comes_back() {
    let (bench, other) = (Bench::new(), Bench::new());
    let human = r#"[{"type": "human", "content": "a"}]"#;
    fs::write(bench.path("chat.json"), human).unwrap();
    assert_eq!(code(&bench.annals(&["import", "chat.json", "--name", "chat"])), 0);
    assert_eq!(code(&bench.annals(&["facts", "chat", "--title", "a chat"])), 0);
    let lines = bench.text(&["export", "chat", "--lines"]);
    let file = other.path("thread.db");
    let path = file.to_str().unwrap();
    let export = ["export", "chat", "--format", "thread", "-o", path];
    assert_eq!(bench.text(&export).trim(), path);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o777, 0o600);
    let stored = annals::store::Store::open_with(path, annals::store::OpenOptions::new().read_only(true)).unwrap();
    assert_eq!(stored.check().unwrap().problems, [], "it is a store");
    drop(stored);
    assert_eq!(code(&bench.annals(&export)), 5, "it exists");
    assert_eq!(code(&bench.annals(&export[..4])), 2, "a store is no text");
    assert_eq!(code(&bench.annals(&[&["--json", "export", "nobody"], &export[2..5], &["other.db"]].concat())), 3);
    assert_eq!(other.text(&["import", path]).trim(), "chat");
    assert_eq!(other.text(&["export", "chat", "--lines"]), lines);
    assert_eq!(other.json(&["threads"])["threads"][0]["title"], json!("a chat"));
    assert_eq!(code(&other.annals(&["import", path, "--lenient", "--name", "chat"])), 2, "it is no list of messages");
    assert_eq!(other.text(&["import", path, "--name", "again"]).trim(), "again");
    let threads = other.json(&["threads"]);
    assert_eq!(threads["threads"].as_array().unwrap().len(), 2);
    assert_eq!(threads["threads"][0]["messages"], json!(1));
}

#[test]
fn an_import_of_a_thread_file_is_repeated_without_a_change() {
    let (bench, other) = (Bench::new(), Bench::new());
    let chat = |id: &str| format!(r#"[{{"type": "human", "content": "a", "id": "{id}"}}]"#);
    fs::write(bench.path("chat.json"), chat("one")).unwrap();
    assert_eq!(code(&bench.annals(&["import", "chat.json", "--name", "chat"])), 0);
    let export = |name: &str| {
        let path = other.path(name).to_str().unwrap().to_owned();
        assert_eq!(code(&bench.annals(&["export", "chat", "--format", "thread", "-o", &path])), 0);
        path
    };
    let first = export("first.db");
    assert_eq!(code(&bench.annals(&["update", "chat", "--set", "title=b"])), 0);
    let second = export("second.db");
    assert_eq!(other.json(&["import", &second])["new"], json!(true));
    let operations = other.json(&["operations", "chat"]);
    // An older file has nothing that the store does not have.
    for path in [&second, &first] {
        assert_eq!(other.json(&["import", path])["new"], json!(false));
    }
    assert_eq!(code(&other.annals(&["update", "chat", "--set", "title=c"])), 0);
    assert_eq!(other.json(&["import", &second])["new"], json!(false), "the thread went on from the file");
    assert_eq!(other.json(&["threads"])["threads"].as_array().unwrap().len(), 1);
    assert_eq!(operations["operations"].as_array().unwrap().len() + 1, {
        other.json(&["operations", "chat"])["operations"].as_array().unwrap().len()
    });
    let older = ["import", &second, "--name", "older"];
    assert_eq!(other.json(&[&["import", &first], &older[2..]].concat())["new"], json!(true));
    let refused = other.annals(&[&older[..], &["--json"]].concat());
    assert_eq!((code(&refused), document(&refused.stderr)["error"]["code"].clone()), (5, json!("thread_exists")));
}

#[test]
fn an_empty_list_is_imported_and_exported() {
    let bench = Bench::new();
    fs::write(bench.path("empty.json"), "[]").unwrap();
    assert_eq!(bench.json(&["import", "empty.json", "--name", "empty"])["messages"], json!(0));
    assert_eq!(bench.text(&["export", "empty"]).trim(), "[]");
}

#[test]
fn a_gzip_file_is_refused_and_the_thread_id_stays_free() {
    let bench = Bench::new();
    fs::write(bench.path("chat.json"), b"\x1f\x8b\x08\0").unwrap();
    let packed = bench.annals(&["import", "chat.json", "--name", "chat"]);
    assert_eq!(code(&packed), 4);
    assert!(stderr(&packed).contains("gzip") && !stderr(&packed).contains("hint"), "{}", stderr(&packed));
    fs::write(bench.path("chat.json"), "\u{feff}[]").unwrap();
    assert_eq!(code(&bench.annals(&["import", "chat.json", "--name", "chat"])), 0);
}

#[test]
fn broken_lines_are_skipped_with_lenient() {
    let bench = Bench::new();
    let human = r#"{"type": "human", "content": "a"}"#;
    fs::write(bench.path("chat.jsonl"), format!("[]\n{human}\n{{\"type\"\n{human}\n")).unwrap();
    let strict = bench.annals(&["import", "chat.jsonl", "--lines", "--name", "strict"]);
    assert_eq!(code(&strict), 4);
    assert!(stderr(&strict).contains("line 3") && stderr(&strict).contains("2 messages before"), "{}", stderr(&strict));
    let lenient = bench.annals(&["import", "chat.jsonl", "--lines", "--lenient", "--name", "lenient"]);
    assert_eq!(code(&lenient), 0);
    assert!(stderr(&lenient).contains("3 messages imported"), "{}", stderr(&lenient));
    assert!(stderr(&lenient).contains("1 left out, by line:\n  3: "), "{}", stderr(&lenient));
    let report = bench.json(&["import", "chat.jsonl", "--lines", "--lenient", "--name", "again"]);
    assert_eq!((&report["left_out"]["count"], &report["left_out"]["first"][0]["line"]), (&json!(1), &json!(3)));

    fs::write(bench.path("request.json"), format!("{{\"model\": \"m\", \"messages\": [{human}]}}")).unwrap();
    let whole = bench.annals(&["import", "request.json", "--name", "whole"]);
    assert!(stderr(&whole).contains("1 message imported\nleft out beside the messages: model"), "{}", stderr(&whole));
}

#[test]
fn a_failed_transfer_gives_its_reason() {
    let bench = Bench::new();
    fs::write(bench.path("bad.json"), "[{\"type\": \"human\", \"content\": \"a\"}, {").unwrap();
    let bad = bench.annals(&["import", "bad.json", "--name", "bad", "--json"]);
    assert_eq!((code(&bad), document(&bad.stderr)["error"]["code"].as_str()), (4, Some("not_json")));
    for (arguments, exit, word) in [
        (["import", "bad.json", "--name", "bad"], 5, "exists already"),
        (["import", "none.json", "--name", "new"], 3, "does not exist"),
        (["export", "bad", "--channel", "other"], 3, "holds no list"),
        (["export", "bad", "--out", "bad.json"], 5, "exists already"),
        (["export", "bad", "--format", "word"], 2, "unknown message format"),
    ] {
        let output = bench.annals(&arguments);
        assert_eq!(code(&output), exit, "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(word), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn code_in_an_exported_document_is_that_of_the_message() {
    let bench = Bench::new();
    let code_of = "```rust\nif a < \"x\" && b > 'c' {}\n```\nsee `Vec<u8> & \"y\"` and <b>";
    let chat = json!([{"type": "human", "content": "how?"}, {"type": "ai", "content": code_of}]);
    fs::write(bench.path("chat.json"), chat.to_string()).unwrap();
    bench.json(&["import", "chat.json", "--name", "chat"]);
    let expected = "```rust\nif a < \"x\" && b > 'c' {}\n```\nsee `Vec<u8> & \"y\"` and &lt;b>\n";
    let document = bench.text(&["export", "chat", "--format", "markdown"]);
    assert!(document.starts_with("# chat\n\n") && document.ends_with(&format!("\n## ai\n\n{expected}")), "{document}");
    bench.json(&["export", "chat", "--format", "markdown", "-o", "chat.md"]);
    assert_eq!(fs::read_to_string(bench.path("chat.md")).unwrap(), document);
}

#[test]
fn threads_become_a_folder_of_pages() {
    let bench = Bench::new();
    for name in ["trip", "other"] {
        fs::write(bench.path("chat.json"), r#"[{"type": "human", "content": "A *hotel* in <Bern>"}]"#).unwrap();
        bench.json(&["import", "chat.json", "--name", name]);
    }
    bench.json(&["facts", "trip", "--title", "Bern in May", "--project", "travel"]);
    let site = ["export", "--all", "--site", "pages"];
    let text = bench.text(&site);
    assert_eq!(text.trim(), "2 threads to pages/index.html: 2 written");
    let index = fs::read_to_string(bench.path("pages/index.html")).unwrap();
    assert!(index.contains(">Bern in May</a>") && index.contains(">travel</h3>"), "{index}");
    let names: Vec<_> = fs::read_dir(bench.path("pages/t")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 2);
    for path in &names {
        let document = fs::read_to_string(path).unwrap();
        assert!(document.contains("A <em>hotel</em> in &lt;Bern&gt;"), "{document}");
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777, 0o600);
    }
    bench.json(&["update", "trip", "--say", "And a boat"]);
    let again = bench.json(&site);
    assert_eq!((&again["written"], &again["unchanged"], &again["unread"]), (&json!(1), &json!(1), &json!([])));
    bench.json(&["rm", "other", "--now", "--yes"]);
    assert_eq!(bench.text(&site).trim(), "1 thread to pages/index.html: 1 unchanged, 1 removed");

    fs::write(bench.path("pages/index.html"), "mine").unwrap();
    let refused = bench.annals(&[&site[..], &["--json"]].concat());
    assert_eq!((code(&refused), document(&refused.stderr)["error"]["code"].clone()), (5, json!("file_exists")));
    assert_eq!(fs::read_to_string(bench.path("pages/index.html")).unwrap(), "mine");
}

#[test]
fn integers_past_64_bits_are_stored_with_all_digits() {
    let bench = Bench::new();
    fs::write(bench.path("empty.json"), "[]").unwrap();
    bench.json(&["import", "empty.json", "--name", "b"]);
    for digits in ["18446744073709551616", "-9223372036854775809"] {
        let value = json!({"$int": digits});
        assert_eq!(code(&bench.annals(&["update", "b", &format!("--set=n={digits}")])), 0);
        assert_eq!(bench.json(&["show", "b", "n"])["value"], value, "{digits}");
        let set = format!("n={{\"a\": [{digits}, 1.5]}}");
        assert_eq!(code(&bench.annals(&["update", "b", "--set", &set])), 0);
        assert_eq!(bench.json(&["show", "b", "n"])["value"], json!({"a": [value, 1.5]}), "{digits}");
    }
    let refused = bench.annals(&["update", "b", "--set", &format!("n={}", "9".repeat(5_000))]);
    assert_eq!(code(&refused), 2);
    let told = "n: the number 9999999999999999999999999999999999999... has more than 4300 digits; nothing was stored";
    assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
    for (channel, value) in [("n", "1e400"), ("m", "{\"a\": [1e400]}")] {
        let refused = bench.annals(&["update", "b", "--set", &format!("{channel}={value}")]);
        let told = format!("{channel}: the number 1e400 is larger than 1.79");
        assert!(code(&refused) == 2 && stderr(&refused).contains(&told), "{}", stderr(&refused));
    }

    fs::write(bench.path("w.toml"), "channels = { n = 'last', x = 'last' }\n[nodes.ask]\nask = 'ok?'\ninto = 'x'\n")
        .unwrap();
    let waiting = bench.annals(&["run", "w.toml", "--thread", "t", "--input", "{\"n\": 18446744073709551616}"]);
    assert_eq!(code(&waiting), 1, "{}", stderr(&waiting));
    assert_eq!(bench.json(&["show", "t", "n"])["value"], json!({"$int": "18446744073709551616"}));
    bench.annals(&["run", "w.toml", "--thread", "t", "--answer", "18446744073709551617"]);
    assert_eq!(bench.json(&["show", "t", "x"])["value"], json!({"$int": "18446744073709551617"}));
}

#[test]
fn an_import_that_stores_nothing_leaves_no_new_store_behind() {
    let bench = Bench::new();
    fs::create_dir(bench.path("none")).unwrap();
    fs::write(bench.path("broken.json"), "no json").unwrap();
    let files = || fs::read_dir(bench.path("")).unwrap().count();
    let before = files();
    for arguments in [&["import", "broken.json", "--name", "a"][..], &["import", "none"], &["import", "missing"]] {
        bench.annals_on("new.db", arguments);
        assert_eq!(files(), before, "{arguments:?}");
    }
    // A store that was there stays, with and without content.
    drop(annals::store::Store::open(bench.path("new.db")).unwrap());
    bench.annals_on("new.db", &["import", "broken.json", "--name", "a"]);
    assert!(bench.path("new.db").exists());
    fs::write(bench.path("half.json"), "[{\"type\": \"human\", \"content\": \"hi\"}, no json").unwrap();
    bench.annals_on("half.db", &["import", "half.json", "--name", "a"]);
    bench.annals_on("lenient.db", &["import", "half.json", "--name", "a", "--lenient"]);
    for name in ["half.db", "lenient.db"].map(|name| bench.path(name)).iter().filter(|path| path.exists()) {
        assert!(!annals::store::Store::open(name).unwrap().threads().unwrap().is_empty());
    }
}

#[test]
fn a_call_without_content_is_imported_and_exported_as_a_call() {
    let bench = Bench::new();
    let call = r#"{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"rain","arguments":"{\"n\":18446744073709551616}"}}]}"#;
    fs::write(bench.path("log.jsonl"), format!("{{\"role\":\"user\",\"content\":\"hi\"}}\n{call}\n")).unwrap();
    let imported = bench.json(&["import", "log.jsonl", "--name", "x", "--format", "openai"]);
    assert_eq!((&imported["messages"], &imported["not_understood"]["count"]), (&json!(2), &json!(0)));
    let messages = bench.json(&["show", "x", "--messages", "9"])["messages"].clone();
    assert_eq!(messages[1]["tool_calls"][0]["args"], json!({ "n": { "$int": "18446744073709551616" } }));
    let exported: serde_json::Value =
        serde_json::from_str(&bench.text(&["export", "x", "--format", "openai"])).unwrap();
    assert_eq!((&exported[1]["role"], &exported[1]["content"]), (&json!("assistant"), &json!("")));
    assert_eq!(exported[1]["tool_calls"][0]["function"]["arguments"], "{\"n\": 18446744073709551616}");
}
