//! The SQL functions that decode columns of the file.
//!
//! A connection of this library has them; views for other programs do without. *Absent:* what follows from several
//! rows, such as the steps of a checkpoint.

use super::SqliteBackend;
use super::rows::pack::{unpack_ranges, unpack_tasks};
use crate::base::{Codec, Value, decode_bytes};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

impl SqliteBackend {
    /// Adds functions to a connection that decode columns of the file. A value of another kind gives NULL.
    ///
    /// | function | result |
    /// | --- | --- |
    /// | `annals_id(id)` | an id of 16 bytes as a hyphenated text; a text as it is |
    /// | `annals_json(value)` | an encoded value as JSON; of a sealed value, NULL |
    /// | `annals_tasks(tasks)` | the tasks of a checkpoint: a JSON list of pairs of an id and a `name.id` |
    /// | `annals_ranges(value)` | the ranges of a range delete: a JSON list of pairs of a first position and an end |
    ///
    /// # Errors
    /// Those of SQLite.
    ///
    /// # Example
    /// ```
    /// use annals::rusqlite::Connection;
    /// use annals::store::SqliteBackend;
    ///
    /// # fn main() -> Result<(), annals::rusqlite::Error> {
    /// let connection = Connection::open_in_memory()?;
    /// SqliteBackend::add_functions(&connection)?;
    /// let json: String = connection.query_row("SELECT annals_json(x'93010203')", [], |row| row.get(0))?;
    /// assert_eq!(json, "[1,2,3]");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_functions(connection: &Connection) -> Result<()> {
        let functions: [(&str, fn(&[u8]) -> Option<String>); 3] =
            [("annals_json", json), ("annals_tasks", tasks), ("annals_ranges", ranges)];
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
        for (name, decode) in functions {
            let call = move |call: &Context<'_>| Ok(call.get_raw(0).as_blob().ok().and_then(decode));
            connection.create_scalar_function(name, 1, flags, call)?;
        }
        connection.create_scalar_function("annals_id", 1, flags, |call| Ok(id(call.get_raw(0))))
    }
}

fn id(column: ValueRef<'_>) -> Option<String> {
    match column {
        ValueRef::Blob(id) => uuid::Uuid::from_slice(id).ok().map(|id| id.hyphenated().to_string()),
        ValueRef::Text(id) => std::str::from_utf8(id).ok().map(str::to_owned),
        _ => None,
    }
}

fn json(bytes: &[u8]) -> Option<String> {
    let value: Value = decode_bytes(Codec::MsgPack, bytes).ok()?;
    Some(value.to_json().to_string())
}

fn tasks(bytes: &[u8]) -> Option<String> {
    let tasks = unpack_tasks(bytes)?.into_iter().map(|task| format!("[\"{}\",{}]", task.id, task.node));
    Some(format!("[{}]", tasks.collect::<Vec<_>>().join(",")))
}

fn ranges(bytes: &[u8]) -> Option<String> {
    let ranges = unpack_ranges(bytes)?.into_iter().map(|range| format!("[{},{}]", range.first, range.end));
    Some(format!("[{}]", ranges.collect::<Vec<_>>().join(",")))
}
