//! Transactions on the tables of an application. A backend without SQL refuses them before it calls the function.

use super::build::*;

/// Adds a row in a transaction, with a batch.
fn insert(backend: &dyn Log, n: i64, batch: Option<Batch>) -> Result<(), StoreError> {
    backend.transact(&mut |tx| {
        tx.execute("INSERT INTO app_case (n) VALUES (?1)", [n])?;
        Ok(batch.clone())
    })
}

fn rows(backend: &dyn Log) -> Vec<i64> {
    let mut rows = Vec::new();
    let read = backend.transact(&mut |tx| {
        rows = tx.query("SELECT n FROM app_case ORDER BY rowid", (), |row| row.get(0))?;
        Ok(None)
    });
    read.expect("rows are read");
    rows
}

fn record_of(place: &CasePlace<'_>, text: &str) -> Batch {
    place.pending(1, writes(1, 9, vec![write(0, "x", text)]))
}

pub(super) fn together(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).tasks(&["x"]));
    let mut calls = 0;
    let made = backend.transact(&mut |tx| {
        calls += 1;
        tx.execute_batch("CREATE TABLE app_case (n INTEGER NOT NULL)").map(|()| None)
    });
    if matches!(made, Err(StoreError::Unsupported { .. })) {
        assert_eq!(calls, 0, "a function whose statements cannot run is not called");
        return;
    }
    made.expect("a table is made");
    assert_eq!(calls, 1, "the function runs once");
    insert(backend, 1, Some(record_of(&place, "first"))).expect("a row and a record are stored");
    assert_eq!(rows(backend), [1]);
    let mut found = None;
    let read = backend.transact(&mut |tx| {
        found = tx.write_of(&place.point(1), &task(9), 0)?;
        let others = [(9, 1), (8, 0)].map(|(of, index)| tx.write_of(&place.point(1), &task(of), index));
        assert!(others.iter().all(|other| matches!(other, Ok(None))));
        Ok(None)
    });
    read.expect("a write is read");
    assert_eq!(found.expect("the record is stored").data, b"first");

    // A batch that is refused, a function that fails, and a statement that is not allowed leave nothing.
    place.add(on(2, 1));
    let refused = insert(backend, 2, Some(record_of(&place, "second")));
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let failed = backend.transact(&mut |tx| {
        tx.execute("INSERT INTO app_case VALUES (3)", ())?;
        Err(StoreError::ReadOnly)
    });
    assert!(matches!(failed, Err(StoreError::ReadOnly)), "{failed:?}");
    let null = backend.transact(&mut |tx| tx.execute("INSERT INTO app_case VALUES (NULL)", ()).map(|_| None));
    assert!(matches!(null, Err(StoreError::Sql { constraint: Some(_), .. })), "{null:?}");
    let other = backend.transact(&mut |tx| tx.execute("CREATE TABLE case_of (n)", ()).map(|_| None));
    assert!(matches!(other, Err(StoreError::Sql { constraint: None, .. })), "{other:?}");
    assert_eq!(rows(backend), [1]);
}
