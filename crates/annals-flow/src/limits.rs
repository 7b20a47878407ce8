//! The limits of a workflow file and of its run.

use std::time::Duration;

/// Bytes of a workflow file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Nodes of a workflow file.
pub const NODES_MAX: usize = 1_000;
/// Channels of a workflow file.
pub const CHANNELS_MAX: usize = 256;
/// Targets of the edges of a workflow file, all nodes together.
pub const EDGES_MAX: usize = 10_000;
/// Bytes of a name of a node or a channel.
pub const NAME_BYTES_MAX: usize = 128;
/// Levels of tables and lists in a workflow file, and of workflow files in each other.
pub const DEPTH_MAX: usize = 32;
/// Bytes of an expression.
pub const EXPRESSION_BYTES_MAX: usize = 4_096;
/// Bytes that a command may print on stdout.
pub const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the body of a response.
pub const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// Redirects that a request follows.
pub const REDIRECTS_MAX: u32 = 5;
/// The time that a request without `timeout` may take.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Bytes at the end of stderr that the error of a command shows.
pub const STDERR_BYTES_MAX: usize = 4_096;
/// Items of a list that a node with `each` maps.
pub const EACH_ITEMS_MAX: usize = 10_000;
/// Items of a list that are mapped at a time.
pub const PARALLEL_MAX: usize = 64;
/// Attempts of a node.
pub const ATTEMPTS_MAX: i64 = 1_000;
/// Supersteps of a run.
pub const SUPERSTEPS_MAX: u64 = 10_000;
/// A duration in a workflow file: 366 days.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);
/// The lease of a run that a process makes without a worker.
pub const LEASE: Duration = Duration::from_secs(10);
