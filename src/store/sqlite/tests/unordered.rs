//! Tables whose rows are out of order: a scan meets a row that its key does not find. Each walk over them ends.

use super::erase_slices::hide;
use super::*;
use crate::store::StoreError;
use crate::store::log::Erasure;
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationValue,
};
use crate::store::search::{SearchOptions, SearchQuery};

/// Swaps two neighbors in the only page of a table; returns `false` if it has no such rows.
fn swap(path: &Path, table: &str, at: usize) -> bool {
    let root: i64 =
        raw(path).query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0)).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let page = &mut bytes[(root as usize - 1) * 4_096..root as usize * 4_096];
    assert!([10, 13].contains(&page[0]), "the rows of {table} are in one page");
    if at + 1 >= usize::from(u16::from_be_bytes([page[3], page[4]])) {
        return false;
    }
    page[8 + 2 * at..12 + 2 * at].rotate_left(2);
    std::fs::write(path, bytes).unwrap();
    true
}

/// Opens a copy of a file for each pair of neighbors of a table, in which the pair is swapped.
fn each_swapped(path: &Path, table: &str, visit: &mut dyn FnMut(SqliteBackend)) {
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("x.db");
        std::fs::copy(path, &copy).unwrap();
        if !swap(&copy, table, at) {
            return;
        }
        visit(open(&copy));
    }
}

#[test]
fn a_row_that_its_key_does_not_find_ends_an_erasure_and_hides_no_deletion() {
    let mut bench = Bench::new();
    let node = task(1, "node");
    for name in ["a", "b", "c", "kept"] {
        let values = ["x", "y", "z"].map(|channel| value(channel, 1, plain(name.as_bytes())));
        let items = list(1, vec![put(0, "one"), put(1, "two"), put(2, "three")]);
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
        let mut batch = Batch::new(thread(name), Namespace::root(), None);
        let changes = values.into_iter().chain([items]).collect();
        batch.checkpoints.push(NewCheckpoint { tasks: vec![node.clone()], changes, ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        let mut batch = Batch::new(thread(name), Namespace::root(), Some(id));
        let of_node = (0..3).map(|index| write(index, "x", WriteValue::One(plain(&[1; 60]))));
        batch.writes = vec![writes(id, &node, of_node.collect())];
        bench.store.commit(&batch).unwrap();
    }
    hide(&bench, ["a", "b", "c"].map(thread).into());
    let path = bench.path();
    drop(bench.store);
    let tables = ["version", "item", "write", "name_user", "checkpoint", "branch", "namespace", "tombstone"];
    for table in tables.into_iter().step_by(cases(3, 1)) {
        let mut places = Vec::new();
        each_swapped(&path, table, &mut |store| match store.reclaim() {
            Ok(erasure) => assert_eq!(erasure, Erasure::Erased, "{table}"),
            Err(StoreError::Corrupt { place, .. }) => {
                if ["version", "item", "write", "name_user"].contains(&table) {
                    let erasure = store.delete_threads(&[thread("kept")]).unwrap();
                    assert!(matches!(erasure, Erasure::ErasePending { .. }), "{table}");
                    assert_eq!(store.head_id(&thread("kept"), &Namespace::root()).unwrap(), None);
                }
                places.push(place);
            }
            Err(error) => panic!("{table}: {error}"),
        });
        // SQLite itself does not find the row of a branch to which an index leads.
        let place = if table == "branch" { "the file" } else { table };
        assert!(places.iter().any(|found| found.starts_with(place)), "{table}: {places:?}");
    }
}

#[test]
fn a_table_of_checkpoints_out_of_order_is_damage_to_what_follows_the_log() {
    let (mut bench, a) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 0..4 {
        head = Some(bench.add(&a, head, vec![list(n + 1, vec![put(n, "word")])]));
    }
    let path = bench.path();
    drop(bench.store);
    type Walk = fn(&SqliteBackend) -> Result<(), StoreError>;
    let walks: [Walk; 2] =
        [|store| store.searches().unwrap().enable(&SearchOptions::new()), SqliteBackend::rebuild_threads];
    for walk in walks {
        let mut errors = Vec::new();
        each_swapped(&path, "checkpoint", &mut |store| errors.extend(walk(&store).err()));
        let is_damage = |error: &StoreError| matches!(error, StoreError::Corrupt { .. });
        assert!(errors.iter().all(is_damage), "{errors:?}");
        assert!(errors.iter().any(|error| error.to_string().contains("out of order")), "{errors:?}");
    }
}

#[test]
fn an_index_passes_over_checkpoints_whose_namespace_is_lost() {
    let mut bench = Bench::new();
    bench.add(&thread("kept"), None, vec![list(1, vec![put(0, "word")])]);
    bench.add(&thread("lost"), None, vec![list(1, vec![put(0, "word")])]);
    let conn = without_triggers(&bench.path());
    assert_eq!(conn.execute("DELETE FROM namespace WHERE id = 2", []).unwrap(), 1);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    let hits = bench.store.searches().unwrap().search(&SearchQuery::new("word")).unwrap().hits;
    assert_eq!(hits.len(), 1);
    assert!(!bench.check().is_empty());
}

#[test]
fn a_checkpoint_whose_number_is_too_large_for_an_index_is_damage() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "one"), put(1, "two")])]);
    without_triggers(&bench.path()).execute("UPDATE checkpoint SET seq = ?1", [1_i64 << 50]).unwrap();
    let error = bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
}

/// Reads operations in pages of one, as many as there are at most. Returns whether the last page was empty.
fn pages(store: &SqliteBackend, query: &OperationQuery) -> Result<bool, StoreError> {
    let mut query = query.clone();
    for _ in 0..=5 {
        match store.operations(&query)?.last() {
            Some(last) => query.before = Some(last.id),
            None => return Ok(true),
        }
    }
    Ok(false)
}

#[test]
fn a_listing_of_operations_out_of_order_ends() {
    let (mut bench, a) = (Bench::new(), thread("a"));
    bench.add(&a, None, Vec::new());
    let text = |n: usize| Some(OperationValue::Text(n.to_string()));
    for n in 0_usize..5 {
        let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(1));
        let field = OperationField::Fact("note".into());
        let before = n.checked_sub(1).and_then(&text);
        operation.changes.push(OperationChange::new(a.clone(), Namespace::root(), field, before, text(n)));
        bench.store.operate(&operation).unwrap();
    }
    let path = bench.path();
    drop(bench.store);
    let of_all = ("operation", OperationQuery::default());
    let of_thread = ("operation_change_namespace", OperationQuery::new(Some(a), 0));
    for (table, query) in [of_all, of_thread] {
        let mut errors = Vec::new();
        each_swapped(&path, table, &mut |store| match pages(&store, &query) {
            Ok(has_ended) => assert!(has_ended, "{table}"),
            Err(error) => errors.push(error.to_string()),
        });
        assert!(errors.iter().any(|error| error.contains("out of order")), "{table}: {errors:?}");
    }
}
