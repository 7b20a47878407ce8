//! The guides: every command and every query of them is run, and its output compared.
//!
//! In a block `console` a line `$ COMMAND` is run, and the lines after it are its output. Ids, checksums and ages are
//! compared as words, whatever they are, and widths of columns are not compared. `cat FILE` makes the file,
//! `export NAME=VALUE` sets a variable, and `sqlite3` is a connection of this process. A block `sql` is a query, and a
//! block `text` after it its rows. A block `console server` is run where a server is (module `server`).

use std::sync::atomic::{AtomicI64, Ordering};

use annals::base::{Clock, Timestamp};
use annals::history::ModelUsage;
use annals::rusqlite::types::ValueRef;
use annals::rusqlite::{Connection, OpenFlags};

use super::snapshots::without_seconds;
use super::*;

/// A fenced block: the word after the fence, the number of its first line, and its lines.
pub(super) struct Block<'t> {
    pub(super) kind: &'t str,
    pub(super) line: usize,
    pub(super) lines: Vec<&'t str>,
}

pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut found, mut open) = (Vec::new(), None::<Block<'_>>);
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => open = Some(Block { kind, line: at + 2, lines: Vec::new() }),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// Returns the guides and the README: names and texts.
fn guides() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = root.join("README.md");
    let mut found: Vec<_> = fs::read_dir(root.join("docs/guides"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([readme])
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(&path).unwrap().replace('\r', ""),
            )
        })
        .collect();
    found.sort();
    found
}

/// Splits a command into words, as a shell does with quotes.
pub(super) fn words(command: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == ' ' => found.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quote is open in {command}");
    found.extend(word);
    found
}

/// Puts words in the place of ids, checksums, timestamps and ages, and single spaces between words.
pub(super) fn normal(line: &str) -> String {
    let is_id = |part: &str| {
        let is_hex = part.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        part.len() >= 7 && is_hex && part.contains(|c: char| c.is_ascii_digit())
    };
    let mut text = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        text.push_str(if is_id(&rest[..end]) { "ID" } else { &rest[..end] });
        rest = &rest[end..];
        let other = rest.chars().next().map_or(0, char::len_utf8);
        text.push_str(&rest[..other]);
        rest = &rest[other..];
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the rows of queries as `sqlite3` prints them.
fn rows(conn: &Connection, queries: &str) -> Result<Vec<String>, annals::rusqlite::Error> {
    let mut found = Vec::new();
    for query in queries.split(';').filter(|query| !query.trim().is_empty()) {
        let mut statement = conn.prepare(query)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let column = |at: usize| match row.get_ref(at).unwrap() {
                ValueRef::Null => String::new(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => format!("{number:?}"),
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                ValueRef::Blob(bytes) => format!("{} bytes", bytes.len()),
            };
            found.push((0..columns).map(column).collect::<Vec<_>>().join("|"));
        }
    }
    Ok(found)
}

/// Runs `sqlite3 [-readonly] FILE QUERY`.
fn sqlite3(folder: &Path, arguments: &[String]) -> Vec<String> {
    let is_read_only = arguments[0] == "-readonly";
    let [file, query] = &arguments[usize::from(is_read_only)..] else { panic!("sqlite3 [-readonly] FILE QUERY") };
    let mode = if is_read_only { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    let conn = Connection::open_with_flags(folder.join(file), mode).unwrap();
    rows(&conn, query).unwrap_or_else(|error| vec![format!("Error: {error}")])
}

/// Runs a command of a guide and returns the lines that it prints.
fn printed(folder: &Path, store: &mut String, command: &str, expected: &[&str]) -> Vec<String> {
    let words = words(command);
    let lines = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    match words[0].as_str() {
        "cat" => {
            let path = folder.join(&words[1]);
            if !path.exists() {
                fs::write(&path, expected.join("\n") + "\n").unwrap();
            }
            lines(&fs::read(path).unwrap())
        }
        "export" => {
            *store = words[1].strip_prefix("ANNALS_STORE=").expect("no other variable is known").to_owned();
            Vec::new()
        }
        "sqlite3" => sqlite3(folder, &words[1..]),
        "annals" => {
            let arguments: Vec<&str> = words[1..].iter().map(String::as_str).chain(["--store", store]).collect();
            let output = run(folder, &arguments);
            [lines(&output.stdout), lines(&output.stderr)].concat()
        }
        other => panic!("{other} is not a command of the guides"),
    }
}

/// Runs the commands of a block, which `command_of` may change, and compares what they print; returns how many there
/// are.
pub(super) fn assert_printed(
    folder: &Path,
    store: &mut String,
    name: &str,
    block: &Block<'_>,
    command_of: &dyn Fn(&str) -> String,
) -> usize {
    let starts: Vec<usize> = (0..block.lines.len()).filter(|at| block.lines[*at].starts_with("$ ")).collect();
    assert_eq!(starts.first(), Some(&0), "{name}:{}: a block begins with a command", block.line);
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(block.lines.len());
        let expected = &block.lines[start + 1..end];
        let found = printed(folder, store, &command_of(&block.lines[*start][2..]), expected);
        let both = [
            found.iter().map(|line| without_seconds(&normal(line))).collect::<Vec<_>>(),
            expected.iter().map(|line| without_seconds(&normal(line))).collect(),
        ];
        let place = format!("{name}:{}: {}", block.line + start, block.lines[*start]);
        assert_eq!(both[0], both[1], "{place}\nit prints:\n{}\n", found.join("\n"));
    }
    starts.len()
}

#[test]
fn commands_print_what_the_guides_say() {
    let mut commands = 0;
    for (name, text) in guides() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = String::from("store.db");
        for block in blocks(&text).into_iter().filter(|block| block.kind == "console") {
            commands += assert_printed(folder.path(), &mut store, &name, &block, &|text| text.to_owned());
        }
    }
    assert!(commands > 30, "{commands} commands");
}

/// The commands of the README that build are those of CI; the command that they run is run here.
#[test]
fn the_commands_of_the_readme_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    let (mut ran, mut named) = (0, 0);
    for line in blocks(&text).into_iter().filter(|block| block.kind == "sh").flat_map(|block| block.lines) {
        match line.strip_prefix("cargo run -- ") {
            Some(arguments) => {
                let arguments = words(arguments);
                let output = run(&root, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
                assert_eq!(code(&output), 0, "{line}: {output:?}");
                ran += 1;
            }
            None => assert!(line.starts_with("cargo test"), "{line} is not run by any test"),
        }
    }
    // The examples that it names exist.
    for (folder, package) in [("examples", "annals"), ("crates/annals-graph/examples", "annals-graph")] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                let is_named = text.contains(&format!("--example {stem}")) || text.contains(&format!("`{stem}`"));
                assert!(is_named, "the README does not name the example {stem} of {package}");
                named += 1;
            }
        }
    }
    assert!(ran > 0 && named >= 12, "{ran} commands, {named} examples");
}

/// A clock that the nodes of a test set forward.
#[derive(Clone)]
pub(super) struct SetClock(std::sync::Arc<AtomicI64>);

impl SetClock {
    pub(super) fn new(start: Timestamp) -> Self {
        Self(std::sync::Arc::new(AtomicI64::new(start.as_micros())))
    }

    pub(super) fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[derive(State, Clone, Default)]
struct TripChat {
    #[channel(messages)]
    messages: Messages,
    city: String,
}

#[derive(State, Clone, Default)]
struct PaidOrder {
    amount: i64,
    is_charged: bool,
}

/// Makes the file of the guide "Reading a file with SQL", as it would have been written at a time.
pub(super) fn three_threads(path: &Path, start: &str) {
    let start: Timestamp = start.parse().unwrap();
    let clock = SetClock::new(start);
    let store = Store::open_with(path, OpenOptions::new().clock(clock.clone()).id_seed(7).actor("Ann")).unwrap();

    let trip = store.thread("trip").unwrap();
    let answer = |clock: SetClock| {
        move |chat: &TripChat| {
            clock.pass(if chat.city == "Bern" { 3 } else { 8 });
            Ok(TripChat::update().messages([Message::ai(format!("The Gasthof in {} has rooms.", chat.city))]))
        }
    };
    let graph = StateGraph::<TripChat>::new().name("chat").node("model", answer(clock.clone())).edge(START, "model");
    let graph = graph.compile().unwrap();
    for city in ["Bern", "Basel"] {
        clock.pass(60);
        let said = Message::human(format!("A hotel in {city}"));
        graph.invoke(&trip, TripChat::update().city(city).messages([said])).unwrap();
        let usage = ModelUsage::new(812, 64).cost_usd(0.004).model("m-1");
        trip.write().set("model", "m-1").usage(usage).commit().unwrap();
    }
    clock.pass(60);
    trip.facts().title("A trip in May").save().unwrap();
    trip.rewind_to(&trip.at("~4").unwrap()).unwrap();
    clock.pass(60);
    trip.undo().unwrap().unwrap();

    let charge = |order: &PaidOrder, ctx: &Context| -> NodeResult<PaidOrderUpdate> {
        if order.amount < 100 {
            return Err("the card was refused".into());
        }
        let resumed = ctx.interrupt(format!("charge {}?", order.amount))?;
        Ok(PaidOrder::update().is_charged(resumed == "yes"))
    };
    let passing = clock.clone();
    let graph = StateGraph::<PaidOrder>::new()
        .name("order")
        .node("reserve", move |_: &PaidOrder| {
            passing.pass(2);
            Ok(PaidOrder::update())
        })
        .node("charge", charge)
        .edge(START, "reserve")
        .edge("reserve", "charge");
    let graph = graph.compile().unwrap();
    for (id, amount) in [("order-17", 90), ("order-18", 120)] {
        clock.pass(60);
        let thread = store.thread(id).unwrap();
        let ended = graph.invoke(&thread, PaidOrder::update().amount(amount));
        assert_eq!(ended.is_ok(), amount > 100);
        thread.facts().title(format!("Order {amount}")).save().unwrap();
    }
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn queries_answer_what_the_guides_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agents.db");
    three_threads(&path, "2026-11-23T09:00:00Z");
    let store = Store::open_with(&path, OpenOptions::new().read_only(true)).unwrap();
    let written = run(folder.path(), &["sql", "--into", "views.db", "--store", "agents.db"]);
    assert_eq!(code(&written), 0, "{written:?}");
    let tables = Connection::open_with_flags(folder.path().join("views.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let connections = [("views", annals_cli::connect_to_read(&path, &store).unwrap()), ("tables", tables)];
    let (mut queries, mut wrong) = (0, Vec::new());
    for (name, text) in guides() {
        let blocks = blocks(&text);
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.kind == "sql") {
            let answer = blocks.get(at + 1).filter(|next| next.kind == "text").expect("an answer stands below a query");
            for (of, conn) in &connections {
                let place = format!("{name}:{}, {of}", block.line);
                let found = rows(conn, &block.lines.join("\n")).unwrap_or_else(|error| panic!("{place}: {error}"));
                if found != answer.lines {
                    wrong.push(format!("{place}: the answer is\n{}", found.join("\n")));
                }
            }
            queries += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(queries >= 7, "{queries} queries");
}

#[test]
fn words_are_split_and_ids_are_not_compared() {
    assert_eq!(words(r#"annals sql "a 'b'" 'x="1"' ''"#), ["annals", "sql", "a 'b'", r#"x="1""#, ""]);
    assert_eq!(normal("@  1f1e74e366   step 0  bern@1f1e74e3680~1"), "@ ID step 0 bern@ID~1");
    assert_ne!(normal("4 messages"), normal("5 messages"));
    let block = &blocks("a\n```console\n$ x\ny\n```\n")[0];
    assert_eq!((block.kind, block.line, block.lines.len()), ("console", 3, 2));
}
