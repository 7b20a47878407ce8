//! The statements of the vectors and lifetimes of the key-value memory, and of its expiry.

use crate::store::sqlite::sql::kv;
use crate::store::sqlite::tables::text::text;

pub(super) const EXPIRED: &str = "SELECT k.id, n.path, k.key FROM kv k LEFT JOIN kv_namespace n ON n.id = k.namespace \
     WHERE k.expires_at IS NOT NULL AND k.expires_at <= ?1 ORDER BY k.expires_at LIMIT ?2";

/// The entries of a namespace that have vectors.
pub(super) const INDEXED: &str = text!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace WHERE k.namespace = ?1 \
     AND EXISTS (SELECT 1 FROM kv_vector v WHERE v.entry = k.id) ORDER BY k.id"
);
/// The entries that have vectors or a lifetime.
pub(super) const CHECK_BESIDE_ENTRY: &str = text!(
    kv!(),
    "FROM kv k JOIN kv_namespace n ON n.id = k.namespace \
     WHERE k.id IN (SELECT entry FROM kv_vector UNION SELECT entry FROM kv_lifetime) ORDER BY k.id"
);

pub(super) const LIFETIME_SET: &str = "INSERT INTO kv_lifetime (entry, lifetime, xxh3) VALUES (?1, ?2, ?3) \
     ON CONFLICT (entry) DO UPDATE SET lifetime = excluded.lifetime, xxh3 = excluded.xxh3";
