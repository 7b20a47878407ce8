//! The key-value memory of `langgraph-checkpoint-sqlite` (`SqliteStore`): its table `store`.

use std::time::Duration;

use annals::rusqlite::{self, Row};
use annals::store::log::{KvChange, KvNamespace};
use annals_base::{Encoded, Timestamp, Value};
use annals_import::SourceDatabase;
use serde_json::Value as Json;

/// An item of the memory, as the changes that store it.
pub(super) struct MemoryItem {
    pub(super) place: String,
    pub(super) bytes: usize,
    /// Empty if the item cannot be taken.
    pub(super) changes: Result<Vec<KvChange>, String>,
}

/// Returns whether a database has the table of the memory.
pub(super) fn is_in(database: &SourceDatabase) -> bool {
    let columns = database.columns("store");
    ["prefix", "key", "value", "created_at", "updated_at"].iter().all(|name| columns.iter().any(|of| of == name))
}

/// Gives the items to a function, in the order of their updates.
pub(super) fn each<E: From<rusqlite::Error>>(
    database: &SourceDatabase,
    mut take: impl FnMut(MemoryItem) -> Result<(), E>,
) -> Result<(), E> {
    let has_lifetimes = database.columns("store").iter().any(|name| name == "ttl_minutes");
    let lifetimes = if has_lifetimes { "expires_at, ttl_minutes" } else { "NULL, NULL" };
    let sql = format!("SELECT prefix, key, value, created_at, updated_at, {lifetimes} FROM store ORDER BY updated_at");
    let mut statement = database.connection().prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(item(row)?)?;
    }
    Ok(())
}

fn item(row: &Row<'_>) -> rusqlite::Result<MemoryItem> {
    let (prefix, key): (String, String) = (row.get(0)?, row.get(1)?);
    let text = super::import::bytes(row.get_ref(2)?);
    let times = [row.get(3)?, row.get(4)?, row.get(5)?];
    let minutes = row.get(6)?;
    let place = format!("store: namespace {prefix:?}, key {key:?}");
    Ok(MemoryItem { place, bytes: text.len(), changes: changes(&prefix, &key, text, times, minutes) })
}

fn changes(
    prefix: &str,
    key: &str,
    text: &[u8],
    [created_at, updated_at, expires_at]: [Option<String>; 3],
    minutes: Option<f64>,
) -> Result<Vec<KvChange>, String> {
    let namespace = KvNamespace::new(prefix.split('.')).map_err(|error| error.to_string())?;
    let json: Json = serde_json::from_slice(text).map_err(|error| format!("value: {error}"))?;
    if !json.is_object() {
        return Err("value: it is not an object".into());
    }
    let value = Encoded::encode(&Value::from(json)).map_err(|error| error.to_string())?;
    let time = |text: &str| text.parse().or_else(|_| format!("{text}Z").parse::<Timestamp>());
    let time = |name: &str, text: Option<&str>| {
        text.map(|text| time(text).map_err(|error| format!("{name}: {error}"))).transpose()
    };
    let expires_at = time("expires_at", expires_at.as_deref())?;
    let updated_at = time("updated_at", updated_at.as_deref())?.unwrap_or(Timestamp::from_micros(0));
    let created_at = time("created_at", created_at.as_deref())?.unwrap_or(updated_at);
    let put = |now| KvChange::Put {
        namespace: namespace.clone(),
        key: key.to_owned(),
        value: value.clone(),
        now,
        expires_at,
    };
    let mut changes = vec![put(created_at)];
    if updated_at != created_at {
        changes.push(put(updated_at));
    }
    if let Some(minutes) = minutes {
        let lifetime = Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| format!("ttl_minutes: {error}"))?;
        changes.push(KvChange::SetLifetime { namespace, key: key.to_owned(), lifetime });
    }
    Ok(changes)
}
