//! Fuzzes a file that another program has written to: it is read, or its damage is reported, and if a check finds no
//! damage, the values read are those that were written.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, process};

use annals::history::ExportOptions;
use annals::state::DynState;
use annals::store::{KvQuery, OpenOptions, StoreError, Synchronous};
use annals_graph::graph::CachePolicy;
use annals_graph::prelude::*;
use libfuzzer_sys::fuzz_target;
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

/// A file with most kinds of rows, and the values read from it.
struct Whole {
    bytes: Vec<u8>,
    shown: Vec<String>,
    /// Every column of every table.
    columns: Vec<(String, String)>,
    triggers: Vec<(String, String)>,
}

fn place(name: &str) -> PathBuf {
    env::temp_dir().join(format!("annals-fuzz-{}-{name}.db", process::id()))
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open_with(path, OpenOptions::new().synchronous(Synchronous::Normal))
}

fn graph() -> CompiledGraph<DynState> {
    let schema = DynSchema::new().messages("messages").last("topic").append("notes").build();
    let note = |_: &DynState| Ok(DynUpdate::new().set("notes", vec!["short".to_owned(), "long ".repeat(400)]));
    let ask = |_: &DynState, ctx: &Context| {
        let answer = ctx.interrupt("which?")?;
        Ok(DynUpdate::new().set("topic", answer).messages("messages", [Message::ai("so be it").with_id("a")]))
    };
    StateGraph::with_schema(schema)
        .node_with("note", note, NodeOptions::new().cache(CachePolicy::new()))
        .node("ask", ask)
        .edge(START, "note")
        .edge(START, "ask")
        .edge("ask", END)
        .compile()
        .expect("a graph")
}

fn fill(store: &Store) -> Result<()> {
    let graph = graph();
    for name in ["one", "two"] {
        let thread = store.thread(name)?;
        let question = Message::human("where to?").with_id("q");
        graph.invoke(&thread, DynUpdate::new().messages("messages", [question]))?;
        if name == "one" {
            graph.invoke(&thread, Command::resume("there"))?;
            graph.invoke(&thread, DynUpdate::new().messages("messages", [Message::remove("q")]))?;
            thread.at("~2")?.fork_to("fork")?;
        }
    }
    store.kv().put(["a", "b"], "key", serde_json::json!({"x": 1}))?;
    Ok(())
}

/// Reads all there is.
fn read(store: &Store) -> Result<Vec<String>, StoreError> {
    let mut shown = Vec::new();
    for record in store.threads()? {
        let thread = store.thread(record.id.as_str())?;
        for snapshot in thread.history()? {
            let snapshot = snapshot?;
            shown.push(format!("{:?} {:?} {:?}", snapshot.record(), snapshot.writes()?, snapshot.interrupts()?));
            shown.push(format!("{:?} {:?}", snapshot.values()?, snapshot.tail("messages", 1)?));
            shown.push(format!("{:?} {:?}", snapshot.blames()?, snapshot.token_usage("messages")?));
        }
    }
    shown.push(format!("{:?} {:?}", store.kv().search(KvQuery::all())?, store.timers(None)?));
    Ok(shown)
}

fn whole() -> &'static Whole {
    static WHOLE: OnceLock<Whole> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let path = place("whole");
        let _ = fs::remove_file(&path);
        let store = open(&path).expect("a new file");
        fill(&store).expect("runs");
        let shown = read(&store).expect("it is whole");
        drop(store);
        let file = Connection::open(&path).expect("a file of SQLite");
        let pairs = |sql: &str| {
            let mut rows = file.prepare(sql).expect("a query");
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
            rows.collect::<Result<Vec<_>, _>>().expect("two texts")
        };
        let columns = pairs(
            "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY 1, 2",
        );
        let triggers = pairs("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'");
        // A thread of the run may hold the store for a moment longer.
        let moved = || file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        while moved() != Ok(0) {}
        drop(file);
        let bytes = fs::read(&path).expect("a file");
        let _ = fs::remove_file(&path);
        Whole { bytes, shown, columns, triggers }
    })
}

/// Changes cells of a file as SQL can, with the triggers off that would refuse.
fn change_cells(whole: &Whole, path: &Path, mut changes: &[u8]) -> rusqlite::Result<()> {
    let file = Connection::open(path)?;
    file.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN")?;
    for (name, _) in &whole.triggers {
        file.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    while let [column, row, how, rest @ ..] = changes {
        let take = rest.len().min(8);
        let (bytes, rest) = rest.split_at(take);
        changes = rest;
        let (table, column) = &whole.columns[usize::from(*column) % whole.columns.len()];
        let mut eight = [0; 8];
        eight[..take].copy_from_slice(bytes);
        let number = i64::from_le_bytes(eight) >> (how & 0x38);
        let (new, argument) = match how % 8 {
            0 => ("NULL".to_owned(), Sql::Null),
            1 => ("?".to_owned(), Sql::Integer(number)),
            2 => (format!("{column} + ?"), Sql::Integer(i64::from(eight[0] as i8))),
            3 => ("?".to_owned(), Sql::Text(String::from_utf8_lossy(bytes).into_owned())),
            4 => ("?".to_owned(), Sql::Blob(bytes.to_vec())),
            // A cell of another row.
            5 => (format!("(SELECT {column} FROM {table} LIMIT 1 OFFSET ?)"), Sql::Integer(i64::from(eight[0]))),
            // A few bytes of it are others.
            6 => {
                let cell = format!("CAST({column} AS BLOB)");
                let at = eight[0] % 64;
                (
                    format!("CAST(substr({cell}, 1, {at}) || ? || substr({cell}, {at} + 2) AS BLOB)"),
                    Sql::Blob(vec![eight[1]]),
                )
            }
            _ => {
                let gone =
                    format!("DELETE FROM {table} WHERE {column} = (SELECT {column} FROM {table} LIMIT 1 OFFSET {row})");
                let _ = file.execute_batch(&gone);
                continue;
            }
        };
        let sql = format!(
            "UPDATE {table} SET {column} = {new} WHERE {column} IS (SELECT {column} FROM {table} LIMIT 1 OFFSET {row})"
        );
        // Not every column takes every value.
        let _ = file.execute(&sql, params_from_iter(sql.contains('?').then_some(argument)));
    }
    for (_, sql) in &whole.triggers {
        file.execute_batch(sql)?;
    }
    file.execute_batch("COMMIT")
}

fuzz_target!(|bytes: &[u8]| {
    let [how, changes @ ..] = bytes else { return };
    let (whole, path) = (whole(), place("damaged"));
    for end in ["", "-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(format!("{}{end}", path.display()));
    }
    let mut file = whole.bytes.clone();
    if how % 2 == 0 {
        fs::write(&path, &file).expect("a file");
        change_cells(whole, &path, changes).expect("changes of SQL");
    } else {
        for change in changes.chunks_exact(4) {
            let at = usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
            let len = file.len();
            file[at % len] = change[3];
        }
        fs::write(&path, &file).expect("a file");
    }
    let Ok(store) = open(&path) else { return };
    let (read, check) = (read(&store), store.check());
    if let (Ok(shown), Ok(report)) = (read, check)
        && report.problems.is_empty()
    {
        assert_eq!(shown, whole.shown, "a check finds nothing");
    }
    // Work goes on, or is refused.
    let graph = graph();
    for name in ["one", "two", "fork"] {
        let Ok(thread) = store.thread(name) else { continue };
        let _ = graph.invoke(&thread, Command::resume("x"));
        let _ = graph.invoke(&thread, DynUpdate::new().messages("messages", [Message::human("y")]));
        if let Ok(Some(head)) = thread.head() {
            let _ = head.export_messages("messages", &ExportOptions::new(), &mut Vec::new());
            let _ = head.fork_to("new");
        }
        let _ = store.delete_thread(name);
    }
    let _ = store.check();
});
