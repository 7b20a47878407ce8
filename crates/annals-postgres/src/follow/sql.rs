//! The statements of followers.

use crate::sql::record_columns;

/// The checkpoints after a position, in the order of transactions: below the oldest one that has not ended.
pub(crate) const CHANGES: &str = concat!(
    "SELECT c.xact::text, ",
    record_columns!(),
    " FROM checkpoint c JOIN thread t ON t.number = c.thread \
     JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     WHERE (c.xact, c.seq) > ($1::text::xid8, $2::bigint) AND c.xact < pg_snapshot_xmin(pg_current_snapshot()) \
     AND NOT c.pruned AND ($3::text IS NULL OR t.id = $3) ORDER BY c.xact, c.seq LIMIT $4"
);

/// The position before some of the newest checkpoints.
pub(crate) const POSITION: &str = "SELECT xact::text, seq FROM checkpoint \
     WHERE xact < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xact DESC, seq DESC OFFSET $1 LIMIT 1";

/// The newest checkpoint, whether its transaction comes before all that have not ended, and the schema.
pub(crate) const NEWEST: &str = "SELECT xact::text, seq FROM checkpoint ORDER BY xact DESC, seq DESC LIMIT 1";

pub(crate) const LISTEN: &str = "LISTEN annals";

/// Tells the other processes on the same schema that something was committed. Nobody waits for the disk.
pub(crate) const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), \
     pg_notify('annals', current_schema() || ' ' || $1)";

pub(crate) const SCHEMA: &str = "SELECT current_schema()::text";
