//! Updates without a graph: typed and dynamic, one commit each, on the head that the caller expects.

use annals::base::Value;
use annals::history::{ModelUsage, StateThread};
use annals::prelude::*;
use annals::store::batch::{Batch, NewCheckpoint, Parent};
use annals::store::log::LogExt;
use annals::store::{ItemRange, Source, StoreError};

use super::on_both::on_both;
use crate::PATIENT_MS;

fn longest(old: String, new: String) -> String {
    if new.len() > old.len() { new } else { old }
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    title: Option<String>,
    #[channel(reduce = longest)]
    longest: String,
    #[channel(ephemeral)]
    now: Option<String>,
    #[channel(untracked)]
    secret: u64,
}

fn texts(messages: &Messages) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

fn chat(store: &Store) -> StateThread<Chat> {
    store.thread("chat").unwrap().with_state()
}

#[test]
fn a_change_is_merged_by_the_rules_of_its_channels() {
    on_both(|store| {
        let chat = chat(store);
        assert!(chat.state().unwrap().messages.is_empty());
        let first = Chat::update().messages([Message::human("a").with_id("1"), Message::ai("b")]).longest("four");
        chat.update(first.log(["x".into()]).now("now".to_string()).secret(7)).unwrap();
        let state = chat.state().unwrap();
        assert_eq!((state.now.as_deref(), state.secret), (Some("now"), 0), "an untracked value lasts for its update");
        assert!(state.messages.iter().all(|message| message.id.is_some()));

        let edit = [Message::human("A").with_id("1"), Message::ai("c").with_id("3")];
        chat.update(Chat::update().messages(edit).log(["y".into(), "z".into()]).longest("two")).unwrap();
        chat.update(Chat::update().messages([Message::remove("3")]).overwrite_log(["w".into()])).unwrap();
        let state = chat.state().unwrap();
        assert_eq!(texts(&state.messages), ["A", "b"]);
        assert_eq!((state.log.to_vec(), &*state.longest, state.now.as_deref()), (vec!["w".into()], "four", None));

        store.clear_head_cache();
        let read = chat.state().unwrap();
        assert_eq!(texts(&read.messages), ["A", "b"]);
        assert_eq!((read.log.to_vec(), &*read.longest, read.now.as_deref()), (vec!["w".into()], "four", None));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn an_update_is_one_checkpoint_of_what_changed() {
    on_both(|store| {
        let chat = chat(store);
        let first = chat.update(Chat::update().messages([Message::human("a")]).title("t".to_string())).unwrap();
        let second = chat.update(Chat::update().messages([Message::ai("b")])).unwrap();
        let history: Vec<_> = chat.thread().history().unwrap().map(|snapshot| snapshot.unwrap()).collect();
        assert_eq!(history.iter().map(|at| (at.id(), at.step())).collect::<Vec<_>>(), [(second, 1), (first, 0)]);
        assert!(history.iter().all(|at| at.source() == Source::Update && at.next().count() == 0));
        let mut ordinals = Vec::new();
        let point = history[0].point();
        let visit = &mut |row: annals::store::record::ItemRow<'_>| {
            ordinals.push(row.ordinal);
            Ok(())
        };
        store.backend().items(point, "messages", ItemRange::All, visit).unwrap();
        assert_eq!(ordinals, [0, 1], "the second update stored its own message alone");
        let title = history[0].blames().unwrap().into_iter().find(|(channel, _)| &**channel == "title").unwrap();
        assert_eq!((title.1.ordinal, title.1.node), (0, None));
        assert_eq!(history[1].state::<Chat>().unwrap().messages.len(), 1);
    });
}

#[test]
fn an_update_at_another_head_is_refused_and_stores_nothing() {
    on_both(|store| {
        let chat = chat(store);
        let first = chat.update_at(None, Chat::update().title("a".to_string())).unwrap();
        let error = chat.update_at(None, Chat::update().title("b".to_string())).unwrap_err();
        assert!(error.is_conflict(), "{error}");
        let second = chat.update_at(Some(first), Chat::update().title("c".to_string())).unwrap();
        assert!(chat.update_at(Some(first), Chat::update().title("d".to_string())).unwrap_err().is_conflict());
        assert_eq!(chat.thread().head().unwrap().unwrap().id(), second);
        assert_eq!(chat.state().unwrap().title.as_deref(), Some("c"));
    });
}

#[test]
fn a_change_that_breaks_a_rule_stores_nothing() {
    on_both(|store| {
        let chat = chat(store);
        let twice = Chat::update().title("a".to_string()).title("b".to_string());
        assert_eq!(chat.update(twice).unwrap_err().code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
        let unknown = DynUpdate::new().set("colour", "red");
        assert!(chat.update(unknown).unwrap_err().to_string().contains("no channel \"colour\""));
        let removes = Chat::update().log(["x".into()]).messages([Message::remove("unknown")]);
        assert!(chat.update(removes).is_err());
        assert!(chat.thread().head().unwrap().is_none() && chat.state().unwrap().log.is_empty());
        chat.update(Chat::update().title("a".to_string())).unwrap();
        assert!(chat.update(Chat::update().messages([Message::remove("unknown")])).is_err());
        assert_eq!(chat.state().unwrap().title.as_deref(), Some("a"), "the state in memory is that of the file");
    });
}

#[test]
fn writers_of_one_file_apply_their_changes_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.db");
    let _created = Store::open(&path).unwrap();
    let write = |name: &str| {
        let options = OpenOptions::new().synchronous(Synchronous::Normal).busy_timeout_ms(PATIENT_MS);
        let chat = chat(&Store::open_with(&path, options).unwrap());
        for n in 0..10 {
            chat.update(Chat::update().log([format!("{name}{n}")])).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            scope.spawn(move || write(name));
        }
    });
    let state = chat(&Store::open(&path).unwrap()).state().unwrap();
    for name in ["a", "b", "c"] {
        let own: Vec<_> = state.log.iter().filter(|line| line.starts_with(name)).cloned().collect();
        assert_eq!(own, (0..10).map(|n| format!("{name}{n}")).collect::<Vec<_>>());
    }
    assert_eq!(state.log.len(), 30);
}

#[test]
fn a_fork_goes_on_by_itself_and_a_schema_reads_what_a_struct_wrote() {
    on_both(|store| {
        let chat = chat(store);
        chat.update(Chat::update().messages([Message::human("a")]).log(["x".into()])).unwrap();
        let fork = chat.thread().head().unwrap().unwrap().fork_to("fork").unwrap();
        fork.update(Chat::update().log(["y".into()])).unwrap();
        chat.update(Chat::update().log(["z".into()])).unwrap();

        let schema = std::sync::Arc::new(DynSchema::new().append("log").messages("messages").build());
        let log = |thread: &Thread| {
            thread.with_schema(std::sync::Arc::clone(&schema)).state().unwrap().value("log").into_owned()
        };
        assert_eq!(log(&fork), Value::from(vec![Value::from("x"), "y".into()]));
        assert_eq!(log(chat.thread()), Value::from(vec![Value::from("x"), "z".into()]));
        let dynamic = fork.with_schema(schema);
        dynamic.update(DynUpdate::new().messages("messages", [Message::ai("b")]).set("log", "w")).unwrap();
        let state = fork.with_state::<Chat>().state().unwrap();
        assert_eq!((texts(&state.messages), state.log.len()), (vec!["a".to_string(), "b".into()], 3));
    });
}

#[test]
fn a_stored_value_that_does_not_fit_names_its_channel() {
    #[derive(State, Clone, Default)]
    struct Other {
        title: u64,
    }
    on_both(|store| {
        let chat = chat(store);
        chat.update(Chat::update().title("a".to_string())).unwrap();
        let error = chat.thread().head().unwrap().unwrap().state::<Other>().err().unwrap();
        assert!(error.to_string().contains("\"title\" expects u64"), "{error}");
        assert!(chat.thread().update(Other::update().title(1)).is_err());
        let schema = Schema::<Other>::of().migrate("title", |_| Ok(Value::from(5)));
        assert_eq!(chat.thread().with_schema(schema).state().unwrap().title, 5);
    });
}

/// Makes the head of a thread a child of `parent`, which leaves the branch of the old head.
fn branch_off(thread: &Thread, parent: annals::base::CheckpointId) {
    let (store, head) = (thread.store(), thread.head().unwrap().unwrap());
    let id = store.mint_checkpoint(head.step(), Some(&head.id()));
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head.id()));
    batch.checkpoints.push(NewCheckpoint::new(
        id,
        Some(Parent::Local(parent)),
        head.step(),
        Source::Update,
        store.now(),
    ));
    store.commit(&batch).unwrap();
}

#[test]
fn a_lineage_leads_over_abandoned_branches_and_forks_to_the_first_checkpoint() {
    on_both(|store| {
        let thread = store.thread("old").unwrap();
        thread.update(Chat::update().title("first".to_string()).log(["0".into()])).unwrap();
        for n in 1..120 {
            thread.update(Chat::update().log([n.to_string()])).unwrap();
            if n % 7 == 0 || n > 100 {
                branch_off(&thread, thread.at(format!("~{}", n % 5 + 1)).unwrap().id());
            }
        }
        let fork = thread.at("~10").unwrap().fork_to("new").unwrap();
        for n in 0..70 {
            fork.update(Chat::update().log([n.to_string()])).unwrap();
        }
        let mut walked = fork.head().unwrap();
        let mut back = 0;
        while let Some(at) = walked {
            assert_eq!(fork.at(format!("~{back}")).unwrap(), at);
            (walked, back) = (at.parent().unwrap(), back + 1);
        }
        assert!(fork.at(format!("~{back}")).is_err(), "there is nothing before the first checkpoint");
        let blame = fork.head().unwrap().unwrap().blames().unwrap();
        let ordinal = |name: &str| blame.iter().find(|(channel, _)| &**channel == name).unwrap().1.ordinal;
        assert_eq!((ordinal("title"), ordinal("log")), (0, back - 1));
    });
}

#[test]
fn writes_by_name_follow_the_rules_of_the_stored_channels() {
    on_both(|store| {
        let thread = store.thread("named").unwrap();
        let first = thread.append("messages", [Message::human("a").with_id("1"), Message::ai("b")]).unwrap();
        thread.set("title", "t").unwrap();
        thread.append("log", [Value::from("w"), Value::from("x")]).unwrap();
        store.clear_head_cache();
        thread.append("messages", [Message::human("A").with_id("1"), Message::ai("c").with_id("3")]).unwrap();
        thread.append("messages", [Message::remove("3")]).unwrap();
        thread.append("log", ["y"]).unwrap();
        let typed = chat_of(&thread);
        assert_eq!((texts(&typed.messages), typed.title.as_deref()), (vec!["A".into(), "b".into()], Some("t")));
        let head = thread.head().unwrap().unwrap();
        assert_eq!(head.get("log").unwrap(), Some(Value::from(vec![Value::from("w"), "x".into(), "y".into()])));
        assert_eq!(head.len("messages").unwrap(), 2);

        let kinds = [
            thread.append("title", ["x"]),
            thread.append("messages", ["x"]),
            thread.append("log", [Message::human("x")]),
            thread.set("log", 1),
            thread.set("messages", "x"),
            thread.write().append("new", ["x"]).set("new", 1).commit(),
            thread.write().commit(),
            thread.append("new", Vec::<Value>::new()),
            thread.set("", 1),
            thread.set("a\0b", 1),
            thread.set(&"n".repeat(257), 1),
        ];
        for refused in kinds {
            let error = refused.unwrap_err();
            assert!(matches!(error.as_store(), Some(StoreError::Invalid { .. })), "{error}");
        }
        assert_eq!(thread.head().unwrap().unwrap(), head, "nothing was stored");
        let late = thread.write().set("title", "u").on_head(Some(first)).commit().unwrap_err();
        assert!(late.is_conflict());
        thread.write().set("title", "u").on_head(Some(head.id())).commit().unwrap();
        assert_eq!(chat_of(&thread).title.as_deref(), Some("u"));
        store.clear_head_cache();
        assert_eq!(chat_of(&thread).title.as_deref(), Some("u"));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

/// A message by its id and its text, as the model has it.
fn shown(thread: &Thread) -> Vec<(String, String)> {
    let messages = thread.head().unwrap().unwrap().messages("messages", ItemRange::All).unwrap();
    messages.into_iter().map(|message| (message.id.clone().unwrap(), message.text().into_owned())).collect()
}

#[test]
fn random_writes_by_name_equal_a_model_whatever_is_cached() {
    on_both(|store| {
        for seed in 0..12_u64 {
            let thread = store.thread(format!("t{seed}")).unwrap();
            let mut ids = annals::base::IdSource::from_seed(seed);
            let (mut model, mut notes): (Vec<(String, String)>, Vec<Value>) = (Vec::new(), Vec::new());
            for n in 0..60_u64 {
                let text = format!("text {n}");
                let any = (!model.is_empty()).then(|| model[ids.random() as usize % model.len()].0.clone());
                if ids.random().is_multiple_of(3) {
                    store.clear_head_cache();
                }
                match (ids.random() % 10, any) {
                    (0, Some(id)) => {
                        thread.append("messages", [Message::human(&*text).with_id(&*id)]).unwrap();
                        model.iter_mut().find(|one| one.0 == id).unwrap().1 = text;
                    }
                    (1, Some(id)) => {
                        thread.append("messages", [Message::remove(&*id)]).unwrap();
                        model.retain(|one| one.0 != id);
                    }
                    (2, Some(_)) => {
                        let (last, _) = model.pop().unwrap();
                        thread.append("messages", [Message::remove(&*last)]).unwrap();
                    }
                    (3, Some(_)) if n % 4 == 0 => {
                        thread.append("messages", [Message::remove_all()]).unwrap();
                        model.clear();
                    }
                    (4, _) => {
                        let id = format!("own {n}");
                        thread.append("messages", [Message::human(&*text).with_id(&*id)]).unwrap();
                        model.push((id, text));
                    }
                    (5, _) => {
                        notes.push(text.clone().into());
                        let write = thread.write().append("notes", [text.clone()]).set("title", text.clone());
                        write.append("messages", [Message::ai(&*text)]).commit().unwrap();
                        model.push((shown(&thread).pop().unwrap().0, text));
                    }
                    _ => {
                        thread.append("messages", [Message::ai(&*text)]).unwrap();
                        model.push((shown(&thread).pop().unwrap().0, text));
                    }
                }
                assert_eq!(shown(&thread), model, "seed {seed}, write {n}");
            }
            assert_eq!(thread.head().unwrap().unwrap().get("notes").unwrap().unwrap(), Value::List(notes));
        }
    });
}

fn chat_of(thread: &Thread) -> Chat {
    thread.head().unwrap().unwrap().state().unwrap()
}

#[test]
fn a_write_by_name_is_one_checkpoint_with_its_metadata() {
    on_both(|store| {
        let thread = store.thread("named").unwrap();
        let usage = ModelUsage::new(812, 64).cost_usd(0.5).model("m-1");
        let write = thread.write().append("messages", [Message::ai("a")]).set("title", "t").append("log", ["x", "y"]);
        let id = write.usage(usage).metadata("user", "Zoë").commit().unwrap();
        let head = thread.head().unwrap().unwrap();
        assert_eq!((head.id(), thread.history().unwrap().count()), (id, 1));
        let metadata: serde_json::Value = serde_json::from_str(head.record().metadata.as_deref().unwrap()).unwrap();
        let expected = r#"{"usage":{"input_tokens":812,"output_tokens":64,"cost_usd":0.5,"model":"m-1"},"user":"Zoë"}"#;
        assert_eq!(metadata, serde_json::from_str::<serde_json::Value>(expected).unwrap());
    });
}

#[test]
fn threads_that_write_by_name_lose_no_write() {
    on_both(|store| {
        std::thread::scope(|scope| {
            for n in 0..4 {
                let thread = store.thread("shared").unwrap();
                scope.spawn(move || (0..20).for_each(|i| _ = thread.append("log", [n * 100 + i]).unwrap()));
            }
        });
        let mut log: Vec<i64> = match store.thread("shared").unwrap().head().unwrap().unwrap().get("log").unwrap() {
            Some(Value::List(items)) => items.iter().map(|item| item.as_int().unwrap()).collect(),
            other => panic!("{other:?}"),
        };
        log.sort_unstable();
        let expected: Vec<i64> = (0..4).flat_map(|n| (0..20).map(move |i| n * 100 + i)).collect();
        assert_eq!(log, expected);
    });
}
