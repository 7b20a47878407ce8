//! The index of searches: its entries, what each commit and each deletion leaves in it, and the findings of `check`.

use super::*;
use crate::store::check::Invariant;
use crate::store::error::StoreError;
use crate::store::search::{Grams, SearchOptions, SearchQuery};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::index::follow;
use crate::store::sqlite::index::projection::{Projection as _, ProjectionJob, ProjectionStep};
use crate::store::sqlite::index::search::SearchEntries;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::remove::erase::{EraseJob, EraseStep};
use crate::store::sqlite::writer::job::JobRef;
use std::sync::Arc;

/// Does a step of the index. Returns how many checkpoints are not indexed then.
fn index(bench: &Bench, step: ProjectionStep) -> u64 {
    follow::step(bench.store.writer.as_ref().unwrap(), &SearchEntries, step).unwrap()
}

/// Does a step of an erasure, beside the background, which is not woken.
fn erase(bench: &Bench, step: EraseStep) {
    let job = EraseJob { step, left: Arc::default() };
    bench.store.writer.as_ref().unwrap().commit(JobRef::Erase(&job)).unwrap();
}

/// Returns a text of one word with so many grams, which begins with a character.
fn text_of(grams: usize, from: u32) -> String {
    let mut chars = (from..).map(|at| char::from_u32(at).unwrap());
    let mut text: String = chars.by_ref().take(grams + 1).collect();
    // Two grams may have one hash.
    while Grams::of_text(&text).len() < grams {
        text.extend(chars.next());
    }
    text
}

/// The first Chinese character: two neighbours are a gram.
const FIRST: u32 = 0x4e00;

/// Returns the place of the first entry that is not indexed: its checkpoint, and its number there.
fn next(bench: &Bench) -> (i64, i64) {
    let next: i64 = raw(&bench.path()).query_row("SELECT next FROM search_state", [], |row| row.get(0)).unwrap();
    (next >> 24, next & 0xff_ffff)
}

/// Returns the entries of the index, each with the number of its tokens.
fn entries(bench: &Bench) -> Vec<((i64, i64), i64)> {
    let conn = raw(&bench.path());
    conn.execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, search_text, instance)").unwrap();
    let mut statement = conn.prepare("SELECT doc, count(*) FROM terms GROUP BY doc ORDER BY doc").unwrap();
    let entries = statement.query_map([], |row| {
        let entry: i64 = row.get(0)?;
        Ok(((entry >> 24, entry & 0xff_ffff), row.get(1)?))
    });
    entries.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn a_step_of_the_index_ends_at_its_cost_and_the_next_one_goes_on_there() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    // An entry costs one and its grams, of which two are its thread and its type. A step may cost 8 192.
    let large = text_of(8_189, FIRST);
    let larger = text_of(8_190, FIRST);
    let first = bench.add(&t, None, vec![list(1, vec![put(0, &large), put(1, &larger), put(2, "inn")])]);
    let second = bench.add(&t, Some(first), vec![list(2, vec![put(3, "inn"), put(4, "inn")])]);
    bench.add(&t, Some(second), vec![list(3, vec![put(5, "inn")])]);
    let gone = thread("gone");
    bench.add(&gone, None, vec![list(1, vec![put(0, "inn")])]);
    erase(&bench, EraseStep::HideAlone(vec![gone]));
    index(&bench, ProjectionStep::Make { unsealed: false });
    assert_eq!(next(&bench), (0, 0));
    assert_eq!((index(&bench, ProjectionStep::Follow), next(&bench)), (4, (1, 1)));
    assert_eq!((index(&bench, ProjectionStep::Follow), next(&bench)), (4, (1, 2)));
    assert_eq!((index(&bench, ProjectionStep::Follow), next(&bench)), (0, (5, 0)));
    let expected = [((1, 0), 8_191), ((1, 1), 8_192), ((1, 2), 3), ((2, 0), 3), ((2, 1), 3), ((3, 0), 3)];
    assert_eq!(entries(&bench), expected);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn an_index_is_made_of_the_whole_log_in_several_steps() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 0..3 {
        let text = text_of(8_000, FIRST + n);
        head = Some(bench.add(&t, head, vec![list(u64::from(n) + 1, vec![put(n.into(), &text)])]));
    }
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(next(&bench), (4, 0));
    assert_eq!(bench.store.searches().unwrap().index().unwrap().unwrap().behind, 0);
}

#[test]
fn an_index_that_is_emptied_follows_the_log_anew() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let first = bench.add(&t, None, vec![list(1, vec![put(0, "inn")])]);
    bench.add(&t, Some(first), vec![list(2, vec![put(1, "inns")])]);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    let all = [((1, 0), 3), ((2, 0), 4)];
    assert_eq!((next(&bench), entries(&bench)), ((3, 0), all.to_vec()));
    let caches = &mut Caches::new(Arc::new(Keys::default()));
    SearchEntries.clear(&raw(&bench.path()), caches).unwrap();
    assert_eq!((next(&bench), entries(&bench)), ((0, 0), Vec::new()));
    assert_eq!(index(&bench, ProjectionStep::Follow), 0);
    assert_eq!((next(&bench), entries(&bench)), ((3, 0), all.to_vec()));
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn an_index_whose_tables_cannot_be_made_is_refused_with_the_cause() {
    let bench = Bench::new();
    let conn = raw(&bench.path());
    // The module of the index makes a table with this name.
    conn.execute_batch("CREATE TABLE search_text_data (text TEXT)").unwrap();
    let job = ProjectionJob::new(&SearchEntries, ProjectionStep::Make { unsealed: false });
    let refused = job.write(&conn, &mut Caches::new(Arc::new(Keys::default())));
    let Err(Fault::Store(StoreError::Invalid { field: "search index", reason })) = refused else {
        panic!("{refused:?}")
    };
    assert!(reason.starts_with("its tables cannot be made: "), "{reason}");
}

#[test]
fn an_erasure_that_ends_within_a_checkpoint_goes_on_with_its_next_entry() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let three = (0..3).map(|n| put(n, &text_of(400, FIRST + n as u32))).collect();
    let first = bench.add(&t, None, vec![list(1, three)]);
    bench.add(&t, Some(first), vec![list(2, vec![put(3, "inn")])]);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(entries(&bench).len(), 4);
    erase(&bench, EraseStep::HideAlone(vec![t]));
    let cursor = || -> (i64, i64) {
        let cursor = "SELECT part, length(checkpoint) FROM search_erase";
        raw(&bench.path()).query_row(cursor, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(cursor(), (0, 0));
    // A slice may cost 768: the second entry ends it.
    erase(&bench, EraseStep::Reclaim);
    assert_eq!((cursor(), entries(&bench)), ((2, 16), vec![((1, 2), 402), ((2, 0), 3)]));
    assert_eq!(bench.check(), Vec::<String>::new());
    erase(&bench, EraseStep::Reclaim);
    assert_eq!(entries(&bench), []);
    let rows = |table: &str| -> i64 {
        raw(&bench.path()).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("search_erase"), rows("item")), (0, 0));
}

#[test]
fn a_check_counts_the_erasures_of_the_index_that_belong_to_no_deleted_thread() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "inn")])]);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    let stray = "INSERT INTO search_erase (thread, next, namespace, checkpoint, part) VALUES (1, 0, 0, X'', 0), \
                 (7, 0, 0, X'', 0)";
    raw(&bench.path()).execute_batch(stray).unwrap();
    let problems = bench.store.check().unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].invariant, Invariant::SearchIndex);
    let text = problems[0].to_string();
    assert!(text.contains("search_erase") && text.contains("2 rows belong to no deleted thread"), "{text}");
}

#[test]
fn a_damaged_entry_is_named_by_its_row() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let long = crate::base::Encoded::encode("a value that is too long for its row").unwrap();
    bench.add(&t, None, vec![list(1, vec![put(0, "inn")]), value("city", 1, long.into())]);
    let place = |harm: &str| {
        let conn = without_triggers(&bench.path());
        conn.execute_batch(harm).unwrap();
        match bench.store.searches().unwrap().search(&SearchQuery::new("inn")) {
            Err(StoreError::Corrupt { place, .. }) => place,
            other => panic!("{harm}: {other:?}"),
        }
    };
    let item = place("UPDATE item SET xxh3 = xxh3 + 1");
    assert!(item.starts_with("item (branch 1, channel ") && item.ends_with(", slot 0, ordinal 0)"), "{item}");
    let value = place("UPDATE item SET xxh3 = xxh3 - 1; DELETE FROM payload WHERE text IS NULL");
    assert!(value.starts_with("version (branch 1, ordinal 0, key "), "{value}");
}

#[test]
fn a_search_of_one_channel_reads_no_other() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let says =
        |channel: &str| Change { channel: channel.into(), ..list(1, vec![put(0, &format!("inn of {channel}"))]) };
    bench.add(&t, None, vec![says("messages"), says("notes")]);
    let conn = without_triggers(&bench.path());
    let notes: i64 = conn.query_row("SELECT max(channel) FROM item", [], |row| row.get(0)).unwrap();
    assert_eq!(conn.execute("UPDATE item SET xxh3 = xxh3 + 1 WHERE channel = ?1", [notes]).unwrap(), 1);
    drop(conn);
    let of = |channel: &str| bench.store.searches().unwrap().search(&SearchQuery::new("inn").channel(channel));
    let hits = of("messages").unwrap().hits;
    assert_eq!(hits.iter().map(|hit| hit.snippet.text.as_str()).collect::<Vec<_>>(), ["inn of messages"]);
    assert!(matches!(of("notes"), Err(StoreError::Corrupt { .. })));
}
