//! The views of a file, as a program reads them that has SQLite alone.

use annals::history::{ModelUsage, UsageQuery, UsageTotal};
use annals::message::Usage;
use annals::prelude::*;
use annals::rusqlite::Connection;
use annals::rusqlite::types::ValueRef;
use annals::store::Key;

/// A closed store in a folder.
struct ClosedFile {
    folder: tempfile::TempDir,
}

impl ClosedFile {
    fn of(options: OpenOptions, fill: impl FnOnce(&Store)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_with(folder.path().join("views.db"), options).unwrap();
        fill(&store);
        assert!(store.check().unwrap().problems.is_empty());
        drop(store);
        Self { folder }
    }

    /// Returns the rows of a query, each with its columns joined by bars.
    fn rows(&self, query: &str) -> Vec<String> {
        let conn = Connection::open(self.folder.path().join("views.db")).unwrap();
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
        a.facts().title("Bern \"in\" May").project("home").label("x").label("ü").pin().save().unwrap();
        let b = store.thread("b").unwrap();
        let write = b.write().set("x", 1).metadata("cancelled", "too late").metadata("graph", "book");
        write.commit().unwrap();
        b.facts().archive().save().unwrap();
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
        ("huge", i64::MIN.into(), "-".into()),
        ("float", 0.5.into(), "-".into()),
        ("list", Value::List(vec![1.into()]), "-".into()),
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
    assert_eq!(sealed.rows("SELECT DISTINCT json FROM v_state"), ["-"], "content is sealed");
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
    drop(store);
    let usage = "SELECT thread, model, input_tokens, output_tokens, cost_usd FROM v_usage ORDER BY thread, model";
    assert_eq!(file.rows(usage), ["a|m-1|100|10|-", "a|m-2|812|64|0.25", &format!("b|{}|1|2|-", "m".repeat(100))]);
    assert_eq!(file.rows("SELECT DISTINCT length(day) FROM v_usage"), ["10"]);
    let removed = "SELECT id, text, model, removed_by FROM v_messages WHERE thread = 'a' ORDER BY seq, slot";
    assert_eq!(file.rows(removed), ["0|hi|-|-", "1|hello|m-1|2", "1|edited|m-1|-", "2|stated|-|-"]);
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
