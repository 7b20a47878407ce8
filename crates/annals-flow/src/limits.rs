//! The limits of a workflow file and of its run.

use std::time::Duration;

/// Bytes of a workflow file.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;
/// Nodes of a workflow file.
pub(crate) const NODES_MAX: usize = 1_000;
/// Channels of a workflow file.
pub(crate) const CHANNELS_MAX: usize = 256;
/// Targets of the edges of a workflow file, all nodes together.
pub(crate) const EDGES_MAX: usize = 10_000;
/// Bytes of a name of a node or a channel.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Levels of tables and lists in a workflow file, and of workflow files in each other.
pub(crate) const DEPTH_MAX: usize = 32;
/// Bytes of an expression.
pub(crate) const EXPRESSION_BYTES_MAX: usize = 4_096;
/// Bytes that a command may print on stdout.
pub(crate) const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the body of a response.
pub(crate) const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// Redirects that a request follows.
pub(crate) const REDIRECTS_MAX: u32 = 5;
/// The time that a request without `timeout` may take.
pub(crate) const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Bytes at the end of stderr that the error of a command shows.
pub(crate) const STDERR_BYTES_MAX: usize = 4_096;
/// Bytes at the end of stdout and of stderr that are stored of a command, each.
pub(crate) const LOG_BYTES_MAX: usize = 64 << 10;
/// Bytes at the end of each output that are stored of the command of an item, of which a step can have 10,000.
pub(crate) const LOG_ITEM_BYTES_MAX: usize = 4 << 10;
/// Characters of an item that stand in the log of its command.
pub(crate) const LOG_ITEM_CHARS_MAX: usize = 200;
/// The time between two commits of what a running command prints.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Patterns of `redact`.
pub(crate) const REDACT_PATTERNS_MAX: usize = 100;
/// Characters of a pattern of `redact` before its first `*`, at least.
pub(crate) const REDACT_CHARS_MIN: usize = 3;
/// Bytes of a pattern of `redact`.
pub(crate) const REDACT_BYTES_MAX: usize = 256;
/// Files of a node with `files`.
pub(crate) const FILES_MAX: usize = 100;
/// Bytes of a file that is a result.
pub(crate) const RESULT_FILE_BYTES_MAX: u64 = 16 << 30;
/// The time that the command of a notification may take.
pub(crate) const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interrupts for which a process remembers that its person was notified.
pub(crate) const NOTIFIED_MAX: usize = 10_000;
/// Items of a list that a node with `each` maps.
pub(crate) const EACH_ITEMS_MAX: usize = 10_000;
/// Items of a list that are mapped at a time.
pub(crate) const PARALLEL_MAX: usize = 64;
/// Values of the `choices` of a node with `ask`.
pub(crate) const CHOICES_MAX: usize = 100;
/// Attempts of a node.
pub(crate) const ATTEMPTS_MAX: i64 = 1_000;
/// Supersteps of a run.
pub(crate) const SUPERSTEPS_MAX: u64 = 10_000;
/// A duration in a workflow file: 366 days.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);
/// The lease of a run that a process makes without a worker.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// The longest pause between two looks at a node that waits.
pub(crate) const WAIT_LOOK: Duration = Duration::from_millis(200);
/// The first pause between two looks at a command that runs.
pub(crate) const COMMAND_LOOK_MIN: Duration = Duration::from_millis(1);
/// The longest pause between two looks at a command that runs.
pub(crate) const COMMAND_LOOK_MAX: Duration = Duration::from_millis(20);
/// The time for which the pipes of a command that has ended may stay open.
pub(crate) const PIPE_GRACE: Duration = Duration::from_secs(5);
/// The time between two looks of a request at the cancellation of its run.
pub(crate) const REQUEST_LOOK: Duration = Duration::from_millis(50);
/// Characters of the body that the error of a status shows.
pub(crate) const ERROR_BODY_CHARS_MAX: usize = 400;

const _: () = assert!(COMMAND_LOOK_MIN.as_nanos() < COMMAND_LOOK_MAX.as_nanos());
const _: () = assert!(COMMAND_LOOK_MAX.as_nanos() < PIPE_GRACE.as_nanos());
// A look is soon enough for the lease of the run, which is renewed after a third of it, and for every timeout by
// default.
const _: () = assert!(WAIT_LOOK.as_nanos() < LEASE.as_nanos() / 3 && LEASE.as_nanos() < DURATION_MAX.as_nanos());
const _: () = assert!(REQUEST_LOOK.as_nanos() < REQUEST_TIMEOUT_DEFAULT.as_nanos());
const _: () = assert!(REQUEST_TIMEOUT_DEFAULT.as_nanos() < DURATION_MAX.as_nanos());
const _: () = assert!(CHOICES_MAX < NODES_MAX);
const _: () = assert!(PARALLEL_MAX <= EACH_ITEMS_MAX && NAME_BYTES_MAX < EXPRESSION_BYTES_MAX);
const _: () = assert!(EXPRESSION_BYTES_MAX < FILE_BYTES_MAX && FILE_BYTES_MAX < OUTPUT_BYTES_MAX);
const _: () =
    assert!(COMMAND_LOOK_MAX.as_nanos() < LOG_INTERVAL.as_nanos() && LOG_INTERVAL.as_nanos() < LEASE.as_nanos());
const _: () = assert!(STDERR_BYTES_MAX <= LOG_ITEM_BYTES_MAX && LOG_ITEM_BYTES_MAX < LOG_BYTES_MAX);
const _: () = assert!(LOG_BYTES_MAX < OUTPUT_BYTES_MAX && LOG_ITEM_CHARS_MAX < LOG_ITEM_BYTES_MAX);
const _: () = assert!(REDACT_CHARS_MIN < REDACT_BYTES_MAX && FILES_MAX <= CHANNELS_MAX);
const _: () =
    assert!(NOTIFY_TIMEOUT.as_nanos() < DURATION_MAX.as_nanos() && RESULT_FILE_BYTES_MAX > 0 && NOTIFIED_MAX > 0);
const _: () =
    assert!(REDACT_PATTERNS_MAX < NODES_MAX && NODES_MAX < EDGES_MAX && ERROR_BODY_CHARS_MAX < STDERR_BYTES_MAX);
