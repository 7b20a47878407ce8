//! The statements of the key-value memory and of the cache.

/// Removes entries that have expired, the earliest first.
pub(crate) const DELETE_EXPIRED: &str = "DELETE FROM kv_entry WHERE number IN (\
     SELECT number FROM kv_entry WHERE expires_at <= $1 ORDER BY expires_at, number LIMIT $2)";

/// Removes an entry if it has expired.
pub(crate) const DELETE_IF_EXPIRED: &str = "DELETE FROM kv_entry e USING kv_namespace n \
     WHERE n.path = $1 AND e.namespace = n.number AND e.key = $2 AND e.expires_at <= $3";

/// Makes a namespace, or moves one without entries to the end of the order.
pub(crate) const PUT_NAMESPACE: &str = "INSERT INTO kv_namespace (path) VALUES ($1) ON CONFLICT (path) DO UPDATE \
     SET place = CASE WHEN EXISTS (SELECT FROM kv_entry e WHERE e.namespace = kv_namespace.number) \
     THEN kv_namespace.place ELSE excluded.place END";

pub(crate) const PUT: &str = "INSERT INTO kv_entry (namespace, key, codec, value, created_at, updated_at, expires_at) \
     SELECT n.number, $2, $3::smallint, $4, $5, $5, $6 FROM kv_namespace n WHERE n.path = $1 \
     ON CONFLICT (namespace, key) DO UPDATE SET codec = excluded.codec, value = excluded.value, \
     updated_at = excluded.updated_at, expires_at = excluded.expires_at, lifetime = NULL, vectors = NULL";

pub(crate) const DELETE: &str = "DELETE FROM kv_entry e USING kv_namespace n \
     WHERE n.path = $1 AND e.namespace = n.number AND e.key = $2";

pub(crate) const SET_VECTORS: &str = "UPDATE kv_entry e SET vectors = $3 FROM kv_namespace n \
     WHERE n.path = $1 AND e.namespace = n.number AND e.key = $2";

pub(crate) const SET_LIFETIME: &str = "UPDATE kv_entry e SET lifetime = $3 FROM kv_namespace n \
     WHERE n.path = $1 AND e.namespace = n.number AND e.key = $2";

pub(crate) const PROLONG: &str = "UPDATE kv_entry e \
     SET expires_at = CASE WHEN e.lifetime > 9223372036854775807 - $3 THEN 9223372036854775807 ELSE $3 + e.lifetime END \
     FROM kv_namespace n \
     WHERE n.path = $1 AND e.namespace = n.number AND e.key = $2 AND e.lifetime IS NOT NULL";

pub(crate) const ENTRY: &str = "SELECT n.path, e.key, e.codec, e.value, e.created_at, e.updated_at, e.expires_at \
     FROM kv_namespace n JOIN kv_entry e ON e.namespace = n.number \
     WHERE n.path = $1 AND e.key = $2 AND (e.expires_at IS NULL OR e.expires_at > $3)";

/// A page of the entries in a namespace and those inside it, after a place: all of them, or those with vectors.
pub(crate) const ENTRIES: &str = "SELECT n.path, e.key, e.codec, e.value, e.created_at, e.updated_at, e.expires_at, e.vectors, n.place, e.number \
     FROM kv_namespace n JOIN kv_entry e ON e.namespace = n.number \
     WHERE ($1::text = '' OR n.path = $1 OR starts_with(n.path, $1 || '.')) \
     AND (e.expires_at IS NULL OR e.expires_at > $2) AND ($3 = 0 OR e.vectors IS NOT NULL) \
     AND (n.place, e.number) > ($4, $5) ORDER BY n.place, e.number LIMIT $6";

pub(crate) const EXPIRED: &str = "SELECT n.path, e.key FROM kv_entry e JOIN kv_namespace n ON n.number = e.namespace \
     WHERE e.expires_at <= $1 ORDER BY e.expires_at, n.place, e.number LIMIT $2";

pub(crate) const NAMESPACES: &str = "SELECT n.path FROM kv_namespace n \
     WHERE ($1::text = '' OR n.path = $1 OR starts_with(n.path, $1 || '.')) \
     AND EXISTS (SELECT FROM kv_entry e WHERE e.namespace = n.number \
     AND (e.expires_at IS NULL OR e.expires_at > $2)) ORDER BY n.place";

pub(crate) const CACHED: &str = "SELECT w.n, c.codec, c.value \
     FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS w (namespace, key, n) \
     JOIN cache_entry c ON c.namespace = w.namespace AND c.key = w.key \
     WHERE c.expires_at IS NULL OR c.expires_at > $3";

pub(crate) const CACHE_PUT: &str = "INSERT INTO cache_entry (namespace, key, codec, value, expires_at) \
     VALUES ($1, $2, $3::smallint, $4, $5) ON CONFLICT (namespace, key) DO UPDATE \
     SET codec = excluded.codec, value = excluded.value, expires_at = excluded.expires_at";

pub(crate) const CACHE_DELETE_EXPIRED: &str = "DELETE FROM cache_entry WHERE (namespace, key) IN (\
     SELECT namespace, key FROM cache_entry WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

pub(crate) const CACHE_CLEAR: &str = "DELETE FROM cache_entry WHERE substr(namespace, 1, length($1)) = $1";

pub(crate) const CACHE_CLEAR_NAMESPACE: &str = "DELETE FROM cache_entry WHERE namespace = $1";
