//! The command on a PostgreSQL server: the same documents as on a file, copies in both directions, and the refusals of
//! the commands about files.
//!
//! The server is found or started as the tests of `annals-postgres` do.

#[path = "../../../annals-postgres/tests/it/server.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "the tests of the backend use all of it, and print")]
mod started;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use self::started::Server;
use crate::contract::assert_shape;
use crate::guides::{assert_printed, blocks};
use crate::verbs::trip;
use crate::*;

/// Starts a server; `None`, with a message, where none can be started.
fn server() -> Option<Server> {
    match Server::start() {
        Ok(server) => Some(server),
        Err(reason) => {
            assert!(!started::is_required(), "no PostgreSQL server: {reason}");
            let mut err = std::io::stderr().lock();
            writeln!(err, "SKIPPED: no PostgreSQL server can be started: {reason}").unwrap();
            None
        }
    }
}

/// Returns the document without the members by which stores with the same threads differ.
fn same_members(mut document: Json) -> Json {
    match &mut document {
        Json::Object(members) => {
            for name in ["seq", "branch", "short", "id", "point"] {
                members.remove(name);
            }
            members.values_mut().for_each(|member| *member = same_members(member.take()));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| *item = same_members(item.take())),
        _ => {}
    }
    document
}

#[test]
fn the_command_works_on_a_server() {
    let Some(server) = server() else { return };
    let (bench, url) = (trip(), server.empty());
    for change in [
        &["branch", "trip", "main"][..],
        &["rewind", "trip~1"],
        &["update", "trip", "--say", "By bus"],
        &["undo", "trip"],
        &["fork", "trip~1", "--name", "a fork"],
        &["facts", "a fork", "--title", "Oslo", "--label", "a"],
    ] {
        bench.text(change);
    }
    a_copy_is_verified(&bench, &url);
    documents_are_those_of_the_file(&bench, &url);
    changes_are_stored(&bench, &url);
    workers_run(&bench, &server.empty());
    files_are_named(&bench, &url);
    pages_are_shown(&bench, &url);
    copies_come_back(&bench, &url);
    the_guide_runs(&server.empty());
}

fn the_guide_runs(url: &str) {
    let text = include_str!("../../../../docs/guides/postgres.md");
    let (folder, mut store, mut commands) = (tempfile::tempdir().unwrap(), String::from("store.db"), 0);
    let on_server = |command: &str| command.replace("postgres://app@db.example/annals", url);
    for block in blocks(text).into_iter().filter(|block| block.kind == "console server") {
        commands += assert_printed(folder.path(), &mut store, "postgres.md", &block, &on_server);
    }
    assert!(commands > 5, "{commands}");
}

fn a_copy_is_verified(bench: &Bench, url: &str) {
    let missing = bench.annals_on(url, &["threads", "--json"]);
    assert_eq!(code(&missing), 3, "{missing:?}");
    assert_eq!(document(&missing.stderr)["error"]["code"], "store_not_found");
    let dry = bench.json(&["copy", "--to", url, "--dry-run"]);
    assert_eq!(code(&bench.annals_on(url, &["threads"])), 3, "a dry run makes no tables");
    let copied = bench.json(&["copy", "--to", url]);
    [&dry, &copied].into_iter().for_each(|document| assert_shape("copy --to", document));
    assert_eq!((&dry["dry_run"], &copied["dry_run"]), (&json!(true), &json!(false)));
    for (dry, copied) in dry["threads"].as_array().unwrap().iter().zip(copied["threads"].as_array().unwrap()) {
        assert_eq!((&dry["checkpoints"], &dry["operations"]), (&copied["checkpoints"], &copied["operations"]));
        assert!(dry["checksum"].is_null() && copied["checksum"].is_string());
    }
    assert_eq!(copied["threads"].as_array().unwrap().len(), 2);
    assert!(copied["bytes"]["before"] == 0 && copied["bytes"]["after"].as_u64() > Some(0), "{copied}");
    let again = bench.json(&["copy", "--to", url, "trip"]);
    assert_eq!((&again["threads"][0]["checkpoints"], &again["threads"][0]["operations"]), (&json!(0), &json!(0)));
    assert_eq!(again["threads"][0]["checksum"], copied["threads"][0]["checksum"]);
    let itself = bench.annals(&["copy", "--to", "./store.db"]);
    assert!(code(&itself) == 2 && stderr(&itself).contains("is the store itself"), "{itself:?}");
    let text = bench.text(&["copy", "--to", url]);
    assert!(text.contains("trip  0 checkpoints, 5 there"), "{text}");
}

fn documents_are_those_of_the_file(bench: &Bench, url: &str) {
    for arguments in [
        &["threads", "-n", "0"][..],
        &["log", "trip"],
        &["log", "trip", "-S", "Oslo"],
        &["show", "trip"],
        &["show", "trip", "--messages", "2"],
        &["show", "a fork", "plan.city"],
        &["diff", "trip~1", "trip"],
        &["blame", "trip"],
        &["blame", "trip", "messages"],
        &["evolution", "trip", "plan.city"],
        &["search", "gasthof"],
        &["tree", "trip", "--all"],
        &["steps", "trip"],
        &["runs"],
        &["pending"],
        &["operations", "trip"],
        &["branch", "trip", "--all"],
        &["stats", "--by", "channel"],
        &["check"],
        &["export", "trip", "--format", "openai"],
        &["tail", "trip", "-n", "3"],
    ] {
        let of = |store: &str| {
            let done = bench.annals_on(store, &[arguments, &["--json"]].concat());
            // 1: nothing was found.
            assert!(code(&done) < 2, "{arguments:?}: {done:?}");
            let text = String::from_utf8_lossy(&done.stdout);
            let documents = serde_json::Deserializer::from_str(&text).into_iter::<Json>();
            (code(&done), documents.map(|document| same_members(document.unwrap())).collect::<Vec<_>>())
        };
        let (file, server) = (of("store.db"), of(url));
        assert!(!file.1.is_empty());
        assert_eq!(file, server, "{arguments:?}");
    }
}

fn changes_are_stored(bench: &Bench, url: &str) {
    let json_of = |arguments: &[&str]| {
        let done = bench.annals_on(url, &[arguments, &["--json"]].concat());
        assert_eq!(code(&done), 0, "{arguments:?}: {done:?}");
        document(&done.stdout)
    };
    let head = json_of(&["log", "trip"])["head"].clone();
    json_of(&["update", "trip", "--say", "on the server"]);
    json_of(&["undo", "trip"]);
    assert_eq!(json_of(&["log", "trip"])["head"], head);
    json_of(&["redo", "trip"]);
    json_of(&["fork", "trip~1", "--name", "forked there"]);
    json_of(&["copy", "trip", "copied there"]);
    json_of(&["prune", "copied there", "--keep-last", "1", "--yes"]);
    json_of(&["archive", "copied there"]);
    json_of(&["rm", "forked there", "--yes"]);
    json_of(&["undo", "forked there"]);
    json_of(&["erase", "forked there", "copied there", "--yes"]);
    json_of(&["signal", "trip", "paid", "1"]);
    let threads = json_of(&["threads", "-n", "0"]);
    assert_eq!(threads["threads"].as_array().unwrap().len(), 2);
    assert_eq!(json_of(&["check"])["problems"], json!([]));
    // The thread went on there.
    let refused = bench.annals(&["copy", "--to", url, "trip", "--json"]);
    assert_eq!(code(&refused), 1, "{refused:?}");
    assert_eq!(document(&refused.stdout)["refused"][0]["thread"], "trip");
}

fn workers_run(bench: &Bench, url: &str) {
    let flow = "name = 'twice'\nchannels = { out = 'last' }\n[nodes.first]\nrun = 'true'\n\
                [nodes.second]\nafter = 'first'\nrun = 'true'\n";
    fs::write(bench.path("twice.toml"), flow).unwrap();
    let ok = |arguments: &[&str]| {
        let done = bench.annals_on(url, arguments);
        assert_eq!(code(&done), 0, "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    ok(&["run", "twice.toml", "--thread", "by hand"]);
    ok(&["enqueue", "twice.toml", "--thread", "by a worker"]);
    // A run that waits in the queue of a file waits in that of the server.
    let enqueued = bench.annals_on("queue.db", &["enqueue", "twice.toml", "--thread", "moved"]);
    assert_eq!(code(&enqueued), 0, "{enqueued:?}");
    assert_eq!(code(&bench.annals_on("queue.db", &["copy", "--to", url])), 0);
    let events = ok(&["work", "twice.toml", "--once", "--json"]);
    assert!(["by a worker", "moved"].iter().all(|thread| events.contains(thread)), "{events}");
    let threads: Json = serde_json::from_str(&ok(&["threads", "--json"])).unwrap();
    let all = threads["threads"].as_array().unwrap();
    assert!(all.len() == 3 && all.iter().all(|thread| thread["status"] == "done"), "{threads}");
}

fn files_are_named(bench: &Bench, url: &str) {
    for arguments in
        [&["backup", "copy.db"][..], &["compact"], &["stats"], &["doctor"], &["sql", "select 1"], &["demo", "notes"]]
    {
        let refused = bench.annals_on(url, &[arguments, &["--json"]].concat());
        assert_eq!(code(&refused), 2, "{arguments:?}: {refused:?}");
        let error = &document(&refused.stderr)["error"];
        assert_eq!(error["code"], "not_a_file", "{arguments:?}");
        assert!(error["message"].as_str().unwrap().starts_with(&format!("annals {}", arguments[0])), "{error}");
    }
    fs::write(bench.path("key"), [7; 31].iter().chain(&[1]).copied().collect::<Vec<u8>>()).unwrap();
    #[cfg(unix)]
    fs::set_permissions(bench.path("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let keyed = bench.annals_on(url, &["threads", "--key-file", "key"]);
    assert!(code(&keyed) == 2 && stderr(&keyed).contains("--key-file is for files"), "{keyed:?}");
    let wrong = bench.annals_on("postgres://app:secret@localhost:1/annals", &["threads", "--verbose"]);
    assert_ne!(code(&wrong), 0);
    assert!(!stderr(&wrong).contains("secret"), "{wrong:?}");
}

fn pages_are_shown(bench: &Bench, url: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
    command.args(["serve", url, "--json"]).current_dir(bench.folder.path()).stdout(Stdio::piped());
    let mut served = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(served.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let printed: Json = serde_json::from_str(&line).unwrap();
    let (address, token) = printed["url"].as_str().unwrap()["http://".len()..].split_once("/?token=").unwrap();
    for (path, text) in [
        ("/", "a fork"),
        ("/t/trip", "plan"),
        ("/t/trip/talk", "Bern"),
        ("/t/trip/state/plan", "Oslo"),
        ("/t/trip/step", "step"),
        ("/t/trip/graph", "graph"),
        ("/t/trip/fork", "fork"),
        ("/diff/trip", "trip"),
        ("/search?q=gasthof", "Gasthof"),
        ("/runs", "runs"),
        ("/stats", "checkpoints"),
        ("/health?check=1", "postgres://"),
    ] {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
        assert!(response.contains(text), "{path} without {text:?}: {response}");
    }
    served.kill().unwrap();
    served.wait().unwrap();
}

fn copies_come_back(bench: &Bench, url: &str) {
    let done = bench.annals_on(url, &["copy", "--to", "back.db", "--json"]);
    assert_eq!(code(&done), 0, "{done:?}");
    let check = bench.annals_on("back.db", &["check", "--json"]);
    assert_eq!(document(&check.stdout)["problems"], json!([]), "{check:?}");
    for thread in ["trip", "a fork"] {
        let log = |store: &str| {
            let done = bench.annals_on(store, &["log", thread, "--json"]);
            assert_eq!(code(&done), 0, "{done:?}");
            same_members(document(&done.stdout))
        };
        assert_eq!(log("back.db"), log(url));
    }
}
