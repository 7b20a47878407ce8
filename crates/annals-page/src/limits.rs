//! The maxima of requests and of what one page shows.

use std::time::Duration;

/// Bytes of the head of a request.
pub(crate) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;
/// Bytes of the body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of the target of a request.
pub(crate) const TARGET_BYTES_MAX: usize = 16 << 10;
/// Connections at a time of clients that have shown the token; further ones are refused.
pub(crate) const KNOWN_MAX: usize = 64;
/// Further connections at a time, of clients that have not shown it; the oldest one is closed for a new one.
pub(crate) const UNKNOWN_MAX: usize = 64;
/// Threads on which requests are answered.
pub(crate) const HANDLERS_MAX: usize = 8;
/// Time for a client to send a request, head and body together.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Time for a client to take the next part of a response: a browser that lays out a long text on a busy machine takes
/// none for a while, and would show what it has as if it were all.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(300);
/// Time and bytes that the server waits for a client to close a connection after the response.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(1);
pub(crate) const LINGER_BYTES_MAX: usize = 2 << 20;
/// Pause after a connection that the operating system did not give.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two looks at the log for a connection that follows it.
pub(crate) const LIVE_LOOK: Duration = Duration::from_millis(100);
/// Time after which a connection that follows the log and has nothing to report sends a comment.
pub(crate) const LIVE_IDLE_MAX: Duration = Duration::from_secs(5);
/// Checkpoints that one live event counts.
pub(crate) const LIVE_BATCH_MAX: usize = 1_000;

/// Threads of a page.
pub(crate) const THREADS_MAX: usize = 50;
/// Values of one facet of the threads.
pub(crate) const FACETS_MAX: usize = 8;
/// Labels of a thread in its row.
pub(crate) const LABELS_MAX: usize = 3;
/// Checkpoints of a timeline.
pub(crate) const STEPS_MAX: usize = 30;
/// Resume values of one step that a timeline shows.
pub(crate) const RESUMED_MAX: usize = 3;
/// Other branches that have a lane beside the steps.
pub(crate) const LANES_MAX: usize = 3;
/// Steps of several tasks whose tasks have rows, the tasks of each that stand open, the tasks that are read for them,
/// and the folded rows of a screen.
pub(crate) const BUNDLES_MAX: usize = 4;
pub(crate) const BUNDLE_TASKS_MAX: usize = 3;
pub(crate) const BUNDLE_READ_MAX: usize = 256;
pub(crate) const BUNDLE_FOLDED_MAX: usize = 256;
/// Interrupts of a thread that stand above its steps.
pub(crate) const CALLS_MAX: usize = 3;
/// Threads forked off a thread that its head names.
pub(crate) const FORKS_MAX: usize = 8;
/// Values of a tree in the pane of a state, and its nesting.
pub(crate) const PANE_NODES_MAX: usize = 24;
pub(crate) const PANE_DEPTH_MAX: usize = 4;
/// Branches of the tree of a thread.
pub(crate) const BRANCHES_MAX: usize = 100;
/// Messages of a page.
pub(crate) const MESSAGES_MAX: usize = 50;
/// Steps of a document without messages.
pub(crate) const DOCUMENT_STEPS_MAX: usize = 1_000;
/// Threads of one page of the index of a site, and the bytes after which it ends.
pub(crate) const INDEX_ROWS_MAX: usize = 120;
pub(crate) const INDEX_BYTES_MAX: usize = 120 << 10;
/// Bytes at the begin of a file in which the mark of a site stands.
pub(crate) const MARK_BYTES_MAX: usize = 256;
/// Bytes of a conversation as Markdown; the rest is left to the command.
pub(crate) const MARKDOWN_BYTES_MAX: usize = 16 << 20;
/// Items of a list that are shown among other channels.
pub(crate) const ITEMS_BRIEF_MAX: usize = 3;
/// Items of a list of a page.
pub(crate) const ITEMS_MAX: usize = 50;
/// Stored positions of a list that a read of changed items visits.
pub(crate) const CHANGED_ITEMS_MAX: u64 = 1_000;
/// Characters of the begin of a message in a timeline.
pub(crate) const BEGIN_CHARS_MAX: usize = 100;
/// Nodes of a value that its tree shows.
pub(crate) const TREE_NODES_MAX: usize = 400;
/// Characters of a text that stands beside its name in a tree.
pub(crate) const LINE_CHARS_MAX: usize = 100;
/// Characters of a text that are shown; the rest is a link away.
pub(crate) const TEXT_CHARS_MAX: usize = 4_000;
/// Characters of a message that are rendered; the rest is a link away.
pub(crate) const MESSAGE_CHARS_MAX: usize = 12_000;
/// Bytes of HTML that one text of Markdown adds, before the last of its parts, and nesting of its elements.
pub(crate) const PROSE_BYTES_MAX: usize = 256 << 10;
pub(crate) const PROSE_DEPTH_MAX: usize = 24;
/// Characters of the result of a tool, and of words that were replaced.
pub(crate) const FOLDED_CHARS_MAX: usize = 4_000;
/// Characters of one line of a turn, and of the end of a tool's line.
pub(crate) const TURN_CHARS_MAX: usize = 90;
pub(crate) const OUTCOME_CHARS_MAX: usize = 28;
/// Characters of the text of an interrupt or of a status.
pub(crate) const STATUS_CHARS_MAX: usize = 400;
/// Values of an evolution.
pub(crate) const VERSIONS_MAX: usize = 20;
/// Members, items or lines of the difference of one channel.
pub(crate) const DIFF_ROWS_MAX: usize = 100;
/// Lines of a text that are compared line by line.
pub(crate) const DIFF_LINES_MAX: usize = 4_000;
/// Hits of a page of a search.
pub(crate) const HITS_MAX: usize = 50;
/// Threads of one status among the runs.
pub(crate) const RUNS_MAX: usize = 50;
/// Runs that ended, the threads that are read for them, and the checkpoints of each.
pub(crate) const FINISHED_MAX: usize = 12;
pub(crate) const FINISHED_READ_MAX: usize = 60;
pub(crate) const FINISHED_STEPS_MAX: usize = 32;
/// Tasks that have not ended, of a thread among the runs.
pub(crate) const TASKS_MAX: usize = 10;
/// Interrupts of a thread that have a form each.
pub(crate) const FORMS_MAX: usize = 20;
/// Inputs of the form of an interrupt, and options of one input.
pub(crate) const INPUTS_MAX: usize = 100;
/// Values of a choice that has a button for each.
pub(crate) const BUTTONS_MAX: usize = 6;
/// Operations of the page about the store.
pub(crate) const OPERATIONS_MAX: usize = 20;
/// Problems of a check that are listed.
pub(crate) const FINDINGS_MAX: usize = 100;
/// Writes of a task that are shown.
pub(crate) const WRITES_MAX: usize = 100;
/// Tasks of a step that have rows, that are open, and the bytes of HTML after which a row has no content.
pub(crate) const STEP_TASKS_MAX: usize = 256;
pub(crate) const OPEN_TASKS_MAX: usize = 8;
pub(crate) const STEP_BYTES_MAX: usize = 96 << 10;
/// Newest checkpoints that the analytics may read.
pub(crate) const STATS_CHECKPOINTS_MAX: u64 = 50_000;
/// Checkpoints that the statistics of one thread count.
pub(crate) const STATS_OF_THREAD_MAX: usize = 10_000;
/// Periods of a plot over time, models that have a colour in it, and rows of a ranking.
pub(crate) const STATS_PERIODS_MAX: i64 = 31;
pub(crate) const STATS_MODELS_MAX: usize = 3;
pub(crate) const RANKED_MAX: usize = 8;
/// Checkpoints of a lineage in whose steps the graph is seen.
pub(crate) const GRAPH_STEPS_MAX: usize = 200;
/// Bars of a plot.
pub(crate) const BARS_MAX: usize = 40;
/// Nodes of the picture of a graph.
pub(crate) const CHART_NODES_MAX: usize = 60;
/// Threads of helpers and forks that the screen of a thread lists, those of one step, and the newest items of a list
/// that are searched for their tool calls.
pub(crate) const LINKED_MAX: usize = 50;
pub(crate) const STARTED_MAX: usize = 8;
pub(crate) const CALLED_ITEMS_MAX: usize = 2_000;
/// Subgraphs that the screen of a thread lists.
pub(crate) const SUBGRAPHS_MAX: usize = 20;
/// Steps after a point that the screen of a fork lists.
pub(crate) const REPLAYED_MAX: usize = 10;

const _: () = assert!(UNKNOWN_MAX <= KNOWN_MAX && TARGET_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX < LINGER_BYTES_MAX && LINGER_MAX.as_nanos() < IDLE_MAX.as_nanos());
const _: () = assert!(LIVE_LOOK.as_nanos() < LIVE_IDLE_MAX.as_nanos());
