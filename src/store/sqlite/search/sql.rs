//! The SQL of searches.

/// The branches whose rows are read: those of one thread, or of all. A deleted thread has no row.
macro_rules! branches {
    ($($where:literal)?) => {
        concat!(
            "SELECT b.id, n.id FROM thread t CROSS JOIN namespace n ON n.thread = t.id \
             CROSS JOIN branch b ON b.namespace = n.id ",
            $($where,)?
            "ORDER BY b.id DESC"
        )
    };
}
pub(super) const BRANCHES: &str = branches!();
pub(super) const BRANCHES_OF_THREAD: &str = branches!("WHERE t.public_id = ?1 ");

/// The columns of a put that its check covers, and those of its payload.
macro_rules! put {
    ($tail:literal) => {
        concat!(
            "SELECT i.branch, i.channel, i.slot, i.ordinal, i.task, i.value, i.xxh3, p.form, p.xxh3, p.data, p.item_id, ",
            "p.kind, p.text, p.name, p.tool_calls, p.input_tokens, p.output_tokens ",
            "FROM item i CROSS JOIN payload p ON p.id = i.value WHERE i.op = 1 AND typeof(i.value) = 'integer' AND ",
            $tail
        )
    };
}
/// The puts of a branch with a payload. An inline value has no index, and so no text.
pub(super) const PUTS_OF_BRANCH: &str = put!("i.branch = ?1");
/// One put.
pub(super) const PUT: &str = put!("i.branch = ?1 AND i.channel = ?2 AND i.slot = ?3 AND i.ordinal = ?4");
/// The checkpoints of a branch.
pub(super) const CHECKPOINTS_OF_BRANCH: &str =
    "SELECT seq, ordinal FROM checkpoint WHERE namespace = ?1 AND branch = ?2";
