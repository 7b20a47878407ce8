//! The documents of `--json` against the shapes of `docs/cli-json.md`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::verbs::trip;
use super::*;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-json.md");

/// The shapes, by the name of their command or of the shape.
pub(super) fn shapes() -> BTreeMap<String, Json> {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let mut shapes = BTreeMap::new();
    let (mut heading, mut name, mut block) = (String::new(), None, String::new());
    for line in text.lines() {
        match (&name, line) {
            (None, line) if line.starts_with("## ") => heading = line[3..].to_owned(),
            (None, line) if line.starts_with("```json") => {
                let own = line["```json".len()..].trim();
                name = Some(if own.is_empty() { heading.clone() } else { own.to_owned() });
            }
            (Some(of), "```") => {
                let shape = serde_json::from_str(&block).unwrap_or_else(|error| panic!("{of}: {error}"));
                for of in of.split(", ") {
                    assert!(shapes.insert(of.to_owned(), Json::clone(&shape)).is_none(), "two shapes of {of}");
                }
                (name, block) = (None, String::new());
            }
            (Some(_), line) => block.push_str(line),
            _ => {}
        }
    }
    shapes
}

/// Returns the first place at which a document does not have a shape.
fn mismatch(value: &Json, shape: &Json, shapes: &BTreeMap<String, Json>, at: &str) -> Option<String> {
    match (value, shape) {
        (value, Json::String(types)) => {
            let fits = types.split('|').any(|one| match (one, value) {
                ("any", _) => true,
                ("null", value) => value.is_null(),
                ("text", value) => value.is_string(),
                ("number", value) => value.is_number(),
                ("bool", value) => value.is_boolean(),
                ("id", Json::String(text)) => {
                    text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4
                }
                ("time", Json::String(text)) => text.len() == 27 && text.ends_with('Z'),
                (name, value) if name.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                    mismatch(value, &shapes[name], shapes, at).is_none()
                }
                (word, value) => value == word,
            });
            (!fits).then(|| format!("{at} is {value}, not {types}"))
        }
        (Json::Array(items), Json::Array(shape)) => {
            let each = items.iter().enumerate();
            each.filter_map(|(n, item)| mismatch(item, &shape[0], shapes, &format!("{at}[{n}]"))).next()
        }
        (Json::Object(members), Json::Object(shape)) => {
            let optional = |name: &str| shape.get(&format!("{name}?"));
            for name in shape.keys().filter(|name| !name.ends_with('?') && *name != "*") {
                if !members.contains_key(name) {
                    return Some(format!("{at}.{name} is absent"));
                }
            }
            members.iter().find_map(|(name, value)| {
                match shape.get(name).or_else(|| optional(name)).or_else(|| shape.get("*")) {
                    Some(shape) => mismatch(value, shape, shapes, &format!("{at}.{name}")),
                    None => Some(format!("{at}.{name} is not documented")),
                }
            })
        }
        (value, shape) => Some(format!("{at} is {value}, not {shape}")),
    }
}

/// Compares a document with its documented shape.
pub(super) fn assert_shape(name: &str, document: &Json) {
    let shapes = shapes();
    assert_eq!(mismatch(document, &shapes[name], &shapes, name), None);
}

#[test]
fn every_document_has_its_documented_shape() {
    let (shapes, root) = (shapes(), schema::stored());
    let mut compared = Vec::new();
    let mut compare = |name: &'static str, document: &Json| {
        let shape = shapes.get(name).unwrap_or_else(|| panic!("{name} is not documented"));
        assert_eq!(mismatch(document, shape, &shapes, name), None);
        let definition = &root["$defs"][schema::definition(name)];
        assert_eq!(schema::violation(document, definition, &root, name), None);
        compared.push(name);
    };
    let demo = Bench::new();
    compare("demo", &demo.json(&["demo", "notes"]));
    compare("demo --drawing", &demo.json(&["demo", "--drawing"]));
    compare("threads", &demo.json(&["threads"]));
    compare("show", &demo.json(&["show", "research:notes", "--writes"]));
    compare("pending", &demo.json(&["pending"]));
    compare("runs", &demo.json(&["runs"]));
    compare("steps", &demo.json(&["steps", "research:notes"]));
    compare("demo", &demo.json(&["demo", "--yes"]));
    for (name, arguments) in [
        ("threads", &["threads"][..]),
        ("threads", &["threads", "--count"]),
        ("log", &["log", "research:notes"]),
        ("show", &["show", "research:notes~3", "--writes"]),
        ("show --messages", &["show", "research:notes", "--messages", "2"]),
        ("diff", &["diff", "research:notes~8", "research:notes"]),
        ("diff", &["diff", "research:notes@{step:-1}"]),
        ("diff --messages", &["diff", "research:notes~8", "research:notes", "--messages"]),
        ("diff --patch", &["diff", "research:notes~8", "research:notes", "--patch"]),
        ("blame", &["blame", "research:notes"]),
        ("tail", &["tail", "-n", "1"]),
        ("stats", &["stats"]),
        ("stats --by", &["stats", "--by", "node"]),
        ("stats --by", &["stats", "--by", "channel"]),
        ("steps", &["steps", "research:notes"]),
        ("runs", &["runs", "research:notes"]),
        ("doctor", &["doctor"]),
        ("check", &["check"]),
        ("compact", &["compact"]),
        ("fork", &["fork", "research:notes~1", "--name", "again"]),
        ("tree", &["tree", "research:notes", "--all"]),
        ("export", &["export", "research:notes", "--out", "chat.json"]),
        ("export", &["export", "research:notes", "--format", "html", "--out", "chat.html"]),
        ("export --all --site", &["export", "--all", "--site", "pages"]),
        ("import", &["import", "chat.json", "--name", "back"]),
        ("export thread", &["export", "research:notes", "--format", "thread", "-o", "thread.db"]),
        ("import thread", &["import", "thread.db", "--name", "of a file"]),
        ("backup", &["backup", "copy.db"]),
        ("restore", &["restore", "copy.db", "again.db"]),
        ("restore", &["restore", "copy.db", "again.db"]),
        ("recover", &["recover", "copy.db", "recovered.db"]),
    ] {
        compare(name, &demo.json(arguments));
    }

    let bench = trip();
    for (name, arguments) in [
        ("update", &["update", "trip", "--set", "plan.note=\"x\""][..]),
        ("rewind", &["rewind", "trip~1"]),
        ("undo", &["undo", "trip"]),
        ("redo", &["redo", "trip"]),
        ("branch", &["branch", "trip", "main", "--all"]),
        ("switch", &["switch", "trip", "main"]),
        ("operations", &["operations", "trip"]),
        ("log", &["log", "trip", "--channel", "plan"]),
        ("log -S", &["log", "trip", "-S", "Oslo"]),
        ("blame", &["blame", "trip", "messages"]),
        ("show PATH", &["show", "trip", "plan.city"]),
        ("show PATH", &["show", "trip", "messages#m2"]),
        ("evolution", &["evolution", "trip", "plan.city"]),
        ("search", &["search", "hotel", "-n", "1"]),
        ("sql", &["sql", "select * from v_threads"]),
        ("sql --views", &["sql", "--views"]),
        ("sql --into", &["sql", "--into", "views.db"]),
        ("facts", &["facts", "trip", "--title", "Oslo", "--label", "a", "--project", "home"]),
        ("archive", &["archive", "trip"]),
        ("threads", &["threads", "--archived"]),
        ("copy", &["copy", "trip", "trip 2"]),
        ("copy --to", &["copy", "--to", "other.db"]),
        ("rm", &["rm", "trip 2", "--yes"]),
        ("prune", &["prune", "trip", "--keep-last", "1", "--yes"]),
        ("erase", &["erase", "trip", "--yes"]),
    ] {
        compare(name, &bench.json(arguments));
    }
    let waiting = super::outside::waiting();
    for (name, arguments) in [
        ("pause", &["pause", "order"][..]),
        ("resume", &["resume", "order"]),
        ("pause", &["pause", "--status", "sleeping", "--yes"]),
        ("signal", &["signal", "order", "paid", "1"]),
        ("cancel", &["cancel", "order"]),
    ] {
        compare(name, &waiting.json(arguments));
    }
    let asking = super::outside::asking();
    compare("safe", &document(&asking.annals(&["safe", "order", "--json"]).stdout));
    compare("answer", &asking.json(&["answer", "order", "many"]));
    super::outside::work(&asking);
    compare("retry", &asking.json(&["retry", "order"]));
    compare("restart", &asking.json(&["restart", "order"]));
    let histories = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/parity/agents/chat/role-lines/input");
    let imported = Bench::new();
    compare("import PATH", &imported.json(&["import", histories]));
    compare("export --all", &imported.json(&["export", "--all", "--format", "turns-json"]));
    let database = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/parity/checkpoint/forks.sqlite");
    compare("import langgraph", &imported.json(&["import", database]));
    compare("export langgraph-json", &imported.json(&["export", "fork", "--to", "langgraph-json"]));
    compare(
        "export langgraph-sqlite",
        &imported.json(&["export", "fork", "--to", "langgraph-sqlite", "-o", "f.sqlite"]),
    );
    let other = trip();
    let found = run(other.folder.path(), &["bisect", "trip", "--json", "--store", "store.db", "--", "false"]);
    compare("bisect", &document(&found.stdout));
    let (events, end) = super::flows::documents();
    events.iter().for_each(|event| compare("run", event));
    compare("RUNEND", &end);
    #[cfg(unix)]
    {
        let (logs, compared) = super::logs::documents();
        compare("logs", &logs);
        compare("rerun", &compared);
        let (enqueued, events) = super::work::documents();
        compare("enqueue", &enqueued);
        let (end, events) = events.split_last().unwrap();
        assert!(events.iter().any(|event| event["event"] == "attempt_failed"), "{events:?}");
        events.iter().for_each(|event| compare("work", event));
        compare("WORKEND", end);
    }
    compare("graph", &super::flows::drawing());
    let error = other.annals(&["show", "nobody", "--json"]);
    compare("Errors", &document(&error.stderr));
    compare("serve", &served(&other));

    let shared = ["BY", "CHANGE", "OPERATION", "PARENT", "PARTIAL", "PLACE", "PROBLEMS"];
    let missing: Vec<_> =
        shapes.keys().filter(|name| !compared.contains(&name.as_str()) && !shared.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "no document was compared with {missing:?}");
}

/// Starts the server, asks it for a page with the link that it printed, and ends it. Returns its document.
fn served(bench: &Bench) -> Json {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
    command.args(["serve", "store.db", "--json"]).current_dir(bench.folder.path()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let printed: Json = serde_json::from_str(&line).unwrap();
    let (address, token) = printed["url"].as_str().unwrap()["http://".len()..].split_once("/?token=").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET /.json HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let shapes = shapes();
    let threads = document(response.split_once("\r\n\r\n").unwrap().1.as_bytes());
    assert_eq!(mismatch(&threads, &shapes["threads"], &shapes, "the JSON of the page"), None);
    printed
}

#[test]
fn a_wrong_document_is_found() {
    let shapes = shapes();
    let shape = &shapes["fork"];
    let good = json!({ "schema": 1, "thread": "a", "checkpoint": "1f1e67f3-f9c0-6b70-bfff-2a4f0d9f3c11",
        "forked_from": { "thread": "b", "checkpoint": "1f1e67f3-f9c0-6b70-bfff-2a4f0d9f3c11" } });
    assert_eq!(mismatch(&good, shape, &shapes, "fork"), None);
    for (name, value) in [("schema", json!("1")), ("checkpoint", json!("1f1e")), ("other", json!(1))] {
        let mut wrong = good.clone();
        wrong[name] = value;
        assert!(mismatch(&wrong, shape, &shapes, "fork").is_some_and(|text| text.contains(name)), "{name}");
    }
    let mut short = good;
    short["forked_from"].as_object_mut().unwrap().remove("thread");
    assert_eq!(mismatch(&short, shape, &shapes, "fork"), Some("fork.forked_from.thread is absent".into()));
}

#[test]
fn lines_are_the_items_of_the_list_of_a_document() {
    let bench = trip();
    for (arguments, list) in [
        (&["threads"][..], "threads"),
        (&["log", "trip"], "checkpoints"),
        (&["operations", "trip"], "operations"),
        (&["search", "a"], "hits"),
        (&["branch", "trip"], "branches"),
    ] {
        let document = bench.json(arguments);
        let mut items = document[list].as_array().unwrap().clone();
        items.iter_mut().for_each(|item| item["schema"] = json!(1));
        let text = bench.text(&[arguments, &["--jsonl"]].concat());
        let mut lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // The short id of the newest checkpoint gets shorter as time passes.
        items.iter_mut().chain(&mut lines).for_each(|item| _ = item.as_object_mut().unwrap().remove("short"));
        assert!(!lines.is_empty() && lines == items, "{arguments:?}: {text}");
    }
    let rows = bench.text(&["sql", "select thread, checkpoints from v_threads", "--jsonl"]);
    assert_eq!(serde_json::from_str::<Json>(&rows).unwrap()["thread"], "trip");
    let one = bench.text(&["update", "trip", "--say", "hi", "--jsonl"]);
    assert_eq!((one.lines().count(), serde_json::from_str::<Json>(&one).unwrap()["schema"].clone()), (1, json!(1)));
}
