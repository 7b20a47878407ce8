//! The SQL of the keys of a store. Values are always bound.

pub(super) const STORE_KEY_SEALED: &str = "SELECT sealed FROM store_key WHERE id = ?1";
/// The caller's key changes: the root key is sealed anew, and secure deletion overwrites the row before.
pub(super) const STORE_KEY_UPDATE: &str = "UPDATE store_key SET caller = ?1, sealed = ?2 WHERE id = 0";
/// Returns true if nothing was ever written to the tables that every store has.
pub(super) const IS_WITHOUT_CONTENT: &str = "SELECT NOT EXISTS (SELECT 1 FROM thread) AND \
     NOT EXISTS (SELECT 1 FROM name) AND NOT EXISTS (SELECT 1 FROM blob) AND NOT EXISTS (SELECT 1 FROM payload) AND \
     NOT EXISTS (SELECT 1 FROM tombstone) AND NOT EXISTS (SELECT 1 FROM high_water)";
