//! The SQL of pruning.

use crate::store::sqlite::tables::text::text;
use crate::store::sqlite::tables::{TableRow, checkpoint};

/// The branches of a thread.
pub(super) const BRANCHES_OF_THREAD: &str = "SELECT b.id, b.parent, b.upto, b.namespace FROM namespace n \
     CROSS JOIN branch b ON b.namespace = n.id WHERE n.thread = ?1";
/// The places at which branches of other threads leave those of a thread. A deleted one has no row in `thread`.
pub(super) const FORKED_PLACES: &str = "SELECT b.parent, b.upto FROM branch b CROSS JOIN namespace n ON n.id = b.namespace \
     CROSS JOIN thread t ON t.id = n.thread WHERE b.fork_thread = ?1";
pub(super) const LAST_ORDINAL: &str = "SELECT max(ordinal) FROM version WHERE branch = ?1";
/// The references of a list on a branch.
pub(super) const REFERENCES: &str = "SELECT value FROM item WHERE branch = ?1 AND channel = ?2 AND slot < 0 AND op = 3";
/// The greatest ids: they change when a checkpoint may have become one that cannot be pruned.
pub(super) const MARK: &str = "SELECT coalesce((SELECT max(seq) FROM checkpoint), 0), \
     coalesce((SELECT max(id) FROM branch), 0), coalesce((SELECT max(id) FROM operation), 0)";

/// The `seq` of the checkpoint at a place.
pub(super) const SEQ_AT_PLACE: &str = "SELECT ordinal + 1 + (kind >> 4) FROM version WHERE branch = ?1 \
     AND ordinal = ?2 ORDER BY key DESC LIMIT 1";
pub(super) const PARENT_SEQ: &str = "SELECT seq - parent FROM checkpoint WHERE seq = ?1";
/// The source of a checkpoint, and the column in which a pruned one has the number of those before it.
pub(super) const SOURCE_AND_PARENTS: &str = "SELECT source, parents FROM checkpoint WHERE seq = ?1";

/// The operations on more than one position, of the ordinals from one to another.
pub(super) const WHOLES_BETWEEN: &str = "SELECT slot, ordinal, op, value FROM item WHERE branch = ?1 AND channel = ?2 \
     AND slot BETWEEN -1 - ?4 AND -1 - ?3";
pub(super) const IS_REPLACED: &str = "SELECT EXISTS (SELECT 1 FROM item WHERE branch = ?1 AND channel = ?2 AND slot = ?3 \
     AND ordinal > ?4 AND ordinal <= ?5)";
pub(super) const ROWS_OF_SLOT: &str = "SELECT ordinal, op, value FROM item WHERE branch = ?1 AND channel = ?2 AND slot = ?3 \
     AND ordinal BETWEEN ?4 AND ?5";
/// All rows of a list of the ordinals from one to another.
pub(super) const ROWS_OF_RUN: &str =
    "SELECT slot, ordinal, op, value FROM item WHERE branch = ?1 AND channel = ?2 AND ordinal BETWEEN ?3 AND ?4";
pub(super) const NEXT_SLOT: &str = "SELECT slot FROM item WHERE branch = ?1 AND channel = ?2 AND slot >= ?3 AND slot < ?4 \
     ORDER BY slot LIMIT 1";
/// True if a row of a checkpoint holds a payload.
pub(super) const IS_HELD: &str = "SELECT EXISTS (SELECT 1 FROM version WHERE branch = ?1 AND ordinal = ?2 AND value = ?3) \
     OR EXISTS (SELECT 1 FROM item WHERE branch = ?1 AND ordinal = ?2 AND value = ?3)";
pub(super) const VERSIONS_DELETE: &str = "DELETE FROM version WHERE branch = ?1 AND ordinal = ?2";

/// The bytes of a payload, with those of its blobs.
pub(super) const PAYLOAD_BYTES: &str = "SELECT CASE typeof(p.data) WHEN 'integer' THEN \
     (SELECT length(b.data) FROM blob b WHERE b.id = p.data) ELSE length(p.data) END \
     + CASE typeof(p.text) WHEN 'integer' THEN (SELECT length(b.data) FROM blob b WHERE b.id = p.text) \
     ELSE coalesce(length(p.text), 0) END FROM payload p WHERE p.id = ?1";

/// Counts the number of a thread as used.
pub(super) const THREAD_USED: &str = "UPDATE high_water SET thread = max(thread, ?1)";
pub(super) const BRANCH_NAMESPACE: &str = "SELECT namespace FROM branch WHERE id = ?1";
/// True if the thread ?1 has no older checkpoint in its root namespace than its namespace ?2 has, if an operation names
/// that namespace, or if a branch of it left one of another namespace of the thread.
pub(super) const IS_NEEDED: &str = "SELECT coalesce((SELECT c.seq FROM namespace n CROSS JOIN checkpoint c ON c.namespace = n.id \
     WHERE n.thread = ?1 AND n.path = '' ORDER BY c.prefix, c.seq LIMIT 1) >= (SELECT seq FROM checkpoint \
     WHERE namespace = ?2 ORDER BY prefix, seq LIMIT 1), 1) \
     OR EXISTS (SELECT 1 FROM operation_change WHERE namespace = ?2) \
     OR EXISTS (SELECT 1 FROM branch b CROSS JOIN branch p ON p.id = b.parent WHERE b.namespace = ?2 \
     AND p.namespace <> ?2 AND b.fork_thread IS NULL)";
pub(super) const METADATA: &str = text!(checkpoint::Row::SELECT, "WHERE namespace = ?1 AND metadata IS NOT NULL");
/// The checkpoints of a namespace that are not pruned, and the payloads of its rows with their bytes.
pub(super) const SUMS_OF_NAMESPACE: &str = "SELECT \
     (SELECT count(*) FROM checkpoint WHERE namespace = ?1 AND source >= 0), count(*), coalesce(sum( \
     CASE typeof(p.data) WHEN 'integer' THEN (SELECT length(b.data) FROM blob b WHERE b.id = p.data) ELSE length(p.data) END \
     + CASE typeof(p.text) WHEN 'integer' THEN (SELECT length(b.data) FROM blob b WHERE b.id = p.text) \
     ELSE coalesce(length(p.text), 0) END), 0) FROM \
     (SELECT v.value AS id FROM branch b CROSS JOIN version v ON v.branch = b.id WHERE b.namespace = ?1 AND v.kind & 15 = 1 \
     AND typeof(v.value) = 'integer' UNION SELECT i.value FROM branch b CROSS JOIN item i ON i.branch = b.id \
     WHERE b.namespace = ?1 AND i.op = 1 AND typeof(i.value) = 'integer' UNION SELECT w.value FROM checkpoint c \
     CROSS JOIN write w ON w.checkpoint = c.seq WHERE c.namespace = ?1 AND typeof(w.value) = 'integer') s \
     CROSS JOIN payload p ON p.id = s.id";
