//! Every record comes back as it went in.

use super::*;
use crate::base::NULL_TASK;
use crate::base::{Codec, RunId};
use crate::store::mark::WriteMark;
use crate::store::query::CheckpointQuery;
use crate::store::record::ThreadSize;
use crate::store::record::{ChannelValue, WriteRecord};

fn rich_message() -> Payload {
    let mut index = ItemIndex::default();
    index.id = Some("01234567-89ab-4def-8123-456789abcdef".into());
    (index.kind, index.name) = (Some("tool".into()), Some("search".into()));
    index.tool_calls = Some("[\"a\"]".into());
    index.text = Some("ü".repeat(2_000));
    (index.input_tokens, index.output_tokens) = (Some(u32::MAX), Some(0));
    Payload::new(vec![7; 40]).with_codec(Codec::Foreign(9)).with_index(index)
}

#[test]
fn a_checkpoint_with_everything_comes_back() {
    let mut bench = Bench::new();
    let t = thread("alice");
    let (a, b) = (
        task(1, "answer"),
        TaskRecord { id: TaskId::from_bytes([2; 16]), name: "tool".into(), kind: TaskKind::Push { index: 3 } },
    );
    let first = NewCheckpoint {
        step: -1,
        source: Source::Input,
        run: Some(RunId::from_bytes([9; 16])),
        metadata: Some("{\"user\":\"x\"}".into()),
        parents: [].into(),
        tasks: vec![a.clone(), b.clone()],
        changes: vec![value("__start__", 1, plain(&[0xc0])), list(1, vec![put(0, "hi")])],
        ..checkpoint(bench.ids.checkpoint(Timestamp::from_micros(1), -1, None))
    };
    let items = vec![message("x", "one"), rich_message(), plain(&[1]), plain(&[2; 3_000])];
    let consumed = vec![
        writes(
            first.id,
            &a,
            vec![
                write(0, "messages", WriteValue::Items(items.clone())),
                write(1, "trigger:of:tool", WriteValue::Null),
                write(2, "topic", WriteValue::One(plain(&[0xa1, b'x']))),
                write(3, "messages", WriteValue::Items(Vec::new())),
            ],
        ),
        writes(first.id, &b, vec![write(0, "messages", WriteValue::Items(vec![message("y", "two")]))]),
    ];
    let puts = (0..4).map(|part| ItemChange {
        position: u64::from(part) + 1,
        op: ItemOp::Put(of_write(a.id, 0, part)),
        task: Some(0),
    });
    let second = NewCheckpoint {
        parent: Some(Parent::Local(first.id)),
        consumed,
        changes: vec![
            list(2, puts.collect()),
            Change {
                task: Some(0),
                ..Change {
                    channel: "topic".into(),
                    version: 2,
                    value: ChangeValue::Value(of_write(a.id, 2, 0)),
                    task: None,
                }
            },
            empty("__start__", 2),
        ],
        seen: vec![seen("answer", "trigger:of:answer", 7)],
        ..checkpoint(bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&first.id)))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints = vec![first.clone(), second.clone()];
    bench.store.commit(&batch).unwrap();

    let head = bench.store.head(&t, &Namespace::root()).unwrap().unwrap();
    assert_eq!((head.point.checkpoint, head.parent, head.ordinal), (second.id, Some(first.id), 1));
    let record = bench.store.checkpoint(&at(&t, first.id)).unwrap().unwrap();
    assert_eq!(
        (record.step, record.source, record.run, &record.metadata, &record.tasks),
        (-1, Source::Input, first.run, &first.metadata, &first.tasks)
    );
    let state = bench.store.state(&at(&t, second.id)).unwrap();
    let names: Vec<_> = state.channels.iter().map(|channel| &*channel.channel).collect();
    assert_eq!(names, ["__start__", "messages", "topic"]);
    assert_eq!(state.channels[0].value, ChannelValue::Empty);
    assert_eq!(state.channels[1].value, ChannelValue::Items);
    assert_eq!(state.channels[2].value, ChannelValue::Value(plain(&[0xa1, b'x'])));
    assert_eq!((state.channels[2].task, state.channels[2].ordinal), (Some(0), 1));
    assert_eq!(state.seen, second.seen);
    assert_eq!(state.updated.iter().map(|name| &**name).collect::<Vec<_>>(), ["messages", "topic"]);

    let mut back = Vec::new();
    let mut visit = |row: crate::store::record::ItemRow<'_>| {
        back.push((row.position, row.ordinal, row.task, row.payload.to_payload()));
        Ok(())
    };
    bench.store.items(&at(&t, second.id), "messages", ItemRange::All, &mut visit).unwrap();
    let payloads: Vec<_> = back.iter().skip(1).map(|(.., payload)| payload.clone()).collect();
    assert_eq!(payloads, items);
    assert_eq!((back[1].0, back[1].1, back[1].2), (1, 1, Some(0)));

    let stored = bench.store.writes(&at(&t, first.id)).unwrap();
    let expected: Vec<WriteRecord> = batch.checkpoints[1]
        .consumed
        .iter()
        .flat_map(|new| {
            new.writes.iter().map(|write| WriteRecord {
                task: new.task,
                path: new.path.clone(),
                index: write.index,
                channel: write.channel.clone(),
                value: write.value.clone(),
                mark: write.mark,
            })
        })
        .collect();
    assert_eq!(stored, expected);
    assert_eq!(bench.check(), Vec::<String>::new());
    let report = bench.store.check().unwrap();
    assert_eq!((report.threads, report.checkpoints), (1, 2));
}

#[test]
fn bytes_of_a_write_are_stored_once() {
    let mut bench = Bench::new();
    let t = thread("a");
    let a = task(1, "a");
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    // Stored on its own, then consumed: first by one part of a list, then as a whole value.
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
    batch.writes = vec![writes(
        first.id,
        &a,
        vec![
            write(0, "messages", WriteValue::Items(vec![message("m", "once")])),
            write(1, "topic", WriteValue::One(plain(&[3; 100]))),
            write(2, "nothing", WriteValue::Null),
        ],
    )];
    bench.store.commit(&batch).unwrap();
    let change = |channel: &str, value| Change { channel: channel.into(), version: 1, value, task: Some(0) };
    let put = ItemChange { position: 0, op: ItemOp::Put(of_write(a.id, 0, 0)), task: Some(0) };
    let mut second = NewCheckpoint {
        parent: Some(Parent::Local(first.id)),
        changes: vec![
            change("messages", ChangeValue::Items(vec![put])),
            change("topic", ChangeValue::Value(of_write(a.id, 1, 0))),
        ],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 1, Some(&first.id)))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
    second.changes.push(change("nothing", ChangeValue::Value(of_write(a.id, 2, 0))));
    batch.checkpoints = vec![second.clone()];
    assert!(matches!(bench.store.commit(&batch), Err(crate::store::StoreError::Invalid { .. })), "null has no bytes");
    second.changes.pop();
    batch.checkpoints = vec![second.clone()];
    bench.store.commit(&batch).unwrap();
    assert_eq!(bench.items(&at(&t, second.id), ItemRange::All), [(0, "once".to_string())]);
    let state = bench.store.state(&at(&t, second.id)).unwrap();
    assert_eq!(state.channels[1].value, ChannelValue::Value(plain(&[3; 100])));
    let count: i64 = raw(&bench.path()).query_row("SELECT count(*) FROM payload", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn special_slots_are_replaced_and_others_keep_their_first_write() {
    let mut bench = Bench::new();
    let t = thread("a");
    let a = task(1, "a");
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    let foreign = |n: u8| NewWrites {
        checkpoint: first.id,
        task: NULL_TASK,
        path: "".into(),
        writes: vec![write(-4, "given", WriteValue::One(plain(&[n])))],
    };
    for n in 1..=3 {
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
        batch.writes = vec![
            foreign(n),
            writes(
                first.id,
                &a,
                vec![
                    write(-1, "error", WriteValue::Items(vec![plain(&[n]), plain(&[n; 50])]))
                        .with_mark(Some(WriteMark::GivenUp)),
                    write(0, "x", WriteValue::One(plain(&[n]))),
                    write(i32::from(n) * 2, "y", WriteValue::Null),
                ],
            ),
        ];
        bench.store.commit(&batch).unwrap();
        bench.store.commit(&batch).unwrap();
    }
    let back = bench.store.writes(&at(&t, first.id)).unwrap();
    let short: Vec<_> = back.iter().map(|write| (write.task == NULL_TASK, write.index, write.value.clone())).collect();
    assert_eq!(
        short,
        [
            (true, -4, WriteValue::One(plain(&[3]))),
            (false, -1, WriteValue::Items(vec![plain(&[3]), plain(&[3; 50])])),
            (false, 0, WriteValue::One(plain(&[1]))),
            (false, 2, WriteValue::Null),
            (false, 4, WriteValue::Null),
            (false, 6, WriteValue::Null),
        ]
    );
    // The payloads of replaced writes are not reported as damage.
    assert_eq!(bench.check(), Vec::<String>::new());
    let conn = raw(&bench.path());
    assert!(conn.execute("DELETE FROM write WHERE idx = 0", []).unwrap_err().to_string().contains("append-only"));
    assert!(conn.execute("UPDATE write SET part = 9", []).unwrap_err().to_string().contains("append-only"));
    assert!(conn.execute("DELETE FROM checkpoint", []).unwrap_err().to_string().contains("append-only"));
}

#[test]
fn large_content_is_stored_once() {
    let mut bench = Bench::new();
    let t = thread("a");
    let text = "long ".repeat(1_000);
    let a = bench.add(&t, None, vec![list(1, vec![put(0, &text), put(1, &text)]), value("d", 1, plain(&[5; 9_000]))]);
    let b = bench.add(&t, Some(a), vec![value("d", 2, plain(&[5; 9_000]))]);
    let conn = raw(&bench.path());
    let count: i64 = conn.query_row("SELECT count(*) FROM blob", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    assert_eq!(bench.items(&at(&t, b), ItemRange::All), [(0, text.clone()), (1, text.clone())]);
    let shown: String = conn.query_row("SELECT text FROM v_messages WHERE slot = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(shown, text);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn listings_page_through_threads_and_checkpoints() {
    let mut bench = Bench::new();
    let mut all = Vec::new();
    for name in ["b", "a", "c"] {
        let mut parent = None;
        for n in 0..5 {
            parent = Some(bench.add(&thread(name), parent, vec![value("x", n + 1, plain(&[1]))]));
            all.push((name, parent.unwrap()));
        }
    }
    let names = |after: Option<&str>, limit| -> Vec<String> {
        let page = bench.store.threads(after.map(thread).as_ref(), limit).unwrap();
        page.iter().map(|thread| thread.id.to_string()).collect()
    };
    assert_eq!(names(None, 2), ["a", "b"]);
    assert_eq!(names(Some("b"), 2), ["c"]);
    let a = &bench.store.threads(None, 1).unwrap()[0];
    assert_eq!((bench.store.thread_size(&a.id).unwrap(), a.head.ordinal), (ThreadSize::new(5, 1), 4));
    let ids: Vec<_> = all.iter().filter(|(name, _)| *name == "a").map(|(_, id)| *id).collect();
    let mut query = CheckpointQuery { limit: 2, ..CheckpointQuery::new(thread("a"), Namespace::root()) };
    let mut back = Vec::new();
    loop {
        let page = bench.store.checkpoints(&query).unwrap();
        let Some(last) = page.last() else { break };
        query.before = Some(last.point.checkpoint);
        query.namespace = if back.is_empty() { None } else { Some(Namespace::root()) };
        back.extend(page.iter().map(|record| record.point.checkpoint));
    }
    assert!(back.iter().eq(ids.iter().rev()));
    let text = ids[2].to_string();
    for prefix in [text.clone(), text[..35].to_string(), text.replace('-', ""), text.to_uppercase()] {
        let found = bench.store.checkpoints_by_prefix(&thread("a"), &prefix, 9).unwrap();
        assert_eq!(found.iter().map(|record| record.point.checkpoint).collect::<Vec<_>>(), [ids[2]]);
    }
    assert_eq!(bench.store.checkpoints_by_prefix(&thread("a"), "1", 9).unwrap().len(), 5);
    assert_eq!(bench.store.checkpoints_by_prefix(&thread("a"), "f", 9).unwrap().len(), 0);
    assert_eq!(bench.store.namespaces(&thread("a")).unwrap(), [Namespace::root()]);
    assert!(bench.store.namespaces(&thread("zz")).unwrap().is_empty());
}
