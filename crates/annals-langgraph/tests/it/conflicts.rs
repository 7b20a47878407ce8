//! Writers that race for a thread, and puts that are not waited for.

use annals::store::Store;
use annals::store::log::LogExt;
use annals_langgraph::{Config, ListQuery, LostRace, NewValue, Saver, SaverCheckpoint, SaverError, StoredValue, Typed};

fn checkpoint(saver: &Saver, number: u64) -> SaverCheckpoint {
    let id = format!("1f000000-0000-6000-8000-{number:012}");
    let mut new = SaverCheckpoint::new(id, format!("2026-01-01T00:00:{:02}+00:00", number % 60));
    new.versions = vec![("n".into(), (0..number).fold(saver.next_version(None), |v, _| saver.next_version(Some(&v))))];
    new.values = vec![("n".into(), NewValue::Typed(Typed::msgpack(vec![number as u8 & 0x7f])))];
    new
}

fn writes(value: u8) -> Vec<(String, Typed)> {
    vec![("n".into(), Typed::msgpack(vec![value]))]
}

#[test]
fn a_put_on_a_head_that_another_saver_moved_is_refused() {
    let store = Store::memory();
    let (one, other) = (Saver::new(store.clone()), Saver::new(store));
    let place = Config::new("t", "");
    let first = one.put(&place, checkpoint(&one, 1), LostRace::Refuse).unwrap();
    let seen = other.tuple(&place).unwrap().unwrap().config;
    assert_eq!(seen, first);
    let second = one.put(&first, checkpoint(&one, 2), LostRace::Refuse).unwrap();

    let refused = other.put(&seen, checkpoint(&other, 3), LostRace::Refuse).unwrap_err();
    let SaverError::Conflict { parent, head, .. } = &refused else { panic!("{refused}") };
    assert_eq!((Some(parent), Some(head)), (first.checkpoint.as_ref(), second.checkpoint.as_ref()));

    other.put(&seen, checkpoint(&other, 3), LostRace::Branch).unwrap();
    assert!(other.tuple(&first).unwrap().is_some(), "it is asked for by its id");
    other.put(&first, checkpoint(&other, 4), LostRace::Refuse).expect("time travel is a branch");
    assert_eq!(one.list(ListQuery::of_thread("t")).unwrap().count(), 4);
}

#[test]
fn a_copy_of_a_checkpoint_is_a_branch_whoever_has_continued_its_parent() {
    let saver = Saver::new(Store::memory());
    let place = Config::new("t", "");
    assert!(saver.tuple(&place).unwrap().is_none(), "the thread is seen as empty");
    let first = saver.put(&place, checkpoint(&saver, 1), LostRace::Refuse).unwrap();
    saver.tuple(&place).unwrap();
    saver.put(&first, checkpoint(&saver, 2), LostRace::Refuse).unwrap();
    for (number, parent) in [(3, &place), (4, &first)] {
        let mut copy = checkpoint(&saver, number);
        copy.metadata.insert("source".into(), "fork".into());
        let copied = saver.put(parent, copy, LostRace::Refuse).unwrap();
        assert_eq!(
            saver.tuple(&copied).unwrap().unwrap().metadata.get("source").and_then(|source| source.as_str()),
            Some("fork")
        );
    }
    assert_eq!(saver.list(ListQuery::of_thread("t")).unwrap().count(), 4);
}

#[test]
fn the_first_put_of_a_thread_that_another_saver_began_is_refused() {
    let store = Store::memory();
    let (one, other) = (Saver::new(store.clone()), Saver::new(store));
    let place = Config::new("t", "");
    assert!(one.tuple(&place).unwrap().is_none());
    other.put(&place, checkpoint(&other, 1), LostRace::Refuse).unwrap();
    let refused = one.put(&place, checkpoint(&one, 2), LostRace::Refuse);
    assert!(matches!(refused, Err(SaverError::Conflict { .. })), "{refused:?}");
}

#[test]
fn a_put_that_is_repeated_changes_nothing() {
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let first = saver.put(&Config::new("t", ""), checkpoint(&saver, 1), LostRace::Refuse).unwrap();
    let second = saver.put(&first, checkpoint(&saver, 2), LostRace::Refuse).unwrap();
    assert_eq!(saver.put(&first, checkpoint(&saver, 2), LostRace::Refuse).unwrap(), second);
    assert_eq!(store.thread("t").unwrap().head().unwrap().map(|head| head.id().to_string()), second.checkpoint);
    assert_eq!(store.backend().namespaces(store.thread("t").unwrap().id()).unwrap().len(), 1);
}

#[test]
fn a_task_that_ran_in_another_process_too_keeps_the_value_of_its_first_write() {
    let store = Store::memory();
    let (one, other) = (Saver::new(store.clone()), Saver::new(store.clone()));
    let first = one.put(&Config::new("t", ""), checkpoint(&one, 1), LostRace::Branch).unwrap();
    let value = |byte: u8| Typed::new("bytes", vec![byte; 100]);
    other.put_writes(&first, "task", "", vec![("n".into(), value(1))]).unwrap();
    other.flush().unwrap();
    one.put_writes(&first, "task", "", vec![("n".into(), value(2))]).unwrap();
    let mut new = checkpoint(&one, 2);
    new.values = vec![("n".into(), NewValue::Typed(value(2)))];
    let second = one.put(&first, new, LostRace::Branch).unwrap();
    let read = |config: &Config| other.tuple(config).unwrap().unwrap();
    assert_eq!(read(&second).values, [("n".to_owned(), StoredValue::Typed(value(2)))]);
    assert_eq!(read(&first).writes[0].value, value(1));
}

#[test]
fn a_put_whose_handle_is_dropped_is_stored_or_told() {
    let store = Store::memory();
    let (one, other) = (Saver::new(store.clone()), Saver::new(store.clone()));
    let place = Config::new("t", "");
    let first = one.put(&place, checkpoint(&one, 1), LostRace::Refuse).unwrap();
    drop(one.submit_put(&first, checkpoint(&one, 2), LostRace::Refuse).unwrap());
    let second = one.tuple(&place).unwrap().unwrap().config;
    assert_eq!(second.checkpoint.as_deref(), Some("1f000000-0000-6000-8000-000000000002"));

    // Its commit is refused, as a greater id is the head: it is repeated.
    other.put(&second, checkpoint(&other, 9), LostRace::Branch).unwrap();
    one.put_writes(&second, "task", "", writes(1)).unwrap();
    drop(one.submit_put(&second, checkpoint(&one, 3), LostRace::Branch).unwrap());
    one.flush().unwrap();
    let third = other.tuple(&place.at("1f000000-0000-6000-8000-000000000003")).unwrap().unwrap();
    assert_eq!((third.parent.as_ref(), other.tuple(&second).unwrap().unwrap().writes.len()), (Some(&second), 1));
}

#[test]
fn the_error_of_a_put_whose_handle_is_dropped_comes_from_the_next_call_on_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("saver.db")).unwrap();
    let saver = Saver::new(store.clone());
    let place = Config::new("t", "");
    let first = saver.put(&place, checkpoint(&saver, 1), LostRace::Refuse).unwrap();
    let seen = saver.tuple(&place).unwrap().unwrap().config;
    assert_eq!(seen, first);
    // Both are submitted on the same head, in this order.
    let winner = Saver::new(store);
    winner.tuple(&place).unwrap();
    let (one, two) = (checkpoint(&winner, 2), checkpoint(&saver, 3));
    let kept = winner.submit_put(&first, one, LostRace::Refuse).unwrap();
    let lost = saver.submit_put(&seen, two, LostRace::Refuse);
    kept.wait().unwrap();
    let told = match lost {
        Ok(handle) => {
            drop(handle);
            saver.flush()
        }
        // The first one was stored already.
        Err(error) => Err(error),
    };
    assert!(matches!(told, Err(SaverError::Conflict { .. })), "{told:?}");
    saver.flush().expect("an error is told once");
    assert_eq!(saver.list(ListQuery::of_thread("t")).unwrap().count(), 2);
}

#[test]
fn a_chain_of_submitted_puts_is_stored_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("saver.db")).unwrap();
    let saver = Saver::new(store.clone());
    let mut at = Config::new("t", "");
    let mut handles = Vec::new();
    for number in 1..=20 {
        let handle = saver.submit_put(&at, checkpoint(&saver, number), LostRace::Refuse).unwrap();
        at = handle.config().clone();
        saver.put_writes(&at, "00000000-0000-0000-0000-000000000007", "", writes(number as u8)).unwrap();
        handles.push(handle);
    }
    let tuple = saver.tuple(&at).unwrap().expect("a read waits for what was submitted");
    assert_eq!(tuple.writes.len(), 1);
    handles.into_iter().for_each(|handle| _ = handle.wait().unwrap());
    let listed: Vec<_> = saver.list(ListQuery::of_thread("t")).unwrap().map(Result::unwrap).collect();
    assert!(listed.len() == 20 && listed.iter().all(|tuple| tuple.writes.len() == 1));
    assert!(listed.windows(2).all(|pair| pair[0].parent.as_ref() == Some(&pair[1].config)));
    drop(saver);
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn a_submitted_put_that_lost_a_race_is_repeated_with_its_writes() {
    let store = Store::memory();
    let (one, other) = (Saver::new(store.clone()), Saver::new(store));
    let place = Config::new("t", "");
    let first = one.put(&place, checkpoint(&one, 1), LostRace::Branch).unwrap();
    one.put_writes(&first, "task", "", writes(1)).unwrap();
    other.put(&first, checkpoint(&other, 9), LostRace::Branch).unwrap();
    let handle = one.submit_put(&first, checkpoint(&one, 2), LostRace::Branch).unwrap();
    let second = handle.wait().unwrap();
    assert_eq!(one.tuple(&second).unwrap().unwrap().parent.as_ref(), Some(&first));
    assert_eq!(other.tuple(&first).unwrap().unwrap().writes.len(), 1);
}

#[test]
fn buffered_writes_are_stored_when_the_saver_is_dropped() {
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let first = saver.put(&Config::new("t", ""), checkpoint(&saver, 1), LostRace::Refuse).unwrap();
    saver.put_writes(&first, "task", "path", writes(1)).unwrap();
    drop(saver);
    let tuple = Saver::new(store).tuple(&first).unwrap().unwrap();
    let [write] = &*tuple.writes else { panic!("{tuple:?}") };
    assert_eq!((&*write.task, &*write.path, write.index), ("task", "path", 0));
}

#[test]
fn writes_that_come_before_their_checkpoint_wait_for_it() {
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let place = Config::new("t", "");
    let first = saver.put(&place, checkpoint(&saver, 1), LostRace::Refuse).unwrap();
    let second = place.at(checkpoint(&saver, 2).id);
    saver.put_writes(&second, "task", "", writes(1)).unwrap();
    saver.flush().unwrap();
    assert!(saver.tuple(&second).unwrap().is_none(), "writes make no checkpoint");
    saver.put(&first, checkpoint(&saver, 2), LostRace::Refuse).unwrap();
    assert_eq!(saver.tuple(&place).unwrap().unwrap().writes.len(), 1);
    let head = store.thread("t").unwrap().head().unwrap().unwrap();
    assert_eq!(Some(head.id().to_string()), second.checkpoint, "the checkpoint is in the log under its id");
}

#[test]
fn a_thread_that_was_deleted_beside_the_saver_begins_anew() {
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let first = saver.put(&Config::new("t", ""), checkpoint(&saver, 1), LostRace::Branch).unwrap();
    _ = store.delete_thread("t").unwrap();
    let second = saver.put(&first, checkpoint(&saver, 2), LostRace::Branch).unwrap();
    let tuple = saver.tuple(&second).unwrap().unwrap();
    assert_eq!(tuple.parent, Some(first.clone()), "the parent is remembered");
    assert!(saver.tuple(&first).unwrap().is_none());
}

#[test]
fn savers_that_race_for_a_thread_make_one_line() {
    let store = Store::memory();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (store, saver) = (store.clone(), Saver::new(store.clone()));
            std::thread::spawn(move || {
                let mut stored = Vec::new();
                while stored.len() < 25 {
                    let place = Config::new("t", "");
                    let tuple = saver.tuple(&place).unwrap();
                    let (parent, number) = match &tuple {
                        Some(tuple) => (tuple.config.clone(), tuple.metadata["number"].as_int().unwrap() + 1),
                        None => (place, 1),
                    };
                    let head = parent.checkpoint().map(|id| id.parse().unwrap());
                    let mut new = checkpoint(&saver, number as u64);
                    new.id = store.mint_checkpoint(number, head.as_ref()).to_string();
                    new.metadata.insert("number".into(), number.into());
                    match saver.put(&parent, new, LostRace::Refuse) {
                        Ok(config) => stored.push(config),
                        Err(SaverError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                stored
            })
        })
        .collect();
    let stored: usize = writers.into_iter().map(|writer| writer.join().unwrap().len()).sum();
    let saver = Saver::new(store);
    let listed: Vec<_> = saver.list(ListQuery::of_thread("t")).unwrap().map(Result::unwrap).collect();
    assert_eq!(listed.len(), stored);
    assert!(listed.windows(2).all(|pair| pair[0].parent.as_ref() == Some(&pair[1].config)), "no branch");
}
