//! The views of `annals sql` that decode what the views of the file leave encoded.
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

/// The views of the file with their columns.
pub(crate) const COLUMNS: &str = "SELECT v.name, group_concat(c.name, ', ' ORDER BY c.cid) FROM main.sqlite_schema v \
     JOIN pragma_table_info(v.name) c WHERE v.type = 'view' GROUP BY v.name ORDER BY v.name";

/// The bytes of a payload, or of a value that is stored in its row.
macro_rules! encoded {
    ($of:literal) => {
        concat!(
            "coalesce(",
            $of,
            ".inline, (SELECT coalesce((SELECT b.data FROM main.blob b \
             WHERE b.id = p.data AND typeof(p.data) = 'integer'), p.data) FROM main.payload p \
             WHERE p.id = ",
            $of,
            ".payload AND p.form < 4))"
        )
    };
}

/// Channels that only trigger nodes, and the values of the executor, are left out; the result of a workflow is not.
const VIEWS: &str = concat!(
    "CREATE TEMP VIEW v_state AS SELECT s.thread, s.namespace, s.channel, s.seq, s.version, s.kind, s.payload, \
       s.inline, coalesce(s.json, annals_value(s.thread, s.namespace, \
         (SELECT k.id FROM main.checkpoint k WHERE k.seq = s.seq), s.channel)) AS json \
     FROM main.v_state s WHERE s.channel NOT LIKE 'branch:to:%' AND s.channel NOT LIKE 'join:%' \
       AND (substr(s.channel, 1, 2) <> '__' OR s.channel = '__end__');
     CREATE TEMP VIEW v_channel_versions AS SELECT v.thread, v.namespace, v.branch, v.ordinal, v.seq, v.channel, v.key, \
       v.version, v.kind, v.task, v.payload, v.inline, coalesce(v.json, annals_json(",
    encoded!("v"),
    ")) AS json FROM main.v_channel_versions v;
     CREATE TEMP VIEW v_writes AS SELECT w.thread, w.namespace, w.checkpoint, w.task, w.idx, w.part, w.channel, \
       w.consumed_by, w.path, w.payload, w.inline, w.seq, w.position, coalesce(w.json, annals_json(",
    encoded!("w"),
    ")) AS json FROM main.v_writes w;
     CREATE TEMP VIEW v_signals AS SELECT s.thread, s.name, s.position, s.seq, s.sent_at, s.received_at, s.payload, \
       s.inline, coalesce(s.json, annals_json(",
    encoded!("s"),
    ")) AS json FROM main.v_signals s;
     CREATE TEMP VIEW v_steps AS SELECT s.thread, s.namespace, s.seq, s.checkpoint, s.step, s.position, s.task, s.node, \
       s.state, s.started_at, s.ended_at, s.seconds, s.error, s.attempt, s.handled, s.is_call, s.wake_at, s.attempts, \
       coalesce(s.result, (SELECT annals_json(",
    encoded!("w"),
    ") FROM main.v_writes w WHERE w.seq = s.seq AND w.task = s.task AND w.idx >= 0 \
         AND w.channel IN ('__return__', '__end__') LIMIT 1)) AS result FROM main.v_steps s;
     CREATE TEMP VIEW v_operations AS SELECT o.seq, o.operation, o.kind, o.at, coalesce(o.actor, \
       (SELECT k.metadata ->> '$.actor' FROM main.checkpoint k WHERE o.operation IS NULL AND k.seq = o.seq \
         AND typeof(k.metadata) = 'text' AND json_valid(k.metadata))) AS actor, o.thread, o.run, o.checkpoint, o.changes \
     FROM main.v_operations o;"
);

/// Adds the functions and the views to a connection. `store` reads the states for them.
pub(crate) fn add(connection: &Connection, store: &Store) -> Result<(), SqlError> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("annals_json", 1, flags, |call| Ok(decoded(call)))?;
    let store = store.clone();
    connection.create_scalar_function("annals_value", 4, flags, move |call| value(call, &store))?;
    connection.execute_batch(VIEWS)
}

/// Returns an encoded value as JSON; `None` for what is not one, as a sealed value.
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
