//! The SQL of the table of threads.

/// Thread, newest checkpoint, status, facets and check of a row.
pub(super) const STATE: &str = "SELECT thread, newest, status, facets, xxh3 FROM thread_state WHERE thread = ?1";
pub(super) const STATES: &str = "SELECT thread, newest, status, facets, xxh3 FROM thread_state ORDER BY thread";
pub(super) const STATE_PUT: &str =
    "INSERT OR REPLACE INTO thread_state (thread, newest, status, facets, xxh3) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const STATE_DELETE: &str = "DELETE FROM thread_state WHERE thread = ?1";
pub(super) const FACET_PUT: &str = "INSERT OR REPLACE INTO thread_facet (facet, newest, thread) VALUES (?1, ?2, ?3)";
pub(super) const FACET_DELETE: &str = "DELETE FROM thread_facet WHERE facet = ?1 AND newest = ?2 AND thread = ?3";
/// The facets of a thread whose row is damaged: a scan of the table.
pub(super) const FACETS_DELETE: &str = "DELETE FROM thread_facet WHERE thread = ?1";
pub(super) const CLEAR: &str = "DELETE FROM thread_facet; DELETE FROM thread_state;";
/// The threads with a facet, from before a checkpoint of the log, the newest first.
pub(super) const FACET: &str =
    "SELECT newest, thread FROM thread_facet WHERE facet = ?1 AND newest < ?2 ORDER BY newest DESC";
pub(super) const FACETS: &str = "SELECT facet, newest, thread FROM thread_facet";

/// The checkpoints of root namespaces after one of the log, the newest first, each with its thread. A deleted thread has no
/// row.
pub(super) const TAIL: &str = "SELECT c.seq, t.id FROM checkpoint c CROSS JOIN namespace n ON n.id = c.namespace \
     CROSS JOIN thread t ON t.id = n.thread WHERE c.seq > ?1 AND n.path = '' ORDER BY c.seq DESC";
/// The next checkpoints after one of the log. Those of root namespaces have their thread and namespace.
pub(super) const NEXT: &str = "SELECT c.seq, t.id, n.id FROM checkpoint c \
     LEFT JOIN namespace n ON n.id = c.namespace AND n.path = '' LEFT JOIN thread t ON t.id = n.thread \
     WHERE c.seq > ?1 ORDER BY c.seq LIMIT ?2";
/// The number of checkpoints after one of the log.
pub(super) const BEHIND: &str = "SELECT count(*) FROM checkpoint WHERE seq > ?1";
/// The id of a thread.
pub(super) const PUBLIC_ID: &str = "SELECT public_id FROM thread WHERE id = ?1";
/// All threads with a root namespace.
pub(super) const ROOTS: &str =
    "SELECT t.id, n.id FROM thread t CROSS JOIN namespace n ON n.thread = t.id AND n.path = '' ORDER BY t.id";
