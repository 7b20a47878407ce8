//! Views and functions of `annals sql`, which show encoded values as JSON.
//!
//! The file is read by any SQLite, so its own views show scalars. The connection of this command has functions of the
//! library, and temporary views of the same names that use them: a query reads these, and `main.v_state` is the view of
//! the file. *Absent:* writing.

use annals::base::{CheckpointId, Codec, Namespace, Value, decode_bytes};
use annals::rusqlite::functions::{Context, FunctionFlags};
use annals::rusqlite::types::ValueRef;
use annals::rusqlite::{Connection, Error as SqlError};
use annals::store::{Store, StoreError};

/// The functions that a query may call.
pub(crate) const FUNCTIONS: [&str; 2] = [
    "annals_json(value): JSON of an encoded value",
    "annals_value(thread, namespace, checkpoint, channel): JSON of a channel",
];

/// The query of the views of the file with their columns.
pub(crate) const COLUMNS: &str = include_str!("sql/columns.sql");

/// The temporary views.
const VIEWS: &str = include_str!("sql/views.sql");

/// Adds the functions and the views to a connection. `store` reads the states for them.
pub(crate) fn add(connection: &Connection, store: &Store) -> Result<(), SqlError> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("annals_json", 1, flags, |call| Ok(decoded(call)))?;
    let store = store.clone();
    connection.create_scalar_function("annals_value", 4, flags, move |call| value(call, &store))?;
    connection.execute_batch(VIEWS)
}

/// Returns an encoded value as JSON; `None` if the bytes are not one, as those of a sealed value.
fn decoded(call: &Context<'_>) -> Option<String> {
    let ValueRef::Blob(bytes) = call.get_raw(0) else { return None };
    let value: Value = decode_bytes(Codec::MsgPack, bytes).ok()?;
    Some(value.to_json().to_string())
}

/// Returns the value of a channel at a checkpoint as JSON; `None` if the channel is empty there.
fn value(call: &Context<'_>, store: &Store) -> Result<Option<String>, SqlError> {
    let text = |at: usize| call.get_raw(at).as_str().map_err(|error| SqlError::UserFunctionError(Box::new(error)));
    let id = match call.get_raw(2) {
        ValueRef::Null => return Ok(None),
        ValueRef::Blob(bytes) => {
            bytes.try_into().map(|id| CheckpointId::from_bytes(id).to_string()).unwrap_or_default()
        }
        _ => text(2)?.to_owned(),
    };
    let (thread, namespace, channel) = (text(0)?, text(1)?, text(3)?);
    let read = || -> Result<Option<Value>, StoreError> {
        let thread = store.thread(thread)?.with_namespace(Namespace::new(namespace)?);
        thread.at(&id)?.get(channel)
    };
    let value = read().map_err(|error| SqlError::UserFunctionError(Box::new(error)))?;
    Ok(value.map(|value| value.to_json().to_string()))
}
