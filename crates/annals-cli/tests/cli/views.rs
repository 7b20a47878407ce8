//! The views of `annals sql`, which decode what the file encodes.

use annals::base::{Encoded, IdSource, Namespace, TaskId, ThreadId, Timestamp};
use annals::history::{ModelUsage, ThreadQuery, UsageQuery, UsageTotal};
use annals::message::Usage;
use annals::prelude::*;
use annals::rusqlite::types::ValueRef;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, NewWrite, NewWrites, Parent,
    Payload, WriteValue,
};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{Key, Source, WriteMark};

use super::guides::SetClock;
use super::*;

/// A closed store in a folder.
struct ClosedFile {
    folder: tempfile::TempDir,
    options: OpenOptions,
}

impl ClosedFile {
    fn of(options: OpenOptions, fill: impl FnOnce(&Store)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_with(folder.path().join("views.db"), options.clone()).unwrap();
        fill(&store);
        assert!(store.check().unwrap().problems.is_empty());
        drop(store);
        Self { folder, options }
    }

    /// Returns the rows of a query, each with its columns joined by bars.
    fn rows(&self, query: &str) -> Vec<String> {
        let path = self.folder.path().join("views.db");
        let store = Store::open_with(&path, self.options.clone().read_only(true)).unwrap();
        let conn = annals_cli::connect_to_read(&path, &store).unwrap();
        let mut statement = conn.prepare(query).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut found = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let column = |at: usize| match row.get_ref(at).unwrap() {
                ValueRef::Null => "-".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                ValueRef::Blob(bytes) => format!("{} bytes", bytes.len()),
            };
            found.push((0..columns).map(column).collect::<Vec<_>>().join("|"));
        }
        found
    }
}

#[test]
fn threads_are_shown_with_their_facts_and_their_status() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let a = store.thread("a").unwrap();
        a.append("messages", [Message::human("hi")]).unwrap();
        a.facts().title("Bern \"in\" May").project("home").label("x").label("ü").pinned(true).save().unwrap();
        let b = store.thread("b").unwrap();
        let write = b.write().set("x", 1).metadata("cancelled", "too late").metadata("graph", "book");
        write.commit().unwrap();
        b.facts().archived(true).save().unwrap();
        let c = store.thread("c").unwrap();
        c.set("x", 1).unwrap();
        c.set("x", 2).unwrap();
        c.rewind_to(&c.at("~1").unwrap()).unwrap();
    });
    let shown =
        "SELECT thread, status, title, project, labels, archived, pinned, graph, error FROM v_threads ORDER BY 1";
    let expected =
        [r#"a|done|Bern "in" May|home|["x","ü"]|0|1|-|-"#, "b|cancelled|-|-|-|1|0|book|-", "c|done|-|-|-|0|0|-|-"];
    assert_eq!(file.rows(shown), expected);
    assert_eq!(file.rows("SELECT thread, seq, newest FROM v_heads ORDER BY 1"), ["a|1|1", "b|2|2", "c|3|4"]);
    assert_eq!(file.rows("SELECT seq FROM v_checkpoints WHERE is_head ORDER BY 1"), ["1", "2", "3"]);
    assert_eq!(file.rows("SELECT json FROM v_state WHERE thread = 'c' AND channel = 'x'"), ["1"]);
}

#[test]
fn values_are_shown_as_json() {
    let long = "lang \" ü".repeat(40);
    let values: [(&str, Value, String); 14] = [
        ("null", Value::Null, "null".into()),
        ("true", true.into(), "true".into()),
        ("false", false.into(), "false".into()),
        ("zero", 0.into(), "0".into()),
        ("small", 127.into(), "127".into()),
        ("byte", 128.into(), "128".into()),
        ("word", 65_535.into(), "65535".into()),
        ("long", 4_294_967_295_i64.into(), "4294967295".into()),
        ("minus", (-32).into(), "-32".into()),
        ("huge", i64::MIN.into(), i64::MIN.to_string()),
        ("float", 0.5.into(), "0.5".into()),
        ("list", Value::List(vec![1.into()]), "[1]".into()),
        ("text", "a \"ü\"".into(), r#""a \"ü\"""#.into()),
        ("texts", long.as_str().into(), format!("\"{}\"", long.replace('"', "\\\""))),
    ];
    let fill = |store: &Store| {
        let thread = store.thread("a").unwrap();
        for (name, value, _) in &values {
            thread.set(name, value.clone()).unwrap();
        }
        thread.set("small", 7).unwrap();
        thread.at("~1").unwrap().fork_to("b").unwrap();
    };
    let file = ClosedFile::of(OpenOptions::new(), fill);
    let mut sorted: Vec<_> = values.iter().collect();
    sorted.sort_by_key(|(name, ..)| *name);
    let expected: Vec<String> = sorted.iter().map(|(name, _, json)| format!("{name}|{json}")).collect();
    let of = |thread: &str| format!("SELECT channel, json FROM v_state WHERE thread = '{thread}' ORDER BY channel");
    assert_eq!(file.rows(&of("b")), expected, "a fork reads its source");
    assert_ne!(file.rows(&of("a")), expected);
    let over_time = "SELECT json FROM v_channel_versions WHERE channel = 'small' ORDER BY ordinal";
    assert_eq!(file.rows(over_time), ["127", "7"]);
    let sealed = ClosedFile::of(OpenOptions::new().key(Key::new([7; 32])), fill);
    assert_eq!(sealed.rows("SELECT DISTINCT json FROM v_channel_versions"), ["-"], "content is sealed");
}

#[test]
fn usage_is_counted_once() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let a = store.thread("a").unwrap();
        let mut said = Message::ai("hello").with_id("1").with_usage(Usage::new(100, 10));
        said.response_metadata.insert("model_name".into(), "m-1".into());
        a.append("messages", [Message::human("hi").with_id("0"), said.clone()]).unwrap();
        said.content = "edited".into();
        a.append("messages", [said]).unwrap();
        let answer = Message::ai("stated").with_id("2").with_usage(Usage::new(5, 5));
        let usage = ModelUsage::new(812, 64).cost_usd(0.25).model("m-2");
        a.write().append("messages", [answer]).usage(usage).commit().unwrap();
        let mut long = Message::ai("l".repeat(4_000)).with_id("3").with_usage(Usage::new(1, 2));
        long.response_metadata.insert("model_name".into(), "m".repeat(100).into());
        store.thread("b").unwrap().append("messages", [long]).unwrap();
    });
    let store = Store::open(file.folder.path().join("views.db")).unwrap();
    let sums = store.usage(UsageQuery::new().by_thread().by_model().by_day()).unwrap();
    let shown = |sum: &UsageTotal| {
        let (day, thread) = (sum.day.as_deref().unwrap(), sum.thread.as_ref().unwrap());
        let model = sum.model.as_deref().unwrap_or("-");
        format!("{day}|{thread}|{model}|{}|{}|{}|{}", sum.calls, sum.input_tokens, sum.output_tokens, sum.cost_usd)
    };
    let summed = "SELECT day, thread, model, count(*), sum(input_tokens), sum(output_tokens), \
         CASE WHEN sum(cost_usd) > 0 THEN sum(cost_usd) ELSE 0 END FROM v_usage GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    assert_eq!(sums.iter().map(shown).collect::<Vec<_>>(), file.rows(summed), "the library counts as the view does");
    let all = store.usage(UsageQuery::new().thread("a")).unwrap();
    assert_eq!((all.len(), all[0].calls, all[0].input_tokens), (1, 2, 912));
    let infos = store.threads_with(ThreadQuery::new().by_id()).unwrap();
    let counts = infos.iter().map(|info| (info.id(), info.counts.unwrap()));
    let shown = counts.map(|(id, counts)| {
        format!("{id}|{}|{}|{}|{}", counts.messages, counts.input_tokens, counts.output_tokens, counts.cost_usd())
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(shown, ["a|3|912|74|0.25", "b|1|1|2|0"]);
    drop(store);
    let counts = "SELECT thread, messages, input_tokens, output_tokens, cost_usd FROM v_threads ORDER BY 1";
    assert_eq!(file.rows(counts), shown);
    let usage = "SELECT thread, model, input_tokens, output_tokens, cost_usd FROM v_usage ORDER BY thread, model";
    assert_eq!(file.rows(usage), ["a|m-1|100|10|-", "a|m-2|812|64|0.25", &format!("b|{}|1|2|-", "m".repeat(100))]);
    assert_eq!(file.rows("SELECT DISTINCT length(day) FROM v_usage"), ["10"]);
    let removed = "SELECT id, text, model, removed_by FROM v_messages WHERE thread = 'a' ORDER BY seq, slot";
    assert_eq!(file.rows(removed), ["0|hi|-|-", "1|hello|m-1|2", "1|edited|m-1|-", "2|stated|-|-"]);
}

#[test]
fn a_message_in_a_deleted_range_is_shown_as_removed() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let a = store.thread("a").unwrap();
        let says = |text: &str| Message::human(text).with_id(text);
        a.append("messages", ["0", "1", "2"].map(says)).unwrap();
        a.append("messages", [says("3")]).unwrap();
        a.append("messages", [Message::remove_all(), says("4"), says("5")]).unwrap();
        a.append("messages", [Message::remove("5")]).unwrap();
        a.append("messages", [Message::remove_all()]).unwrap();
        a.append("messages", [says("6")]).unwrap();
        // On another branch, whose deletes are not those of this one.
        a.rewind_to(&a.at("~5").unwrap()).unwrap();
        a.append("messages", [Message::remove_all(), says("7")]).unwrap();
    });
    let removed = "SELECT branch, id, seq, removed_by FROM v_messages ORDER BY seq, slot";
    let expected = ["1|0|1|3", "1|1|1|3", "1|2|1|3", "1|3|2|3", "1|4|3|5", "1|5|3|4", "1|6|6|-", "2|7|7|-"];
    assert_eq!(file.rows(removed), expected);
    assert_ne!(file.rows("SELECT count(*) FROM item WHERE op = 2"), ["0"], "ranges were deleted");
    assert_eq!(file.rows("SELECT messages FROM v_threads"), ["1"]);
}

#[test]
fn ranges_of_any_length_are_shown() {
    let thread = ThreadId::new("a").unwrap();
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let mut ids = IdSource::from_seed(1);
        let mut head = None;
        let mut commit = |version: u64, items: Vec<ItemChange>| {
            let id = ids.checkpoint(Timestamp::from_micros(1_000 * version as i64), 0, head.as_ref());
            let parent = head.map(Parent::Local);
            let mut checkpoint =
                NewCheckpoint::new(id, parent, 0, Source::Loop, Timestamp::from_micros(version as i64));
            checkpoint.changes = vec![Change::new("list", version, ChangeValue::Items(items))];
            let mut batch = Batch::new(thread.clone(), Namespace::root(), head);
            batch.checkpoints.push(checkpoint);
            store.backend().commit(&batch).unwrap();
            head = Some(id);
        };
        let put = |position: u64| {
            let mut index = ItemIndex::default();
            index.kind = Some("ai".into());
            ItemChange::new(position, ItemOp::Put(Data::New(Payload::new(vec![0xc0]).with_index(index))), None)
        };
        let cut = |first, end| ItemChange::new(first, ItemOp::DeleteRange { end }, None);
        commit(1, [0, 5, 127, 128, 300, 20_000, 1 << 40].map(put).into());
        commit(2, vec![cut(5, 6), cut(100, 128)]);
        commit(3, vec![cut(6, 300), put(5)]);
        commit(4, vec![cut(300, 1 << 40), put(300)]);
        commit(5, vec![cut(1 << 40, u64::MAX)]);
    });
    let removed = "SELECT slot, seq, removed_by FROM v_messages ORDER BY slot, seq";
    let expected =
        ["0|1|-", "5|1|2", "5|3|-", "127|1|2", "128|1|3", "300|1|4", "300|4|-", "20000|1|4", "1099511627776|1|5"];
    assert_eq!(file.rows(removed), expected);
}

#[test]
fn steps_are_shown_with_their_attempts() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let (mut ids, now) = (IdSource::from_seed(1), Timestamp::from_micros(1));
        let id = ids.checkpoint(now, 0, None);
        let task = |n: u8| TaskId::from_bytes([n; 16]);
        let kind = || TaskKind::Pull { triggers: vec!["input".into()] };
        let mut checkpoint = NewCheckpoint::new(id, None, 0, Source::Loop, now);
        checkpoint.tasks = (0..5).map(|n| TaskRecord::new(task(n), format!("node {n}"), kind())).collect();
        let mut batch = Batch::new(ThreadId::new("a").unwrap(), Namespace::root(), None);
        batch.checkpoints.push(checkpoint);
        store.backend().commit(&batch).unwrap();
        let mut batch = Batch::new(batch.thread, Namespace::root(), Some(id));
        let special = |index: i32, channel: &str, value: Value| {
            let mark = (index == -1).then_some(WriteMark::Failed);
            NewWrite::new(index, channel, WriteValue::One(Encoded::encode(&value).unwrap().into())).with_mark(mark)
        };
        let attempt = |number: i64| special(-8, "__attempt__", Value::List(vec![number.into(), 1.into()]));
        let writes = |n: u8, writes| NewWrites::new(id, task(n), format!("~__pregel_pull, node {n}")).with(writes);
        batch.writes.push(writes(0, vec![attempt(1)]));
        batch.writes.push(writes(1, vec![attempt(300), special(-1, "__error__", "no model".into())]));
        let failed =
            vec![special(-1, "__error__", "it failed".into()), special(-5, "__error_source_node__", "node 2".into())];
        batch.writes.push(writes(2, failed));
        let retries =
            r#"{"failed":1,"next":9,"number":1,"calls":0,"attempts":[{"started":2,"ended":5,"error":"no net"}]}"#;
        batch.writes.push(writes(3, vec![attempt(200), special(-13, "__retries__", retries.into())]));
        let ended = NewWrite::new(0, "__end__", WriteValue::One(Encoded::encode(&Value::from("ü")).unwrap().into()));
        batch.writes.push(writes(4, vec![ended]));
        store.backend().commit(&batch).unwrap();
    });
    let steps = "SELECT node, state, attempt, error, handled, attempts ->> '$[0].ended_at', wake_at, result FROM v_steps \
                 ORDER BY position";
    let expected = [
        "node 0|running|2|-|0|-|-|-",
        "node 1|failed|301|no model|0|-|-|-",
        "node 2|failed|1|it failed|1|-|-|-",
        "node 3|running|1|no net|0|1970-01-01T00:00:00.000005Z|1970-01-01T00:00:00.000009Z|-",
        r#"node 4|done|1|-|0|-|-|"ü""#,
    ];
    assert_eq!(file.rows(steps), expected);
}

#[test]
fn operations_are_shown_with_runs_and_updates() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let a = store.thread("a").unwrap();
        a.set("x", 1).unwrap();
        a.set("x", 2).unwrap();
        let zoe = a.by("Zoë");
        zoe.rewind_to(&a.at("~1").unwrap()).unwrap();
        store.thread("b").unwrap().set("x", 1).unwrap();
        store.facts(["a", "b"]).unwrap().title("t").save().unwrap();
    });
    let operations = "SELECT seq, kind, actor, thread, changes FROM v_operations ORDER BY seq, operation, thread";
    let expected = [
        "1|update|-|a|-",
        "2|update|-|a|-",
        r#"2|rewind|Zoë|a|[{"field":"head","name":"","before":2,"after":1}]"#,
        "3|update|-|b|-",
        r#"3|facts|-|a|[{"field":"fact","name":"title","before":null,"after":"t"}]"#,
        r#"3|facts|-|b|[{"field":"fact","name":"title","before":null,"after":"t"}]"#,
    ];
    assert_eq!(file.rows(operations), expected);
}

#[test]
fn the_nodes_of_any_tasks_are_shown() {
    let file = ClosedFile::of(OpenOptions::new(), |store| {
        let (mut ids, now) = (IdSource::from_seed(1), Timestamp::from_micros(1));
        let mut first = NewCheckpoint::new(ids.checkpoint(now, 0, None), None, 0, Source::Loop, now);
        for n in 0..140_u8 {
            let triggers = (0..n % 5).map(|at| format!("channel-{n}-{at}").into()).collect();
            let kind =
                if n % 3 == 0 { TaskKind::Push { index: u32::from(n) * 40 } } else { TaskKind::Pull { triggers } };
            first.tasks.push(TaskRecord::new(TaskId::from_bytes([n + 1; 16]), format!("node-{n}"), kind));
        }
        let id = ids.checkpoint(now, 1, Some(&first.id));
        let mut second = NewCheckpoint::new(id, Some(Parent::Local(first.id)), 1, Source::Loop, now);
        let put = |n: u64| {
            let mut index = ItemIndex::default();
            index.kind = Some("ai".into());
            let payload = Payload::new(vec![0xc0]).with_index(index);
            ItemChange::new(n, ItemOp::Put(Data::New(payload)), Some(n as u32))
        };
        second.changes = vec![Change::new("list", 1, ChangeValue::Items((0..140).map(put).collect()))];
        let mut batch = Batch::new(ThreadId::new("a").unwrap(), Namespace::root(), None);
        batch.checkpoints = vec![first, second];
        store.backend().commit(&batch).unwrap();
    });
    assert_eq!(file.rows("SELECT count(*) FROM v_messages WHERE node IS NOT 'node-' || slot"), ["0"]);
    let expected: Vec<String> = (0..140).map(|n| format!("\"node-{n}\"")).collect();
    assert_eq!(file.rows("SELECT next FROM v_checkpoints WHERE seq = 1"), [format!("[{}]", expected.join(","))]);
    let steps = "SELECT count(*) FROM v_steps WHERE seq = 1 AND node = 'node-' || position AND state = 'done'";
    assert_eq!(file.rows(steps), ["140"]);
}

#[test]
fn all_views_are_written_as_tables_of_a_new_file() {
    let bench = Bench::ran();
    let done = bench.json(&["sql", "--into", "views.db"]);
    let file = annals::rusqlite::Connection::open(bench.path("views.db")).unwrap();
    let count =
        |name: &str| -> i64 { file.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap() };
    let tables = done["tables"].as_array().unwrap();
    let views = bench.json(&["sql", "--views"])["views"].as_array().unwrap().len();
    assert_eq!(tables.len(), views, "{done}");
    for table in tables {
        let name = table["table"].as_str().unwrap();
        assert_eq!(table["rows"], count(name), "{name}");
        let all = bench.json(&["sql", &format!("SELECT count(*) FROM {name}")]);
        assert_eq!(all["rows"], json!([[count(name)]]), "{name}");
    }
    for name in ["v_threads", "v_checkpoints", "v_messages", "v_steps", "v_state", "v_writes"] {
        assert!(count(name) > 0, "{name}");
    }
    // The type of each value is that of its column.
    let mut columns = file
        .prepare(
            "SELECT t.name, c.name, c.type FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'",
        )
        .unwrap();
    let rows = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    for column in rows {
        let (table, column, kind): (String, String, String) = column.unwrap();
        let other = format!("SELECT count(*) FROM {table} WHERE typeof(\"{column}\") NOT IN ('null', lower('{kind}'))");
        let others: i64 = file.query_row(&other, [], |row| row.get(0)).unwrap();
        assert_eq!(others, 0, "{table}.{column} is {kind}");
    }
    assert!(!bench.path("views.db-unfinished").exists());
    let before = fs::read(bench.path("views.db")).unwrap();
    let again = bench.annals(&["sql", "--into", "views.db", "--json"]);
    assert_eq!((code(&again), &document(&again.stderr)["error"]["code"]), (5, &json!("file_exists")));
    assert!(fs::read(bench.path("views.db")).unwrap() == before);
    let nowhere = bench.annals(&["sql", "--into", "no/such/views.db", "--json"]);
    assert_eq!((code(&nowhere), &document(&nowhere.stderr)["error"]["code"]), (70, &json!("io")));
    assert_eq!(code(&bench.annals(&["sql", "--into", "other.db", "select 1"])), 2);
}

#[test]
fn signals_are_shown_with_the_times_at_which_they_were_sent_and_received() {
    let folder = tempfile::tempdir().unwrap();
    let clock = SetClock::new(Timestamp::from_micros(1_000_000_000_000_000));
    let options = OpenOptions::new().clock(clock.clone());
    let store = Store::open_with(folder.path().join("views.db"), options.clone()).unwrap();
    let day = std::time::Duration::from_secs(86_400);
    let body = move |_: i64, context: &Context| Ok(context.receive::<i64>("x", day)?.unwrap_or_default());
    let graph = annals_graph::graph::Entrypoint::new("listens", body).compile().unwrap();
    store.signal("a", "x", 7).unwrap();
    store.signal("a", "x", "second").unwrap();
    store.signal("a", "y", Value::List(vec![1.into(), 2.into()])).unwrap();
    clock.pass(60);
    graph.invoke(&store.thread("a").unwrap(), 1).unwrap();
    drop(store);
    let file = ClosedFile { folder, options };
    let signals = "SELECT thread, name, position, sent_at, received_at, json FROM v_signals ORDER BY name, position";
    let expected = [
        "a|x|0|2001-09-09T01:46:40.000000Z|2001-09-09T01:47:40.000000Z|7",
        "a|x|1|2001-09-09T01:46:40.000000Z|-|\"second\"",
        "a|y|0|2001-09-09T01:46:40.000000Z|-|[1,2]",
    ];
    assert_eq!(file.rows(signals), expected);
}
