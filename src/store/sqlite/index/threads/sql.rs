//! The SQL of the table of threads.

/// The facets of a thread whose row is damaged: a scan of the table.
pub(super) const FACETS_DELETE: &str = "DELETE FROM thread_facet WHERE thread = ?1";
pub(super) const CLEAR: &str = "DELETE FROM thread_facet; DELETE FROM thread_state;";
/// The threads with a facet, from before a checkpoint of the log, the newest first.
pub(super) const FACET: &str =
    "SELECT newest, thread FROM thread_facet WHERE facet = ?1 AND newest < ?2 ORDER BY newest DESC";
/// The same, after a checkpoint of the log, the oldest first.
pub(super) const FACET_OLDEST: &str =
    "SELECT newest, thread FROM thread_facet WHERE facet = ?1 AND newest > ?2 ORDER BY newest";

/// The checkpoints of root namespaces after one of the log, the newest first, each with its thread. A deleted thread
/// has no row.
pub(super) const TAIL: &str = "SELECT c.seq, t.id FROM checkpoint c CROSS JOIN namespace n ON n.id = c.namespace \
     CROSS JOIN thread t ON t.id = n.thread WHERE c.seq > ?1 AND n.path = '' ORDER BY c.seq DESC";
/// The same, the oldest first, with whether the metadata of each name a priority, or are sealed, and its namespace,
/// with its id if it has no tasks.
pub(super) const TAIL_RANKED: &str = "SELECT c.seq, t.id, coalesce(typeof(c.metadata) = 'blob' OR instr(c.metadata, ?2) > 0, 0), \
     CASE WHEN c.tasks IS NULL THEN c.id END, n.id \
     FROM checkpoint c CROSS JOIN namespace n ON n.id = c.namespace \
     CROSS JOIN thread t ON t.id = n.thread WHERE c.seq > ?1 AND n.path = '' ORDER BY c.seq";
/// The next checkpoints after one of the log, with their namespaces.
pub(super) const NEXT: &str = "SELECT seq, namespace FROM checkpoint WHERE seq > ?1 ORDER BY seq LIMIT ?2";
/// The thread of a namespace, and whether that is the root namespace. A deleted thread has no row.
pub(super) const THREAD_OF: &str = "SELECT t.id, n.path = '' FROM namespace n CROSS JOIN thread t ON t.id = n.thread \
     WHERE n.id = ?1";
/// The checkpoints after one of the log, in all namespaces, each with its thread.
pub(super) const REST: &str = "SELECT c.seq, n.thread FROM checkpoint c CROSS JOIN namespace n ON n.id = c.namespace \
     WHERE c.seq > ?1 ORDER BY c.seq";
/// The checkpoints of a thread up to one of the log.
pub(super) const CHECKPOINTS_OF_THREAD: &str = "SELECT c.seq FROM namespace n \
     CROSS JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = ?1 AND c.seq <= ?2";
/// True if a checkpoint of a thread was pruned.
pub(super) const HAS_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM namespace n \
     CROSS JOIN checkpoint c ON c.namespace = n.id WHERE n.thread = ?1 AND c.source < 0)";
/// The values that were put at a position before an ordinal, on the same branch.
pub(super) const OLDER_PUTS: &str = "SELECT value FROM item WHERE branch = ?1 AND channel = ?2 AND slot = ?3 \
     AND ordinal < ?4 AND op = 1";
/// The number of checkpoints after one of the log.
pub(super) const BEHIND: &str = "SELECT count(*) FROM checkpoint WHERE seq > ?1";
/// All threads with a root namespace.
pub(super) const ROOTS: &str =
    "SELECT t.id, n.id FROM thread t CROSS JOIN namespace n ON n.thread = t.id AND n.path = '' ORDER BY t.id";
