//! The SQL of the cache.

use crate::store::sqlite::tables::text::text;
use crate::store::sqlite::tables::{TableRow, cache};

pub(super) const CACHE_PUT: &str = "INSERT INTO cache (namespace, key, expires_at, xxh3, codec, data) \
     VALUES (?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (namespace, key) DO UPDATE \
     SET expires_at = excluded.expires_at, xxh3 = excluded.xxh3, codec = excluded.codec, data = excluded.data";
pub(super) const CACHE_CLEAR: &str = "DELETE FROM cache";
pub(super) const CACHE_CLEAR_UNDER: &str = "DELETE FROM cache WHERE namespace >= ?1 AND namespace < ?2";
pub(super) const CACHE_CLEAR_NAMESPACE: &str = "DELETE FROM cache WHERE namespace = ?1";
pub(super) const CACHE_EXPIRED: &str = "DELETE FROM cache WHERE id IN (SELECT id FROM cache \
     WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
pub(super) const CACHED: &str =
    text!(cache::Row::SELECT, "WHERE namespace = ?2 AND key = ?3 AND (expires_at IS NULL OR expires_at > ?1)");
