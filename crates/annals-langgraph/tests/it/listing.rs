//! Listings: what they read of a checkpoint after its child, and how many records those of all threads read.

use annals::store::Store;
use annals_langgraph::{Config, ListQuery, LostRace, NewValue, Saver, SaverCheckpoint, SaverItem, Typed};

fn item(text: &str) -> Typed {
    Typed::msgpack([&[0xd9, text.len() as u8], text.as_bytes()].concat())
}

fn checkpoint(saver: &Saver, number: u64, lists: Vec<(String, NewValue)>) -> SaverCheckpoint {
    let id = format!("1f000000-0000-6000-8000-{number:012}");
    let mut new = SaverCheckpoint::new(id, format!("2026-01-01T00:00:{:02}+00:00", number % 60));
    let version = (1..number).fold(saver.next_version(None), |version, _| saver.next_version(Some(&version)));
    new.versions = lists.iter().map(|(name, _)| (name.clone(), version.clone())).collect();
    new.values = lists;
    new
}

fn list(items: impl IntoIterator<Item = String>) -> NewValue {
    NewValue::Items(items.into_iter().map(|text| SaverItem::New(item(&text))).collect())
}

#[test]
fn a_listing_gives_what_single_reads_give_whatever_became_of_a_list() {
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::memory(), Store::open(folder.path().join("saver.db")).unwrap()] {
        let saver = Saver::new(store.clone());
        let mut lines: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
        let mut at = Config::new("t", "");
        let put = |number: u64, lines: &[String], from: &Config| {
            let mut lists = vec![("lines".to_owned(), list(lines.to_vec()))];
            if number.is_multiple_of(2) {
                lists.push(("other".to_owned(), list([format!("other {number}")])));
            }
            saver.put(from, checkpoint(&saver, number, lists), LostRace::Branch).unwrap()
        };
        let edits: [fn(&mut Vec<String>); 8] = [
            |lines| lines.push("at the end".into()),
            |lines| lines[0] = "the first one".into(),
            |_| {},
            |lines| _ = lines.drain(10..20),
            |lines| lines.insert(5, "between".into()),
            |lines| lines.clear(),
            |lines| lines.extend((0..3).map(|n| format!("again {n}"))),
            |lines| lines.reverse(),
        ];
        at = put(1, &lines, &at);
        let mut fork = at.clone();
        for (number, edit) in (2..).zip(edits) {
            edit(&mut lines);
            at = put(number, &lines, &at);
            if number == 4 {
                fork = at.clone();
            }
        }
        lines.push("on a branch".into());
        put(20, &lines, &fork);

        let cold = Saver::new(store);
        let listed: Vec<_> = cold.list(ListQuery::of_thread("t")).unwrap().map(Result::unwrap).collect();
        assert_eq!(listed.len(), 10);
        for tuple in listed {
            let single = Saver::new(cold.store().clone()).tuple(&tuple.config).unwrap();
            assert_eq!(single.as_ref(), Some(&tuple));
        }
    }
}

#[test]
fn a_listing_of_all_threads_is_merged_by_id() {
    let saver = Saver::new(Store::memory());
    let mut heads = [Config::new("a", ""), Config::new("b", ""), Config::new("c", "")];
    for number in 1..=150 {
        let at = &mut heads[number as usize * 7 % 3];
        let lists = vec![("lines".to_owned(), list((0..number % 5).map(|n| n.to_string())))];
        *at = saver.put(at, checkpoint(&saver, number, lists), LostRace::Refuse).unwrap();
    }
    let listed = saver.list(ListQuery::new()).unwrap().map(|tuple| tuple.unwrap().config);
    let ids: Vec<String> = listed.map(|config| config.checkpoint.unwrap()).collect();
    assert_eq!(ids.len(), 150);
    assert!(ids.is_sorted_by(|a, b| a > b));
}
