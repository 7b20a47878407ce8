//! The statements of the vectors and lifetimes of the key-value memory, and of its expiry.

use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::sql::kv;
use crate::store::sqlite::tables::text::text;
use crate::store::sqlite::tables::{TableRow, kv_vector};

/// An entry, expired or not.
pub(super) const ENTRY: &str = engine_sql::KV_ENTRY;
pub(super) const PROLONG: &str = "UPDATE kv SET expires_at = ?2, xxh3 = ?3, data = ?4 WHERE id = ?1";
pub(super) const EXPIRED: &str = "SELECT k.id, n.path, k.key FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace \
     WHERE k.expires_at IS NOT NULL AND k.expires_at <= ?1 ORDER BY k.expires_at LIMIT ?2";

pub(super) const VECTORS_DELETE: &str = "DELETE FROM kv_vector WHERE entry = ?1";
pub(super) const VECTORS: &str = text!(kv_vector::Row::SELECT, "WHERE entry = ?1 ORDER BY position");
/// The entries of a namespace that have vectors.
pub(super) const INDEXED: &str = text!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace WHERE k.namespace = ?1 \
     AND EXISTS (SELECT 1 FROM kv_vector v WHERE v.entry = k.id) ORDER BY k.id"
);
/// Returns 1 if an entry has vectors.
pub(super) const HAS_VECTORS: &str = "SELECT EXISTS (SELECT 1 FROM kv_vector)";
/// The entries that have vectors or a lifetime.
pub(super) const CHECK_BESIDE_ENTRY: &str = text!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace \
     WHERE k.id IN (SELECT entry FROM kv_vector UNION SELECT entry FROM kv_lifetime) ORDER BY k.id"
);

pub(super) const LIFETIME_SET: &str = "INSERT INTO kv_lifetime (entry, lifetime, xxh3) VALUES (?1, ?2, ?3) \
     ON CONFLICT (entry) DO UPDATE SET lifetime = excluded.lifetime, xxh3 = excluded.xxh3";
