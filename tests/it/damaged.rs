//! Lists with damaged items: read past the damage, exported, and mended by deleting.

use std::path::{Path, PathBuf};

use annals::history::{Damaged, ExportOptions, Framing, ListItem};
use annals::prelude::*;
use annals::rusqlite::Connection;
use annals::rusqlite::config::DbConfig;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, Parent, Payload,
};
use annals::store::{ItemRange, Source, StoreError};

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    topic: String,
}

/// A closed store with messages of one thread, made in several updates.
fn chat(folder: &Path, messages: u64) -> PathBuf {
    let path = folder.join("chat.db");
    let thread = Store::open(&path).unwrap().thread("t").unwrap();
    let all: Vec<Message> =
        (0..messages).map(|n| Message::human(format!("text {n}.")).with_id(format!("m{n}"))).collect();
    for part in all.chunks(400) {
        thread.update(Chat::update().messages(part.to_vec()).topic("boats".to_string())).unwrap();
    }
    path
}

/// Runs statements on a file without its triggers.
fn harm(path: &Path, statements: &str) {
    let conn = Connection::open(path).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
    conn.execute_batch(statements).unwrap();
}

fn positions<T>(items: &[ListItem<T>], damaged: bool) -> Vec<u64> {
    items.iter().filter(|item| item.item.is_err() == damaged).map(|item| item.position).collect()
}

#[test]
fn a_read_goes_on_past_damaged_items() {
    let folder = tempfile::tempdir().unwrap();
    let path = chat(folder.path(), 1_300);
    let bad = [0, 5, 6, 7, 511, 512, 513, 900, 1_299];
    for n in bad {
        harm(&path, &format!("UPDATE payload SET text = 'other' WHERE text = 'text {n}.'"));
    }
    let head = Store::open(&path).unwrap().thread("t").unwrap().head().unwrap().unwrap();
    let is_corrupt = |error| matches!(error, StoreError::Corrupt { .. });
    assert!(is_corrupt(head.items("messages", ItemRange::All).unwrap_err()));
    assert!(is_corrupt(head.read_items("messages", ItemRange::All, Damaged::Error).unwrap_err()));
    let items = head.read_items("messages", ItemRange::All, Damaged::Placeholder).unwrap();
    assert_eq!(positions(&items, true), bad);
    assert_eq!(items.len(), 1_300);
    assert!(items.iter().map(|item| item.position).eq(0..1_300));
    let placeholder = items[5].item.clone().unwrap_err();
    assert_eq!((placeholder.position, placeholder.id), (5, None));
    assert!(placeholder.reason.contains("does not match"), "{}", placeholder.reason);
    let messages = head.read_messages("messages", ItemRange::All, Damaged::Placeholder).unwrap();
    assert_eq!(messages[8].item.as_ref().unwrap().text(), "text 8.");
    assert_eq!(positions(&messages, true), bad);
    for (range, expected) in [
        (ItemRange::Positions(4, 7), &[5, 6][..]),
        (ItemRange::Positions(8, 400), &[]),
        (ItemRange::Positions(1_299, u64::MAX), &[1_299]),
        (ItemRange::Tail(2), &[1_299]),
        (ItemRange::Tail(400), &[900, 1_299]),
    ] {
        let some = head.read_items("messages", range, Damaged::Placeholder).unwrap();
        assert_eq!(positions(&some, true), expected, "{range:?}");
    }
    assert_eq!(head.read_items("messages", ItemRange::Tail(400), Damaged::Placeholder).unwrap().len(), 400);
}

#[test]
fn a_list_that_is_damaged_as_a_whole_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = chat(folder.path(), 10);
    let head = Store::open(&path).unwrap().thread("t").unwrap().head().unwrap().unwrap();
    assert_eq!(head.read_items("none", ItemRange::All, Damaged::Placeholder).unwrap(), []);
    harm(&path, "UPDATE version SET value = X'00' WHERE kind = 2");
    let error = head.read_items("messages", ItemRange::All, Damaged::Placeholder).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn an_export_writes_placeholders() {
    let folder = tempfile::tempdir().unwrap();
    let path = chat(folder.path(), 4);
    harm(&path, "UPDATE payload SET text = 'other' WHERE text = 'text 2.'");
    let head = Store::open(&path).unwrap().thread("t").unwrap().head().unwrap().unwrap();
    let options = ExportOptions::new().framing(Framing::Lines);
    assert!(head.export_messages("messages", &options, &mut Vec::new()).is_err());
    let mut text = Vec::new();
    let report = head.export_messages("messages", &options.damaged(Damaged::Placeholder), &mut text).unwrap();
    assert_eq!((report.messages, report.items, report.damaged.count), (3, 4, 1));
    assert_eq!(report.damaged.first[0].position, 2);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["data"]["content"], "text 1.");
    assert_eq!(lines[2]["$damaged"]["position"], 2);
    assert!(lines[2]["$damaged"]["reason"].as_str().unwrap().contains("payload"), "{}", lines[2]);
}

#[test]
fn a_damaged_item_is_deleted_by_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let path = chat(folder.path(), 10);
    harm(&path, "UPDATE payload SET text = 'other' WHERE text = 'text 4.'");
    let thread = Store::open(&path).unwrap().thread("t").unwrap();
    assert!(thread.with_state::<Chat>().state().is_err());
    let refused = thread.delete_items("messages", [10]).unwrap_err();
    assert!(refused.to_string().contains("no item at 10"), "{refused}");
    assert!(thread.delete_items("topic", [0]).unwrap_err().to_string().contains("does not hold a list"));
    assert!(thread.delete_items("none", [0]).is_err());
    thread.delete_items("messages", [4, 4]).unwrap();
    let state = thread.with_state::<Chat>().state().unwrap();
    assert_eq!(state.messages.len(), 9);
    assert!(state.messages.iter().all(|message| message.id.as_deref() != Some("m4")));
    thread.update(Chat::update().messages([Message::ai("go on")])).unwrap();
    assert_eq!(thread.head().unwrap().unwrap().len("messages").unwrap(), 10);
}

#[test]
fn a_message_that_cannot_be_decoded_is_seen_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(chat(folder.path(), 3)).unwrap();
    let thread = store.thread("t").unwrap();
    let head = thread.head().unwrap().unwrap().id();
    // Sound bytes that are not those of a message, as another program may write them.
    let mut index = ItemIndex::default();
    (index.id, index.kind) = (Some("m1".into()), Some("human".into()));
    let put = ItemOp::Put(Data::New(Payload::new(vec![0xc1]).with_index(index)));
    let id = store.mint_checkpoint(9, Some(&head));
    let mut checkpoint = NewCheckpoint::new(id, Some(Parent::Local(head)), 9, Source::Update, store.now());
    checkpoint.changes = vec![Change::new("messages", 90, ChangeValue::Items(vec![ItemChange::new(1, put, None)]))];
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
    batch.checkpoints.push(checkpoint);
    store.commit(&batch).unwrap();
    let at = thread.head().unwrap().unwrap();
    assert!(thread.with_state::<Chat>().state().is_err());
    let messages = at.read_messages("messages", ItemRange::All, Damaged::Placeholder).unwrap();
    assert_eq!(positions(&messages, true), [1]);
    assert_eq!(messages[1].item.as_ref().unwrap_err().id.as_deref(), Some("m1"));
    thread.delete_items("messages", positions(&messages, true)).unwrap();
    assert_eq!(thread.with_state::<Chat>().state().unwrap().messages.len(), 2);
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn items_that_do_not_decode_count_as_placeholders() {
    let store = Store::memory();
    let thread = store.thread("t").unwrap();
    let items = (0..10_001).map(|n| {
        let put = ItemOp::Put(Data::New(Payload::new(vec![0xc1])));
        ItemChange::new(n, put, None)
    });
    let id = store.mint_checkpoint(1, None);
    let mut checkpoint = NewCheckpoint::new(id, None, 1, Source::Update, store.now());
    checkpoint.changes = vec![Change::new("messages", 1, ChangeValue::Items(items.collect()))];
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
    batch.checkpoints.push(checkpoint);
    store.commit(&batch).unwrap();
    let head = thread.head().unwrap().unwrap();
    let most = head.read_items("messages", ItemRange::Positions(0, 10_000), Damaged::Placeholder).unwrap();
    assert_eq!(positions(&most, true).len(), 10_000);
    assert!(head.read_items("messages", ItemRange::All, Damaged::Placeholder).is_err());
}

#[test]
fn the_first_append_of_a_handle_reads_the_end_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = chat(folder.path(), 1_300);
    harm(&path, "UPDATE payload SET text = 'other' WHERE text = 'text 7.'");
    let thread = Store::open(&path).unwrap().thread("t").unwrap();
    thread.append("messages", [Message::ai("more")]).unwrap();
    assert_eq!(thread.head().unwrap().unwrap().len("messages").unwrap(), 1_301);

    // A message by its id needs all of them.
    let error = thread.append("messages", [Message::ai("again").with_id("m1")]).unwrap_err();
    assert!(matches!(error.as_store(), Some(StoreError::Corrupt { .. })), "{error}");
    assert_eq!(thread.head().unwrap().unwrap().len("messages").unwrap(), 1_301);
}
