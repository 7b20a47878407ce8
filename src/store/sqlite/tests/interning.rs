//! Names and their caches: the text of an id stays true, and readers look up the id of a text.

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::schema::statements;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::sql;
use rusqlite::Connection;
use std::sync::Arc;

/// A file with names alone, whose rows may be changed.
fn file() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&statements(sql::SCHEMA)).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
    conn
}

fn reason<T: std::fmt::Debug>(result: Res<T>) -> String {
    match result.unwrap_err() {
        Fault::Store(StoreError::Corrupt { place, reason }) => format!("{place}: {reason}"),
        fault => panic!("{fault:?}"),
    }
}

#[test]
fn a_name_is_found_under_its_kind() {
    let conn = file();
    let names = Names::default();
    names.insert(&conn, Kind::Channel, "a", 1).unwrap();
    names.insert(&conn, Kind::Node, "a", 2).unwrap();
    names.insert(&conn, Kind::List, "b", 3).unwrap();
    for names in [&names, &Names::default(), &Names::of_readers()] {
        for _ in 0..2 {
            assert_eq!(names.find(&conn, Kind::Channel, "a").unwrap(), Some(1));
            assert_eq!(names.find(&conn, Kind::Node, "a").unwrap(), Some(2));
            assert_eq!(names.find(&conn, Kind::Path, "a").unwrap(), None);
            assert_eq!(names.find(&conn, Kind::Channel, "b").unwrap(), None);
            assert_eq!(&*names.text(&conn, Kind::Channel, 1).unwrap(), "a");
            assert_eq!(&*names.text(&conn, Kind::Node, 2).unwrap(), "a");
            assert_eq!(&*names.text(&conn, Kind::List, 3).unwrap(), "b");
        }
    }
}

#[test]
fn an_id_of_another_kind_or_of_no_name_is_damage() {
    let conn = file();
    let names = Names::default();
    names.insert(&conn, Kind::Node, "a", 2).unwrap();
    for names in [&names, &Names::default(), &Names::of_readers()] {
        for _ in 0..2 {
            let other = reason(names.text(&conn, Kind::Channel, 2));
            assert_eq!(other, "name 2: kind 1 stands for a Channel");
            let none = reason(names.text(&conn, Kind::Node, 5));
            assert_eq!(none, "name 5: a row refers to it, but it does not exist");
            assert_eq!(&*names.text(&conn, Kind::Node, 2).unwrap(), "a");
        }
    }
    conn.execute("UPDATE name SET text = 'b'", []).unwrap();
    assert_eq!(reason(Names::default().text(&conn, Kind::Node, 2)), "name 2: the check of the row does not match");
}

#[test]
fn texts_are_read_once() {
    let conn = file();
    for (id, text) in [(1, "a"), (2, "b"), (3, "c")] {
        Names::default().insert(&conn, Kind::Channel, text, id).unwrap();
    }
    for names in [Names::default(), Names::of_readers()] {
        let all = || -> Vec<Arc<str>> { (1..4).map(|id| names.text(&conn, Kind::Channel, id).unwrap()).collect() };
        let first = all();
        assert_eq!(first, ["a".into(), "b".into(), "c".into()]);
        let again = all();
        assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
    }
}

#[test]
fn a_reader_finds_the_new_id_of_a_name_that_was_erased_and_interned_again() {
    let conn = file();
    let (writer, reader) = (Names::default(), Names::of_readers());
    writer.insert(&conn, Kind::Channel, "a", 1).unwrap();
    assert_eq!(reader.find(&conn, Kind::Channel, "a").unwrap(), Some(1));
    assert_eq!(reader.text(&conn, Kind::Channel, 1).unwrap(), "a".into());
    conn.execute("DELETE FROM name", []).unwrap();
    assert_eq!(reader.find(&conn, Kind::Channel, "a").unwrap(), None);
    assert_eq!(writer.find(&conn, Kind::Channel, "a").unwrap(), Some(1), "the writer knows of erasures");
    Names::default().insert(&conn, Kind::Channel, "a", 7).unwrap();
    assert_eq!(reader.find(&conn, Kind::Channel, "a").unwrap(), Some(7));
    let later = Names::default();
    assert_eq!(later.find(&conn, Kind::Channel, "a").unwrap(), Some(7));
    conn.execute("DELETE FROM name", []).unwrap();
    assert_eq!(later.find(&conn, Kind::Channel, "a").unwrap(), Some(7), "it was found before");
}
